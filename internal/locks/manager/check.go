package manager

import (
	"errors"
	"fmt"
	"reflect"

	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
)

// CheckAll recomputes from scratch what the manager keeps as things change, and
// returns everything that is not true: leases that have ended and are kept, or
// have no clock, or are not where the heap of deadlines says; delays of leases that live, or that never end; two holders of one
// lock; counts and the line of those who wait. It holds the lock meanwhile and
// takes time in proportion to all leases and contenders: it is for tests and
// simulations.
func (m *Manager) CheckAll() error {
	return locked(m, func() error {
		return errors.Join(m.leases.counts.forbidden, m.checkLeases(), m.checkQueues(), m.checkDelays(), checkBack(&m.back))
	})
}

func (m *Manager) checkLeases() (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	var phases [ended][kinds]int
	waits, heldUp, tickets, texts := 0, 0, int64(0), int64(0)
	holders := map[string]*slot{}
	slots := 0
	for id, l := range m.leases.byID {
		if l.phase == ended {
			fail("lease %s has ended and is kept", id)
			continue
		}
		phases[l.phase][l.kind]++
		if wrong := l.checkState(); wrong != nil {
			fail("%w", wrong)
		}
		slots += l.width()
		if l.change == changeHeldUp {
			heldUp++
		}
		if texts += int64(l.text); int64(l.text) != l.textBytes() && l.recordState == recordCurrent {
			fail("the texts of lease %s are counted as %d bytes and are %d", id, l.text, l.textBytes())
		}
		if l.ticket && l.phase.waits() {
			tickets++
		}
		if l.kind != kindOf(l) {
			fail("lease %s is counted as %s and is %s", id, l.kind.mode(), kindOf(l).mode())
		}
		if l.phase == held {
			for s := range l.slots {
				other := holders[s.q.Path]
				if other != nil && other.contender.LeaseID != id && (other.contender.Mode != s.contender.Mode || s.contender.Mode == recipe.Exclusive) {
					fail("%s is held by %s and %s", s.q.Path, other.name(), s.name())
				}
				holders[s.q.Path] = s
			}
		}
		if l.heapIndex >= 0 && m.timers.deadlines.leases[l.heapIndex] != l {
			fail("lease %s is not where the heap says", id)
		}
		if (l.phase == held || l.phase == waiting) && l.term == m.port.Term() && l.heapIndex < 0 {
			fail("lease %s (%d) has no clock", id, l.phase)
		}
		if !l.phase.waits() {
			continue
		}
		waits++
		if l.lineIndex < 0 || int(l.lineIndex) >= m.leases.counts.line.Len() || m.leases.counts.line.leases[l.lineIndex] != l {
			fail("lease %s waits, and is not in the line", id)
		} else if m.leases.counts.line.leases[0].since > l.since {
			fail("lease %s is older than the oldest", id)
		}
	}
	if m.quota.Used(quota.Tickets) != tickets || m.quota.Used(quota.MetadataBytes) != texts {
		fail("%d tickets, %d bytes of texts; counted %d, %d", tickets, texts, m.quota.Used(quota.Tickets), m.quota.Used(quota.MetadataBytes))
	}
	if heldUp != m.leases.counts.heldUp {
		fail("%d ends wait for the outbox; counted %d", heldUp, m.leases.counts.heldUp)
	}
	if !reflect.ValueOf(noRare).IsZero() {
		fail("the rare fields of leases that have none were written")
	}
	if slots != m.leases.counts.slots {
		fail("the leases have %d slots; counted %d", slots, m.leases.counts.slots)
	}
	if phases != m.leases.counts.phases || waits != m.leases.counts.line.Len() {
		fail("leases by phase are %v, %d in line; counted %v, %d", phases, waits, m.leases.counts.phases, m.leases.counts.line.Len())
	}
	return err
}

func (m *Manager) checkQueues() (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	settings := int64(0)
	for s := range m.replica.All {
		s.Queues.Scan(func(q *queues.Queue) bool {
			if q.HasSettingsDir() {
				settings++
			}
			for _, c := range q.Contenders.All() {
				if _, s := m.leases.slotOf(q, c); s != nil && m.replica.Observed(c) != (queues.Observed{}) {
					fail("%s: it is observed, and a lease's of this gateway", c.Name)
				}
			}
			return true
		})
	}
	if m.quota.Used(quota.Settings) < settings { // there are more while settings are on their way
		fail("%d locks have settings; counted %d", settings, m.quota.Used(quota.Settings))
	}
	return errors.Join(err, m.replica.Check())
}

func (m *Manager) checkDelays() (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	slots := 0
	for id, d := range m.delays.byID {
		slots += len(d.at)
		if m.leases.byID[id] != nil {
			fail("lease %s lives, and its place stays for its lock delay", id)
		}
		if _, ok := m.delays.line.Get(d); !ok || d.id != id {
			fail("the lock delay of %s never ends", id)
		}
		if len(d.at) == 0 {
			fail("the lock delay of %s keeps no place", id)
		}
		for _, at := range d.at {
			if c := at.Queue.Contenders.Get(at.Contender.Name); c != nil && !m.replica.Observed(c).SuppressEvents {
				fail("%s: the end of its lease would be told twice", c.Name)
			}
		}
	}
	if slots != m.delays.slots {
		fail("the lock delays keep %d places; counted %d", slots, m.delays.slots)
	}
	if len(m.delays.byID) != m.delays.line.Len() {
		fail("%d lock delays, %d in line", len(m.delays.byID), m.delays.line.Len())
	}
	return err
}

func checkBack(b *back) (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	n, waiting := 0, 0
	for dir, list := range b.locks {
		n += len(list)
		if len(list) == 0 || list[0].about == "" {
			fail("%s: what is held back waits for nothing", dir)
		}
		for _, h := range list {
			if h.about != "" {
				waiting++
			}
		}
	}
	if n != b.n {
		fail("%d events are held back; counted %d", n, b.n)
	}
	for _, list := range b.waiting {
		waiting -= len(list)
	}
	if waiting != 0 {
		fail("%d events wait for a word that will not find them", waiting)
	}
	return err
}
