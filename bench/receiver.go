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

// receiver is a fast receiver of webhooks: it reads a message, notes its lease, and answers 204. It verifies no signature; that would
// measure itself.
type receiver struct {
	url     string
	server  *http.Server
	serving sync.WaitGroup

	mu     sync.Mutex
	told   map[string]struct{} // leases of which a message has come
	last   messageOrder        // the last message, as an order to send the like
	failed error
}

// listen serves on loopback until close.
func (r *receiver) listen() error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("receiver of webhooks: %w", err)
	}
	r.url = "http://" + l.Addr().String() + "/hook"
	r.told = map[string]struct{}{}
	r.server = &http.Server{Handler: r}
	r.serving.Go(func() { _ = r.server.Serve(l) }) // ends with close
	return nil
}

func (r *receiver) close() {
	_ = r.server.Close()
	r.serving.Wait()
}

// ServeHTTP takes one message.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
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
	if err != nil || message.Type != "lease.released" {
		r.failed = errors.Join(r.failed, fmt.Errorf("a message %s: %w", body, err))
	}
	r.told[message.Data.LeaseID] = struct{}{} // at least once: one that comes again counts no more
	r.last = messageOrder{URL: r.url, Header: req.Header, Body: string(body)}
}

// toldWithin is how long deliveries may take after the last release.
const toldWithin = 20 * time.Second

// allTold returns when so many releases were delivered, and forgets them.
func (r *receiver) allTold(ctx context.Context, releases int) error {
	ctx, cancel := context.WithTimeout(ctx, toldWithin)
	defer cancel()
	for {
		r.mu.Lock()
		told, err := len(r.told), r.failed
		if told >= releases {
			clear(r.told)
		}
		r.mu.Unlock()
		if err != nil || told >= releases {
			return err
		}
		if err := wait(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d releases were delivered: %w", told, releases, err)
		}
	}
}
