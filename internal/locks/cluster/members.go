package cluster

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// Members is the replica of the gateways. Make one with New.
type Members struct {
	self      recipe.GatewayID // of the present session; "" while there is none
	byID      map[recipe.GatewayID]*Gateway
	own       map[recipe.GatewayID]struct{} // ids of all sessions of this process
	former    map[recipe.GatewayID]struct{} // those of ended sessions with leases to settle
	takeovers takeovers
	left      []left // the latest first

	wake    func(chan struct{}) // closes a channel, now or soon
	changed chan struct{}       // see Changed; nil while nothing waits

	Sweeping int // deletions of succession entries that have no answer yet
}

// New is a Members that knows no gateway. wake closes the channels of Changed.
func New(wake func(chan struct{})) *Members {
	return &Members{wake: wake, byID: map[recipe.GatewayID]*Gateway{}, own: map[recipe.GatewayID]struct{}{}, former: map[recipe.GatewayID]struct{}{}}
}

// Begin notes a new session of this process. What was seen of guards is forgotten: the server is another one, and may be
// behind the former.
func (m *Members) Begin(self recipe.GatewayID) {
	m.self = self
	m.own[self] = struct{}{}
	for _, g := range m.byID {
		g.Guard = GuardWatch{}
	}
	m.ownershipChanged()
}

