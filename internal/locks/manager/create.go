package manager

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/idempotency"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/periods"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/settings"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// acquisition is one attempt of an acquire. It owns what the attempt has found out about the request. Its methods are
// called with the monitor held, and release it while they wait.
type acquisition struct {
	m     *Manager
	ctx   context.Context
	req   locks.AcquireRequest
	wants []locks.Want     // one for each lock
	room  [1]locks.Want    // for them
	key   *idempotency.Key // the request's idempotency key: a known one with its lease, a new one, or nil
	asked bool             // whether the wait would close a cycle
}

// prepare finds the request's wants and its key. It refuses a want that contradicts a lock's settings only after a
// barrier, and only if no older process wrote the key.
func (a *acquisition) prepare() error {
	m, req := a.m, &a.req
	for met := false; ; met = true {
		if err := m.usable(); err != nil {
			return err
		}
		a.wants = req.WantsIn(&a.room)
		if err := m.replica.Nameable(req, a.wants); err != nil {
			return err
		}
		if req.IdempotencyKey != "" {
			hash := m.fleet.ring.Tokens().Names.Name(req)
			if a.key = m.keys.Get(hash); a.key != nil {
				return nil
			}
			a.key = &idempotency.Key{Hash: hash, Fingerprint: record.Fingerprint(req)}
		}
		wants, wrong := settings.Sized(m.replica, req, a.wants)
		switch {
		case wrong == nil:
			a.wants = wants
			return nil
		case met && a.key == nil:
			return wrong
		case met:
			entry, err := a.olderKey()
			switch {
			case err != nil:
				return err
			case entry != nil:
				a.key = entry
				return nil
			}
			return wrong
		}
		var err error
		if m.outside(func() { err = m.barrier(a.ctx) }); err != nil {
			return err
		}
	}
}

// dryRun forecasts from the replica what the acquire would find now, and refuses what the acquire would refuse. It
// writes nothing, makes no id, takes no position, and does not look up the idempotency key, which belongs to another
// request. Contenders whose create is still under way are not counted.
func (a *acquisition) dryRun() (locks.AcquireResult, error) {
	m := a.m
	a.req.IdempotencyKey = ""
	return locked2(m, func() (locks.AcquireResult, error) {
		if err := a.prepare(); err != nil {
			return locks.AcquireResult{}, err
		}
		wants := a.wants
		if err := m.room(&a.req, wants, m.replica.InTheWay(wants) != nil); err != nil {
			return locks.AcquireResult{}, err
		}
		found := &locks.DryRun{State: locks.Held}
		for i := range wants {
			q := m.replica.FindWant(&wants[i])
			if q == nil {
				continue
			}
			found.QueueLength = max(found.QueueLength, q.Contenders.Waiting())
			if q.Contenders.WouldHold(queues.ContenderOf(&wants[i])) {
				continue
			}
			found.State = locks.Waiting
			found.Holders = append(found.Holders, m.describeHolders(a.ctx, q, maxHolders-len(found.Holders))...)
		}
		a.req.Principal.Conceal(found.Holders)
		text := paging.DryRunText
		text.Trim(found.Holders)
		return locks.AcquireResult{DryRun: found}, nil
	})
}

// keyBefore looks for an idempotency key that may be older than this process; nil means none.
// Otherwise the repeat of a granted acquire could be refused because its own lease holds the lock. q stays meanwhile.
func (a *acquisition) keyBefore(q *queues.Queue) (*idempotency.Key, error) {
	if a.key == nil {
		return nil, nil
	}
	q.Polls++
	older, err := a.olderKey()
	q.Polls--
	if err != nil || older != nil {
		a.m.replica.Forget(q)
	}
	if err != nil {
		return nil, err
	}
	return older, nil
}

// codeKeyTaken marks, inside the package, a create that failed because its
// idempotency key was there.
const codeKeyTaken locks.Code = "key_taken"

func (f *fleet) keyPath(hash string) string { return f.root + "/keys/" + hash }

// readKey reads a key from ZooKeeper; nil without an error: there is none.
func (f *fleet) readKey(ctx context.Context, session term.Session, hash string) (*idempotency.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	data, _, err := session.Get(ctx, f.keyPath(hash))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil
	case err != nil:
		return nil, unavailableFor(err)
	}
	key, err := idempotency.Parse(hash, data)
	if err != nil {
		return nil, &locks.Error{Code: locks.CodeUnavailable, Detail: "the idempotency key's record in ZooKeeper cannot be read", Err: err}
	}
	return key, nil
}

