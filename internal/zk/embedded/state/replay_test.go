package state

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/zk/wire"
)

// wander lets random clients do random things, the same for the same seed. Before each it calls between, if there is one.
func wander(t testing.TB, seed uint64, steps int, between ...func(*rig)) *rig {
	r := newRig(t)
	random := rand.New(rand.NewPCG(seed, 1))
	pick := func(n int) int { return random.IntN(n) }
	clients := make([]*client, 4)
	for i := range clients {
		clients[i] = r.client(int64(100 + i))
	}
	lists := [][]wire.ACL{
		everyone, everyone, everyone,
		{{Perms: wire.PermAll, Scheme: "auth"}},
		{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}, {Perms: wire.PermAll, Scheme: "ip", ID: "127.0.0.0/8"}},
		{{Perms: wire.PermCreate | wire.PermDelete, Scheme: "world", ID: "anyone"}},
		nil,
	}
	paths := []string{"/", "/a", "/a", "/a", "/b", "/b", "/a/x", "/a/x", "/a/y", "/a/x/z", "/b/c", "/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_limits",
		"/zookeeper/quota/a/zookeeper_stats", "/zookeeper/config", "", "/a/", "/a//x"}
	path := func() string { return paths[pick(len(paths))] }
	version := func() int32 { return []int32{-1, -1, 0, 1, 2}[pick(5)] }
	data := func() []byte {
		if pick(5) == 0 {
			return nil
		}
		return []byte(strings.Repeat("d", pick(20)))
	}
	write := func() wire.MultiOp {
		switch pick(8) {
		case 0, 1, 2:
			op := []wire.Op{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer}[pick(3)]
			return wire.MultiOp{Op: op, Record: &wire.CreateRequest{Path: path(), Data: data(), ACL: lists[pick(len(lists))], Flags: int32(pick(5))}}
		case 3:
			return wire.MultiOp{Op: wire.OpCreateTTL, Record: &wire.CreateTTLRequest{TTL: int64(pick(50)),
				CreateRequest: wire.CreateRequest{Path: path(), Data: data(), ACL: everyone, Flags: 5 + int32(pick(2))}}}
		case 4, 5:
			return wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: path(), Version: version()}}
		case 6:
			return wire.MultiOp{Op: wire.OpCheck, Record: &wire.VersionRequest{Path: path(), Version: version()}}
		}
		return wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: path(), Data: data(), Version: version()}}
	}
	for range steps {
		for _, f := range between {
			f(r)
		}
		r.now += int64(pick(30))
		i := pick(len(clients))
		c := clients[i]
		switch pick(20) {
		case 0:
			r.log(r.s.Reap(r.now)...)
		case 1:
			c.do(wire.OpCloseSession, nil)
			r.s.Detach(c.conn)
			clients[i] = r.client(c.conn.Session + 100)
		case 2:
			r.log(r.s.CloseSession(r.now, c.conn.Session))
			r.s.Detach(c.conn)
			clients[i] = r.client(c.conn.Session + 100)
		case 3:
			c.login(fmt.Sprint("user", pick(3)))
		case 4:
			c.do(wire.OpSetACL, &wire.SetACLRequest{Path: path(), ACL: lists[pick(len(lists))], Version: version()})
		case 5:
			c.do(wire.OpAddWatch, &wire.AddWatchRequest{Path: path(), Mode: int32(pick(2))})
		case 6, 7:
			c.do([]wire.Op{wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2}[pick(4)], &wire.ReadRequest{Path: path(), Watch: pick(2) == 0})
		case 8, 9, 10, 11:
			var ops []wire.MultiOp
			for range pick(6) {
				ops = append(ops, write())
			}
			before := dump(r.s)
			if reply := c.do(wire.OpMulti, multi(ops...)); reply.Txn.Err != wire.OK {
				after := strings.Replace(dump(r.s), fmt.Sprintf("zxid %d ", reply.Txn.Zxid), fmt.Sprintf("zxid %d ", reply.Txn.Zxid-1), 1)
				if diff := cmp.Diff(before, after); diff != "" {
					t.Fatalf("seed %d: a multi that failed with %v left something: -before +after\n%s", seed, reply.Txn.Err, diff)
				}
			}
		default:
			op := write()
			c.do(op.Op, op.Record)
		}
		check(t, r.s)
	}
	return r
}

func TestAReplayedLogGivesTheSameState(t *testing.T) {
	applied := 0
	for seed := range uint64(60) {
		r := wander(t, seed, 400)
		replica := New(Config{})
		for _, txn := range r.txns {
			again, err := DecodeTxn(txn.AppendTo(nil))
			if err != nil {
				t.Fatalf("seed %d: %+v: %v", seed, txn, err)
			}
			if diff := cmp.Diff(txn, again, cmp.Comparer(func(a, b []TxnOp) bool { return len(a) == len(b) && (len(a) == 0 || cmp.Equal(a, b)) })); diff != "" {
				t.Fatalf("seed %d: -written +read\n%s", seed, diff)
			}
			if err := replica.Apply(again); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			applied += len(txn.Ops)
		}
		if diff := cmp.Diff(dump(r.s), dump(replica)); diff != "" {
			t.Fatalf("seed %d: -lived +replayed\n%s", seed, diff)
		}
		check(t, replica)
	}
	if applied < 5000 {
		t.Fatalf("only %d changes: the walks do nothing", applied)
	}
}

func TestTheSameRequestsGiveTheSameRepliesAndEvents(t *testing.T) {
	events := 0
	for seed := range uint64(20) {
		a, b := wander(t, seed, 600), wander(t, seed, 600)
		if diff := cmp.Diff(a.said.String(), b.said.String()); diff != "" {
			t.Fatalf("seed %d: -first +second\n%s", seed, diff)
		}
		events += strings.Count(a.said.String(), "event")
	}
	if events < 200 {
		t.Fatalf("only %d events: the walks do nothing", events)
	}
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
		if err := New(Config{}).Apply(txn); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
