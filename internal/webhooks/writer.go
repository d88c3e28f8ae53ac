package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/zk"
)

const (
	gatherFor     = 20 * time.Millisecond // from one flush to the next
	deletedAtOnce = 32                    // entries in one transaction
)

// writer writes to the outbox what the courier reports, and the ends by other hands. It is the courier's Keeper.
type writer struct {
	s    *Service
	path string        // of the outbox
	wake chan struct{} // one place: something is to be written

	mu       sync.Mutex
	pending  map[string]*Entry      // to be deleted (nil) or written
	flushing map[string]*Entry      // the same, under way
	finished map[string]struct{}    // entries deleted while adoptAll reads the outbox; else nil
	toCreate []*Entry               // ends by other hands
	toClose  map[string]goneForGood // subscriptions whose receiver answered 410

	givenUp rateLimit // of log lines about messages to notify_urls
}

// goneForGood is a receiver's answer 410.
type goneForGood struct{ url, why string }

func newWriter(s *Service) *writer {
	return &writer{s: s, path: s.opt.Root + "/outbox", wake: make(chan struct{}, 1), pending: map[string]*Entry{}, toClose: map[string]goneForGood{}}
}

// Done implements Keeper.
func (w *writer) Done(e *Entry) { w.save(e.Name, nil) }

// Changed implements Keeper.
func (w *writer) Changed(e *Entry) {
	kept := *e
	kept.Dead = slices.Clone(e.Dead)
	w.save(e.Name, &kept)
}

// Disable implements Keeper.
func (w *writer) Disable(id, url, why string) {
	w.mu.Lock()
	w.toClose[id] = goneForGood{url, why}
	w.mu.Unlock()
	signal(w.wake)
}

// GivenUp implements Keeper. The log is the only place that tells of such a message. A dead host may have
// very many of them while ends of leases wait, so the lines are limited.
func (w *writer) GivenUp(e *Event, host, why string) {
	if ok, _ := w.givenUp.allow(false); ok {
		w.s.log.Warn("webhooks: a message to a notify_url had its last try and was not delivered", "lease_id", e.LeaseID, "type", e.Type, "host", host, "err", why)
	}
}

// reportGivenUp logs how many such messages had no line of their own.
func (w *writer) reportGivenUp() {
	if n := w.givenUp.takeSkipped(); n > 0 {
		w.s.log.Warn("webhooks: more messages to notify_urls had their last try and were not delivered", "messages", n)
	}
}

// create has an entry created; false when too many wait for that.
func (w *writer) create(e *Entry) bool {
	defer signal(w.wake)
	return w.createLater(e)
}

func (w *writer) createLater(e *Entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.toCreate) >= maxUnrecorded {
		return false
	}
	w.toCreate = append(w.toCreate, e)
	return true
}

func (w *writer) creation(e *Entry) zk.Op {
	data := e.Data()
	if len(data) > maxEntry {
		e.slim()
		data = e.Data()
	}
	return zk.Op{Kind: zk.OpCreate, Path: w.path + "/" + e.Name, Data: data, Private: true}
}

func (w *writer) save(name string, e *Entry) {
	w.mu.Lock()
	w.pending[name] = e
	if e == nil && w.finished != nil {
		w.finished[name] = struct{}{}
	}
	w.mu.Unlock()
	signal(w.wake)
}

// watchFinished notes from now on the entries that are deleted; the function says whether one was, or is about to be.
func (w *writer) watchFinished() func(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = map[string]struct{}{}
	for _, under := range []map[string]*Entry{w.pending, w.flushing} {
		for name, e := range under {
			if e == nil {
				w.finished[name] = struct{}{}
			}
		}
	}
	return func(name string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, finished := w.finished[name]
		return finished
	}
}

func (w *writer) unwatchFinished() {
	w.mu.Lock()
	w.finished = nil
	w.mu.Unlock()
}

// flush writes what is pending, what is to be deleted together. What could not be done stays for the next time. It takes
// gatherFor at least, unless the outbox is filling up: where messages are delivered one after the other, their entries are
// deleted many at a time.
func (w *writer) flush(ctx context.Context) error {
	gathered := time.NewTimer(gatherFor)
	defer gathered.Stop()
	w.mu.Lock()
	pending, create, closing := w.pending, w.toCreate, w.toClose
	w.pending, w.toCreate, w.toClose, w.flushing = map[string]*Entry{}, nil, map[string]goneForGood{}, pending
	w.mu.Unlock()
	var all errgroup.Group
	all.SetLimit(requestsAtOnce)
	var deleted []string
	for name, e := range pending {
		if e == nil {
			deleted = append(deleted, name)
		} else {
			all.Go(func() error { return w.write(ctx, name, e) })
		}
	}
	for together := range slices.Chunk(deleted, deletedAtOnce) {
		all.Go(func() error { return w.remove(ctx, together) })
	}
	for _, e := range create {
		all.Go(func() error { return w.createNow(ctx, e) })
	}
	failed := all.Wait()
	for _, id := range slices.Sorted(maps.Keys(closing)) {
		if err := w.disable(ctx, id, closing[id]); err != nil {
			failed = err
		}
	}
	w.mu.Lock()
	w.flushing = nil
	w.mu.Unlock()
	if !w.s.bound.state().fillingUp() {
		select {
		case <-gathered.C:
		case <-ctx.Done():
		}
	}
	return failed
}

