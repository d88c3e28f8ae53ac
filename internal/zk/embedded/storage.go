package embedded

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"lockkeeper/internal/zk/embedded/state"
)

// Storage keeps transactions, and snapshots so that it need not keep all of them. The core calls it from one goroutine. Its
// maker closes it after Run has returned.
type Storage interface {
	// Load gives r the newest snapshot that was stored to its end, piece by piece, if there is one, and then every
	// transaction that was appended behind it, in order. It is called once, before the first Append. It fails when r does, or
	// when something is missing or damaged: a server must not start with less than it had.
	Load(r Recovery) error
	// Secret is what session passwords are derived from: random bytes, at least 16, made when the store was made and the same
	// ever since, so that clients find their sessions again after a restart.
	Secret() []byte
	// Append keeps a batch, all of it or nothing. It is durable when Append returns nil. When it fails it may or may not be
	// there, and nothing may be appended after it. Append must not keep what the batch refers to: buffers are used again.
	Append(b Batch) error
	// SnapshotDue says that the transactions behind the newest snapshot have grown so many that a new one should be begun. It
	// is asked between batches while none is under way.
	SnapshotDue() bool
}

// Recovery is what Load calls. Neither function keeps what it is given.
type Recovery struct {
	Piece func(data []byte) error
	Txn   func(*state.Txn) error
}

// Batch is what is stored at once.
type Batch struct {
	// Txns go on from the last transaction that was appended. There may be none when there is a piece.
	Txns []*state.Txn
	// Piece is nil unless a snapshot is under way.
	Piece *Piece
}

// Piece is a part of a snapshot. The pieces of one snapshot come in consecutive batches. Of a snapshot whose last piece never
// came nothing counts; once the last one is stored, older snapshots and the transactions up to Zxid are not needed any more.
type Piece struct {
	Zxid        int64 // the last transaction that is in the snapshot; those of its first batch come after it
	Data        []byte
	First, Last bool
}

// MemoryStorage keeps what is written for as long as the process lives, in the binary form that a disk would get: the newest
// snapshot and the transactions behind it, about twice as much as the state. Its zero value is not ready: use
// NewMemoryStorage.
type MemoryStorage struct {
	secret []byte

	mu       sync.Mutex
	snapshot lengths // pieces
	log      lengths // transactions behind it

	next   lengths // pieces of a snapshot whose last one has not come
	behind int     // where in log the transactions begin that are not in it
}

// memorySnapshotDue is how long a log in memory may be however small the state is.
const memorySnapshotDue = 1 << 20

// lengths is a row of values, each behind its length.
type lengths []byte

// add appends a value that f appends.
func (l *lengths) add(f func([]byte) []byte) {
	mark := len(*l)
	*l = f(append(*l, 0, 0, 0, 0))
	binary.BigEndian.PutUint32((*l)[mark:], uint32(len(*l)-mark-4))
}

// each yields the values and their numbers.
func (l lengths) each(yield func(int, []byte) bool) {
	for n := 0; len(l) > 0; n++ {
		end := 4 + binary.BigEndian.Uint32(l)
		if !yield(n, l[4:end]) {
			return
		}
		l = l[end:]
	}
}

// NewMemoryStorage is an empty store with a secret of its own.
func NewMemoryStorage() *MemoryStorage {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails (crypto/rand)
	return &MemoryStorage{secret: secret}
}

// Load implements Storage.
func (m *MemoryStorage) Load(r Recovery) error {
	m.mu.Lock()
	snapshot, log := m.snapshot, m.log // appending leaves what is there alone
	m.mu.Unlock()
	for n, piece := range snapshot.each {
		if err := r.Piece(piece); err != nil {
			return fmt.Errorf("piece %d in memory: %w", n, err)
		}
	}
	for n, b := range log.each {
		txn, err := state.DecodeTxn(b)
		if err != nil {
			return fmt.Errorf("transaction %d in memory: %w", n, err)
		}
		if err := r.Txn(txn); err != nil {
			return fmt.Errorf("transaction %d in memory: %w", n, err)
		}
	}
	return nil
}

// Secret implements Storage.
func (m *MemoryStorage) Secret() []byte { return m.secret }

// Append implements Storage.
func (m *MemoryStorage) Append(b Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := b.Piece; p != nil {
		if p.First {
			m.next, m.behind = nil, len(m.log)
		}
		m.next.add(func(to []byte) []byte { return append(to, p.Data...) })
	}
	for _, txn := range b.Txns {
		m.log.add(txn.AppendTo)
	}
	if p := b.Piece; p != nil && p.Last {
		m.snapshot, m.next = m.next, nil
		m.log = slices.Clone(m.log[m.behind:])
	}
	return nil
}

// SnapshotDue implements Storage.
func (m *MemoryStorage) SnapshotDue() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.log) > max(memorySnapshotDue, len(m.snapshot))
}
