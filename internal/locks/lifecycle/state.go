package lifecycle

import "fmt"

// State is the state of one lease. The zero State is that of a lease that is being created and whose record was not read.
type State struct {
	phase  Phase
	record Record
	grant  Grant
	change Change
	note   Note
	access Access
}

// New is the state with which a lease begins.
func New(phase Phase, record Record) State { return State{phase: phase, record: record} }

// Ledger is what the owner of many leases keeps of their transitions.
type Ledger interface {
	// Forbidden reports a transition that its table does not have.
	Forbidden(of *State, err error)
	// HeldUp counts the ends that wait for the outbox: 1 for one that begins to wait, -1 for one that stops.
	HeldUp(by int)
}

// move makes a transition.
func move[S ~uint8](g Ledger, of *State, what string, rows table, at *S, to S) {
	if *at == to {
		return
	}
	if !rows[*at].next.has(uint8(to)) {
		g.Forbidden(of, fmt.Errorf("the %s went from %s to %s", what, rows[*at].name, rows[to].name))
	}
	*at = to
}

// Phase is where the lease stands for its client.
func (s *State) Phase() Phase { return s.phase }

// Creating reports whether the create's outcome is outstanding.
func (s *State) Creating() bool { return s.phase == Creating }

// Waiting reports whether the lease waits in its queues, and its contenders are there.
func (s *State) Waiting() bool { return s.phase == Waiting }

// Held reports whether the lease is held.
func (s *State) Held() bool { return s.phase == Held }

// Ending reports whether the lease's end was handed over and is not certain.
func (s *State) Ending() bool { return s.phase == Ending }

// Ended reports whether the lease has ended.
func (s *State) Ended() bool { return s.phase == Ended }

// Settled reports whether the lease waits or is held, with neither its create nor its end under way.
func (s *State) Settled() bool { return s.phase == Waiting || s.phase == Held }

// Record is what is known of the lease's record.
func (s *State) Record() Record { return s.record }

// Grant is how far the grant has come.
func (s *State) Grant() Grant { return s.grant }

// Change is what is under way with the contenders.
func (s *State) Change() Change { return s.change }

// Note is what the outbox has of the lease's end.
func (s *State) Note() Note { return s.note }

// Access is what ACLs leave of the access to the contender.
func (s *State) Access() Access { return s.access }

// Enter makes a transition of the phase and ends what was under way; a downgrade goes on while the lease lives. The owner
// counts leases by their phases, so it alone calls Enter.
func (s *State) Enter(g Ledger, to Phase) {
	move(g, s, "phase", phaseTable, &s.phase, to)
	if to == Ended || to != Ending && s.change != ChangeReplacing {
		s.SetChange(g, ChangeNone)
	}
}

// SetRecord makes a transition of the record.
func (s *State) SetRecord(g Ledger, to Record) { move(g, s, "record", recordTable, &s.record, to) }

// SetGrant makes a transition of the grant.
func (s *State) SetGrant(g Ledger, to Grant) { move(g, s, "grant", grantTable, &s.grant, to) }

// SetNote makes a transition of the note of the end.
func (s *State) SetNote(g Ledger, to Note) { move(g, s, "note of the end", noteTable, &s.note, to) }

// SetAccess makes a transition of the access.
func (s *State) SetAccess(g Ledger, to Access) { move(g, s, "access", accessTable, &s.access, to) }

// SetChange makes a transition of the change.
func (s *State) SetChange(g Ledger, to Change) {
	if s.change == ChangeHeldUp {
		g.HeldUp(-1)
	}
	move(g, s, "change", changeTable, &s.change, to)
	if to == ChangeHeldUp {
		g.HeldUp(1)
	}
}

// StaleRecord has the record read before it is acted upon.
func (s *State) StaleRecord(g Ledger) {
	if s.record.Loaded() {
		s.SetRecord(g, RecordStale)
	}
}

// BeginRead reports whether the record is to be read and no read was under way.
func (s *State) BeginRead(g Ledger) bool {
	switch s.record {
	case RecordUnread:
		s.SetRecord(g, RecordReading)
	case RecordStale:
		s.SetRecord(g, RecordRereading)
	default:
		return false
	}
	return true
}

// UnreadRecord ends a read that did not tell the record.
func (s *State) UnreadRecord(g Ledger) {
	switch s.record {
	case RecordReading:
		s.SetRecord(g, RecordUnread)
	case RecordRereading:
		s.SetRecord(g, RecordStale)
	}
}

// EndWrite ends a write of the record, and reports whether the record was written meanwhile, perhaps only by this gateway.
func (s *State) EndWrite(g Ledger) (contested bool) {
	contested = s.record == RecordContested
	if s.record.Writing() {
		s.SetRecord(g, RecordCurrent)
	}
	return contested
}

// ForgetChange forgets what was under way under the former term: the replica shows what became of it.
func (s *State) ForgetChange(g Ledger) {
	if s.phase == Ending && s.change != ChangeReplacing {
		s.SetChange(g, ChangePaused)
	} else {
		s.SetChange(g, ChangeNone)
	}
}

// Acknowledge records that the lease's client may have been told that it holds.
func (s *State) Acknowledge(g Ledger) {
	if s.grant == GrantNone {
		s.SetGrant(g, GrantAcknowledged)
	}
}

// NoteHandedOver records that a transaction that may be done has the note of the lease's end.
func (s *State) NoteHandedOver(g Ledger) {
	if s.note == NoteNone {
		s.SetNote(g, NoteSubmitted)
	}
}

// NoteTakenBack records that the transaction with the note was definitely not done.
func (s *State) NoteTakenBack(g Ledger) {
	if s.note == NoteSubmitted {
		s.SetNote(g, NoteNone)
	}
}

// Check returns what is wrong with the combination of the values.
func (s *State) Check() error {
	allowed := combinations[s.phase]
	if allowed.record.has(uint8(s.record)) && allowed.grant.has(uint8(s.grant)) && allowed.change.has(uint8(s.change)) && allowed.access.has(uint8(s.access)) &&
		(!s.change.Fate() || !s.record.Loaded()) {
		return nil
	}
	return fmt.Errorf("it is %s, with its record %s, its grant %s, the change %s and access %s", phaseTable[s.phase].name,
		recordTable[s.record].name, grantTable[s.grant].name, changeTable[s.change].name, accessTable[s.access].name)
}

// Set makes a transition of the presence of a contender of the lease with that state.
func (p *Presence) Set(g Ledger, of *State, to Presence) {
	move(g, of, "presence of a contender", presenceTable, p, to)
}

// Hide records that the replica does not show the contender any more, which does not prove that it is gone.
func (p *Presence) Hide(g Ledger, of *State) {
	switch *p {
	case Seen:
		p.Set(g, of, Unseen)
	case Deleted:
		p.Set(g, of, Gone)
	}
}

// Delete records that the contender is gone for certain, which the replica may not show yet.
func (p *Presence) Delete(g Ledger, of *State) {
	switch *p {
	case Unseen:
		p.Set(g, of, Gone)
	case Seen:
		p.Set(g, of, Deleted)
	}
}
