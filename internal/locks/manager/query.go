package manager

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// Lease shows one lease, at once, at its next change, or as ZooKeeper confirms it.
func (m *Manager) Lease(ctx context.Context, req locks.LeaseRequest) (locks.Lease, error) {
	if err := req.Check(); err != nil {
		return locks.Lease{}, err
	}
	id, wrong := m.fleet.target(&req)
	if wrong != nil {
		return locks.Lease{}, wrong
	}
	if req.Verify {
		if err := m.barrier(ctx); err != nil {
			return locks.Lease{}, err
		}
	}
	arrived := m.clock.Now().Boot()
	view, err := locked2(m, func() (locks.Lease, error) {
		l, view, err := m.request(ctx).look(id, &req)
		if err != nil || l == nil {
			return view, err
		}
		if req.Token != "" {
			l.claim(m, m.clock.Now().Boot())
			l.listeners++
			defer func() { l.unlisten(m, m.clock.Now().Boot()) }()
		}
		if err := m.certain(ctx, l, &req); err != nil {
			return locks.Lease{}, err
		}
		timer := time.NewTimer(req.Wait)
		defer timer.Stop()
		for req.Wait > 0 && req.Since != "" && m.answers.revOf(l, &req) == req.Since {
			if err := m.poll(ctx, l.changed(), timer, &req.Wait); err != nil {
				return locks.Lease{}, err
			}
			if err := m.certain(ctx, l, &req); err != nil {
				return locks.Lease{}, err
			}
		}
		if req.Token != "" {
			l.claim(m, m.clock.Now().Boot())
			view = m.answers.own(l)
		} else {
			view = m.answers.lease(l, req.Principal.Rules)
		}
		if !m.trusted() {
			view.Term = 0 // the next changes may end the lease, and have this gateway trusted before the answer is written
		}
		return view, nil
	})
	if err == nil && req.Token != "" {
		stampWaited(&view, arrived)
	}
	return view, err
}

// revOf is the lease's revision as the request is shown it.
func (a *answers) revOf(l *lease, req *locks.LeaseRequest) string {
	if req.Token == "" && l.hides(req.Principal.Rules) {
		return a.lease(l, req.Principal.Rules).Rev
	}
	return a.leases.revString(l.rev)
}

// notable is what AwaitChange answers at once.
type notable struct {
	waiters bool
	revoke  *revocation // its identity: a request that is repeated is a new one
}

// notable is the lease's news now.
func (l *lease) notable() notable {
	n := notable{revoke: l.revocation()}
	for s := range l.slots {
		n.waiters = n.waiters || l.Held() && s.q.Contenders.Waiting() > 0
	}
	return n
}

// AwaitChange holds the answer to a heartbeat, which has renewed the lease before, until the lease has ended or is granted, its
// holder is asked to release or not any more, or waiters have come to a lock that had none. What an earlier call has answered
// is no news. The answer comes after wait at the latest, and after a third of the TTL.
//
// The answer may be passed on only while Trusted.
func (m *Manager) AwaitChange(ctx context.Context, p locks.Principal, id, token string, wait time.Duration) (locks.Heartbeat, error) {
	named, wrong := m.fleet.bearer(p, id, token)
	if wrong != nil {
		return locks.Heartbeat{}, wrong
	}
	return locked2(m, func() (locks.Heartbeat, error) {
		l, err := m.request(ctx).findOwn(named)
		if err != nil {
			return locks.Heartbeat{}, err
		}
		l.listeners++
		defer func() { l.unlisten(m, m.clock.Now().Boot()) }()
		timer := time.NewTimer(min(wait, l.ttl/3))
		defer timer.Stop()
		phase := l.Phase()
		for waited := false; !waited && (l.Phase() == phase || l.Ending() && !l.over(m.reports)); {
			n, told := l.notable(), l.known().told
			if n.waiters && !told.waiters || n.revoke != told.revoke {
				break
			}
			if told.waiters && !n.waiters {
				l.rare().told.waiters = false // the next one is news again
			}
			wakes := []<-chan struct{}{m.life.drain, ctx.Done(), l.changed()}
			for s := range l.slots {
				if !n.waiters {
					wakes = append(wakes, s.q.Changed()) // contenders behind it wake no lease
				}
			}
			m.outside(func() { waited = firstOf(timer.C, wakes) < 2 })
		}
		if ctx.Err() != nil {
			return locks.Heartbeat{}, cancelled(ctx)
		}
		var beat locks.Heartbeat
		if err := m.request(ctx).withLease(named, func(l *lease) (bool, *locks.Error) {
			if n := l.notable(); n != l.known().told {
				l.rare().told = n
			}
			l.claim(m, m.clock.Now().Boot()) // a client that listens knows of the grant
			beat = m.answers.heartbeat(l, m.clock.Now().Boot())
			return true, nil
		}); err != nil {
			return locks.Heartbeat{}, err
		}
		return beat, nil
	})
}

