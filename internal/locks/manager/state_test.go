package manager

import (
	"log/slog"
	"strings"
	"testing"

	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

// TestTablesOfALeasesState walks the table of each enum: it has a row for each value, each value but the first is reached from
// the first or from where leases begin, and the function that makes transitions tells of exactly those that are not in it.
func TestTablesOfALeasesState(t *testing.T) {
	for _, enum := range []struct {
		name  string
		table table
		begin values // of a lease that is new
		last  uint8
		set   func(m *Manager, l *lease, from, to uint8)
	}{
		{"phase", phaseTable, of(creating, waiting), uint8(ended), func(m *Manager, l *lease, from, to uint8) {
			l.phase, l.lineIndex = phase(from), -1
			m.leases.counts.stand(l)
			m.leases.setPhase(l, phase(to))
		}},
		{"record", recordTable, of(recordUnread, recordCurrent), uint8(recordContested), func(m *Manager, l *lease, from, to uint8) {
			l.recordState = recordState(from)
			l.setRecord(m.leases, recordState(to))
		}},
		{"grant", grantTable, of(grantNone), uint8(grantClaimed), func(m *Manager, l *lease, from, to uint8) {
			l.grant = grantState(from)
			l.setGrant(m.leases, grantState(to))
		}},
		{"change", changeTable, of(changeNone), uint8(changePaused), func(m *Manager, l *lease, from, to uint8) {
			l.change = change(from)
			l.setChange(m.leases, change(to))
		}},
		{"note", noteTable, of(noteNone), uint8(noteDone), func(m *Manager, l *lease, from, to uint8) {
			l.endNote = noteState(from)
			l.setNote(m.leases, noteState(to))
		}},
		{"presence", presenceTable, of(slotUnseen), uint8(slotGone), func(m *Manager, l *lease, from, to uint8) {
			l.presence = presence(from)
			l.setPresence(m.leases, l, presence(to))
		}},
		{"access", accessTable, of(accessFull), uint8(accessNoDelete), func(m *Manager, l *lease, from, to uint8) {
			l.access = accessState(from)
			l.setAccess(m.leases, accessState(to))
		}},
	} {
		t.Run(enum.name, func(t *testing.T) {
			assert.Must(t, len(enum.table) == int(enum.last)+1, "%d rows for %d values", len(enum.table), enum.last+1)
			reached := enum.begin
			for range enum.table {
				for from, row := range enum.table {
					if reached.has(uint8(from)) {
						reached |= row.next
					}
				}
			}
			for from, row := range enum.table {
				assert.That(t, row.name != "" && reached.has(uint8(from)) && row.next&^every(enum.table) == 0 && !row.next.has(uint8(from)),
					"row %d (%q) has no name, is not reached, or leads to itself or to no row", from, row.name)
				for to := range enum.table {
					m := New(Options{Logger: slog.New(slog.DiscardHandler)})
					l := &lease{heapIndex: -1}
					l.q, l.contender = &queues.Queue{}, &recipe.Contender{}
					enum.set(m, l, uint8(from), uint8(to))
					err := m.CheckAll()
					if allowed := from == to || row.next.has(uint8(to)); allowed != (m.leases.counts.forbidden == nil) {
						t.Errorf("from %s to %s: allowed %v, and told %v", row.name, enum.table[to].name, allowed, m.leases.counts.forbidden)
					} else if !allowed && (err == nil || !strings.Contains(err.Error(), row.name+" to "+enum.table[to].name)) {
						t.Errorf("from %s to %s: CheckAll returns %v", row.name, enum.table[to].name, err)
					}
				}
			}
		})
	}
}

// TestCombinationsOfALeasesState: CheckAll returns what does not go together.
func TestCombinationsOfALeasesState(t *testing.T) {
	for _, c := range []struct {
		name  string
		l     lease
		wrong bool
	}{
		{"a new lease", lease{phase: creating, recordState: recordCurrent}, false},
		{"one that was taken over", lease{phase: waiting, recordState: recordUnread, grant: grantAcknowledged}, false},
		{"held and unread", lease{phase: held, recordState: recordReading, grant: grantClaimed}, true},
		{"held without a grant", lease{phase: held, recordState: recordCurrent}, true},
		{"granted and waiting", lease{phase: waiting, recordState: recordCurrent, grant: grantUnclaimed}, true},
		{"held while it is downgraded", lease{phase: held, recordState: recordWriting, grant: grantClaimed, change: changeReplacing}, false},
		{"ending in the record", lease{phase: ending, recordState: recordRereading, grant: grantClaimed, change: changeReading}, false},
		{"ending, and nothing goes on", lease{phase: ending, recordState: recordCurrent, grant: grantClaimed}, true},
		{"deleted while it is held", lease{phase: held, recordState: recordCurrent, grant: grantClaimed, change: changeDeleting}, true},
		{"its fate is read, and known", lease{phase: ending, recordState: recordCurrent, grant: grantClaimed, change: changeReading}, true},
		{"undeletable while it is created", lease{phase: creating, recordState: recordCurrent, access: accessNoDelete}, true},
		{"written while it is created", lease{phase: creating, recordState: recordWriting}, true},
	} {
		c.l.contender = &recipe.Contender{}
		err := c.l.checkState()
		assert.That(t, (err != nil) == c.wrong, "%s: %v", c.name, err)
	}
}