// Changed returns a channel that is closed when this process may have become the owner of more leases.
func (m *Members) Changed() <-chan struct{} {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

func (m *Members) ownershipChanged() {
	if m.changed != nil {
		m.wake(m.changed)
		m.changed = nil
	}
}

// End notes that the session has ended.
func (m *Members) End() { m.self = "" }

// Self is the id of the present session; "" while there is none.
func (m *Members) Self() recipe.GatewayID { return m.self }

// IsOwn reports whether an id is that of a session of this process, ended ones included.
func (m *Members) IsOwn(id recipe.GatewayID) bool { _, own := m.own[id]; return own }

// Get is what is known of an id; nil for nothing.
func (m *Members) Get(id recipe.GatewayID) *Gateway { return m.byID[id] }

// Registered reports whether the replica shows the id's registration.
func (m *Members) Registered(id recipe.GatewayID) bool { return m.byID[id].registered() }

// Contenders is how many contenders in the replica carry the id.
func (m *Members) Contenders(id recipe.GatewayID) int { return m.byID[id].contenders() }

// Len is how many ids are known.
func (m *Members) Len() int { return len(m.byID) }

// AddFormer notes an ended session of this process that had leases.
func (m *Members) AddFormer(id recipe.GatewayID) { m.former[id] = struct{}{} }

// Former is how many ended sessions of this process have leases to settle.
func (m *Members) Former() int { return len(m.former) }

// SettleFormer forgets the ended sessions whose leases have an owner again.
func (m *Members) SettleFormer() {
	maps.DeleteFunc(m.former, func(id recipe.GatewayID, _ struct{}) bool { return m.Owns(id) || m.Elsewhere(id) })
}

func (m *Members) gateway(id recipe.GatewayID) *Gateway {
	g := m.byID[id]
	if g == nil {
		g = &Gateway{}
		m.byID[id] = g
	}
	return g
}

func (m *Members) forget(id recipe.GatewayID, g *Gateway) {
	if g.Contenders <= 0 && !g.Registered && !g.Entry && !g.taking {
		delete(m.byID, id)
	}
}

// CountContender counts a contender with the id that has come (by 1) or gone (by -1).
func (m *Members) CountContender(id recipe.GatewayID, by int) {
	g := m.gateway(id)
	if g.Contenders += by; by < 0 {
		m.forget(id, g)
	}
}

// Register notes a registration. It reports whether the gateway has joined: a takeover makes a registration, too, to make
// sure that there was none, and deletes it again.
func (m *Members) Register(id recipe.GatewayID) (joined bool) {
	g := m.gateway(id)
	g.Registered = true
	if !g.Entry {
		g.seen, g.Announced = true, true
	}
	return !g.Entry
}

// Unregister notes that a registration is gone. It reports whether its coming was announced, and whether the gateway was
// deposed: a takeover writes its entry before it deletes anything.
func (m *Members) Unregister(id recipe.GatewayID, now time.Duration) (announced, deposed bool) {
	g := m.gateway(id)
	if announced, deposed = g.Announced, g.Entry; announced {
		m.remember(id, g, now)
	}
	g.Registered, g.Announced, g.About, g.Guard = false, false, nil, GuardWatch{}
	m.forget(id, g)
	return announced, deposed
}

// BeginReadRegistration notes that a registration is being read.
func (m *Members) BeginReadRegistration(id recipe.GatewayID) { m.gateway(id).asking = true }

// ReadRegistration ends that: about is nil when it could not be read. It reports whether the registration is known now.
func (m *Members) ReadRegistration(id recipe.GatewayID, about *About) bool {
	g := m.byID[id]
	if g == nil {
		return false
	}
	g.asking = false
	if about == nil || !g.Registered {
		return false // gone, or the connection is: the clock asks again
	}
	g.About = about
	return true
}

// UnreadRegistrations are the registered gateways whose registration is neither known nor being read.
func (m *Members) UnreadRegistrations() []recipe.GatewayID {
	return m.sorted(func(g *Gateway) bool { return g.Registered && g.About == nil && !g.asking })
}

// AddEntry notes a succession entry, which is to be read.
func (m *Members) AddEntry(id recipe.GatewayID) { m.gateway(id).Entry = true }

// RemoveEntry notes that a succession entry was swept.
func (m *Members) RemoveEntry(id recipe.GatewayID) {
	g := m.gateway(id)
	g.Entry, g.successor, g.reading, g.entered = false, "", false, 0
	m.forget(id, g)
}

// BeginReadEntry notes that an entry is being read.
func (m *Members) BeginReadEntry(id recipe.GatewayID) { m.gateway(id).reading = true }

// EntryUnread notes that an entry could not be read.
func (m *Members) EntryUnread(id recipe.GatewayID) {
	g := m.gateway(id)
	g.reading = false // the entry is gone, or the connection is: the clock asks again
	m.forget(id, g)
}

// ReadEntry notes the successor that an entry names, by the reply with that zxid.
func (m *Members) ReadEntry(id, successor recipe.GatewayID, zxid int64, now time.Duration) {
	g := m.gateway(id)
	if g.takenAt == 0 || g.successor != "" && g.successor != successor {
		g.takenAt = now
	}
	g.successor, g.entered = successor, zxid
	m.inherited(id, successor)
	m.ownershipChanged()
}

// UnreadEntries are the ids whose entry is neither known nor being read.
func (m *Members) UnreadEntries() []recipe.GatewayID {
	return m.sorted(func(g *Gateway) bool { return g.Entry && g.successor == "" && !g.reading })
}

// ReadEntries are the ids whose entry has been read.
func (m *Members) ReadEntries() []recipe.GatewayID {
	return m.sorted(func(g *Gateway) bool { return g.Entry && g.successor != "" })
}

// SweepableEntries are the entries, in order, whose chain ends here, while no contender has the id and no other entry names
// it: the oldest go first.
func (m *Members) SweepableEntries() []recipe.GatewayID {
	named := map[recipe.GatewayID]bool{}
	for _, g := range m.byID {
		if g.Entry {
			named[g.successor] = true
		}
	}
	if len(named) == 0 {
		return nil
	}
	list := m.sorted(func(g *Gateway) bool { return g.Entry && g.successor != "" && g.Contenders <= 0 && !g.Registered })
	return slices.DeleteFunc(list, func(id recipe.GatewayID) bool { return named[id] || !m.Owns(id) })
}

func (m *Members) sorted(match func(*Gateway) bool) (ids []recipe.GatewayID) {
	for id, g := range m.byID {
		if match(g) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// chain visits the succession entries from id on, up to the id at its end. known is false while an entry on the way has
// not been read, and for a cycle, which no gateway owns.
func (m *Members) chain(id recipe.GatewayID, visit func(*Gateway)) (end recipe.GatewayID, known bool) {
	for range len(m.byID) + 1 {
		g := m.byID[id]
		if g == nil || !g.Entry {
			return id, true
		}
		visit(g)
		if g.successor == "" {
			return id, false
		}
		id = g.successor
	}
	return id, false
}

// OwnerOf follows the succession to the gateway id whose clock runs the leases of id.
func (m *Members) OwnerOf(id recipe.GatewayID) (owner recipe.GatewayID, known bool) {
	return m.chain(id, func(*Gateway) {})
}

// Unowned counts the contenders whose gateway is gone and that no registered gateway has succeeded.
func (m *Members) Unowned() (n int) {
	for id, g := range m.byID {
		if g.Contenders > 0 {
			if owner, known := m.OwnerOf(id); !known || !m.Registered(owner) {
				n += g.Contenders
			}
		}
	}
	return n
}

// Owns reports whether the leases of a gateway id are the present session's to run.
func (m *Members) Owns(id recipe.GatewayID) bool {
	owner, known := m.OwnerOf(id)
	return known && m.self != "" && owner == m.self
}

// Elsewhere reports whether the leases of a gateway id are run by another process.
func (m *Members) Elsewhere(id recipe.GatewayID) bool {
	owner, known := m.OwnerOf(id)
	return known && !m.IsOwn(owner)
}

// Succeeded reports whether another process may run the leases of a gateway id by now: an entry says so, or has not been read yet.
func (m *Members) Succeeded(id recipe.GatewayID) bool {
	owner, known := m.OwnerOf(id)
	return !known || !m.IsOwn(owner)
}

// TakenAt is when the chain from id came to end here (boot): the clocks of adopted leases count from it. 0 for an id
// without a succession.
func (m *Members) TakenAt(id recipe.GatewayID) (at time.Duration) {
	m.chain(id, func(g *Gateway) { at = max(at, g.takenAt) })
	return at
}

// SeenUpTo is a zxid, at least `least`, that is no earlier than anything by which it is known which gateway runs the leases
// of id.
func (m *Members) SeenUpTo(id recipe.GatewayID, least int64) int64 {
	m.chain(id, func(g *Gateway) { least = max(least, g.entered) })
	return least
}

// Route is where requests about a lease go, nil when that is not known; zxid is the least that the answer is true of.
func (m *Members) Route(lease recipe.LeaseID, zxid int64) *locks.Route {
	owner, known := m.OwnerOf(lease.Gateway())
	g := m.byID[owner]
	if !known || !g.registered() {
		return nil
	}
	r := &locks.Route{Gateway: string(owner), Lease: string(lease), Zxid: m.SeenUpTo(lease.Gateway(), zxid)}
	if g.About != nil {
		r.Address, r.Seals = g.About.Address, g.About.Seals
	}
	return r
}

// Lacks returns a registered gateway that does not keep such terms of leases, and its release, "" while that has not been read.
// It reports false when each of them does.
func (m *Members) Lacks(terms int) (id recipe.GatewayID, release string, lacks bool) {
	for other, g := range m.byID {
		switch {
		case !g.Registered || m.IsOwn(other) || g.About != nil && g.About.Terms >= terms || lacks && id < other:
			continue
		case g.About == nil:
			id, release, lacks = other, "", true
		default:
			id, release, lacks = other, g.About.Version, true
		}
	}
	return id, release, lacks
}

// Responsible reports whether what a gateway id has left behind is this gateway's to sweep: it owns the id, or no gateway
// has succeeded it and it is gone.
func (m *Members) Responsible(id recipe.GatewayID) bool {
	if m.Owns(id) {
		return true
	}
	owner, known := m.OwnerOf(id)
	g := m.byID[owner]
	return known && !g.registered() && g.contenders() == 0
}

// Appointed reports whether it falls to this gateway, of all that are registered, to do something that any could do.
func (m *Members) Appointed(what string) bool {
	if m.self == "" {
		return false
	}
	best, most := recipe.GatewayID(""), uint64(0)
	for id, g := range m.byID {
		if !g.Registered {
			continue
		}
		h := fnv.New64a()
		h.Write([]byte(id))
		h.Write([]byte{0})
		h.Write([]byte(what))
		// FNV's last bytes stir only the low bits.
		n := h.Sum64()
		n ^= n >> 32
		n *= 0x9e3779b97f4a7c15
		if best == "" || n > most || n == most && id > best {
			best, most = id, n
		}
	}
	return best == m.self
}

// List has the registered gateways as they are shown, this one first.
func (m *Members) List(now time.Duration) (list []locks.Peer) {
	owned := map[recipe.GatewayID]int{}
	succeeded := map[recipe.GatewayID][]string{}
	for _, id := range slices.Sorted(maps.Keys(m.byID)) {
		owner, known := m.OwnerOf(id)
		if !known {
			continue
		}
		owned[owner] += m.byID[id].Contenders
		if owner != id {
			succeeded[owner] = append(succeeded[owner], string(id))
		}
	}
	for id, g := range m.byID {
		if !g.Registered {
			continue
		}
		v := locks.Peer{Gateway: string(id), Self: id == m.self, Registered: true, Leases: owned[id], Succeeded: succeeded[id], GuardAge: g.Guard.age(now)}
		if g.About != nil {
			v.Address, v.Version, v.Started, v.Seals = g.About.Address, g.About.Version, g.About.Started, g.About.Seals
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b locks.Peer) int {
		if a.Self != b.Self {
			if a.Self {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Gateway, b.Gateway)
	})
	return list
}