// firstOf waits for a time or for one of several channels, and returns which; -1 is the time.
func firstOf(timer <-chan time.Time, wakes []<-chan struct{}) int {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(timer)}}
	for _, wake := range wakes {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(wake)})
	}
	chosen, _, _ := reflect.Select(cases)
	return chosen - 1
}

// certain waits until a lease can be shown as it is, and not for long: then it is CodeUnavailable. Until the record of an
// adopted lease has been read, neither its owner nor its TTL is known, nor whether it has ended. A client with the token,
// and a verification, also need what may have been written since.
func (m *Manager) certain(ctx context.Context, l *lease, req *locks.LeaseRequest) *locks.Error {
	return m.request(ctx).untilDone(unavailable, func() (*lease, *locks.Error) {
		switch {
		case l.failure() != nil:
			return nil, l.failure()
		case req.Verify && l.Ending():
			return nil, unavailable() // its end is under way
		case (req.Verify || req.Token != "") && l.mayHold():
			return l, nil
		case l.Record().Loaded(), !l.Held() && !l.Waiting():
			return nil, nil
		case !l.Record().Assumed() && (l.Waiting() || !req.Verify && req.Token == ""):
			return nil, nil
		}
		l.load(m)
		return l, nil
	})
}

// poll sleeps until wake is closed or the timer fires: then wait is 0. The monitor is held, and released meanwhile.
func (m *Manager) poll(ctx context.Context, wake <-chan struct{}, timer *time.Timer, wait *time.Duration) (err *locks.Error) {
	m.outside(func() {
		select {
		case <-wake:
		case <-timer.C:
			*wait = 0
		case <-m.life.drain:
			err = &locks.Error{Code: locks.CodeUnavailable, Detail: "this gateway is shutting down; ask again"}
		case <-ctx.Done():
			err = cancelled(ctx)
		}
	})
	return err
}

// target tells which lease a request is about; it needs no lock.
func (f *fleet) target(req *locks.LeaseRequest) (recipe.LeaseID, *locks.Error) {
	if req.Token != "" {
		return f.bearer(req.Principal, req.ID, req.Token)
	}
	select {
	case <-f.ready:
	default:
		return "", unavailable()
	}
	id, err := recipe.ParseLeaseID(req.ID)
	if err != nil || id.Fleet() != f.id {
		return "", notFound()
	}
	return id, nil
}

// lookup finds a lease, or what is remembered of it. A lease that no gateway knows has ended for a client with its token; others
// get CodeNotFound. They get the same of a lease that they may not read.
func (m *Manager) lookup(id recipe.LeaseID, req *locks.LeaseRequest) (*lease, locks.Lease, *locks.Error) {
	own, rules := req.Token != "", req.Principal.Rules
	if l := m.leases.lease(id); l != nil && (own || l.firstReadable(rules) != nil) {
		return l, locks.Lease{}, nil
	}
	if p, ok := m.history.Get(id); ok && (own || rules.May(access.Read, p.NS, p.Lock)) {
		return nil, viewPast(id, p), nil
	}
	absent := m.absent(id)
	if absent.Code == locks.CodeEnded && !own {
		absent = notFound()
	}
	return nil, locks.Lease{}, absent
}

