package difftest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"lockkeeper/internal/zk/wire"
)

const clients = 3

// Generate makes a scenario of random steps from a seed, always the same one.
func Generate(seed uint64) Scenario {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x10c4)), attached: make([]int, clients)}
	for i := range g.attached {
		g.attached[i] = -1
	}
	g.tangle = g.IntN(4) == 0
	s := Scenario{Name: fmt.Sprintf("LOCKKEEPER_SEED=%d", seed)}
	for client := range clients {
		s.Steps = append(s.Steps, g.open(client))
	}
	if g.chance(80) { // otherwise most requests find nothing
		g.done += 3
		s.Steps = append(s.Steps, Step{0, Send{g.plainCreate("/a"), g.plainCreate("/a/x"), g.plainCreate("/b")}})
	}
	for range 10 + g.IntN(60) {
		s.Steps = append(s.Steps, g.step())
	}
	return s
}

// generator knows roughly what the scenario has done so far, so that most of what it does next makes sense.
type generator struct {
	*rand.Rand
	attached []int // session of each connection; -1: none
	sessions int
	done     int  // about how many transactions so far
	tangle   bool // this scenario is about sessions and connections rather than nodes
}

// pick is one of the choices; one that is there twice is twice as likely.
func pick[T any](g *generator, choices ...T) T { return choices[g.IntN(len(choices))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) step() Step {
	client := g.IntN(clients)
	if g.attached[client] < 0 {
		if g.chance(50) {
			return g.open(client)
		}
		return g.attach(client)
	}
	ends := 3
	if g.tangle {
		ends = 25
	}
	if g.chance(ends) {
		return g.disturb(client)
	}
	if g.chance(4) {
		return Step{client, Send{g.auth()}}
	}
	if g.chance(4) {
		return Step{client, Send{g.spoil(g.request())}}
	}
	n := 1
	if g.chance(25) {
		n = 2 + g.IntN(5)
	}
	var send Send
	for range n {
		send = append(send, g.request())
	}
	return Step{client, send}
}

func (g *generator) open(client int) Step {
	o := Open{TimeoutMs: pick[int32](g, 30_000, 30_000, 30_000, 40_000, 40_001, 50_000, math.MaxInt32),
		NoReadOnly: g.chance(20)}
	if g.chance(10) {
		o.LastSeen = int64(1 + g.IntN(3))
	}
	if g.chance(3) {
		o.LastSeen = pick[int64](g, 1000, math.MaxInt64, -1, math.MinInt64)
	}
	if o.LastSeen >= 1000 || o.LastSeen > int64(g.done) {
		g.attached[client] = -1
		return Step{client, o}
	}
	g.attached[client] = g.sessions
	g.sessions++
	g.done++
	return Step{client, o}
}

func (g *generator) attach(client int) Step {
	a := Attach{Session: g.IntN(g.sessions + 1), TimeoutMs: 30_000}
	g.attached[client] = -1
	switch g.IntN(12) {
	case 0:
		a.WrongPasswd = true
	case 1:
		a.WrongID = true
	case 2:
		a.ShortPasswd = true
	case 3:
		a.LastSeen = pick[int64](g, 1000, math.MaxInt64)
	case 4:
		a.LastSeen = int64(1 + g.IntN(g.done+1))
		fallthrough
	default:
		for i, s := range g.attached {
			if s == a.Session {
				g.attached[i] = -1
			}
		}
		g.attached[client] = a.Session
	}
	return Step{client, a}
}

// disturb ends a connection or a session, or moves it.
func (g *generator) disturb(client int) Step {
	switch g.IntN(8) {
	case 0, 1:
		g.attached[client] = -1
		return Step{client, Drop{}}
	case 2, 3:
		g.attached[client] = -1
		g.done++
		return Step{client, Send{{Op: wire.OpCloseSession}}}
	case 4:
		return g.open(client)
	case 5:
		g.attached[client] = -1
		return Step{client, Raw(pick(g, "\xff\xff\xff\xff", "\x7f\xff\xff\xff", "\x00\x00\x00\x00",
			"\x00\x00\x00\x04\x00\x00\x00\x01", "\x00\x10\x00\x00", "\x01\x00\x00\x00"))}
	case 6:
		return Step{client, Send{g.strange()}}
	}
	return g.attach(client)
}

// strange is a request that no client library sends.
func (g *generator) strange() Request {
	op := pick(g, wire.Op(99), wire.Op(-3), wire.Op(math.MaxInt32), wire.Op(math.MinInt32), wire.Op(10),
		wire.OpNotification, wire.OpError, wire.OpCheck,
		wire.OpSASL, wire.OpReconfig, wire.OpWhoAmI, wire.OpSync, wire.Op(108), wire.Op(-12), wire.Op(23))
	switch op {
	case wire.OpCheck:
		return Request{Op: op, Record: &wire.VersionRequest{Path: g.path(), Version: g.version()}}
	case wire.OpSASL:
		return Request{Op: op, Record: &Fields{[]byte("token")}}
	case wire.OpReconfig:
		return Request{Op: op, Record: &Fields{"server.1=a:1:2", Null{}, Null{}, int64(-1)}}
	}
	return Request{Op: op, Record: &wire.PathRecord{Path: g.path()}}
}

// spoil damages a request's body.
func (g *generator) spoil(r Request) Request {
	switch g.IntN(6) {
	case 0:
		r.Cut = 1 << 20 // everything
	case 5:
		if r.Op == wire.OpAddWatch {
			break // see below
		}
		r.Cut, r.Extra = 1<<20, []byte{}
		for range g.IntN(40) {
			r.Extra = append(r.Extra, pick[byte](g, 0, 0, 0, 0, 1, 2, 3, '/', 'a', 'x', 255))
		}
	case 1, 2:
		r.Cut = 1 + g.IntN(12)
	case 3:
		r.Extra = []byte{0, 0, 0, 1, 'x'}
	case 4:
		if r.Op == wire.OpAddWatch {
			break // ZooKeeper accepts a watch on a null path, and never closes the connection afterwards
		}
		path := Path(g.path())
		r.Record = pick(g,
			&Fields{Null{}}, &Fields{Null{}, true}, &Fields{path, Null{}, Null{}, int32(0)},
			&Fields{Null{}, []byte("x"), Null{}, int32(0)},
			&Fields{path, []byte("x"), int32(-2), int32(0)}, &Fields{path, []byte("x"), int32(1 << 30), int32(0)},
			&Fields{path, []byte("x"), int32(1), int32(31), Null{}, "anyone", int32(0)},
			&Fields{path, []byte("x"), int32(1), int32(31), "world", Null{}, int32(0)},
			&Fields{path, Null{}, int32(-1)}, &Fields{path, Null{}, int32(1)},
			&Fields{int64(0), Null{}, Null{}, Null{}}, &Fields{int64(0), Null{}, Null{}, Null{}, Null{}, Null{}},
			&Fields{int32(-2), "x"}, &Fields{int32(1 << 30), "x"},
		)
	}
	return r
}

func (g *generator) plainCreate(path string) Request {
	return Request{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: path, Data: g.data(), ACL: worldOpen}}
}

