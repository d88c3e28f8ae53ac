package state

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

// wander lets random clients do random things, the same for the same seed. Before each it calls between, if there is one.
func wander(t testing.TB, seed uint64, steps int, between ...func(*rig)) *rig {
	w := &walk{rig: newRig(t), random: rand.New(rand.NewPCG(seed, 1)), clients: make([]*client, 4)}
	for i := range w.clients {
		w.clients[i] = w.client(int64(100 + i))
	}
	for range steps {
		for _, f := range between {
			f(w.rig)
		}
		w.step()
		check(t, w.s)
	}
	return w.rig
}

// walk is what random clients do.
type walk struct {
	*rig
	random  *rand.Rand
	clients []*client
}

var (
	walkLists = [][]wire.ACL{
		everyone, everyone, everyone,
		{{Perms: wire.PermAll, Scheme: "auth"}},
		{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}, {Perms: wire.PermAll, Scheme: "ip", ID: "127.0.0.0/8"}},
		{{Perms: wire.PermCreate | wire.PermDelete, Scheme: "world", ID: "anyone"}},
		nil,
	}
	walkPaths = []string{"/", "/a", "/a", "/a", "/b", "/b", "/a/x", "/a/x", "/a/y", "/a/x/z", "/b/c", "/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_limits",
		"/zookeeper/quota/a/zookeeper_stats", "/zookeeper/config", "", "/a/", "/a//x"}
)

func (w *walk) pick(n int) int  { return w.random.IntN(n) }
func (w *walk) path() string    { return walkPaths[w.pick(len(walkPaths))] }
func (w *walk) acl() []wire.ACL { return walkLists[w.pick(len(walkLists))] }
func (w *walk) version() int32  { return []int32{-1, -1, 0, 1, 2}[w.pick(5)] }

func (w *walk) data() []byte {
	if w.pick(5) == 0 {
		return nil
	}
	data := strings.Repeat("d", w.pick(20))
	if w.pick(2) == 0 {
		data += strconv.Itoa(123456 + w.pick(1000)) // its shape is shared
	}
	return []byte(data)
}

func (w *walk) write() wire.MultiOp {
	switch w.pick(8) {
	case 0, 1, 2:
		op := []wire.Op{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer}[w.pick(3)]
		return wire.MultiOp{Op: op, Record: &wire.CreateRequest{Path: w.path(), Data: w.data(), ACL: w.acl(), Flags: int32(w.pick(5))}}
	case 3:
		return wire.MultiOp{Op: wire.OpCreateTTL, Record: &wire.CreateTTLRequest{TTL: int64(w.pick(50)),
			CreateRequest: wire.CreateRequest{Path: w.path(), Data: w.data(), ACL: everyone, Flags: 5 + int32(w.pick(2))}}}
	case 4, 5:
		return wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: w.path(), Version: w.version()}}
	case 6:
		return wire.MultiOp{Op: wire.OpCheck, Record: &wire.VersionRequest{Path: w.path(), Version: w.version()}}
	}
	return wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: w.path(), Data: w.data(), Version: w.version()}}
}

func (w *walk) step() {
	w.now += int64(w.pick(30))
	i := w.pick(len(w.clients))
	c := w.clients[i]
	switch w.pick(20) {
	case 0:
		w.log(w.s.Reap(w.now)...)
	case 1:
		c.do(wire.OpCloseSession, nil)
		w.s.Detach(c.conn)
		w.clients[i] = w.client(c.conn.Session + 100)
	case 2:
		w.log(w.s.CloseSession(w.now, c.conn.Session))
		w.s.Detach(c.conn)
		w.clients[i] = w.client(c.conn.Session + 100)
	case 3:
		c.login(fmt.Sprint("user", w.pick(3)))
	case 4:
		c.do(wire.OpSetACL, &wire.SetACLRequest{Path: w.path(), ACL: w.acl(), Version: w.version()})
	case 5:
		c.do(wire.OpAddWatch, &wire.AddWatchRequest{Path: w.path(), Mode: int32(w.pick(2))})
	case 6, 7:
		c.do([]wire.Op{wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2}[w.pick(4)], &wire.ReadRequest{Path: w.path(), Watch: w.pick(2) == 0})
	case 8, 9, 10, 11:
		w.multi(c)
	default:
		op := w.write()
		c.do(op.Op, op.Record)
	}
}

