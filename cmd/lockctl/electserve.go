package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"lockkeeper/client"
)

// leader is what is known of an election.
type leader struct {
	owner string // this candidate's name

	mu    sync.Mutex
	lease *client.Lease // while this candidate leads
	name  string        // of the holder, as a gateway told last
	id    string        // of its lease
	until time.Time     // for so long name is believed
}

func newLeader(owner string) *leader { return &leader{owner: owner} }

// elected says that this candidate leads, or with nil that it does not.
func (l *leader) elected(lease *client.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease == nil && l.lease != nil && l.id == l.lease.ID() {
		l.name, l.id = "", "" // what the gateway told is over
	}
	l.lease = lease
}

// leads gives the fencing token of this candidate's term. It asks the clock, and so says no before another one can lead.
func (l *leader) leads() (fence uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil || !l.lease.Held() {
		return 0, false
	}
	return l.lease.Fence(), true
}

// leaderName is the name of the one that leads, and empty when it is not known.
func (l *leader) leaderName() string {
	if _, ok := l.leads(); ok {
		return l.owner
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease != nil && l.id == l.lease.ID() || time.Now().After(l.until) {
		return ""
	}
	return l.name
}

// polled bounds one look at the lock, which a gateway answers when something changes.
const polled = 5 * time.Second

// follow asks who leads, until ctx is over. An answer is believed for the time of a TTL.
func (l *leader) follow(ctx context.Context, c *client.Client, name, ns string, ttl time.Duration) {
	query := url.Values{"limit": {"1"}}
	if ns != "" {
		query.Set("ns", ns)
	}
	for ctx.Err() == nil {
		var lock lockView
		asked := time.Now()
		if c.Call(ctx, client.Request{Path: "/v1/locks/" + url.PathEscape(name) + "?" + query.Encode()}, &lock) != nil {
			_ = sleep(ctx, time.Second)
			continue
		}
		l.mu.Lock()
		l.name, l.id, l.until = "", "", asked.Add(max(ttl, 2*polled))
		for _, h := range lock.Holders {
			if !h.Delayed {
				l.name, l.id = h.name(), h.LeaseID
				break
			}
		}
		l.mu.Unlock()
		query.Set("wait", polled.String())
		query.Set("since", lock.Rev)
		_ = sleep(ctx, 50*time.Millisecond) // a queue that changes all the time
	}
}

// serveLeader answers programs beside this one. The function that it returns ends that.
func serveLeader(listener net.Listener, l *leader) (stop func()) {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, struct {
			Name string `json:"name"`
		}{l.leaderName()})
	})
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		fence, ok := l.leads()
		status := http.StatusOK
		if !ok {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, struct {
			Leader bool   `json:"leader"`
			Fence  uint64 `json:"fencing_token,omitempty"`
		}{ok, fence})
	})
	server := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	go server.Serve(listener)
	return func() { server.Close() }
}