// look is lookup, once more after a sync where that may help.
func (r request) look(id recipe.LeaseID, req *locks.LeaseRequest) (l *lease, view locks.Lease, err error) {
	wrong := r.retryAfterSync(func() (wrong *locks.Error) {
		l, view, wrong = r.m.lookup(id, req)
		return wrong
	})
	if wrong != nil {
		return nil, view, wrong
	}
	return l, view, nil
}

// Leases lists this gateway's leases in order of their ids.
func (m *Manager) Leases(_ context.Context, f locks.LeaseFilter) (locks.LeasePage, error) {
	if err := f.Check(); err != nil {
		return locks.LeasePage{}, err
	}
	from, err := paging.Leases.At(f.Cursor)
	if err != nil {
		return locks.LeasePage{}, err
	}
	if f.NS != "" {
		if err := f.Principal.CheckIn(access.Read, f.NS); err != nil {
			return locks.LeasePage{}, err
		}
	}
	return locked2(m, func() (locks.LeasePage, error) {
		if err := known(&m.stream, m.replica, f.NS); err != nil {
			return locks.LeasePage{}, err
		}
		limit := cmp.Or(f.Limit, locks.DefaultPage)
		var matching []*lease
		for l := range m.leases.byID.All() {
			state := locks.Waiting
			if l.Grant().Granted() {
				state = locks.Held
			}
			if l.Creating() || l.over(m.reports) || string(l.id()) <= from || f.Owner != "" && l.owner != f.Owner || f.Host != "" && locks.HostOf(l.owner) != f.Host || !hasPart(l.purpose(), f.Purpose) || f.State != "" && f.State != state {
				continue
			}
			if first := l.firstReadable(f.Principal.Rules); first != nil && (f.NS == "" || first.q.Namespace.Name == f.NS) {
				matching = append(matching, l)
			}
		}
		slices.SortFunc(matching, func(a, b *lease) int { return cmp.Compare(a.id(), b.id()) })
		var page locks.LeasePage
		text := paging.MaxText
		for _, l := range matching {
			view := m.answers.lease(l, f.Principal.Rules)
			if n := len(page.Items); n == limit || !text.TakeLease(&view) && n > 0 {
				page.NextCursor = locks.LeaseCursor(page.Items[n-1].ID)
				break
			}
			page.Items = append(page.Items, view)
		}
		return page, nil
	})
}

// known is nil when the replica can answer and the namespace exists ("" is all).
func known(st *stream, replica *queues.Replica, ns string) error {
	if !st.loadedOnce {
		return unavailable()
	}
	if ns != "" && replica.Namespaces[ns] == nil {
		return locks.NamespaceUnknown("ns", ns)
	}
	return nil
}

// Lock shows a lock's queue, from memory; a lock without contenders is free.
func (m *Manager) Lock(ctx context.Context, req locks.LockRequest) (locks.Lock, error) {
	if err := req.Check(); err != nil {
		return locks.Lock{}, err
	}
	at, err := paging.QueuePlaceAt(req.Cursor)
	if err != nil {
		return locks.Lock{}, err
	}
	if err := req.Principal.Check(access.Read, req.NS, req.Lock); err != nil {
		return locks.Lock{}, err
	}
	if req.Consistent {
		if err := m.barrier(ctx); err != nil {
			return locks.Lock{}, err
		}
	}
	return locked2(m, func() (locks.Lock, error) {
		if err := known(&m.stream, m.replica, req.NS); err != nil {
			return locks.Lock{}, err
		}
		q := m.replica.Queue(m.replica.Namespaces[req.NS], req.Lock, m.clock.Now().Boot())
		q.Polls++
		defer m.replica.Leave(q)
		if req.Consistent {
			m.look(ctx, q)
		}
		timer := time.NewTimer(req.Wait)
		defer timer.Stop()
		for req.Wait > 0 && req.Since != "" && m.leases.revString(q.Rev) == req.Since {
			if err := m.poll(ctx, q.Changed(), timer, &req.Wait); err != nil {
				return locks.Lock{}, err
			}
		}
		limit := cmp.Or(req.Limit, locks.DefaultPage)
		if req.Around != "" && req.Cursor == "" {
			at = m.answers.around(q, req.Around, limit)
		}
		m.describe(ctx, q, pageOf(q, at, limit))
		page := m.answers.page(q, at, limit)
		req.Principal.Conceal(page.Holders)
		req.Principal.Conceal(page.Waiters)
		if page.Term = presentTerm(m.port); !m.trusted() {
			page.Term = 0
		}
		return page, nil
	})
}

