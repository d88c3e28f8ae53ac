package lifecycle

import (
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// ledger counts what a State reports.
type ledger struct {
	forbidden error
	heldUp    int
}

func (g *ledger) Forbidden(_ *State, err error) { g.forbidden = err }

func (g *ledger) HeldUp(by int) { g.heldUp += by }

// TestTables walks the table of each enum: it has a row for each value, each value is reached from those with which a lease
// begins, and the method that makes transitions reports exactly those that are not in it.
func TestTables(t *testing.T) {
	for _, enum := range []struct {
		name  string
		table table
		begin values
		last  uint8
		set   func(g Ledger, from, to uint8)
	}{
		{"phase", phaseTable, of(Creating, Waiting), uint8(Ended), func(g Ledger, from, to uint8) { (&State{phase: Phase(from)}).Enter(g, Phase(to)) }},
		{"record", recordTable, of(RecordUnread, RecordCurrent), uint8(RecordContested), func(g Ledger, from, to uint8) {
			(&State{record: Record(from)}).SetRecord(g, Record(to))
		}},
		{"grant", grantTable, of(GrantNone), uint8(GrantClaimed), func(g Ledger, from, to uint8) { (&State{grant: Grant(from)}).SetGrant(g, Grant(to)) }},
		{"change", changeTable, of(ChangeNone), uint8(ChangePaused), func(g Ledger, from, to uint8) { (&State{change: Change(from)}).SetChange(g, Change(to)) }},
		{"note", noteTable, of(NoteNone), uint8(NoteDone), func(g Ledger, from, to uint8) { (&State{note: Note(from)}).SetNote(g, Note(to)) }},
		{"access", accessTable, of(AccessFull), uint8(AccessNoDelete), func(g Ledger, from, to uint8) { (&State{access: Access(from)}).SetAccess(g, Access(to)) }},
		{"presence", presenceTable, of(Unseen), uint8(Gone), func(g Ledger, from, to uint8) {
			p := Presence(from)
			p.Set(g, &State{}, Presence(to))
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
					g := &ledger{}
					enum.set(g, uint8(from), uint8(to))
					allowed := from == to || row.next.has(uint8(to))
					assert.That(t, allowed == (g.forbidden == nil), "from %s to %s: allowed %v, reported %v", row.name, enum.table[to].name, allowed, g.forbidden)
					assert.That(t, allowed || strings.Contains(g.forbidden.Error(), row.name+" to "+enum.table[to].name), "%v", g.forbidden)
				}
			}
		})
	}
}

func TestCombinations(t *testing.T) {
	for _, c := range []struct {
		name  string
		s     State
		wrong bool
	}{
		{"a new lease", New(Creating, RecordCurrent), false},
		{"one that was taken over", State{phase: Waiting, grant: GrantAcknowledged}, false},
		{"held and unread", State{phase: Held, record: RecordReading, grant: GrantClaimed}, true},
		{"held without a grant", State{phase: Held, record: RecordCurrent}, true},
		{"granted and waiting", State{phase: Waiting, record: RecordCurrent, grant: GrantUnclaimed}, true},
		{"held while it is downgraded", State{phase: Held, record: RecordWriting, grant: GrantClaimed, change: ChangeReplacing}, false},
		{"ending in the record", State{phase: Ending, record: RecordRereading, grant: GrantClaimed, change: ChangeReading}, false},
		{"ending, and nothing goes on", State{phase: Ending, record: RecordCurrent, grant: GrantClaimed}, true},
		{"deleted while it is held", State{phase: Held, record: RecordCurrent, grant: GrantClaimed, change: ChangeDeleting}, true},
		{"its fate is read, and known", State{phase: Ending, record: RecordCurrent, grant: GrantClaimed, change: ChangeReading}, true},
		{"undeletable while it is created", State{phase: Creating, record: RecordCurrent, access: AccessNoDelete}, true},
		{"written while it is created", State{phase: Creating, record: RecordWriting}, true},
	} {
		err := c.s.Check()
		assert.That(t, (err != nil) == c.wrong, "%s: %v", c.name, err)
	}
}

