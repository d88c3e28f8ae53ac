package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The dashboard with very many locks: leases are held while its pages are asked for.
const (
	overviewLocks   = 100_000
	overviewClients = 64 // that acquire them
	overviewAsks    = 200
	overviewTTL     = "1h"
)

// page is a page that is measured.
type page struct{ name, path string }

var pages = []page{
	{"the first page", "/"},
	{"`q=9999`: some match", "/?q=9999"},
	{"`q=nothing-has-this-name`: every name is looked at", "/?q=nothing-has-this-name"},
	{"one lock", "/locks/many-000100"},
}

// overview is what asking for the pages gave.
type overview struct {
	locks    int
	filled   time.Duration // taking all the locks
	latency  [][]time.Duration
	resident float64
}

// crowdedOverview takes many locks, one after the other through many clients, and asks for the dashboard's pages one at a
// time. The leases stay: the run ends with it.
func (r *rig) crowdedOverview(ctx context.Context, locks, asks int) (*overview, error) {
	if err := r.forgetLog(); err != nil {
		return nil, err
	}
	o := &overview{locks: locks, latency: make([][]time.Duration, len(pages))}
	begun := time.Now()
	if err := r.http.fill(ctx, locks); err != nil {
		return nil, fmt.Errorf("taking %d locks: %w\nthe end of the gateway's log:\n%s", locks, err, r.logTail())
	}
	o.filled = time.Since(begun)
	for range asks {
		for i, p := range pages {
			sent := time.Now()
			if err := r.http.do(ctx, http.MethodGet, r.http.base+p.path, "", http.StatusOK, nil); err != nil {
				return nil, fmt.Errorf("%s: %w", p.path, err)
			}
			o.latency[i] = append(o.latency[i], time.Since(sent))
		}
	}
	var err error
	o.resident, err = residentOf(r.gateway.PID())
	return o, err
}

// fill takes locks, each wanted once, through many clients.
func (h *httpClients) fill(ctx context.Context, locks int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var filling sync.WaitGroup
	for range overviewClients {
		filling.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1)
				if i > int64(locks) {
					return
				}
				url := fmt.Sprintf("%s/v1/locks/many-%06d/leases?ttl=%s&owner=bench", h.base, i, overviewTTL)
				if err := h.do(ctx, http.MethodPost, url, "", http.StatusCreated, nil); err != nil {
					cancel(err)
				}
			}
		})
	}
	filling.Wait()
	return context.Cause(ctx)
}

// render writes the table.
func (o *overview) render(b *strings.Builder) {
	fmt.Fprintf(b, "\n### The dashboard with %s held locks\n\n| page, from the request to its last byte | p50 | p99 |\n|---|---|---|\n", thousands(float64(o.locks)))
	for i, p := range pages {
		s := sample{latency: map[string][]time.Duration{answering: o.latency[i]}}
		fmt.Fprintf(b, "| %s | %.2f ms | %.2f ms |\n", p.name, percentileOf(answering, 50)(s)*1e3, percentileOf(answering, 99)(s)*1e3)
	}
	fmt.Fprintf(b, "\nTaking the locks took %.1f s (%s a second); then the gateway used %.0f MB.\n",
		o.filled.Seconds(), thousands(float64(o.locks)/o.filled.Seconds()), o.resident/1e6)
}