// pageOf is the contenders that a page of the queue shows, as far as the names in the queue tell.
func pageOf(q *queues.Queue, at paging.QueuePlace, limit int) (list []*recipe.Contender) {
	holders := 0
	for range q.Contenders.Holders() {
		holders++
	}
	i := 0
	for _, c := range q.Contenders.All() {
		if i >= at.Holders && i < min(at.Holders+limit, holders) || i >= holders+at.Waiters && i < holders+at.Waiters+limit {
			list = append(list, c)
		}
		i++
	}
	return list
}

// Info describes this gateway.
func (m *Manager) Info(context.Context) locks.Info {
	return locked(m, func() locks.Info {
		info := locks.Info{Root: m.opt.Root, Leases: map[locks.State]int{locks.Waiting: 0, locks.Held: 0},
			ZooKeeper: locks.ZooKeeperInfo{Servers: m.opt.Servers, State: "none", SessionTimeout: m.opt.SessionTimeout}}
		select {
		case <-m.fleet.ready:
			info.FleetID, info.PromiseWindow = string(m.fleet.id), m.fleet.layout.PromiseWindow
			for ns := range m.replica.Namespaces {
				info.Namespaces = append(info.Namespaces, ns)
			}
			slices.Sort(info.Namespaces)
		default:
			return info
		}
		info.Locks, info.Contenders = m.replica.Counts.Locks, m.replica.Counts.Contenders
		info.Leases[locks.Waiting] = m.leases.counts.in(lifecycle.Creating) + m.leases.counts.in(lifecycle.Waiting)
		info.Leases[locks.Held] = m.leases.counts.in(lifecycle.Held)
		info.Kinds = make(map[locks.LeaseKind]int, 2*kinds)
		for k := range kinds {
			info.Kinds[locks.LeaseKind{State: locks.Waiting, Mode: k.mode()}] = m.leases.counts.phases[lifecycle.Creating][k] + m.leases.counts.phases[lifecycle.Waiting][k]
			info.Kinds[locks.LeaseKind{State: locks.Held, Mode: k.mode()}] = m.leases.counts.phases[lifecycle.Held][k]
		}
		info.Hazards, info.HazardousLocks = make(map[locks.HazardCode]int, locks.NumHazards), m.replica.Counts.Hazardous
		for i, code := range locks.HazardCodes() {
			info.Hazards[code] = m.replica.Counts.Hazards[i]
		}
		info.Deadlocks = len(m.deadlocks.present)
		info.ZooKeeper.SecretExposed = m.fleet.keyring.Load().Exposed
		m.recountKept()
		info.Bounds = m.leases.quota.States()
		info.OldestWaiter = m.leases.counts.oldest(m.clock.Now().Boot())
		if m.port.Session() != nil {
			now := m.clock.Now()
			info.GatewayID = m.port.Session().ID()
			info.ZooKeeper.State = "suspended"
			if m.port.Session().Connected() {
				info.ZooKeeper.State = "connected"
			}
			info.ZooKeeper.Trusted = m.port.Session().Trusted(now)
			info.ZooKeeper.TrustMargin = max(m.port.Session().TrustMargin(now), 0)
			info.ZooKeeper.ReplicaCurrent = m.stream.synced && m.port.Watcher.Current(now)
			info.ZooKeeper.SessionAge, info.ZooKeeper.Lag = m.port.SessionAge(now), m.port.Watcher.Lag(now)
			info.ZooKeeper.LastZxid = m.port.Session().LastZxid()
		}
		return info
	})
}