// olderKey reads a key that this process does not know from ZooKeeper, before its request is refused.
// The request may repeat a granted acquire. Nil without an error means that there is no such key.
func (a *acquisition) olderKey() (*idempotency.Key, error) {
	m := a.m
	session := m.port.Session()
	if session == nil {
		return nil, unavailable()
	}
	var entry *idempotency.Key
	var err error
	m.outside(func() { entry, err = m.fleet.readKey(a.ctx, session, a.key.Hash) })
	if err != nil || entry == nil {
		return nil, err
	}
	return m.learnKey(entry), nil
}

// createAttempts bounds how often one create is sent again because a lock's directory came or went in between. A group has as
// many more as it has locks.
const createAttempts = 8

// creation is the write that creates a lease, and what its operations are for.
type creation struct {
	write  zk.Write
	key    int32   // index of the operation that creates the idempotency key, -1 for none
	atOnce uint32  // see record.Record
	slots  []*slot // per operation: the slot that it is for, nil for the key and the settings
	places []int   // per slot: index of the operation that creates its contender

	// Room for nearly all of them: one lock, with its directory or a key.
	room struct {
		queues [1]string
		ops    [2]zk.Op
		slots  [2]*slot
		places [1]int
	}
}

// compose makes the write: missing directories, the key, limits of semaphores, the contenders. found overrides what the replica
// shows of directories.
func (l *lease) compose(m *Manager, key *idempotency.Key, found map[*queues.Queue]bool) *creation {
	c := &creation{key: -1}
	c.write.Queues, c.write.Ops = c.room.queues[:0], c.room.ops[:0]
	c.slots, c.places = c.room.slots[:0], c.room.places[:0]
	add := func(s *slot, op zk.Op) {
		c.write.Ops = append(c.write.Ops, op)
		c.slots = append(c.slots, s)
	}
	c.atOnce = l.atOnce(m.replica, found)
	var before *queues.Queue // a lease's contenders in one queue stand together
	for s := range l.slots {
		if s.q == before {
			continue
		}
		before = s.q
		there, told := found[s.q]
		if !told {
			there = s.q.Exists
		}
		if !there {
			// It fails the transaction if it exists after all, and must fail no other write.
			c.write.Alone = true
			op := zk.Op{Kind: zk.OpCreate, Path: s.q.Path}
			if s.q.HadPlain() {
				op.Data = []byte(queues.Temporary)
			}
			add(s, op)
		}
		c.write.Queues = append(c.write.Queues, s.q.Path)
	}
	if key != nil {
		c.key = int32(len(c.write.Ops))
		add(nil, zk.Op{Kind: zk.OpCreate, Path: m.fleet.keyPath(key.Hash), Data: key.Record(l.q.Namespace.Name, l.q.Name()), Private: true})
	}
	for s := range l.slots {
		if s.contender.Mode != recipe.Permit {
			continue
		}
		ops, alone := m.fleet.settings.Agree(s.q, int(s.contender.Limit))
		c.write.Alone = c.write.Alone || alone
		for _, op := range ops {
			add(nil, op)
		}
	}
	for s := range l.slots {
		c.places = append(c.places, len(c.write.Ops))
		add(s, zk.Op{Kind: zk.OpCreate, Sequential: true, Ephemeral: s.contender.Ephemeral, Data: l.firstData(s, c.atOnce), Path: s.q.Path + "/" + s.q.Namespace.Naming.Prefix(s.contender)})
	}
	return c
}

