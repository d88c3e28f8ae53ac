package embedded

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	"lockkeeper/internal/zk/embedded/state"
)

// Storage keeps transactions, and snapshots so that it need not keep all of them. The core calls it from one goroutine; it
// belongs to who made it, and is closed by that one after Run has returned.
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

// MemoryStorage keeps transactions for as long as the process lives, in the binary form that a disk would get. It is for
// tests and grows with every write. Its zero value is not ready: use NewMemoryStorage.
type MemoryStorage struct {
	secret []byte

	mu  sync.Mutex
	log []byte // for each transaction its length and its bytes
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
	log := m.log // appending leaves what is there alone
	m.mu.Unlock()
	for n := 0; len(log) > 0; n++ {
		size := binary.BigEndian.Uint32(log)
		txn, err := state.DecodeTxn(log[4 : 4+size])
		if err != nil {
			return fmt.Errorf("transaction %d in memory: %w", n, err)
		}
		if err := r.Txn(txn); err != nil {
			return fmt.Errorf("transaction %d in memory: %w", n, err)
		}
		log = log[4+size:]
	}
	return nil
}

// Secret implements Storage.
func (m *MemoryStorage) Secret() []byte { return m.secret }

// Append implements Storage.
func (m *MemoryStorage) Append(b Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, txn := range b.Txns {
		mark := len(m.log)
		m.log = txn.AppendTo(append(m.log, 0, 0, 0, 0))
		binary.BigEndian.PutUint32(m.log[mark:], uint32(len(m.log)-mark-4))
	}
	return nil
}

// SnapshotDue implements Storage.
func (m *MemoryStorage) SnapshotDue() bool { return false }
