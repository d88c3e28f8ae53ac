package webhooks

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
)

// End is the end of a lease, or of another program's contender: it is about to release its
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

// PartEntry names the entry of one lock of a lease of several. A gateway that has only seen that some of them
// are gone writes an entry for each. The messages are those of the whole lease's entry.
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
	notKeptPrefix = "e-" // of a best-effort event, which has no entry
)

// LeaseOf is the lease that an entry is about; "" for another program's contender.
func LeaseOf(entry string) string {
	if strings.HasPrefix(entry, foreignPrefix) {
		return ""
	}
	lease, _, _ := strings.Cut(entry, "-")
	return lease
}

// wholeOf is the entry of the whole lease where an entry is about a part of it.
func wholeOf(entry string) string {
	if strings.HasPrefix(entry, foreignPrefix) || strings.HasPrefix(entry, notKeptPrefix) || strings.HasSuffix(entry, grantSuffix) {
		return entry
	}
	return LeaseOf(entry)
}

// Ending decides which receivers an end is delivered to, and gives the operations that belong into
// its transaction, before those that end it. entry is nil when there is no receiver. ready is false while the
// subscriptions are not known: decide again when Options.Changed is called. It returns at once.
//
// The check makes sure that the subscriptions are those in force when the
// transaction commits: a replica that lags must not leave out a new subscription.
//
// Without an entry the operations are the same slice each time, which must not be changed.
//
// describe is called when there are subscriptions, and always with notify.
func (s *Service) Ending(notify bool, describe func() *End) (ops []zk.Op, entry *Entry, ready bool) {
	now := s.current()
	if now == nil {
		return nil, nil, fault.On("hooks-wait")
	}
	ops = now.check
	if fault.On("hooks-check") {
		ops = nil
	}
	if notify || len(now.subscriptions) > 0 {
		if entry = s.addressed(now, describe()); entry != nil && !entry.Dropped && !fault.On("hooks-after") {
			ops = append(ops[:len(ops):len(ops)], s.writer.creation(entry))
		}
	}
	return ops, entry, true
}

// Notify gives the operation that notes an end or a grant for a notify_url alone; none when the outbox is full.
// It does not depend on the subscriptions. It returns at once.
func (s *Service) Notify(end *End) (ops []zk.Op, entry *Entry) {
	switch entry = s.addressed(nil, end); {
	case entry == nil:
	case entry.Dropped:
		s.bound.drop(entry)
	default:
		return []zk.Op{s.writer.creation(entry)}, entry
	}
	return nil, nil
}

// addressed makes the entry of an end for the subscriptions of a snapshot (nil: none); nil when there is no receiver. The entry says when there is no room for it.
func (s *Service) addressed(now *snapshot, end *End) *Entry {
	e := &Entry{Name: end.Entry, TraceParent: end.TraceParent}
	room := s.bound.state()
	over := s.overShare(room, now)
	to := func(n *Notice, id string) {
		i := slices.Index(e.Subscriptions, id)
		if i < 0 {
			i = len(e.Subscriptions)
			e.Subscriptions = append(e.Subscriptions, id)
		}
		n.To = append(n.To, i)
	}
	for i := range end.Events {
		n := Notice{Event: end.Events[i]}
		if !end.NotifyOnly && now != nil {
			for _, sub := range now.subscriptions {
				switch {
				case !sub.Wants(&n.Event):
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
		e.Dropped = room.full(e)
	case len(e.LeftOut) > 0:
		e.Dropped = true
	default:
		return nil
	}
	return e
}

// Ended takes the outcome of a transaction with the operations of Ending. It returns at once.
func (s *Service) Ended(entry *Entry, ops []zk.Op, res zk.Result) {
	if entry != nil && (entry.Dropped || len(entry.LeftOut) > 0) {
		if res.Outcome == zk.Done || res.Outcome == zk.Unknown {
			s.bound.drop(entry)
		}
		if entry.Dropped {
			entry = nil
		}
	}
	switch {
	case fault.On("hooks-after") && res.Outcome == zk.Done && entry != nil && len(ops) > 0:
		s.writer.create(entry)
	case res.Outcome == zk.Done:
		if entry != nil {
			entry.Order = res.Zxid
			s.bound.added(1)
			s.courier.Add(entry)
			if fault.On("hooks-done") {
				s.writer.Done(entry)
			}
		}
	case res.Outcome == zk.Unknown:
		if entry != nil {
			s.Adopt() // it may be there
		}
	case res.Outcome == zk.Conflict, errors.Is(res.Err, zk.ErrBadVersion) && res.Culprit >= 0 && res.Culprit < len(ops) && ops[res.Culprit].Path == s.parent:
		s.outdated(ops)
	}
}

// Record notes an end by another's hand, which has happened already: its entry
// is written afterwards. Beyond maxUnrecorded such ends are dropped and counted.
func (s *Service) Record(end *End) {
	s.registry.mu.Lock()
	now := s.inForce
	s.registry.mu.Unlock()
	if now == nil && !end.NotifyOnly {
		return
	}
	entry := s.addressed(now, end)
	if entry == nil {
		return
	}
	counted := *entry
	entry.LeftOut = nil // counted here, and not again when the entry is written
	counted.Dropped = counted.Dropped || !s.writer.create(entry)
	if counted.Dropped || len(counted.LeftOut) > 0 {
		s.bound.drop(&counted)
	}
}