// create creates the contenders, the key and missing directories in one transaction. found has what earlier attempts learned of
// directories: the replica may be behind, or never show one that came and went.
func (l *lease) create(m *Manager, key *idempotency.Key, req *locks.AcquireRequest, attempt int, found map[*queues.Queue]bool) {
	if err := l.setLimits(m.replica, req); err != nil {
		l.rare().failure = err
		l.dropCreate(m, key, m.clock.Now().Boot())
		return
	}
	c := l.compose(m, key, found)
	c.write.MayWait = attempt == 0 && !c.write.Alone && req.Wait > 0 && !req.Async && l.enqueues()
	m.port.Submit(&c.write, func(res zk.Result) {
		if l.Ended() {
			return // removed, or settled by a takeover, before the reply came
		}
		again := attempt < createAttempts+l.width()
		culprit := res.Culprit
		var s *slot // whose operation failed
		if culprit >= 0 && culprit < len(c.slots) {
			s = c.slots[culprit]
		}
		switch {
		case res.Outcome == zk.Done:
			l.created(m, c, res)
		case res.Outcome == zk.Unknown && !l.Creating():
			// The contender's event came first and has settled it.
		case res.Outcome == zk.Unknown:
			l.resolve(m)
		case again && m.fleet.settings.Failed(&c.write, res):
			l.redecide(m, key, req, attempt+1)
		case again && s != nil && !c.write.Ops[culprit].Sequential && errors.Is(res.Err, zk.ErrNodeExists):
			l.create(m, key, req, attempt+1, learned(found, s.q, true))
		case again && s != nil && c.write.Ops[culprit].Sequential && errors.Is(res.Err, zk.ErrNoNode):
			l.create(m, key, req, attempt+1, learned(found, s.q, false)) // swept in between; the replica does not show it yet
		case again && (res.Outcome == zk.Conflict || errors.Is(res.Err, zk.ErrNotApplied)):
			l.create(m, key, req, attempt+1, found)
		case s != nil && c.write.Ops[culprit].Sequential && errors.Is(res.Err, zk.ErrEphemeralParent):
			m.suspect(s.q)
			l.rare().failure = &locks.Error{Code: codePlainNode}
			l.dropCreate(m, key, m.clock.Now().Boot())
		case key != nil && culprit == int(c.key) && errors.Is(res.Err, zk.ErrNodeExists):
			// The key is taken: a repeat, perhaps by way of another gateway.
			l.rare().failure = &locks.Error{Code: codeKeyTaken}
			l.dropCreate(m, key, m.clock.Now().Boot())
		default:
			l.rare().failure = createFailure(res.Err)
			l.dropCreate(m, key, m.clock.Now().Boot())
		}
	})
}

// enqueues reports whether the lease will wait behind others, as far as the replica shows: others must release before its place
// in the queue counts. Then its create may share the transaction of a release, and a hand-over costs one transaction, not two.
func (l *lease) enqueues() bool {
	return l.width() == 1 && l.q.Contenders.Len() > 1 && !l.q.Contenders.WouldHold(l.contender)
}

// learned is found with one directory more.
func learned(found map[*queues.Queue]bool, q *queues.Queue, there bool) map[*queues.Queue]bool {
	more := maps.Clone(found)
	if more == nil {
		more = map[*queues.Queue]bool{}
	}
	more[q] = there
	return more
}

// created applies the reply to a create.
func (l *lease) created(m *Manager, c *creation, res zk.Result) {
	now := m.clock.Now().Boot()
	l.czxid = res.Zxid
	i := 0
	for s := range l.slots {
		if path := res.Paths[c.places[i]]; path != "" {
			s.named(path[len(s.q.Path)+1:])
			if fault.On("created-event") && !s.presence.Seen() {
				*s.contender, _ = recipe.Parse(m.fleet.id, s.name())
				s.presence.Set(m.leases, &l.State, lifecycle.Seen)
				m.addContender(s.q, s.contender, false, now)
			}
		} else {
			// The reply was lost, the create was done, and the contender has been deleted since: it has no name.
			s.presence.Delete(m.leases, &l.State)
		}
		i++
	}
	if some, _ := l.gonePart(); some {
		l.lost(m, now)
		return
	}
	l.numbered(c.atOnce)
	l.place(m, now)
	l.evaluateAll(m, now)
}

