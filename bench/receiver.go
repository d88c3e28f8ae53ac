package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// receiver is a fast receiver of webhooks: it reads the message, notes when, and answers 204. It verifies no signature; that would
// measure itself.
type receiver struct {
	url     string
	server  *http.Server
	serving sync.WaitGroup

	mu      sync.Mutex
	sent    map[string]time.Time // by lease: when its release was sent
	waiting int                  // releases that have not been delivered yet
	told    map[string]struct{}  // leases of which the first message has come
	took    []time.Duration
	last    time.Time // when the last first message came
	failed  error
	news    chan struct{} // of capacity one: waiting is 0, or it has failed
}

func newReceiver() *receiver {
	r := &receiver{news: make(chan struct{}, 1)}
	r.begin()
	return r
}

// begin forgets everything that was told.
func (r *receiver) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent, r.told, r.took, r.waiting, r.failed = map[string]time.Time{}, map[string]struct{}{}, nil, 0, nil
}

// listen serves on loopback until close.
func (r *receiver) listen() error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("receiver of webhooks: %w", err)
	}
	r.url = "http://" + l.Addr().String() + "/hook"
	r.server = &http.Server{Handler: r}
	r.serving.Go(func() { _ = r.server.Serve(l) }) // ends with close
	return nil
}

func (r *receiver) close() {
	_ = r.server.Close()
	r.serving.Wait()
}

// releases is called when the release of a lease is about to be sent.
func (r *receiver) releases(lease string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting++
	r.sent[lease] = time.Now()
}

// ServeHTTP takes one message.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	at := time.Now()
	w.WriteHeader(http.StatusNoContent)
	var message struct {
		Type string `json:"type"`
		Data struct {
			LeaseID string `json:"lease_id"`
		} `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal(body, &message)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	lease := message.Data.LeaseID
	sent, known := r.sent[lease]
	_, again := r.told[lease]
	switch {
	case err != nil:
		r.failed = errors.Join(r.failed, fmt.Errorf("a message: %w", err))
	case !known || message.Type != "lease.released":
		r.failed = errors.Join(r.failed, fmt.Errorf("delivery of a release that no client sent: %s", body))
	case again: // at least once: the first counts
		return
	default:
		r.told[lease] = struct{}{}
		r.took = append(r.took, at.Sub(sent))
		r.last = at
		r.waiting--
	}
	if r.waiting == 0 || r.failed != nil {
		select {
		case r.news <- struct{}{}:
		default:
		}
	}
}

var errUntold = errors.New("releases were not delivered")

// allTold returns when each release has been told, with how long each took and when the last one came.
func (r *receiver) allTold(ctx context.Context, within time.Duration) (took []time.Duration, last time.Time, err error) {
	patience := time.NewTimer(within)
	defer patience.Stop()
	for {
		r.mu.Lock()
		took, last, err = r.took, r.last, r.failed
		waiting := r.waiting
		r.mu.Unlock()
		if waiting == 0 || err != nil {
			return took, last, err
		}
		select {
		case <-r.news:
		case <-patience.C:
			return nil, last, fmt.Errorf("%w: %d of %d, %v after the last one", errUntold, waiting, waiting+len(took), within)
		case <-ctx.Done():
			return nil, last, ctx.Err()
		}
	}
}

// toldLocker is a client whose releases are told to a receiver.
type toldLocker struct {
	*httpLocker
	to *receiver
}

// Unlock implements locker.
func (l *toldLocker) Unlock(ctx context.Context) error {
	l.to.releases(l.lease)
	return l.httpLocker.Unlock(ctx)
}