// TestSteps walks the methods that choose the transition by the present value.
func TestSteps(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to State
		step     func(*State, Ledger)
	}{
		{"an end that nothing holds up stops with the lease", State{phase: Ending, change: ChangeHeldUp}, State{phase: Ended}, func(s *State, g Ledger) { s.Enter(g, Ended) }},
		{"a downgrade goes on while the lease waits for its end", State{phase: Held, change: ChangeReplacing}, State{phase: Ending, change: ChangeReplacing}, func(s *State, g Ledger) { s.Enter(g, Ending) }},
		{"a downgrade goes on when the end is not done", State{phase: Ending, change: ChangeReplacing}, State{phase: Held, change: ChangeReplacing}, func(s *State, g Ledger) { s.Enter(g, Held) }},
		{"a loaded record becomes stale", State{record: RecordContested}, State{record: RecordStale}, (*State).StaleRecord},
		{"a record that is being read stays so", State{record: RecordReading}, State{record: RecordReading}, (*State).StaleRecord},
		{"the first read begins", State{}, State{record: RecordReading}, func(s *State, g Ledger) { s.BeginRead(g) }},
		{"a later read begins", State{record: RecordStale}, State{record: RecordRereading}, func(s *State, g Ledger) { s.BeginRead(g) }},
		{"a current record is not read", State{record: RecordCurrent}, State{record: RecordCurrent}, func(s *State, g Ledger) { s.BeginRead(g) }},
		{"the first read fails", State{record: RecordReading}, State{}, (*State).UnreadRecord},
		{"a later read fails", State{record: RecordRereading}, State{record: RecordStale}, (*State).UnreadRecord},
		{"a contested write ends", State{record: RecordContested}, State{record: RecordCurrent}, func(s *State, g Ledger) { s.EndWrite(g) }},
		{"no write ends where none was", State{record: RecordStale}, State{record: RecordStale}, func(s *State, g Ledger) { s.EndWrite(g) }},
		{"the end of another term is paused", State{phase: Ending, change: ChangeDeleting}, State{phase: Ending, change: ChangePaused}, (*State).ForgetChange},
		{"the downgrade of another term is forgotten", State{phase: Ending, change: ChangeReplacing}, State{phase: Ending}, (*State).ForgetChange},
		{"a grant is acknowledged once", State{grant: GrantClaimed}, State{grant: GrantClaimed}, (*State).Acknowledge},
		{"a note is handed over", State{}, State{note: NoteSubmitted}, (*State).NoteHandedOver},
		{"a note that is there stays", State{note: NoteDone}, State{note: NoteDone}, (*State).NoteTakenBack},
		{"a note is taken back", State{note: NoteSubmitted}, State{}, (*State).NoteTakenBack},
	} {
		g := &ledger{heldUp: 1}
		s := c.from
		c.step(&s, g)
		assert.That(t, s == c.to && g.forbidden == nil, "%s: %+v, reported %v", c.name, s, g.forbidden)
		assert.That(t, (g.heldUp == 0) == (c.from.change == ChangeHeldUp), "%s: %d ends wait for the outbox", c.name, g.heldUp)
	}
	for from, want := range map[Presence][2]Presence{Unseen: {Unseen, Gone}, Seen: {Unseen, Deleted}, Deleted: {Gone, Deleted}, Gone: {Gone, Gone}} {
		g, hidden, deleted := &ledger{}, from, from
		hidden.Hide(g, &State{})
		deleted.Delete(g, &State{})
		assert.That(t, hidden == want[0] && deleted == want[1] && g.forbidden == nil, "%d: hidden %d, deleted %d, reported %v", from, hidden, deleted, g.forbidden)
	}
}
