package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
)

// End is a lease, or another program's contender, that is about to let go of its
// locks, or has.
type End struct {
	Entry       string // the entry's name: EntryOf, ForeignEntry or GrantEntry
	Events      []Event
	NotifyURL   string // of the lease; "" for none
	NotifyOnly  bool   // for the NotifyURL alone: a grant, or the end of a lease that never held
	TraceParent string
}

// EntryOf names the entry of a lease's end: a lease ends once, so it has one.
func EntryOf(lease string) string { return lease }

// PartEntry names the entry of what one lock of a lease of several tells by itself: whoever has only seen that each of them
// was gone, maybe not all of them, writes them down one by one. The messages are those of the whole lease's entry.
func PartEntry(lease string, part int) string {
	if part == 0 {
		return lease
	}
	return lease + "-" + strconv.Itoa(part)
}

// GrantEntry names the entry of a lease's grant.
func GrantEntry(lease string) string { return lease + grantSuffix }

// ForeignEntry names the entry of the end of another program's contender.
func ForeignEntry(czxid int64) string { return foreignPrefix + strconv.FormatInt(czxid, 16) }

const (
	grantSuffix   = "-granted"
	foreignPrefix = "f-"
)

// LeaseOf tells which lease an entry is about; "" for another program's contender.
func LeaseOf(entry string) string {
	if strings.HasPrefix(entry, foreignPrefix) {
		return ""
	}
	lease, _, _ := strings.Cut(entry, "-")
	return lease
}

// wholeOf is the entry of the whole lease where an entry is about a part of it.
func wholeOf(entry string) string {
	if strings.HasPrefix(entry, foreignPrefix) || strings.HasSuffix(entry, grantSuffix) {
		return entry
	}
	return LeaseOf(entry)
}

// Ending decides who is told of an end, and gives the operations that belong into
// its transaction, before those that end it. entry is nil when nobody is. ready is false while the
// subscriptions are not known: decide again when Options.Changed is called. It returns at once.
//
// The check makes sure that the subscriptions are those in force when the
// transaction commits: a replica that lags must not leave out somebody who has subscribed.
//
// Where nobody wants to know, the operations are the same ones each time: nobody changes them.
//
// describe is called when somebody may want to know, with notify in any case: most of the time nobody does.
func (s *Service) Ending(notify bool, describe func() *End) (ops []zk.Op, entry *Entry, ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inForce == nil || s.stale {
		signal(s.wake)
		return nil, nil, fault.On("hooks-wait")
	}
	ops = s.inForce.check
	if fault.On("hooks-check") {
		ops = nil
	}
	if notify || len(s.inForce.subscriptions) > 0 {
		if entry = s.addressed(describe()); entry != nil && !entry.Dropped && !fault.On("hooks-after") {
			ops = append(ops[:len(ops):len(ops)], s.creation(entry))
		}
	}
	return ops, entry, true
}

// Notify gives the operation that notes what is for a notify_url alone; none when the outbox is full.
// Subscriptions do not matter to it. It returns at once.
func (s *Service) Notify(end *End) (ops []zk.Op, entry *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch entry = s.addressed(end); {
	case entry == nil:
	case entry.Dropped:
		s.drop(entry)
	default:
		return []zk.Op{s.creation(entry)}, entry
	}
	return nil, nil
}

func (s *Service) creation(e *Entry) zk.Op {
	data := e.Data()
	if len(data) > maxEntry {
		e.slim()
		data = e.Data()
	}
	return zk.Op{Kind: zk.OpCreate, Path: s.outbox() + "/" + e.Name, Data: data, Private: true}
}

// addressed makes the entry of an end, of which it says when there is no room for it; nil when nobody wants to know.
func (s *Service) addressed(end *End) *Entry {
	e := &Entry{Name: end.Entry, TraceParent: end.TraceParent}
	index := map[string]int{}
	over := s.overShare()
	to := func(n *Notice, id string) {
		i, known := index[id]
		if !known {
			i = len(e.Subscriptions)
			index[id] = i
			e.Subscriptions = append(e.Subscriptions, id)
		}
		n.To = append(n.To, i)
	}
	for i := range end.Events {
		n := Notice{Event: end.Events[i]}
		if !end.NotifyOnly {
			for _, sub := range s.inForce.subscriptions {
				switch {
				case !sub.Wants(n.Event.Type, n.Event.NS, n.Event.Lock):
				case !slices.Contains(over, sub.ID):
					to(&n, sub.ID)
				case !slices.Contains(e.LeftOut, sub.ID):
					e.LeftOut = append(e.LeftOut, sub.ID)
				}
			}
		}
		if end.NotifyURL != "" {
			to(&n, end.NotifyURL)
		}
		if len(n.To) > 0 {
			e.Notices = append(e.Notices, n)
		}
	}
	switch {
	case len(e.Notices) > 0:
		e.Dropped = s.bound.full(e)
	case len(e.LeftOut) > 0:
		e.Dropped = true
	default:
		return nil
	}
	return e
}

