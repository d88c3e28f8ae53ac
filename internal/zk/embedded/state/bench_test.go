package state

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"lockkeeper/internal/zk/wire"
)

// BenchmarkMulti is the lock gateway's usual write: a guard's version, 128 nodes that come and 128 that go, while somebody
// watches the whole tree.
func BenchmarkMulti(b *testing.B) {
	r := newRig(b)
	c := r.client(1)
	seen := 0
	c.conn.Deliver = func(wire.WatcherEvent) { seen++ }
	c.create("/lockkeeper", 0)
	c.create("/lockkeeper/locks", 0)
	c.create("/lockkeeper/guard", 0)
	for i := range 1000 {
		c.create(fmt.Sprintf("/lockkeeper/locks/lock-%04d", i), 0)
	}
	c.must(wire.OpAddWatch, &wire.AddWatchRequest{Path: "/lockkeeper", Mode: wire.WatchRecursive})
	var come, both []wire.MultiOp
	both = append(both, wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/lockkeeper/guard", Data: []byte("x"), Version: -1}})
	for i := range 128 {
		path := fmt.Sprintf("/lockkeeper/locks/lock-%04d/holder-0123456789abcdef-%d", i, i)
		add := wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: path, Data: make([]byte, 100), ACL: everyone}}
		come = append(come, add)
		both = append(both, wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: path, Version: -1}}, add)
	}
	c.must(wire.OpMulti, multi(come...))
	body := multi(both...).AppendTo(nil)
	out := make([]byte, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		reply := c.s.Request(c.conn, 1, wire.RequestHeader{Op: wire.OpMulti}, body)
		if reply.Txn.Err != wire.OK {
			b.Fatal(reply.Txn.Err)
		}
		out = reply.Body.AppendTo(out[:0])
	}
	b.ReportMetric(float64(b.N*257)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkTxnCodec writes and reads the transaction of such a multi.
func BenchmarkTxnCodec(b *testing.B) {
	t := &Txn{Zxid: 1 << 20, Time: 1 << 40, Session: 1 << 60}
	for i := range 128 {
		path := fmt.Sprintf("/lockkeeper/locks/lock-%04d/holder-0123456789abcdef-%d", i, i)
		t.Ops = append(t.Ops, TxnOp{Kind: TxnDelete, Path: path}, TxnOp{Kind: TxnCreate, Path: path, Data: make([]byte, 100), ACL: everyone, Version: 7})
	}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = t.AppendTo(buf[:0])
		if _, err := DecodeTxn(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(buf)), "bytes")
}

func TestANodeTakesLittleMemory(t *testing.T) {
	if size := unsafe.Sizeof(node{}); size > 128 {
		t.Errorf("a node is %d bytes long, above the size class of 128", size)
	}
	const locks = 20_000
	r := newRig(t)
	c := r.client(1)
	c.create("/locks", 0)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range locks {
		path := fmt.Sprintf("/locks/lock-%06d", i)
		body := multi(
			wire.MultiOp{Op: wire.OpCreate, Record: creation(path, wire.FlagContainer)},
			wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: path + "/0123456789abcdef-", Data: make([]byte, 64), ACL: everyone, Flags: wire.FlagEphemeralSequential}})
		if reply := c.s.Request(c.conn, 1, wire.RequestHeader{Op: wire.OpMulti}, body.AppendTo(nil)); reply.Txn.Err != wire.OK {
			t.Fatal(reply.Txn.Err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	perLock := (after.HeapAlloc - before.HeapAlloc) / locks
	t.Logf("%d bytes for each lock with a holder", perLock)
	if perLock > 700 {
		t.Errorf("%d bytes for each lock: 100,000 of them shall fit into 200 MB with all the rest", perLock)
	}
	runtime.KeepAlive(r)
}

// BenchmarkBigDirectory lists 100,000 children, and makes and deletes one more among them.
func BenchmarkBigDirectory(b *testing.B) {
	c := newRig(b).client(1)
	c.create("/d", 0)
	for i := range 100_000 {
		c.s.Request(c.conn, 1, wire.RequestHeader{Op: wire.OpCreate}, creation(fmt.Sprintf("/d/lock-%d", i), wire.FlagSequential).AppendTo(nil))
	}
	list := (&wire.ReadRequest{Path: "/d"}).AppendTo(nil)
	make1 := creation("/d/one-more", 0).AppendTo(nil)
	drop1 := (&wire.VersionRequest{Path: "/d/one-more", Version: -1}).AppendTo(nil)
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			c.s.Request(c.conn, 1, wire.RequestHeader{Op: wire.OpGetChildren}, list)
		}
	})
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			c.s.Request(c.conn, 1, wire.RequestHeader{Op: wire.OpCreate}, make1)
			c.s.Request(c.conn, 1, wire.RequestHeader{Op: wire.OpDelete}, drop1)
		}
	})
}