func (g *generator) create() *wire.CreateRequest {
	c := &wire.CreateRequest{Path: g.own(), Data: g.data(), ACL: g.acl(),
		Flags: pick[int32](g, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3)}
	if g.chance(4) {
		c.Flags = pick[int32](g, 4, 5, 6, 7, -1, 100)
	}
	if c.Flags == wire.FlagSequential || c.Flags == wire.FlagEphemeralSequential {
		c.Path = pick(g, "/s-", "/a/s-", "/a/s-", "/a/", "/b/s-", c.Path)
	}
	return c
}

func (g *generator) createTTL() *wire.CreateTTLRequest {
	c := &wire.CreateTTLRequest{CreateRequest: *g.create(),
		TTL: pick[int64](g, 1_000_000, 1_000_000, 1_000_000, 0, -1, 0xffffffffff, 1<<40, math.MaxInt64,
			math.MinInt64)}
	c.Flags = pick(g, wire.FlagPersistentTTL, wire.FlagPersistentTTL, wire.FlagPersistentSequentialTTL, c.Flags)
	if c.Flags < wire.FlagPersistentTTL && c.TTL <= 0 {
		c.TTL = 1000 // ZooKeeper 3.8 lets this one through to its log and dies of it, then and at each start
	}
	return c
}

func (g *generator) request() Request {
	switch n := g.IntN(100); {
	case n < 19:
		g.done++
		return Request{Op: pick(g, wire.OpCreate, wire.OpCreate2), Record: g.create()}
	case n < 21:
		g.done++
		c := g.create()
		if g.chance(80) {
			c.Flags = wire.FlagContainer
		}
		return Request{Op: wire.OpCreateContainer, Record: c}
	case n < 24:
		g.done++
		return Request{Op: wire.OpCreateTTL, Record: g.createTTL()}
	case n < 31:
		g.done++
		return Request{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: g.path(), Version: g.version()}}
	case n < 40:
		return Request{Op: wire.OpSetData, Record: g.setData()}
	case n < 44:
		return Request{Op: wire.OpSetACL,
			Record: &wire.SetACLRequest{Path: g.own(), ACL: g.acl(), Version: g.version()}}
	case n < 62:
		op := pick(g, wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2)
		return Request{Op: op, Record: &wire.ReadRequest{Path: g.path(), Watch: g.chance(60)}}
	case n < 65:
		return Request{Op: pick(g, wire.OpGetACL, wire.OpGetACL, wire.OpSync, wire.OpCountChildren),
			Record: &wire.PathRecord{Path: g.own()}}
	case n < 67:
		return Request{Op: wire.OpGetEphemerals,
			Record: &wire.PathRecord{Path: pick(g, g.path(), "^", "^ ", "^/", "/")}}
	case n < 80:
		return g.multi()
	case n < 83:
		return g.multiRead()
	case n < 90:
		return Request{Op: wire.OpAddWatch,
			Record: &wire.AddWatchRequest{Path: g.path(), Mode: pick[int32](g, 0, 0, 0, 1, 1, 1, 1, 2, -1)}}
	case n < 94:
		op := pick(g, wire.OpCheckWatches, wire.OpRemoveWatches, wire.OpRemoveWatches)
		return Request{Op: op,
			Record: &wire.WatchTypeRequest{Path: g.path(), Type: pick[int32](g, 1, 2, 3, 3, 4, 5, 0, -1)}}
	case n < 98:
		return g.setWatches()
	case n < 99:
		return Request{Op: wire.OpPing}
	}
	return Request{Op: wire.OpWhoAmI}
}