func (w *writer) commit(ctx context.Context, ops ...zk.Op) zk.Result {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return w.s.store.Commit(ctx, ops)
}

func (w *writer) deletion(name string) zk.Op {
	return zk.Op{Kind: zk.OpDelete, Path: w.path + "/" + name, Version: -1}
}

// remove deletes entries in one transaction; or one by one when that fails, as it does when another gateway has deleted one.
func (w *writer) remove(ctx context.Context, names []string) error {
	if len(names) > 1 {
		ops := make([]zk.Op, len(names))
		for i, name := range names {
			ops[i] = w.deletion(name)
		}
		if w.commit(ctx, ops...).Outcome == zk.Done {
			w.s.bound.added(-len(names))
			return nil
		}
	}
	var failed error
	for _, name := range names {
		if err := w.write(ctx, name, nil); err != nil {
			failed = err
		}
	}
	return failed
}

// write deletes an entry (nil) or writes its data.
func (w *writer) write(ctx context.Context, name string, e *Entry) error {
	op := w.deletion(name)
	if e != nil {
		op = zk.Op{Kind: zk.OpSetData, Path: op.Path, Data: e.Data(), Version: -1}
	}
	res := w.commit(ctx, op)
	switch {
	case res.Outcome == zk.Done:
		if e == nil {
			w.s.bound.added(-1)
		}
		return nil
	case res.Outcome == zk.NotDone && errors.Is(res.Err, zk.ErrNoNode):
		return nil // another gateway was quicker
	case res.Outcome == zk.NotDone && errors.Is(res.Err, zk.ErrTooLarge):
		w.s.log.Warn("webhooks: an entry has more dead letters than its node can hold: its next gateway tries all of them again", "entry", name)
		return nil
	}
	w.mu.Lock()
	if _, newer := w.pending[name]; !newer {
		w.pending[name] = e
	}
	w.mu.Unlock()
	return fmt.Errorf("the outbox entry %s: %w", name, cmp.Or(res.Err, ErrUnavailable))
}

// createNow creates the entry of an end by another's hand.
func (w *writer) createNow(ctx context.Context, e *Entry) error {
	res := w.commit(ctx, w.creation(e))
	switch {
	case res.Outcome == zk.Done:
		w.s.Ended(e, nil, res)
	case res.Outcome == zk.NotDone && errors.Is(res.Err, zk.ErrNodeExists), res.Outcome == zk.Unknown:
		w.s.Adopt()
	default:
		if !w.createLater(e) { // others have taken its place meanwhile
			e.Dropped = true
			w.s.bound.drop(e)
		}
		return fmt.Errorf("the outbox entry %s: %w", e.Name, cmp.Or(res.Err, ErrUnavailable))
	}
	return nil
}

// disable disables a subscription whose receiver answered 410.
func (w *writer) disable(ctx context.Context, id string, gone goneForGood) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := w.s.Update(ctx, id, -1, func(sub *Subscription) error {
		if sub.URL == gone.url { // else it was changed meanwhile, and is another receiver's
			sub.Enabled, sub.Disabled = false, gone.why
		}
		return nil
	})
	if err == nil || errors.Is(err, ErrNotFound) {
		return nil
	}
	if _, invalid := errors.AsType[*FieldError](err); invalid { // the record would not be accepted today, which does not change by itself
		w.s.log.Warn("webhooks: a subscription whose receiver answered 410 could not be disabled", "webhook", id, "err", err)
		return nil
	}
	w.mu.Lock()
	if _, newer := w.toClose[id]; !newer {
		w.toClose[id] = gone
	}
	w.mu.Unlock()
	return fmt.Errorf("webhook %s, whose receiver answered 410: %w", id, err)
}

// linesAMinute is how many log lines of one kind are written in a minute; the others are counted.
const linesAMinute = 20

// rateLimit bounds log lines.
type rateLimit struct {
	mu      sync.Mutex
	since   time.Time // when the minute began
	logged  int       // in it
	skipped int       // since they were last taken
}

// allow reports whether a line may be written. With take it gives how many were skipped before it.
func (r *rateLimit) allow(take bool) (ok bool, skipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.since) >= time.Minute {
		r.since, r.logged = now, 0
	}
	if r.logged >= linesAMinute {
		r.skipped++
		return false, 0
	}
	r.logged++
	if take {
		skipped, r.skipped = r.skipped, 0
	}
	return true, skipped
}

func (r *rateLimit) takeSkipped() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, r.skipped = r.skipped, 0
	return n
}

// failures logs why attempts got no answer.
type failures struct {
	log *slog.Logger
	rateLimit
}

// add logs a failure of a subscription, or of a notify_url, of which only the host is named.
func (f *failures) add(to *Subscription, err error) {
	ok, skipped := f.allow(true)
	if !ok {
		return
	}
	receiver := slog.String("webhook", to.ID)
	if isNotify(to.ID) {
		receiver = slog.String("host", receiverOf(to.ID))
	}
	f.log.Warn("webhooks: an attempt got no answer", receiver, "url", ShownURL(to.URL), "err", withoutURL(err), "not_logged_before", skipped)
}
