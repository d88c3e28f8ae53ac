package manager

import (
	"cmp"
	"container/heap"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/byname"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
)

// The table of the leases that this gateway owns: it makes their transitions, and counts them.

// leaseTable has the leases that this gateway owns and that have not ended, and counts them. It is not safe for
// concurrent use.
type leaseTable struct {
	byID     *byname.Set[lease]
	counts   counts
	takers   takers
	quota    quota.Quota     // what clients store here
	accounts *quota.Accounts // the same by principal
	log      *slog.Logger
	wake     func(chan struct{}) // closes a channel once the monitor is free
	rev      uint64              // of the last visible change
	nonce    string              // makes revs of different processes differ
}

func newLeaseTable(q quota.Quota, accounts *quota.Accounts, log *slog.Logger, wake func(chan struct{})) *leaseTable {
	var nonce [4]byte
	_, _ = rand.Read(nonce[:]) // never fails (crypto/rand, Go 1.24)
	return &leaseTable{byID: byname.New(func(l *lease) string { return string(l.id()) }), quota: q, accounts: accounts, log: log, wake: wake, nonce: fmt.Sprintf("%x", nonce)}
}

// lease is the lease of that id, nil when this gateway has none.
func (t *leaseTable) lease(id recipe.LeaseID) *lease { return t.byID.Get(string(id)) }

// touch marks a visible change and wakes the requests that wait for one.
func (t *leaseTable) touch(l *lease) {
	t.rev++
	l.rev = t.rev
	if l.wake != nil {
		t.wake(l.wake)
		l.wake = nil
	}
}

// inOrder returns the leases that match, sorted by id, so that writes about them do not have a map's random order.
func (t *leaseTable) inOrder(match func(*lease) bool) []*lease {
	var matching []*lease
	for l := range t.byID.All() {
		if match(l) {
			matching = append(matching, l)
		}
	}
	slices.SortFunc(matching, func(a, b *lease) int { return cmp.Compare(a.id(), b.id()) })
	return matching
}

// until counts the leases that were created until a transaction. A lease that an earlier owner created, and that has not been read, is one.
func (t *leaseTable) until(zxid int64, last locks.OldLeases) (found locks.OldLeases) {
	const few = 3
	older := func(l *lease) bool { return l != nil && !l.Creating() && !l.createdAfter(zxid) }
	for _, id := range last.Some {
		if older(t.byID.Get(id)) {
			return last
		}
	}
	for l := range t.byID.All() {
		if older(l) {
			if found.N++; len(found.Some) < few {
				found.Some = append(found.Some, string(l.id()))
			}
		}
	}
	return found
}

// createdAfter reports whether a lease is known to have been created after a transaction. A lease that was imported has the fencing token
// of another ZooKeeper, and one that was downgraded has a node that is younger than itself.
func (l *lease) createdAfter(zxid int64) bool { return min(l.czxid, l.visibleFrom()) > zxid }

func (t *leaseTable) revString(rev uint64) string {
	return t.nonce + "-" + strconv.FormatUint(rev, 36)
}

// slotOf is the slot of one of this gateway's leases that has exactly this
// contender; without one, s is nil.
func (t *leaseTable) slotOf(q *queues.Queue, c *recipe.Contender) (l *lease, s *slot) {
	if !c.Ours {
		return nil, nil
	}
	if l = t.lease(c.LeaseID); l == nil {
		return nil, nil
	}
	if s = l.slotAt(q, c); s != nil && s.name() != c.Name {
		s = nil
	}
	return l, s
}

// leaseOf is this gateway's lease that a contender belongs to, or nil.
func (t *leaseTable) leaseOf(q *queues.Queue, c *recipe.Contender) *lease {
	if l, s := t.slotOf(q, c); s != nil {
		return l
	}
	return nil
}

// copied reports whether a contender has the id of one of this gateway's leases and is not the lease's own: another program
// has made it. Only the lease's own gateway can tell.
func (t *leaseTable) copied(q *queues.Queue, c *recipe.Contender) bool {
	l, s := t.slotOf(q, c)
	return l != nil && s == nil
}

