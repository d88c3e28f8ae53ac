package manager

import (
	"errors"
	"fmt"
	"reflect"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
)

// CheckAll recomputes what the manager keeps as things change, and returns everything that is not true: leases that have
// ended and are kept, or have no clock, or are not where the heap of deadlines says; delays of leases that live, or that
// never end; two holders of one lock; counts, and the line of those that wait. It holds the lock meanwhile and takes time
// in proportion to all leases and contenders: it is for tests and simulations.
func (m *Manager) CheckAll() error {
	return locked(m, func() error {
		return errors.Join(m.leases.counts.forbidden, m.leases.check(&m.leases.quota, &m.timers.deadlines, m.port.Term()), checkQueues(m.replica, m.leases, &m.leases.quota), checkDelays(&m.delays, m.leases, m.replica), checkAccounts(m.leases, &m.delays), m.reports.Check())
	})
}

// leaseCounts are the counts of the lease table, made from its leases.
type leaseCounts struct {
	phases               [lifecycle.Ended][kinds]int
	waits, heldUp, slots int
	tickets, texts       int64
	holders              map[string]*slot // by queue
	err                  error
}

func (n *leaseCounts) fail(format string, args ...any) {
	n.err = errors.Join(n.err, fmt.Errorf(format, args...))
}

// check checks each lease, and compares their counts with those that were kept.
func (t *leaseTable) check(q *quota.Quota, clocks *deadlines, present locks.Term) error {
	n := leaseCounts{holders: map[string]*slot{}}
	for l := range t.byID.All() {
		if l.Ended() {
			n.fail("lease %s has ended and is kept", l.id())
			continue
		}
		n.add(l)
		n.checkPlaces(l, t, clocks, present)
	}
	if q.Used(quota.Tickets) != n.tickets || q.Used(quota.MetadataBytes) != n.texts {
		n.fail("%d tickets, %d bytes of texts; counted %d, %d", n.tickets, n.texts, q.Used(quota.Tickets), q.Used(quota.MetadataBytes))
	}
	if n.heldUp != t.counts.heldUp {
		n.fail("%d ends wait for the outbox; counted %d", n.heldUp, t.counts.heldUp)
	}
	if !reflect.ValueOf(noRare).IsZero() {
		n.fail("the rare fields of leases that have none were written")
	}
	if n.slots != t.counts.slots {
		n.fail("the leases have %d slots; counted %d", n.slots, t.counts.slots)
	}
	if n.phases != t.counts.phases || n.waits != t.counts.line.Len() {
		n.fail("leases by phase are %v, %d in line; counted %v, %d", n.phases, n.waits, t.counts.phases, t.counts.line.Len())
	}
	return n.err
}

// add counts a lease, and checks its state and its texts.
func (n *leaseCounts) add(l *lease) {
	id := l.id()
	n.phases[l.Phase()][l.kind]++
	if wrong := l.Check(); wrong != nil {
		n.fail("lease %s: %w", id, wrong)
	}
	n.slots += l.width()
	if l.Change() == lifecycle.ChangeHeldUp {
		n.heldUp++
	}
	if n.texts += int64(l.text); int64(l.text) != l.textBytes() && l.Record() == lifecycle.RecordCurrent {
		n.fail("the texts of lease %s are counted as %d bytes and are %d", id, l.text, l.textBytes())
	}
	if l.ticket && l.Phase().Waits() {
		n.tickets++
	}
	if l.kind != kindOf(l) {
		n.fail("lease %s is counted as %s and is %s", id, l.kind.mode(), kindOf(l).mode())
	}
}

// checkPlaces checks where a lease stands: among the holders of its locks, in the heap of deadlines, and among those that
// wait.
func (n *leaseCounts) checkPlaces(l *lease, t *leaseTable, clocks *deadlines, present locks.Term) {
	id := l.id()
	if l.Held() {
		for s := range l.slots {
			other := n.holders[s.q.Path]
			if other != nil && other.contender.LeaseID != id && (other.contender.Mode != s.contender.Mode || s.contender.Mode == recipe.Exclusive) {
				n.fail("%s is held by %s and %s", s.q.Path, other.name(), s.name())
			}
			n.holders[s.q.Path] = s
		}
	}
	if l.heapIndex >= 0 && clocks.leases[l.heapIndex] != l {
		n.fail("lease %s is not where the heap says", id)
	}
	if l.Settled() && l.term == present && l.heapIndex < 0 {
		n.fail("lease %s (%d) has no clock", id, l.Phase())
	}
	if !l.Phase().Waits() {
		return
	}
	n.waits++
	if line := &t.counts.line; l.lineIndex < 0 || int(l.lineIndex) >= line.Len() || line.leases[l.lineIndex] != l {
		n.fail("lease %s waits, and is not in the line", id)
	} else if line.leases[0].since > l.since {
		n.fail("lease %s is older than the oldest", id)
	}
}

// checkAccounts recomputes what is counted for each principal.
func checkAccounts(leases *leaseTable, kept *delays) (err error) {
	type counted struct{ leases, text int64 }
	want := map[string]counted{}
	add := func(account *quota.Account, leases, text int64) {
		if name := account.Principal(); name != "" {
			n := want[name]
			want[name] = counted{n.leases + leases, n.text + text}
		}
	}
	for l := range leases.byID.All() {
		add(l.account, int64(l.width()), int64(l.text))
	}
	for _, d := range kept.byID {
		add(d.account, int64(len(d.at)), 0)
	}
	for account := range leases.accounts.All {
		n, text := account.Used()
		if is := (counted{n, text}); is != want[account.Name] {
			err = errors.Join(err, fmt.Errorf("%s has %v; counted %v", account.Name, want[account.Name], is))
		}
		delete(want, account.Name)
	}
	for name := range want {
		err = errors.Join(err, fmt.Errorf("%s has leases and no account", name))
	}
	return err
}

func checkQueues(replica *queues.Replica, leases *leaseTable, kept *quota.Quota) (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	settings := int64(0)
	for s := range replica.All {
		s.Queues.Scan(func(q *queues.Queue) bool {
			if q.HasSettingsDir() {
				settings++
			}
			for _, c := range q.Contenders.All() {
				if _, s := leases.slotOf(q, c); s != nil && replica.Observed(c) != (queues.Observed{}) {
					fail("%s: it is observed, and a lease's of this gateway", c.Name)
				}
			}
			return true
		})
	}
	if kept.Used(quota.Settings) < settings { // there are more while settings are on their way
		fail("%d locks have settings; counted %d", settings, kept.Used(quota.Settings))
	}
	return errors.Join(err, replica.Check())
}

func checkDelays(kept *delays, leases *leaseTable, replica *queues.Replica) (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	slots := 0
	for id, d := range kept.byID {
		slots += len(d.at)
		if leases.lease(id) != nil {
			fail("lease %s lives, and its place stays for its lock delay", id)
		}
		if _, ok := kept.line.Get(d); !ok || d.id != id {
			fail("the lock delay of %s never ends", id)
		}
		if len(d.at) == 0 {
			fail("the lock delay of %s keeps no place", id)
		}
		for _, at := range d.at {
			if c := at.Queue.Contenders.Get(at.Contender.Name); c != nil && !replica.Observed(c).SuppressEvents {
				fail("%s: the end of its lease would be published twice", c.Name)
			}
		}
	}
	if slots != kept.slots {
		fail("the lock delays keep %d places; counted %d", slots, kept.slots)
	}
	if len(kept.byID) != kept.line.Len() {
		fail("%d lock delays, %d in line", len(kept.byID), kept.line.Len())
	}
	return err
}
