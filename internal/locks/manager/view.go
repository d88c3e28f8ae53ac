package manager

import (
	"iter"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/parties"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

const (
	// describeWithin bounds how long an answer waits for the data of contenders. Without it they are shown by name.
	describeWithin = 500 * time.Millisecond
	// maxHolders is how many holders an error, a list and the answer to a change of settings show of a lock.
	maxHolders = 16
)

// answers reads the manager's state and changes nothing: it makes what requests are answered. The monitor guards it.
type answers struct {
	fleet       *fleet
	replica     *queues.Replica
	leases      *leaseTable
	delays      *delays
	orphans     orphans
	history     *postmortem.Log
	reports     *reports.Exchange
	port        *term.Port
	clock       zk.Clock
	parties     *parties.Known
	failoverTTL time.Duration // the shortest TTL that survives the crash of a gateway
	shortTTL    string        // the warning about a shorter one
}

// termOf is the present session when it owns the lease, else nothing.
func (a *answers) termOf(l *lease) locks.Term {
	if l.term != a.port.Term() {
		return 0
	}
	return presentTerm(a.port)
}

// lease is the lease as it is now, with what the rules let read of it: one of its locks at least.
func (a *answers) lease(l *lease, rules *access.Rules) locks.Lease {
	now := a.clock.Now().Boot()
	v := locks.Lease{
		ID: string(l.id()), State: locks.Waiting, TTL: l.ttl, FailoverSafe: l.ttl >= a.failoverTTL && !l.ephemeral(), Ephemeral: l.ephemeral(),
		Owner: l.owner, Principal: l.account.Principal(), Metadata: l.metadata(), Rev: a.leases.revString(l.rev), Term: a.termOf(l),
		Holds: record.Named(l.holdNames()), LockDelay: l.lockDelay(), Purpose: l.purpose(),
	}
	if r := l.reservation(); r != nil {
		v.TTL, v.EndsAt, v.ReservedFor = r.left(now), r.asked.EndsAt(), r.asked.Span()
	}
	if v.LockDelay > 0 {
		v.LockDelayOn = l.rareFields.lockDelayOn
	}
	v.AtLeast = l.atLeast()
	if o := l.once(); o != nil {
		v.OncePer, v.Period, v.DoneOn = o.Per, o.Period, o.On
	}
	for s := range l.slots {
		if s.readable(rules) {
			v.QueueLength = max(v.QueueLength, s.q.Contenders.Waiting())
		}
	}
	v.Revoke = l.revocation().view(now)
	phase := l.Phase()
	if l.over(a.reports) {
		phase = lifecycle.Ended
	}
	switch phase {
	case lifecycle.Creating, lifecycle.Waiting:
		for s := range l.slots {
			if s.readable(rules) {
				v.Position = max(v.Position, position(s))
			}
		}
		v.Position = max(v.Position, 1) // its turn has come: it is the next
		v.ExpiresIn = l.expiresIn(now)
	case lifecycle.Held:
		v.State, v.FencingToken, v.ExpiresIn = locks.Held, a.fleet.fencingToken(l.czxid), l.expiresIn(now)
		if v.TTLFrom = min(l.deadline-l.ttl, now); l.reservation() != nil {
			v.TTLFrom = now // from which on the TTL is left
		}
	case lifecycle.Ending:
		if l.Grant().Granted() {
			v.State, v.FencingToken = locks.Held, a.fleet.fencingToken(l.czxid)
		}
	case lifecycle.Ended:
		v.State, v.Reason = locks.Ended, l.reason()
		if l.Grant().Granted() {
			v.FencingToken = a.fleet.fencingToken(l.czxid)
		}
	}
	if v.State != locks.Ended {
		v.Warning, v.LastHeartbeat = a.warning(l), a.lastHeartbeat(l, now)
	}
	if l.contender.Groups > 1 {
		v.Locks = a.slots(l, &v, rules)
		if l.hides(rules) {
			if v.Revoke != nil {
				v.Revoke.By = "" // the caller may be known at a lock that is hidden
			}
			v.Rev = a.leases.nonce + "-" + v.ShownRev() // the lease's own tells that something changed there
		}
		return v
	}
	v.NS, v.Lock, v.Mode = l.q.Namespace.Name, l.q.Name(), locks.ModeOf(l.contender.Mode)
	v.Permits, v.Limit = int(l.contender.Permits), int(l.contender.Limit)
	if l.name() != "" {
		v.Znode = l.path()
	}
	return v
}

// lastHeartbeat is how long ago the last heartbeat of a lease's client was; 0 when there was none, or the lease is not this gateway's.
func (a *answers) lastHeartbeat(l *lease, now time.Duration) time.Duration {
	if l.beat == 0 || l.term != a.port.Term() || l.Record().Assumed() {
		return 0
	}
	return max(now-l.beat, 1)
}

// slots are the locks of a group that the rules let read.
func (a *answers) slots(l *lease, v *locks.Lease, rules *access.Rules) []locks.LeaseLock {
	list := make([]locks.LeaseLock, 0, l.width())
	for s := range l.slots {
		if s.contender.Member > 1 || !s.readable(rules) {
			continue
		}
		k := locks.LeaseLock{NS: s.q.Namespace.Name, Lock: s.q.Name(), Mode: locks.ModeOf(s.contender.Mode), FencingToken: v.FencingToken,
			Permits: int(s.contender.Permits), Limit: int(s.contender.Limit)}
		if s.name() != "" {
			k.Znode = s.path()
		}
		if v.State == locks.Waiting {
			k.Position = position(s)
		}
		list = append(list, k)
	}
	return list
}

func (a *answers) heartbeat(l *lease, now time.Duration) locks.Heartbeat {
	h := locks.Heartbeat{LeaseID: string(l.id()), State: locks.Waiting, ExpiresIn: l.expiresIn(now), TTL: l.ttl, Term: a.termOf(l),
		Revoke: l.revocation().view(now)}
	if r := l.reservation(); r != nil {
		h.TTL = r.left(now)
	}
	if l.Held() {
		h.State, h.FencingToken = locks.Held, a.fleet.fencingToken(l.czxid)
		for s := range l.slots {
			h.Waiters = max(h.Waiters, s.q.Contenders.Waiting())
		}
		return h
	}
	h.Position = 1 // when its turn has come it is the next
	for s := range l.slots {
		if position := position(s); position >= h.Position {
			h.Position, h.Waiters = position, max(s.q.Contenders.Waiting()-position, 0)
		}
	}
	return h
}

func viewPast(id recipe.LeaseID, p postmortem.End) locks.Lease {
	return locks.Lease{ID: string(id), NS: p.NS, Lock: p.Lock, Mode: locks.ModeOf(p.Mode), State: locks.Ended, Reason: p.Reason(),
		FencingToken: p.FencingToken, TTL: p.TTL, Rev: "ended"}
}

// contender shows a contender, without what only its client may see.
func (a *answers) contender(q *queues.Queue, c *recipe.Contender, position int) locks.Contender {
	now := a.clock.Now()
	v := locks.Contender{NS: q.Namespace.Name, At: now.Calendar(), Znode: q.NodeOf(c.Name), Mode: locks.ModeOf(c.Mode), Permits: int(c.Permits), Limit: int(c.Limit), Position: position,
		Ephemeral: c.Ephemeral}
	var czxid int64
	if i := q.Node(c.Name); i != nil {
		czxid = i.Czxid
		v.Owner, v.Principal, v.Metadata, v.Holds = i.Record.Owner, i.Record.Principal, i.Record.Metadata, record.Named(i.Record.Holds)
		v.Age, v.AgeKnown = max(v.At.Sub(time.Unix(0, int64(i.Created))), 0), true
		v.Revoke = i.Record.Revoke.View()
		v.Purpose, v.EndsAt, v.ReservedFor = i.Record.Purpose, i.Record.Reserve.EndsAt(), i.Record.Reserve.Span()
	}
	if c.Ours && !a.leases.copied(q, c) {
		v.LeaseID = string(c.LeaseID)
		v.Group = a.replica.OtherLocks(q, c)
		if l := a.leases.lease(c.LeaseID); l != nil {
			czxid = l.czxid
			v.Owner, v.Principal, v.Metadata, v.Holds = l.owner, l.account.Principal(), l.metadata(), record.Named(l.holdNames())
			if age, known := l.age(time.Duration(v.At.UnixNano())); known {
				v.Age, v.AgeKnown = age, true
			}
			if l.Settled() {
				v.ExpiresIn = l.expiresIn(now.Boot())
			}
			if l.term == a.port.Term() && !l.Record().Assumed() {
				v.Clock = l.clock()
			}
			v.LastHeartbeat = a.lastHeartbeat(l, now.Boot())
			v.Unclaimed = l.Held() && l.Grant() == lifecycle.GrantUnclaimed
			v.Revoke = l.revocation().view(now.Boot())
			if v.Purpose = l.purpose(); l.reservation() != nil {
				asked := &l.reservation().asked
				v.EndsAt, v.ReservedFor = asked.EndsAt(), asked.Span()
			}
		}
	} else {
		i := q.Node(c.Name)
		if v.Foreign = foreignView(c, i); i != nil && revokedOutside(i) {
			v.Revoke = &locks.Revocation{}
		}
		if c.Ours {
			v.Foreign.Kind = locks.KindCopiedID
		}
	}
	if recipe.IsKazooLease(c.Name) {
		v.Limit = int(q.Extras().Ceiling)
	}
	if position == 0 {
		v.FencingToken = a.fleet.fencingToken(czxid)
		a.heldFor(q, c, &v, now)
	}
	a.delay(q, c, &v, now.Boot())
	return v
}

// lock is the lock as a list shows it: with its first holders, without its waiters.
func (a *answers) lock(q *queues.Queue) locks.Lock {
	text := paging.MaxText
	return a.holders(q, 0, maxHolders, &text, nil)
}

// page is the lock with one page of its queue: its holders and its waiters from a place on, at most limit of each. Holders that
// fit on one page are on each page.
func (a *answers) page(q *queues.Queue, at paging.QueuePlace, limit int) locks.Lock {
	text := paging.MaxText / 2 // the other half is for the waiters, so that each page goes on
	holders := map[*recipe.Contender]bool{}
	v := a.holders(q, at.Holders, limit, &text, holders)
	next, more := at, at.Holders+len(v.Holders) < v.HolderCount
	if more || at.Holders > 0 {
		next.Holders += len(v.Holders)
	}
	text += paging.MaxText / 2
	position := 0
	var ahead recipe.Ahead
	if v.QueueLength > at.Waiters {
		for _, c := range q.Contenders.All() {
			waiter := !holders[c] && c.Member <= 1
			if waiter {
				position++
			}
			place := position
			if holders[c] {
				place = 0
			}
			wait := ahead.Next(c, place)
			if !waiter || position <= at.Waiters {
				continue
			}
			if len(v.Waiters) == limit {
				more = true
				break
			}
			view := a.contender(q, c, position)
			view.Wait = wait
			if !text.TakeContender(&view) && len(v.Waiters) > 0 {
				more = true
				break
			}
			v.Waiters = append(v.Waiters, view)
			next.Waiters = position
		}
	}
	if more {
		v.NextCursor = next.Cursor()
	}
	return v
}

// around is the place of the page on which a contender stands, of pages with at most limit holders and waiters. Without it
// that is the first page.
func (a *answers) around(q *queues.Queue, contender string, limit int) (at paging.QueuePlace) {
	text, holders := paging.MaxText, map[*recipe.Contender]bool{}
	a.holders(q, 0, 1, &text, holders)
	held, waits := 0, 0
	for _, c := range q.Contenders.All() {
		is := c.Name == contender || c.Ours && c.LeaseID != "" && string(c.LeaseID) == contender
		switch {
		case holders[c] && is:
			return paging.QueuePlace{Holders: held / limit * limit}
		case is:
			return paging.QueuePlace{Waiters: waits / limit * limit}
		case c.Member > 1:
		case holders[c]:
			held++
		default:
			waits++
		}
	}
	return paging.QueuePlace{}
}

// holders is the lock with some of its holders, from one on, at most limit and as the budget has room, and at least one. It adds
// the contenders of all holders to whole, unless that is nil.
func (a *answers) holders(q *queues.Queue, from, limit int, text *paging.Budget, whole map[*recipe.Contender]bool) locks.Lock {
	v := locks.Lock{NS: q.Namespace.Name, Name: q.Name(), Dialect: string(q.Namespace.Naming.Dialect()), Rev: a.leases.revString(q.Rev), Hazards: q.Hazards()}
	v.QueueLength = q.Contenders.Waiting()
	looked, full := 0, false
	for c := range q.Contenders.Holders() {
		looked++
		// Beyond MaxPage a contender of a group counts as a holder: whether its lease holds takes a look at each of its queues.
		if looked <= locks.MaxPage && queues.OneOfSeveral(c) && !a.replica.LeaseHolds(q, c) {
			if c.Member <= 1 {
				v.QueueLength++ // its lease waits for another lock
			}
			continue
		}
		if whole != nil {
			whole[c] = true
		}
		if c.Member > 1 {
			continue // a lease's other names stand beside its first
		}
		v.HolderCount++
		v.HeldPermits += int(c.Permits)
		if v.HolderCount <= from || len(v.Holders) == limit || full {
			continue
		}
		view := a.contender(q, c, 0)
		if full = !text.TakeContender(&view) && len(v.Holders) > 0; !full {
			v.Holders = append(v.Holders, view)
		}
	}
	v.State = a.lockState(q)
	v.Limit, v.LimitAgreed = q.Limit()
	return v
}

func (a *answers) lockState(q *queues.Queue) locks.LockState {
	if q.Contenders.Len() == 0 {
		return locks.LockFree
	}
	state := locks.LockQueued
	for c := range q.Contenders.Holders() {
		l := a.leases.leaseOf(q, c)
		switch {
		case c.Ours && !c.Unknown && !a.replica.LeaseHolds(q, c):
			continue // its lease waits for another lock
		case c.Ours && l != nil && l.Held() && l.Grant() == lifecycle.GrantUnclaimed:
			return locks.LockUnclaimed
		case l == nil && a.delays.has(a.leases, a.replica, q, c):
			if state == locks.LockQueued {
				state = locks.LockDelayed
			}
		case c.Ours && l != nil && l.Waiting() && l.term == a.port.Term():
			continue // its grant is under way
		default:
			state = locks.LockHeld
		}
	}
	return state
}

// foreignView is what is shown of another program's contender; i may be nil.
func foreignView(c *recipe.Contender, i *queues.Node) *locks.Foreign {
	v := &locks.Foreign{}
	v.Program, v.Kind = interop.Recipe(c.Name)
	if i != nil {
		v.Session, v.Data = i.Session, i.Data
		v.Decoded = interop.Decode(v.Program, v.Kind, i.Data)
		v.Revocable = interop.Revocable(c.Name) && !i.IsRecord && (len(i.Data) == 0 || revokedOutside(i))
	}
	return v
}

// The contender of an ephemeral lease is an ephemeral node of its gateway's session. The promise that a held lease is never
// shortened does not cover it. It ends with ReasonGatewayLeft when its gateway hands over, when the session ends, and when the
// node goes while the connection is lost. If the node's deletion is seen before that of the registration, it is ReasonRemoved.
//
// A successor never runs such a lease. A node that stays, because the gateway was deposed and its session lives, is an orphan:
// it keeps its position like another program's contender. The successor deletes it at takeover + promise window + TTL, when no
// client can still have an answer that the lease is held.

const ephemeralWarning = "an ephemeral lease ends with the ZooKeeper session of its gateway, whatever its ttl: expires_in_ms is an estimate"

// warning is the warning that an acquire returns with its lease.
func (a *answers) warning(l *lease) string {
	switch {
	case l.ephemeral():
		return ephemeralWarning
	case l.ttl < a.failoverTTL:
		return a.shortTTL
	}
	return ""
}

// shortTTLWarning is the warning about a TTL that does not survive a gateway's crash.
func shortTTLWarning(least time.Duration) string {
	return "a ttl below " + least.String() + " does not ride over the crash of a gateway: its leases can be heartbeaten again when ZooKeeper has noticed"
}

// delay shows of a contender that it stays for a lock delay.
func (a *answers) delay(q *queues.Queue, c *recipe.Contender, v *locks.Contender, now time.Duration) {
	if !a.delays.has(a.leases, a.replica, q, c) {
		return
	}
	v.Delayed = true
	if one := a.delays.byID[c.LeaseID]; one != nil {
		v.Reason, v.Owner, v.Principal, v.ExpiresIn, v.FencingToken = one.reason, one.owner, one.account.Principal(), max(one.until-now, 0), one.token
		return
	}
	v.Reason = a.replica.Record(queues.Location{Queue: q, Contender: c}).Node().Record.Closed.Reason
}

// observedOf returns what this gateway has observed of a contender in the replica.
func (a *answers) observedOf(q *queues.Queue, c *recipe.Contender) queues.Observed {
	if _, s := a.leases.slotOf(q, c); s != nil {
		return s.observation()
	}
	return a.replica.Observed(c)
}

// revokedOutside reports whether another program's contender has been asked to release.
func revokedOutside(i *queues.Node) bool { return string(i.Data) == interop.CuratorRevokes }

// presentTerm is the term of the present session, 0 when there is none.
func presentTerm(port *term.Port) locks.Term {
	if ref := port.Present(); ref != nil {
		return ref.Term
	}
	return 0
}

// holdersOf yields the holders of a lock, each lease once, in the queue's order. A lease that waits for another lock of
// its group is not among them.
func (a *answers) holdersOf(q *queues.Queue) iter.Seq[*recipe.Contender] {
	return func(yield func(*recipe.Contender) bool) {
		seen := map[recipe.LeaseID]bool{}
		for c := range q.Contenders.Holders() {
			if c.LeaseID != "" && seen[c.LeaseID] || c.Ours && !c.Unknown && !a.replica.LeaseHolds(q, c) {
				continue
			}
			seen[c.LeaseID] = true
			if !yield(c) {
				return
			}
		}
	}
}

// byOf is who ended a lease, for who has the rules. Of a lease of several locks the first alone is remembered, and who ended it may be known at
// another one: then the rules must let every lock be read.
func byOf(p *postmortem.End, rules *access.Rules) string {
	if p.Several && !rules.MayAll(access.Read) {
		return ""
	}
	return p.By
}

func (a *answers) postmortem(id recipe.LeaseID, p postmortem.End, rules *access.Rules) locks.Postmortem {
	now := a.clock.Now()
	v := locks.Postmortem{LeaseID: string(id), NS: p.NS, Lock: p.Lock, Mode: locks.ModeOf(p.Mode), Owner: p.Owner, Reason: p.Reason(), Detail: p.Words, By: byOf(&p, rules),
		FencingToken: p.FencingToken, EndedAgo: max(now.Boot()-p.At, 0), WaitedFor: p.Waited, HeldFor: p.Held, TTL: p.TTL, LastHeartbeat: p.Beat, Purpose: p.Purpose}
	v.EndedAt = time.Unix(0, int64(now.Wall()-v.EndedAgo)).UTC()
	if p.Next != nil {
		v.Next = &locks.Successor{LeaseID: string(p.Next.Lease), Owner: p.Next.Owner, FencingToken: p.Next.Token, After: p.Next.After}
	}
	return v
}

// stampWaited sets Waited of a lease whose TTL began after its client's request had arrived.
func stampWaited(l *locks.Lease, arrived time.Duration) {
	if l.State == locks.Held && l.TTLFrom >= arrived {
		l.Waited, l.WaitedKnown = l.TTLFrom-arrived, true
	}
}