// NotifySecrets are those that sign the messages to a lease's notify_url: one for each key of the fleet, so a secret that was
// shown under an older key still verifies.
func (m *Manager) NotifySecrets(lease string) []string {
	select {
	case <-m.fleet.ready:
	default:
		return nil
	}
	keys := m.fleet.keyring.Keys()
	secrets := make([]string, len(keys))
	for i, key := range keys {
		secrets[i] = notifySecret(key, recipe.LeaseID(lease))
	}
	return secrets
}

// Postmortem tells how a lease ended. A lease that lives is CodeNotFound, and so is one that the principal may not read: a lease
// of several locks is remembered by the first.
func (m *Manager) Postmortem(ctx context.Context, p locks.Principal, id string) (locks.Postmortem, error) {
	named, wrong := m.fleet.target(&locks.LeaseRequest{Principal: p, ID: id})
	if wrong != nil {
		return locks.Postmortem{}, wrong
	}
	return locked2(m, func() (locks.Postmortem, error) {
		var found postmortem.End
		if err := m.request(ctx).retryAfterSync(func() (err *locks.Error) {
			found, err = m.recall(named, p.Rules)
			return err
		}); err != nil {
			return locks.Postmortem{}, err
		}
		m.describeHeir(ctx, found)
		return m.answers.postmortem(named, found, p.Rules), nil
	})
}

// describeHeir reads what is not known yet of the next holder. It is called with the monitor held, and holds it on return.
func (m *Manager) describeHeir(ctx context.Context, p postmortem.End) {
	if p.Next == nil || p.Next.Token != 0 {
		return
	}
	q := m.replica.Namespaces[p.NS].Find(p.Lock)
	if q == nil {
		return
	}
	c := q.Contenders.Get(p.Next.Name)
	if c == nil {
		return
	}
	q.Polls++
	m.describe(ctx, q, []*recipe.Contender{c})
	q.Polls--
	if i := q.Node(c.Name); i != nil {
		p.Next.Owner, p.Next.Token = m.leases.takers.name(i.Record.Owner), m.fleet.tokenOf(q, c)
	} else if l := m.leases.lease(c.LeaseID); c.Ours && l != nil {
		p.Next.Owner, p.Next.Token = l.owner, m.fleet.fencingToken(l.czxid)
	}
	m.replica.Forget(q)
}

// recall finds what is remembered of an ended lease, for who has the rules.
func (m *Manager) recall(id recipe.LeaseID, rules *access.Rules) (postmortem.End, *locks.Error) {
	if l := m.leases.lease(id); l != nil && l.firstReadable(rules) != nil {
		return postmortem.End{}, &locks.Error{Code: locks.CodeNotFound, Detail: "this lease has not ended; ask for the lease itself"}
	}
	if p, ok := m.history.Get(id); ok && rules.May(access.Read, p.NS, p.Lock) {
		return p, nil
	}
	p, seen := m.observedEnds.Get(id)
	seen = seen && rules.May(access.Read, p.NS, p.Lock)
	if seen && p.Reported {
		return p, nil // from the gateway that ran it
	}
	err := m.absent(id)
	if err.Code == locks.CodeNotOwner {
		return postmortem.End{}, err // its gateway knows better
	}
	if seen {
		return p, nil
	}
	if err.Code == locks.CodeEnded {
		stranger := err.UnknownGateway
		err = &locks.Error{Code: locks.CodeNotFound, Detail: "nothing is remembered of a lease with that id: an end is remembered for an hour, by the gateway that ran the lease"}
		err.UnknownGateway = stranger
	}
	return postmortem.End{}, err
}