// Forbidden logs a transition that a lease's tables do not have, a defect of this program. CheckAll returns the first.
func (t *leaseTable) Forbidden(of *lifecycle.State, err error) {
	for l := range t.byID.All() {
		if &l.State == of {
			err = fmt.Errorf("lease %s: %w", l.id(), err)
		}
	}
	t.log.Error("a lease's state made a transition that there is not", "err", err)
	if t.counts.forbidden == nil {
		t.counts.forbidden = err
	}
}

// HeldUp counts the ends that wait for the outbox.
func (t *leaseTable) HeldUp(by int) { t.counts.heldUp += by }

// setPhase makes a transition of a lease's phase and counts the lease under its new phase. Ended leases are not counted.
func (t *leaseTable) setPhase(l *lease, to lifecycle.Phase) {
	from := l.Phase()
	t.countTicket(l, from.Waits(), to.Waits())
	if from != lifecycle.Ended {
		t.counts.phases[from][l.kind]--
	}
	l.Enter(t, to)
	if to != lifecycle.Ended {
		t.counts.phases[to][l.kind]++
	} else if from != lifecycle.Ended {
		t.counts.slots -= l.width()
		t.quota.Add(quota.MetadataBytes, -int64(l.text))
		l.account.Add(-int64(l.width()), -int64(l.text))
		l.text = 0
	}
	t.counts.stand(l)
}

// weigh counts the texts of a lease at their present size, or at the size that a pending write gives them.
// l.text is always the size that has been counted.
func (t *leaseTable) weigh(l *lease, atLeast int64) {
	if l.Ended() {
		return // its texts no longer count
	}
	n := max(l.textBytes(), atLeast)
	t.quota.Add(quota.MetadataBytes, n-int64(l.text))
	l.account.Add(0, n-int64(l.text))
	l.text = uint16(n)
}

// charge counts a lease for the principal that took it. It does so once: another program may write another name into the record
// of a lease that runs.
func (t *leaseTable) charge(l *lease, principal string) {
	if l.account != nil || l.Ended() {
		return
	}
	if account := t.accounts.Of(principal); account != nil {
		l.taker = t.takers.one(l.owner, account)
		account.Add(int64(l.width()), int64(l.text))
	}
}

// textBytes is the size of the client's texts in the lease's record. The limits of the API, to which other programs'
// records are cut too, keep it far below the largest uint16.
func (l *lease) textBytes() int64 {
	n := len(l.owner) + len(l.notifyURL())
	if rare := l.rareFields; rare != nil {
		n += len(rare.metadata) + len(rare.purpose) + lengths(rare.holds) + lengths(rare.released)
	}
	return int64(n)
}

func lengths(texts []string) (n int) {
	for _, text := range texts {
		n += len(text)
	}
	return n
}

// makeTicket marks a lease that waits outside a request: one of an async acquire, one whose client disconnected and can
// come back, or one that was taken over.
func (t *leaseTable) makeTicket(l *lease) {
	if !l.ticket {
		l.ticket = true
		t.countTicket(l, false, l.Phase().Waits())
	}
}

// countTicket counts a lease that begins or stops waiting.
func (t *leaseTable) countTicket(l *lease, waited, waits bool) {
	switch {
	case !l.ticket || waited == waits:
	case waits:
		t.quota.Add(quota.Tickets, 1)
	default:
		t.quota.Add(quota.Tickets, -1)
	}
}

// counts is what Info says of numbers, kept as things change: asking costs
// nothing that grows. Guarded by the monitor.
type counts struct {
	phases    [lifecycle.Ended][kinds]int // leases of this gateway, by phase and kind
	slots     int                         // of the leases of this gateway
	line      leaseHeap[bySince]          // leases that are creating or waiting, the oldest first
	heldUp    int                         // ends that wait for the outbox
	forbidden error                       // the first transition of a lease that its table does not have
}

// kind is what a lease is counted as: the mode of its one lock, or several.
type kind uint8

// The first kinds are the numbers of recipe.Mode.
const (
	several kind = kind(recipe.Modes)
	kinds        = several + 1
)

func (k kind) mode() locks.Mode {
	if k == several {
		return locks.Several
	}
	return locks.ModeOf(recipe.Mode(k))
}

