package state

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

// lockkeeperTree makes as many locks as a lock gateway would: a directory each, with one contender in it. The names and the
// data are as long as the gateway's.
func lockkeeperTree(t testing.TB, locks int) *rig {
	r := newRig(t)
	c := r.client(1)
	c.create("/lockkeeper", 0)
	c.create("/lockkeeper/locks", 0)
	for i := range locks {
		dir := fmt.Sprintf("/lockkeeper/locks/orders-%06d", i)
		contender := fmt.Sprintf("%s/write-v1.lk%037d-lock-", dir, i)
		body := multi(
			wire.MultiOp{Op: wire.OpCreate, Record: creation(dir, 0)},
			wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: contender, Data: make([]byte, 150), ACL: everyone, Flags: wire.FlagSequential}})
		assert.MustEqual(t, c.s.Request(c.conn, 1, wire.RequestHeader{Op: wire.OpMulti}, body.AppendTo(nil)).Txn.Err, wire.OK)
	}
	return r
}

// liveHeap is what is in use after everything has been collected that can be.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestLocksTakeLittleMemory(t *testing.T) {
	size := unsafe.Sizeof(node{})
	assert.That(t, size <= 128, "a node is %d bytes long, above the size class of 128", size)
	size = unsafe.Sizeof(children{})
	assert.That(t, size <= 16, "the children of a node are %d bytes long, above the size class of 16", size)
	const locks = 20_000
	before := liveHeap()
	r := lockkeeperTree(t, locks)
	perLock := float64(liveHeap()-before) / locks
	t.Logf("%.0f bytes for each lock with a holder", perLock)
	assert.That(t, perLock <= 580, "%.0f bytes for each lock with a holder, want 100,000 of them in less than 60 MB", perLock)
	pieces := take(r.s, 1<<20).pieces
	before = liveHeap()
	restored := assert.Value(restore(pieces))(t)
	again := float64(liveHeap()-before) / locks
	assert.That(t, again <= perLock+10, "%.0f bytes once it is restored, had %.0f", again, perLock)
	runtime.KeepAlive(r)
	runtime.KeepAlive(pieces)
	runtime.KeepAlive(restored)
}

// BenchmarkMemory tells what a lock with a holder takes, in a State that was made by requests.
func BenchmarkMemory(b *testing.B) {
	const locks = 100_000
	var used uint64
	for b.Loop() {
		before := liveHeap()
		r := lockkeeperTree(b, locks)
		used = liveHeap() - before
		runtime.KeepAlive(r)
	}
	b.ReportMetric(float64(used)/locks, "B/lock")
	b.ReportMetric(float64(used)/1e6, "MB")
}
