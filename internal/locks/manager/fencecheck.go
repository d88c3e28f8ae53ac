package manager

import (
	"context"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// A protected resource sends a fence check before it accepts a write: "is the holder with this token still the
// holder?" The answer must never be "current" for a lease that ended, or whose successor was granted, before the
// question arrived. This also holds for a gateway that is behind, deposed or cut off without having noticed. So
// "current" is answered only from the replica after a barrier. A guarded transaction that was sent after the question
// has committed, which is impossible for a deposed gateway. The observer's stream has reached that transaction, so
// every earlier end is in the replica. A lease that had not ended then was current at that moment, which is after the
// question. "Not current" may come from memory where no later state of ZooKeeper can make it wrong.

const (
	// fenceLook bounds the waiters that are compared with a token. A client never receives the token of a lease that
	// waits.
	fenceLook = 1024
	// fenceShort is the longest queue whose contenders are all compared, and read if necessary.
	fenceShort = 64
)

// Why a token is not current.
const (
	fenceSuperseded = "superseded"
	fenceEnded      = "ended"
	fenceDelayed    = "delayed"
	fenceWaiting    = "waiting"
	fenceUnknown    = "unknown"
)

// Fence reports whether a fencing token is still current. An answer with Current may be passed on only while its Term
// is still valid.
func (m *Manager) Fence(ctx context.Context, req locks.FenceRequest) (locks.FenceAnswer, error) {
	if err := req.Check(); err != nil {
		return locks.FenceAnswer{}, err
	}
	if err := req.Principal.Check(access.Read, req.NS, req.Lock); err != nil {
		return locks.FenceAnswer{}, err
	}
	return locked2(m, func() (locks.FenceAnswer, error) {
		q, err := m.useQueue(req.NS, req.Lock)
		if err != nil {
			return locks.FenceAnswer{}, err
		}
		defer m.replica.Leave(q)
		czxid := req.Token - m.fleet.layout.FenceBase
		if f := m.find(q, czxid); f.sure {
			return f.answer(m), nil
		}
		return m.fenceAtPresent(ctx, q, czxid)
	})
}

// fenceAtPresent answers from the replica after a barrier. The monitor is held, and released while it waits.
func (m *Manager) fenceAtPresent(ctx context.Context, q *queues.Queue, czxid int64) (answer locks.FenceAnswer, err error) {
	ref := m.port.Present()
	cross := func() (err error) {
		m.outside(func() { ref, err = m.barrierUnder(ctx) })
		return err
	}
	if !fault.On("fence-memory") {
		if err := cross(); err != nil {
			return answer, err
		}
	}
	described, looked := false, false
	for begun := m.clock.Now().Boot(); ; {
		if err := m.usable(); err != nil {
			return answer, err
		}
		f := m.find(q, czxid)
		if (f.behind || f.busy != nil) && m.overdue(begun, m.clock.Now().Boot()) {
			return answer, unavailable()
		}
		switch {
		case f.behind:
			if err := cross(); err != nil {
				return answer, err
			}
		case f.busy != nil:
			if err := m.sleepABeat(ctx, f.busy.changed()); err != nil {
				return answer, err
			}
		case len(f.unread)+len(f.curious) > 0 && !described:
			described = true
			m.describe(ctx, q, append(f.unread, f.curious...))
		case f.record.Contender != nil && !looked:
			looked = true
			m.describe(ctx, f.record.Queue, []*recipe.Contender{f.record.Contender})
		case len(f.unread) > 0, f.record.Contender != nil:
			e := unavailable()
			e.Detail = "a holder's contender could not be read in ZooKeeper, so its fencing token is not known; ask again, and check the ACLs if it stays so"
			return answer, e
		default:
			if answer = f.answer(m); answer.Current {
				answer.Term = ref.Term
			}
			return answer, nil
		}
	}
}

// finding is the replica's state of a token at one moment.
type finding struct {
	current bool
	reason  string              // why it is not current
	highest int64               // czxid
	sure    bool                // not current, whatever the later state of ZooKeeper
	busy    *lease              // the outcome for this lease must be known first
	load    []*lease            // the records of these leases must be read first
	behind  bool                // the replica must reach the writer's state first: see queues.Queue.Awaits
	unread  []*recipe.Contender // these must be read first
	curious []*recipe.Contender // these are read to find why it is not current
	record  queues.Location     // this record is read, when it is set
}

func (f *finding) answer(m *Manager) locks.FenceAnswer {
	return locks.FenceAnswer{Current: f.current, Reason: f.reason, Highest: m.fleet.fencingToken(f.highest)}
}

// find returns the finding for a token, and begins to read the records that are missing. The monitor is held.
func (m *Manager) find(q *queues.Queue, czxid int64) finding {
	f := m.answers.find(q, czxid)
	for _, l := range f.load {
		l.load(m)
	}
	return f
}

// find returns the finding for a token.
func (a *answers) find(q *queues.Queue, czxid int64) finding {
	f := finding{reason: fenceUnknown}
	var bearer *recipe.Contender
	for c := range q.Contenders.Holders() {
		first, known := a.firstCzxid(q, c)
		l := a.leases.leaseOf(q, c)
		if l != nil && l.wasGranted() || l == nil && a.holdsByName(q, c) {
			f.highest = max(f.highest, first)
		}
		switch {
		case known && first == czxid:
			bearer = c
		case known, l != nil && l.Creating(): // no client has its token yet
		case l != nil:
			f.load = append(f.load, l)
			f.busy = l
		default:
			f.unread = append(f.unread, c)
		}
	}
	for token := range a.history.Tokens(postmortem.Place{NS: q.Namespace.Name, Lock: q.Name()}, fenceLook) {
		ended := token - a.fleet.layout.FenceBase
		f.highest = max(f.highest, ended)
		if ended == czxid {
			f.reason, f.sure = fenceEnded, true
		}
	}
	var waiters []*recipe.Contender
	complete := false
	if bearer == nil {
		bearer, waiters, complete = a.waiterWith(q, czxid)
	}
	switch {
	case bearer != nil:
		return a.bearer(q, bearer, f)
	case f.highest > max(czxid, 0):
		// A later contender has been seen to hold, so the replica is past the token's creation. If no contender in the
		// queue has the token, its contender is gone.
		f.reason, f.sure = fenceSuperseded, f.sure || complete
	case !f.sure:
		f.curious = waiters
	}
	if f.sure {
		f.busy, f.unread = nil, nil
	}
	return f
}

// waiterWith returns the queue's contender with the token. Without one, unread are the contenders whose tokens are not
// known, if the queue is short; complete reports that it is short and there are none.
func (a *answers) waiterWith(q *queues.Queue, czxid int64) (bearer *recipe.Contender, unread []*recipe.Contender, complete bool) {
	short := q.Contenders.Len() <= fenceShort
	for i, c := range q.Contenders.All() {
		if i == fenceLook {
			break
		}
		first, known := a.firstCzxid(q, c)
		switch {
		case known && first == czxid:
			return c, nil, false
		case !known && short:
			unread = append(unread, c)
		}
	}
	return nil, unread, short && len(unread) == 0
}

// bearer completes a finding with whether the contender with the token is current.
func (a *answers) bearer(q *queues.Queue, c *recipe.Contender, so finding) finding {
	f := finding{highest: so.highest, load: so.load}
	l := a.leases.leaseOf(q, c)
	switch {
	case l == nil && !a.holdsByName(q, c):
		f.reason = fenceWaiting
	case l == nil && a.orphans[c.LeaseID] != nil:
		f.reason = fenceEnded
	case l == nil && q.Awaits(c):
		f.behind = true
	case l == nil && q.Node(c.Name) == nil:
		f.unread = []*recipe.Contender{c}
	case l == nil && a.replica.Record(queues.Location{Queue: q, Contender: c}).Node() == nil:
		f.record = a.replica.Record(queues.Location{Queue: q, Contender: c}) // it shows whether the lease ended
	case l == nil && a.delays.has(a.leases, a.replica, q, c):
		f.reason = fenceDelayed
	case l == nil:
		f.current = true
	case l.term != a.port.Term(), l.Ending():
		f.busy = l // it moves to another session or ends, and either may fail
	case !l.Record().Loaded():
		f.load = append(f.load, l)
		f.busy = l // its record may end it
	case l.Held():
		f.current = true
	case l.turn():
		f.busy = l // its grant is under way, or the gateway that ran it before granted it
	default:
		f.reason = fenceWaiting
	}
	return f
}

func (l *lease) wasGranted() bool { return !l.Ended() && l.Grant().Granted() }

func (a *answers) holdsByName(q *queues.Queue, c *recipe.Contender) bool {
	if c.Ours && !c.Unknown {
		return a.replica.LeaseHolds(q, c)
	}
	return q.Contenders.Holds(c.Name)
}

// firstCzxid returns the czxid from which a contender's fencing token is computed, once it is known.
func (a *answers) firstCzxid(q *queues.Queue, c *recipe.Contender) (czxid int64, known bool) {
	if l := a.leases.leaseOf(q, c); l != nil {
		return l.czxid, l.czxid != 0
	}
	if c.FirstCzxid != 0 {
		return c.FirstCzxid, true
	}
	if i := q.Node(c.Name); i != nil {
		return i.Czxid, true
	}
	return 0, false
}