// Ended tells what became of a transaction with the operations of Ending. It returns at once.
func (s *Service) Ended(entry *Entry, ops []zk.Op, res zk.Result) {
	if entry != nil && (entry.Dropped || len(entry.LeftOut) > 0) {
		if res.Outcome == zk.Done || res.Outcome == zk.Unknown {
			s.mu.Lock()
			s.drop(entry)
			s.mu.Unlock()
		}
		if entry.Dropped {
			entry = nil
		}
	}
	switch {
	case fault.On("hooks-after") && res.Outcome == zk.Done && entry != nil && len(ops) > 0:
		s.mu.Lock()
		s.toRecord = append(s.toRecord, entry)
		s.mu.Unlock()
		signal(s.keep)
	case res.Outcome == zk.Done:
		if entry != nil {
			entry.Order = res.Zxid
			s.added(1)
			s.courier.Add(entry)
			if fault.On("hooks-done") {
				(*outboxKeeper)(s).Done(entry)
			}
		}
	case res.Outcome == zk.Unknown:
		if entry != nil {
			s.Adopt() // it may be there
		}
	case res.Outcome == zk.Redecide, errors.Is(res.Err, zk.ErrBadVersion) && res.Culprit >= 0 && res.Culprit < len(ops) && ops[res.Culprit].Path == s.parent():
		s.outdated(ops)
	}
}

// outdated notes that the check of the subscriptions may have failed. Another check in the
// same transaction may have: then the same ones are found, and are in force again.
func (s *Service) outdated(ops []zk.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ops {
		if ops[i].Kind == zk.OpCheck && ops[i].Path == s.parent() && s.inForce != nil && s.inForce.version == ops[i].Version {
			s.stale = true
			signal(s.wake)
		}
	}
}

// Tell records what has happened already, by another's hand, as well as it can be done: it
// is written down after the fact. When too much of that waits, the rest is dropped and counted.
func (s *Service) Tell(end *End) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inForce == nil && !end.NotifyOnly {
		return
	}
	switch entry := s.addressed(end); {
	case entry == nil:
	case entry.Dropped || len(s.toRecord) >= maxUnrecorded:
		entry.Dropped = true
		s.drop(entry)
	default:
		if len(entry.LeftOut) > 0 {
			s.drop(entry)
			entry.LeftOut = nil // counted, whatever becomes of the rest
		}
		s.toRecord = append(s.toRecord, entry)
		signal(s.keep)
	}
}

// outboxKeeper is the service as its courier sees it.
type outboxKeeper Service

func (k *outboxKeeper) Done(e *Entry) { (*Service)(k).postpone(e.Name, nil) }
func (k *outboxKeeper) Changed(e *Entry) {
	kept := *e
	kept.Dead = slices.Clone(e.Dead)
	(*Service)(k).postpone(e.Name, &kept)
}

func (k *outboxKeeper) Disable(id, url, why string) {
	s := (*Service)(k)
	s.mu.Lock()
	s.gone[id] = farewell{url, why}
	s.mu.Unlock()
	signal(s.keep)
}

// disable takes a subscription out of service whose receiver wants nothing more.
func (s *Service) disable(ctx context.Context, id string, bye farewell) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	_, err := s.Update(ctx, id, -1, func(sub *Subscription) error {
		if sub.URL == bye.url { // else it was changed meanwhile, and is another receiver's
			sub.Enabled, sub.Disabled = false, bye.why
		}
		return nil
	})
	if err == nil || errors.Is(err, ErrNotFound) {
		return nil
	}
	var field *FieldError
	if errors.As(err, &field) { // what is kept could not be accepted today, which will not change by itself
		s.log.Warn("webhooks: a subscription whose receiver is gone could not be disabled", "webhook", id, "err", err)
		return nil
	}
	s.mu.Lock()
	if _, newer := s.gone[id]; !newer {
		s.gone[id] = bye
	}
	s.mu.Unlock()
	return fmt.Errorf("webhook %s, whose receiver is gone: %w", id, err)
}

func (s *Service) postpone(name string, e *Entry) {
	s.mu.Lock()
	s.pending[name] = e
	if e == nil && s.finished != nil {
		s.finished[name] = struct{}{}
	}
	s.mu.Unlock()
	signal(s.keep)
}

