package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
)

// lease is the transaction of one acquire: a lock's directory and the contender in it, as the gateway makes them.
func lease(zxid int64) *state.Txn {
	dir := fmt.Sprintf("/lockkeeper/locks/lock-%06d", zxid)
	return &state.Txn{Zxid: zxid, Time: 1_700_000_000_000 + zxid, Session: 1 << 56, Ops: []state.TxnOp{
		{Kind: state.TxnSetData, Path: "/lockkeeper/guards/0123456789abcdef", Version: int32(zxid)},
		{Kind: state.TxnCreate, Path: dir, Owner: -1 << 63, Version: 1},
		{Kind: state.TxnCreate, Path: dir + "/0123456789abcdefghjkmnpqrs-0123456789abcdef-0000000000", Data: make([]byte, 150), Version: 1},
	}}
}

func leases(last int64, n int) (all []*state.Txn) {
	for i := range n {
		all = append(all, lease(last+1+int64(i)))
	}
	return all
}

// BenchmarkAppend appends batches; beside it stands what one write of as many bytes and one sync cost without a store. The store
// is on the disk that holds temporary directories.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("txns=%d", n), func(b *testing.B) {
			r := newRigIn(b, Config{Dir: b.TempDir()})
			batch := leases(0, n)
			b.ReportAllocs()
			for b.Loop() {
				for i, t := range batch {
					t.Zxid = r.progress.Last + 1 + int64(i)
				}
				assert.NoError(b, r.Append(embedded.Batch{Txns: batch}))
			}
		})
		b.Run(fmt.Sprintf("fsync/txns=%d", n), func(b *testing.B) {
			f := assert.Value(os.Create(filepath.Join(b.TempDir(), "f")))(b)
			defer f.Close()
			var buf batchBuffer
			data := buf.encode(leases(0, n))
			const size = 64 << 20
			if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
				b.Skip(err)
			}
			at := int64(0)
			for b.Loop() {
				if _, err := f.WriteAt(data, at); err != nil {
					b.Fatal(err)
				}
				assert.NoError(b, unix.Fdatasync(int(f.Fd())))
				at = (at + int64(len(data))) % (size - 1<<20)
			}
		})
	}
}

// BenchmarkAppendWithFreePages appends to a store in which a log of 100 MB was just dropped: bbolt has 25,000 free pages then.
func BenchmarkAppendWithFreePages(b *testing.B) {
	r := newRigIn(b, Config{Dir: b.TempDir()})
	for range 100 {
		assert.NoError(b, r.Append(embedded.Batch{Txns: txns(r.progress.Last, 100, 10_000)}))
	}
	assert.NoError(b, r.Append(embedded.Batch{Piece: &embedded.Piece{Zxid: r.progress.Last, First: true, Last: true}}))
	b.ReportAllocs()
	for b.Loop() {
		assert.NoError(b, r.Append(embedded.Batch{Txns: leases(r.progress.Last, 16)}))
	}
}

// BenchmarkLoad opens and loads a store with 100,000 leases: as the log of their making, and as a snapshot, for which 300 bytes
// stand for each lease.
func BenchmarkLoad(b *testing.B) {
	const n = 100_000
	fill := map[string]func(r *rig) error{
		"log": func(r *rig) error {
			for range n / 100 {
				if err := r.Append(embedded.Batch{Txns: leases(r.progress.Last, 100)}); err != nil {
					return err
				}
			}
			return nil
		},
		"snapshot": func(r *rig) error {
			const pieces = n * 300 / (256 << 10)
			for i := range pieces {
				if err := r.Append(embedded.Batch{Piece: &embedded.Piece{Data: make([]byte, 256<<10), First: i == 0, Last: i == pieces-1}}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	for name, fill := range fill {
		r := newRigIn(b, Config{Dir: b.TempDir()})
		assert.NoError(b, fill(r))
		b.Run("open/"+name, func(b *testing.B) {
			for b.Loop() {
				r.Store.Close()
				r.open()
			}
		})
		b.Run("load/"+name, func(b *testing.B) {
			for b.Loop() {
				err := r.Load(embedded.Recovery{Piece: func([]byte) error { return nil }, Txn: func(*state.Txn) error { return nil }})
				assert.NoError(b, err)
			}
		})
	}
}

// BenchmarkPiece appends pieces of a snapshot, as a core does: with each batch one.
func BenchmarkPiece(b *testing.B) {
	r := newRigIn(b, Config{Dir: b.TempDir()})
	data := make([]byte, 256<<10)
	first := true
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		assert.NoError(b, r.Append(embedded.Batch{Piece: &embedded.Piece{Data: data, First: first}}))
		first = false
	}
}