// newLease makes the lease that the request wants. Nothing of it is in ZooKeeper yet.
func (a *acquisition) newLease() (*lease, error) {
	m, req, wants := a.m, &a.req, a.wants
	now := m.clock.Now()
	id, err := recipe.NewLeaseID(m.fleet.id, recipe.GatewayID(m.port.Session().ID()), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a lease id: %w", err)
	}
	l := &lease{
		State: lifecycle.New(lifecycle.Creating, lifecycle.RecordCurrent), ttl: req.TTL, recorded: req.TTL, term: m.port.Term(),
		taker:    m.leases.takers.one(req.OwnerOf(), nil),
		enqueued: now.Wall(), since: now.Boot(), heapIndex: -1,
	}
	if req.Metadata != "" {
		l.rare().metadata = strings.Clone(req.Metadata)
	}
	if req.Purpose != "" {
		l.rare().purpose = strings.Clone(req.Purpose)
	}
	l.reserve(req, now.Boot(), now.Wall())
	if req.NotifyURL != "" {
		l.rare().telling = &telling{url: strings.Clone(req.NotifyURL)}
	}
	if req.LockDelay > 0 {
		// In whole milliseconds, as it is written.
		l.rare().lockDelay, l.rare().lockDelayOn = (req.LockDelay + time.Millisecond - 1).Truncate(time.Millisecond), req.LockDelayOn
	}
	if req.AtLeast > 0 {
		l.rare().atLeast = (req.AtLeast + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	if req.Deadlock == locks.DeadlockFail {
		l.rare().failsOnDeadlock = true
	}
	if req.OncePer > 0 {
		l.rare().once = &oncePer{Once: periods.Once{Per: req.OncePer, Period: strings.Clone(req.InPeriod), On: req.DoneOn}}
	}
	if req.Hold != "" {
		l.rare().holds = []string{strings.Clone(req.Hold)}
	}
	l.beginTrace(m, a.ctx)
	l.takeSlots(m.replica, id, wants, req.Ephemeral, now.Boot())
	m.leases.byID.Put(l)
	m.leases.counts.enter(l)
	m.leases.charge(l, req.Principal.Account())
	m.leases.weigh(l, 0)
	if req.Async {
		m.leases.makeTicket(l)
	}
	m.leases.rev++
	l.rev = m.leases.rev
	return l, nil
}

// takeSlots gives a new lease its slots: one for each lock, or several where a namespace's dialects want them.
func (l *lease) takeSlots(replica *queues.Replica, id recipe.LeaseID, wants []locks.Want, ephemeral bool, now time.Duration) {
	var slots []slot
	for i := range wants {
		space := replica.Namespaces[wants[i].NS]
		c := queues.ContenderOf(&wants[i])
		c.LeaseID, c.Ephemeral = id, ephemeral
		if len(wants) > 1 {
			c.Group, c.Groups = uint8(i+1), uint8(len(wants))
		}
		q := replica.Queue(space, wants[i].Lock, now)
		if space.Naming.Dialect() == recipe.Native && len(wants) == 1 {
			l.slot = slot{q: q, contender: c} // nearly all leases: without a slice of one
			break
		}
		for _, member := range space.Naming.Contenders(*c) {
			slots = append(slots, slot{q: q, contender: &member})
		}
	}
	if len(slots) > 0 {
		l.slot = slots[0]
	}
	if len(slots) > 1 {
		l.rare().rest = slots[1:]
	}
	for s := range l.slots {
		s.q.Leases++
	}
}

func createFailure(err error) *locks.Error {
	e := &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter, Err: err,
		Detail: "ZooKeeper did not take the contender; nothing was done, repeat the request"}
	switch {
	case errors.Is(err, zk.ErrTooLarge):
		e.Code, e.Field, e.RetryAfter = locks.CodeInvalid, "metadata", 0
		e.Detail = "owner and metadata are larger than one ZooKeeper transaction may be"
	case errors.Is(err, zk.ErrNoNode):
		e.Detail = "the lock root of the namespace is not there: the programs that share it may create it, or do it by hand; nothing was done"
	case errors.Is(err, zk.ErrNoAuth):
		e.RetryAfter, e.Detail = 0, "the ACL of the lock's directory, or of the lock root, forbids this gateway to create a contender; nothing was done. Check those ACLs and --zk-auth-file"
	case errors.Is(err, zk.ErrQueueFull):
		e.Code, e.Detail = locks.CodeTooManyWaiters, "too many writes wait for ZooKeeper; nothing was done, repeat the request"
	case errors.Is(err, zk.ErrEphemeralCap):
		e.Code, e.Detail = locks.CodeEphemeralCap, "this gateway's ZooKeeper session has as many ephemeral nodes as it may (256 KiB of paths): more could keep a ZooKeeper server from starting again; leave ephemeral out, or use another gateway"
	}
	return e
}

// setLimits gives the contenders of a lease that is being created the limits that are in force now. It refuses a request
// that contradicts them.
func (l *lease) setLimits(replica *queues.Replica, req *locks.AcquireRequest) *locks.Error {
	sized, err := settings.Sized(replica, req, req.Wants())
	if err != nil {
		return err
	}
	for s := range l.slots {
		if s.contender.Mode == recipe.Permit { // a lock with other dialects' names has several slots
			s.contender.Limit = int32(sized[max(s.contender.Group, 1)-1].Limit)
		}
	}
	return nil
}

// redecide creates a lease again after its limit was found not to be in force. The replica showed it, so it is behind:
// a barrier brings it up to the present first.
func (l *lease) redecide(m *Manager, key *idempotency.Key, req *locks.AcquireRequest, attempt int) {
	term := l.term
	m.effect(func() {
		go func() { // ends with the barrier
			err := m.barrier(context.Background())
			m.do(func() {
				switch {
				case !l.Creating() || l.term != term || m.port.Term() != term:
					return // a takeover settles it, or has
				case err != nil, l.abandoned:
					l.rare().failure = unavailableFor(err)
					l.dropCreate(m, key, m.clock.Now().Boot())
				default:
					l.create(m, key, req, attempt, nil)
				}
			})
		}()
	})
}