// flush writes down what the courier has found out, and the ends that wait to be
// recorded. What could not be done stays for the next time.
func (s *Service) flush(ctx context.Context) error {
	s.mu.Lock()
	pending, record, gone := s.pending, s.toRecord, s.gone
	s.pending, s.toRecord, s.gone, s.flushing = map[string]*Entry{}, nil, map[string]farewell{}, pending
	s.mu.Unlock()
	var (
		mu     sync.Mutex
		failed error
		all    sync.WaitGroup
		room   = make(chan struct{}, keptAtOnce)
	)
	each := func(ops []zk.Op, done func(zk.Result) error) {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			ask, cancel := context.WithTimeout(ctx, askWithin)
			defer cancel()
			if err := done(s.opt.Store.Commit(ask, ops)); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	for name, e := range pending {
		op := zk.Op{Kind: zk.OpDelete, Path: s.outbox() + "/" + name, Version: -1}
		if e != nil {
			op = zk.Op{Kind: zk.OpSetData, Path: op.Path, Data: e.Data(), Version: -1}
		}
		each([]zk.Op{op}, func(res zk.Result) error {
			switch {
			case res.Outcome == zk.Done:
				if e == nil {
					s.added(-1)
				}
				return nil
			case res.Outcome == zk.NotDone && errors.Is(res.Err, zk.ErrNoNode):
				return nil // another gateway was quicker
			case res.Outcome == zk.NotDone && errors.Is(res.Err, zk.ErrTooLarge):
				s.log.Warn("webhooks: an entry has more dead letters than can be written down: its next gateway tries all of them again", "entry", name)
				return nil
			}
			s.mu.Lock()
			if _, newer := s.pending[name]; !newer {
				s.pending[name] = e
			}
			s.mu.Unlock()
			return fmt.Errorf("the outbox entry %s: %w", name, because(res.Err))
		})
	}
	for _, e := range record {
		each([]zk.Op{s.creation(e)}, func(res zk.Result) error {
			switch {
			case res.Outcome == zk.Done:
				s.Ended(e, nil, res)
			case res.Outcome == zk.NotDone && errors.Is(res.Err, zk.ErrNodeExists):
				s.Adopt()
			case res.Outcome == zk.Unknown:
				s.Adopt()
			default:
				s.mu.Lock()
				if len(s.toRecord) < maxUnrecorded {
					s.toRecord = append(s.toRecord, e)
				}
				s.mu.Unlock()
				return fmt.Errorf("the outbox entry %s: %w", e.Name, because(res.Err))
			}
			return nil
		})
	}
	all.Wait()
	for _, id := range slices.Sorted(maps.Keys(gone)) {
		if err := s.disable(ctx, id, gone[id]); err != nil {
			failed = err
		}
	}
	s.mu.Lock()
	s.flushing = nil
	s.mu.Unlock()
	return failed
}

func because(err error) error {
	if err == nil {
		return ErrUnavailable
	}
	return err
}

// adoptAll looks through the outbox for entries that are this gateway's to deliver
// and that it does not know: a dead gateway's, or its own of which it lost the answer.
//
// The subscriptions are read after the entries have been listed: whoever is in an
// entry and not among them has been removed, and is not merely unknown here.
func (s *Service) adoptAll(ctx context.Context) error {
	// What is delivered while the outbox is read may still be found there: those are
	// noted from before it is read.
	s.mu.Lock()
	s.finished = map[string]struct{}{}
	for _, under := range []map[string]*Entry{s.pending, s.flushing} {
		for name, e := range under {
			if e == nil {
				s.finished[name] = struct{}{}
			}
		}
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.finished = nil
		s.mu.Unlock()
	}()
	if err := s.opt.Store.Barrier(ctx); err != nil { // a server that lags may lack what a dead gateway did last
		return err
	}
	names, _, err := s.opt.Store.Children(ctx, s.outbox())
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return s.courier.has(name) || !s.opt.Mine(name) })
	if len(names) == 0 || fault.On("hooks-left") {
		return nil
	}
	if !fault.On("hooks-fresh") {
		if now, err := s.refresh(ctx); err != nil || now.unchecked {
			return because(err)
		}
	}
	found, err := s.readAll(ctx, names)
	if err != nil {
		return err
	}
	for _, e := range found {
		s.mu.Lock()
		_, finished := s.finished[e.Name]
		s.mu.Unlock()
		if !finished && s.mine(e) {
			s.courier.Add(e)
		}
	}
	return nil
}

// mine reports whether an entry that has been read is this gateway's to deliver.
func (s *Service) mine(e *Entry) bool {
	if s.opt.MineFrom == nil || LeaseOf(e.Name) != "" || len(e.Notices) == 0 {
		return true
	}
	return s.opt.MineFrom(e.Name, e.Notices[0].Event.Gateway)
}

// readAll reads entries, and gives them in the order in which they were made.
func (s *Service) readAll(ctx context.Context, names []string) ([]*Entry, error) {
	var (
		mu    sync.Mutex
		found []*Entry
	)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(keptAtOnce)
	for _, name := range names {
		group.Go(func() error {
			data, stat, err := s.opt.Store.Get(ctx, s.outbox()+"/"+name)
			switch {
			case errors.Is(err, zk.ErrNoNode):
				return nil
			case err != nil:
				return err
			}
			e, err := ParseEntry(name, stat.Czxid, data)
			if err != nil {
				s.log.Error("webhooks: an entry of the outbox cannot be delivered; it stays", "err", err)
				return nil
			}
			mu.Lock()
			found = append(found, e)
			mu.Unlock()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *Entry) int { return cmp.Compare(a.Order, b.Order) })
	return found, nil
}
