package state

import (
	"fmt"
	"testing"

	"lockkeeper/internal/zk/wire"
)

// BenchmarkMulti is the lock gateway's usual write: a guard's version, 128 nodes that come and 128 that go, while a client
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

// BenchmarkSnapshot is what it costs to write 200,000 nodes down and to read them again, and what requests cost meanwhile.
func BenchmarkSnapshot(b *testing.B) {
	r := lockkeeperTree(b, 100_000)
	const piece = 256 << 10
	b.Run("whole", func(b *testing.B) {
		size := 0
		buf := make([]byte, 0, 2*piece)
		for b.Loop() {
			size = 0
			p := r.s.BeginSnapshot()
			for last := false; !last; {
				buf, last = p.Next(buf[:0], piece)
				size += len(buf)
			}
		}
		b.ReportMetric(float64(size), "bytes")
		b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N)/(float64(size)/piece), "us/piece")
	})
	b.Run("restore", func(b *testing.B) {
		pieces := take(r.s, piece).pieces
		for b.Loop() {
			if _, err := restore(pieces); err != nil {
				b.Fatal(err)
			}
		}
	})
	// A contender is written to, each one once in a snapshot: none of them is written down when its turn comes.
	bodies := make([][]byte, 0, 100_000)
	r.s.tree.find("/lockkeeper/locks").each(func(dir *node) {
		path := dir.path() + "/" + dir.names()[0]
		bodies = append(bodies, (&wire.SetDataRequest{Path: path, Data: make([]byte, 150), Version: -1}).AppendTo(nil))
	})
	c := r.client(1)
	const batch = 1000
	for name, under := range map[string]bool{"request": false, "request in the midst of one": true} {
		b.Run(name, func(b *testing.B) {
			var p *Snapshot
			var buf []byte
			finish := func() {
				for last := p == nil; !last; {
					_, last = p.Next(nil, piece)
				}
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if i%batch == 0 && under {
					b.StopTimer()
					if i%len(bodies) == 0 {
						finish()
						p = r.s.BeginSnapshot()
					}
					for len(p.saved) > 0 { // what the batch before has left
						buf, _ = p.Next(buf[:0], 1)
					}
					b.StartTimer()
				}
				if reply := r.s.Request(c.conn, 1, wire.RequestHeader{Op: wire.OpSetData}, bodies[i%len(bodies)]); reply.Txn.Err != wire.OK {
					b.Fatal(reply.Txn.Err)
				}
				i++
			}
			finish()
		})
	}
}
