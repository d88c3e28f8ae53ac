package dashboard

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/events"
)

// keeper keeps the newest events of a lock that its page shows.
type keeper struct {
	filter events.Filter
	nodes  bool // node events are kept; else all others
	most   int
	events []*events.Event // the newest first
}

// begin forgets everything and begins with what the hub remembers. It returns
// the ID of the last event that it has seen, "" when there was none.
func (k *keeper) begin(hub *events.Hub) (last string) {
	k.events = nil
	for _, e := range hub.Recent(k.filter, 2*k.most) { // more than are kept: the filter may let both kinds through
		k.add(e)
		last = e.ID()
	}
	return last
}

func (k *keeper) add(e *events.Event) {
	if e.Type.IsNode() != k.nodes || e.Type == events.Resync {
		return
	}
	if len(k.events) == k.most {
		k.events = k.events[:k.most-1]
	}
	k.events = slices.Insert(k.events, 0, e)
}

// feed tells a topic when to read again, and keeps the events that it shows.
// It belongs to the topic's goroutine.
type feed struct {
	hub    *events.Hub
	filter events.Filter
	keeper *keeper // nil: events are only a reason to read
	sub    *events.Subscriber
}

// open subscribes, if that is possible; else the topic reads at its ticks.
func (f *feed) open() {
	f.close()
	if f.keeper == nil {
		f.sub, _ = f.hub.Subscribe(f.filter, "")
		return
	}
	for {
		var err error
		last := f.keeper.begin(f.hub)
		if f.sub, err = f.hub.Subscribe(f.filter, last); err != nil || last != "" {
			return
		}
		if len(f.hub.Recent(f.keeper.filter, 1)) == 0 {
			return // nothing happened before we subscribed
		}
		f.close()
	}
}

func (f *feed) close() {
	if f.sub != nil {
		f.sub.Close()
		f.sub = nil
	}
}

// pause lets d pass and reports whether something happened meanwhile. Events
// that are kept are read as they come. If none are, nothing is read at all: a
// page that changes all the time costs the same however often it does.
func (f *feed) pause(ctx context.Context, d time.Duration) (happened bool) {
	if f.keeper != nil {
		until := time.Now().Add(d)
		for left := d; left > 0 && ctx.Err() == nil; left = time.Until(until) {
			happened = f.wait(ctx, left) || happened
		}
		return happened
	}
	sleep(ctx, d)
	was := ""
	if f.sub != nil {
		was = f.sub.Position()
	}
	f.open()
	return f.sub != nil && f.sub.Position() != was
}

// wait returns when something happened, or after d.
func (f *feed) wait(ctx context.Context, d time.Duration) (happened bool) {
	if f.sub == nil {
		f.open()
	}
	if f.sub == nil {
		sleep(ctx, d)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	batch, err := f.sub.Next(ctx)
	for _, e := range batch {
		if e.Type == events.Resync {
			f.open()
			return true
		}
		if f.keeper != nil {
			f.keeper.add(e)
		}
	}
	switch {
	case errors.Is(err, events.ErrClosed):
		f.close()
		sleep(ctx, d) // the hub will not come back
		return false
	case err != nil && ctx.Err() == nil:
		f.open()
		return true
	}
	return err == nil
}

// sleep lets d pass, or returns when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