func kindOf(l *lease) kind {
	if l.contender.Groups > 1 {
		return several
	}
	return kind(l.contender.Mode)
}

// recount is called when a lease's first contender is another one.
func (c *counts) recount(l *lease) {
	if !l.Ended() {
		c.phases[l.Phase()][l.kind]--
		c.phases[l.Phase()][kindOf(l)]++
	}
	l.kind = kindOf(l)
}

// in is how many leases are in a phase.
func (c *counts) in(p lifecycle.Phase) (n int) {
	for _, of := range c.phases[p] {
		n += of
	}
	return n
}

// enter counts a lease that this gateway has begun to own.
func (c *counts) enter(l *lease) {
	l.kind = kindOf(l)
	c.phases[l.Phase()][l.kind]++
	c.slots += l.width()
	l.lineIndex = -1
	c.stand(l)
}

// stand puts a lease into the line of those that wait, or takes it out, by its phase.
func (c *counts) stand(l *lease) {
	switch waits := l.Phase().Waits(); {
	case waits && l.lineIndex < 0:
		c.line.push(l)
	case !waits:
		c.line.remove(l)
	}
}

// oldest is how long the lease that has waited longest has waited, 0 when none waits.
func (c *counts) oldest(now time.Duration) time.Duration {
	if c.line.Len() == 0 {
		return 0
	}
	return max(now-c.line.leases[0].since, 0)
}

// bySince orders leases by when they came. A newcomer is the youngest, so it goes in without being moved.
type bySince struct{}

func (bySince) less(a, b *lease) bool { return a.since < b.since }

func (bySince) index(l *lease) *int32 { return &l.lineIndex }

// leaseHeap is a heap of leases. A lease knows its index in it, -1 when it is not there.
type leaseHeap[O leaseOrder] struct {
	order  O
	leases []*lease
}

// leaseOrder is the order of a heap, and the field of a lease with its index in that heap.
type leaseOrder interface {
	less(a, b *lease) bool
	index(l *lease) *int32
}

func (h *leaseHeap[O]) push(l *lease) { heap.Push(h, l) }

func (h *leaseHeap[O]) fix(l *lease) { heap.Fix(h, int(*h.order.index(l))) }

// remove does nothing when the lease is not in the heap.
func (h *leaseHeap[O]) remove(l *lease) {
	if i := *h.order.index(l); i >= 0 {
		heap.Remove(h, int(i))
	}
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (h *leaseHeap[O]) Len() int { return len(h.leases) }

func (h *leaseHeap[O]) Less(i, j int) bool { return h.order.less(h.leases[i], h.leases[j]) }

func (h *leaseHeap[O]) Swap(i, j int) {
	a, b := h.leases[i], h.leases[j]
	h.leases[i], h.leases[j] = b, a
	*h.order.index(b), *h.order.index(a) = int32(i), int32(j)
}

func (h *leaseHeap[O]) Push(x any) {
	l := x.(*lease)
	*h.order.index(l) = int32(len(h.leases))
	h.leases = append(h.leases, l)
}

func (h *leaseHeap[O]) Pop() any {
	last := len(h.leases) - 1
	l := h.leases[last]
	h.leases[last], h.leases = nil, h.leases[:last]
	*h.order.index(l) = -1
	return l
}

// taker is whose a lease is.
type taker struct {
	owner   string         // as its client says
	account *quota.Account // of the principal that took it; nil: none is known
}

// takers keeps one copy of what many leases have in common. Where two want the same place the later one takes it, so it never
// grows.
type takers [1 << 10]*taker

var takersSeed = maphash.MakeSeed()

// one returns the shared taker. The owner's memory may belong to a larger buffer. A lease has the taker of its owner alone before
// it is charged, so the account chooses the place, too: else the two would take it from each other with each lease.
func (t *takers) one(owner string, account *quota.Account) *taker {
	wanted := taker{owner, account}
	place := &t[maphash.Comparable(takersSeed, wanted)%uint64(len(t))]
	if is := *place; is == nil || *is != wanted {
		*place = &taker{strings.Clone(owner), account}
	}
	return *place
}

// name returns the shared copy of an owner alone.
func (t *takers) name(owner string) string { return t.one(owner, nil).owner }