// multi sends a multi. One that fails must leave nothing.
func (w *walk) multi(c *client) {
	var ops []wire.MultiOp
	for range w.pick(6) {
		ops = append(ops, w.write())
	}
	before := dump(w.s)
	if reply := c.do(wire.OpMulti, multi(ops...)); reply.Txn.Err != wire.OK {
		after := strings.Replace(dump(w.s), fmt.Sprintf("zxid %d ", reply.Txn.Zxid), fmt.Sprintf("zxid %d ", reply.Txn.Zxid-1), 1)
		diff := cmp.Diff(before, after)
		assert.Must(w.t, diff == "", "a multi that failed with %v left something: -before +after\n%s", reply.Txn.Err, diff)
	}
}

func TestAReplayedLogGivesTheSameState(t *testing.T) {
	applied := 0
	for seed := range uint64(60) {
		r := wander(t, seed, 400)
		replica := New(Config{})
		for _, txn := range r.txns {
			again := assert.Value(DecodeTxn(txn.AppendTo(nil)))(t, "seed %d: %+v", seed, txn)
			diff := cmp.Diff(txn, again, cmp.Comparer(func(a, b []TxnOp) bool { return len(a) == len(b) && (len(a) == 0 || cmp.Equal(a, b)) }))
			assert.Must(t, diff == "", "seed %d: -written +read\n%s", seed, diff)
			assert.NoError(t, replica.Apply(again), "seed %d", seed)
			applied += len(txn.Ops)
		}
		diff := cmp.Diff(dump(r.s), dump(replica))
		assert.Must(t, diff == "", "seed %d: -lived +replayed\n%s", seed, diff)
		check(t, replica)
	}
	assert.Must(t, applied >= 5000, "only %d changes: the walks do nothing", applied)
}

func TestTheSameRequestsGiveTheSameRepliesAndEvents(t *testing.T) {
	events := 0
	for seed := range uint64(20) {
		a, b := wander(t, seed, 600), wander(t, seed, 600)
		diff := cmp.Diff(a.said.String(), b.said.String())
		assert.Must(t, diff == "", "seed %d: -first +second\n%s", seed, diff)
		events += strings.Count(a.said.String(), "event")
	}
	assert.Must(t, events >= 200, "only %d events: the walks do nothing", events)
}

func TestALogThatDoesNotFitIsRefused(t *testing.T) {
	for name, txn := range map[string]*Txn{
		"a zxid is left out":        {Zxid: 2},
		"a zxid comes again":        {Zxid: 0},
		"a parent is missing":       {Zxid: 1, Ops: []TxnOp{{Kind: TxnCreate, Path: "/a/b", ACL: everyone, Version: 1}}},
		"a node is there already":   {Zxid: 1, Ops: []TxnOp{{Kind: TxnCreate, Path: "/zookeeper", ACL: everyone, Version: 1}}},
		"a name is empty":           {Zxid: 1, Ops: []TxnOp{{Kind: TxnCreate, Path: "/", ACL: everyone, Version: 1}}},
		"a path is none":            {Zxid: 1, Ops: []TxnOp{{Kind: TxnCreate, Path: "x", ACL: everyone, Version: 1}}},
		"a session is missing":      {Zxid: 1, Ops: []TxnOp{{Kind: TxnCreate, Path: "/e", ACL: everyone, Owner: 9, Version: 1}}},
		"the root goes":             {Zxid: 1, Ops: []TxnOp{{Kind: TxnDelete, Path: "/"}}},
		"a node with children goes": {Zxid: 1, Ops: []TxnOp{{Kind: TxnDelete, Path: "/zookeeper"}}},
		"a node that goes is none":  {Zxid: 1, Ops: []TxnOp{{Kind: TxnDelete, Path: "/a"}}},
		"a node to set is none":     {Zxid: 1, Ops: []TxnOp{{Kind: TxnSetData, Path: "/a"}}},
		"a failure has changes":     {Zxid: 1, Err: wire.ErrNoNode, Ops: []TxnOp{{Kind: TxnSetData, Path: "/"}}},
		"a change is of no kind":    {Zxid: 1, Ops: []TxnOp{{Path: "/"}}},
	} {
		assert.That(t, New(Config{}).Apply(txn) != nil, "%s: no error", name)
	}
}