// own is a path below the scenario's root: what is beside it belongs to all scenarios, and must not be changed.
func (g *generator) own() string {
	for {
		if p := g.path(); !strings.HasPrefix(p, "^/") && p != "^" { // which is "/" to some operations
			return p
		}
	}
}

func (g *generator) setData() *wire.SetDataRequest {
	g.done++
	return &wire.SetDataRequest{Path: g.own(), Data: g.data(), Version: g.version()}
}

func (g *generator) multi() Request {
	m := &wire.MultiRequest{}
	for range g.IntN(5) {
		var op wire.MultiOp
		switch n := g.IntN(20); {
		case n < 7:
			op = wire.MultiOp{Op: pick(g, wire.OpCreate, wire.OpCreate2), Record: g.create()}
		case n < 8:
			c := g.create()
			c.Flags = wire.FlagContainer
			op = wire.MultiOp{Op: wire.OpCreateContainer, Record: c}
		case n < 9:
			op = wire.MultiOp{Op: wire.OpCreateTTL, Record: g.createTTL()}
		case n < 13:
			op = wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: g.path(), Version: g.version()}}
		case n < 17:
			op = wire.MultiOp{Op: wire.OpSetData, Record: g.setData()}
		case n < 19 || g.chance(80):
			op = wire.MultiOp{Op: wire.OpCheck, Record: &wire.VersionRequest{Path: g.path(), Version: g.version()}}
		default:
			op = wire.MultiOp{Op: pick(g, wire.OpGetData, wire.OpExists, wire.OpSetACL),
				Record: &wire.ReadRequest{Path: g.path()}}
		}
		m.Ops = append(m.Ops, op)
	}
	g.done++
	return Request{Op: wire.OpMulti, Record: m}
}

func (g *generator) multiRead() Request {
	m := &wire.MultiRequest{}
	for range g.IntN(5) {
		op := pick(g, wire.OpGetData, wire.OpGetChildren)
		if g.chance(3) {
			op = pick(g, wire.OpExists, wire.OpDelete)
		}
		m.Ops = append(m.Ops, wire.MultiOp{Op: op, Record: &wire.ReadRequest{Path: g.path(), Watch: g.chance(30)}})
	}
	return Request{Op: wire.OpMultiRead, Record: m}
}

func (g *generator) setWatches() Request {
	one := wire.SetWatchesRequest{RelativeZxid: int64(g.IntN(g.done + 2)), Data: g.paths(), Exist: g.paths(),
		Child: g.paths()}
	if g.chance(5) {
		one.RelativeZxid = pick[int64](g, -1, 0, math.MaxInt64)
	}
	if g.chance(40) {
		return Request{Op: wire.OpSetWatches, Xid: wire.XidSetWatches, Record: &one}
	}
	return Request{Op: wire.OpSetWatches2, Xid: wire.XidSetWatches,
		Record: &wire.SetWatches2Request{SetWatchesRequest: one, Persistent: g.paths(), Recursive: g.paths()}}
}
