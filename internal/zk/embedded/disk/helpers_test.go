package disk

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// full says that the long runs are asked for.
func full() bool { return os.Getenv("LOCKKEEPER_FULL") != "" }

// txn is a transaction whose contents follow from its zxid: a node with size bytes of data.
func txn(zxid int64, size int) *state.Txn {
	data := bytes.Repeat([]byte{byte(zxid)}, size)
	return &state.Txn{Zxid: zxid, Time: 1_700_000_000_000 + zxid, Session: 1 << 56, Ops: []state.TxnOp{{
		Kind: state.TxnCreate, Path: fmt.Sprintf("/locks/lock-%d", zxid), Data: data, ACL: []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}, Version: 1,
	}}}
}

// txns are n of them, behind last.
func txns(last int64, n, size int) []*state.Txn {
	var all []*state.Txn
	for i := range n {
		all = append(all, txn(last+1+int64(i), size))
	}
	return all
}

// rig is a store, and what it has been given.
type rig struct {
	testing.TB
	*Store
	config Config
	model  model
}

// model is what Load must give.
type model struct {
	pieces [][]byte
	zxid   int64 // of the snapshot
	txns   []*state.Txn
	under  [][]byte // of a snapshot that is not whole
	underZ int64
}

// newRig has its store in memory, if that is possible: most tests are not about the disk, whose syncs would be all that they wait
// for.
func newRig(t testing.TB) *rig { return newRigIn(t, Config{Dir: filepath.Join(shm(t), "data")}) }

// newDirectRig is newRig with a journal that is too small for any batch: each goes to the store's file at once, page by page.
func newDirectRig(t testing.TB) *rig {
	return newRigIn(t, Config{Dir: filepath.Join(shm(t), "data"), journalHalf: 2 * sector})
}

// shm is a directory in memory if there is one.
func shm(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "lockkeeper-disk-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newRigIn(t testing.TB, config Config) *rig {
	t.Helper()
	testkit.NoLeaks(t)
	r := &rig{TB: t, config: config}
	r.open()
	t.Cleanup(func() { r.Store.Close() })
	return r
}

func (r *rig) open() {
	r.Helper()
	s := assert.Value(Open(r.config))(r)
	r.Store = s
}

// reopen closes and opens, and checks that everything is there.
func (r *rig) reopen() {
	r.Helper()
	assert.NoError(r, r.Store.Close())
	r.open()
	r.model.under = nil
	r.check()
}

func (r *rig) last() int64 { return r.model.zxid + int64(len(r.model.txns)) }

// add appends n transactions with size bytes of data each.
func (r *rig) add(n, size int) {
	r.Helper()
	r.append(embedded.Batch{Txns: txns(r.last(), n, size)})
}

func (r *rig) append(b embedded.Batch) {
	r.Helper()
	assert.NoError(r, r.Store.Append(b))
	r.model.append(b)
}

func (m *model) append(b embedded.Batch) {
	m.txns = append(m.txns[:len(m.txns):len(m.txns)], b.Txns...)
	p := b.Piece
	if p == nil {
		return
	}
	if p.First {
		m.under, m.underZ = nil, p.Zxid
	}
	m.under = append(m.under[:len(m.under):len(m.under)], bytes.Clone(p.Data))
	if p.Last {
		m.txns = m.txns[p.Zxid-m.zxid:]
		m.pieces, m.zxid, m.under = m.under, p.Zxid, nil
	}
}

// snapshot stores a snapshot of n pieces, with a batch of transactions beside each.
func (r *rig) snapshot(n, size int, each int) {
	r.Helper()
	zxid := r.last()
	for i := range n {
		r.piece(zxid, i, size, each, i == n-1)
	}
}

func (r *rig) piece(zxid int64, i, size, each int, last bool) {
	r.Helper()
	data := bytes.Repeat([]byte{byte(i), byte(zxid), byte(zxid >> 8)}, size/3+1)[:size]
	r.append(embedded.Batch{Txns: txns(r.last(), each, 50), Piece: &embedded.Piece{Zxid: zxid, Data: data, First: i == 0, Last: last}})
}

// check compares what Load gives with the model.
func (r *rig) check() {
	r.Helper()
	got := assert.Value(load(r.Store))(r)
	assert.NoError(r, r.model.differs(got))
}

// load is what a store gives.
func load(s *Store) (*model, error) {
	var m model
	err := s.Load(embedded.Recovery{
		Piece: func(data []byte) error { m.pieces = append(m.pieces, bytes.Clone(data)); return nil },
		Txn:   func(t *state.Txn) error { m.txns = append(m.txns, t); return nil },
	})
	return &m, err
}

// differs says what is not the same in got.
func (m *model) differs(got *model) error {
	if len(got.pieces) != len(m.pieces) || len(got.txns) != len(m.txns) {
		return fmt.Errorf("%d pieces and %d transactions, want %d and %d", len(got.pieces), len(got.txns), len(m.pieces), len(m.txns))
	}
	for i, p := range m.pieces {
		if !bytes.Equal(got.pieces[i], p) {
			return fmt.Errorf("piece %d is not what was stored", i)
		}
	}
	for i, t := range m.txns {
		if !bytes.Equal(got.txns[i].AppendTo(nil), t.AppendTo(nil)) {
			return fmt.Errorf("transaction %#x is not what was stored", t.Zxid)
		}
	}
	return nil
}
