package embedded

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	"lockkeeper/internal/zk/embedded/state"
)

// Storage keeps transactions. The core calls it from one goroutine; it belongs to who made it, and is closed by that one
// after Run has returned.
type Storage interface {
	// Load calls apply with every transaction that was ever appended, in that order. It is called once, before the first
	// Append. It fails when apply does, or when something is missing or damaged: a server must not start with less than it had.
	Load(apply func(*state.Txn) error) error
	// Secret is what session passwords are derived from: random bytes, at least 16, made when the store was made and the same
	// ever since, so that clients find their sessions again after a restart.
	Secret() []byte
	// Append keeps the transactions, whose zxids go on from the last. They are durable when it returns nil. When it fails
	// they may or may not be there, and nothing may be appended after them. It must not keep the transactions themselves:
	// they refer to buffers that are used again.
	Append([]*state.Txn) error
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
func (m *MemoryStorage) Load(apply func(*state.Txn) error) error {
	m.mu.Lock()
	log := m.log // appending leaves what is there alone
	m.mu.Unlock()
	for n := 0; len(log) > 0; n++ {
		size := binary.BigEndian.Uint32(log)
		txn, err := state.DecodeTxn(log[4 : 4+size])
		if err != nil {
			return fmt.Errorf("transaction %d in memory: %w", n, err)
		}
		if err := apply(txn); err != nil {
			return fmt.Errorf("transaction %d in memory: %w", n, err)
		}
		log = log[4+size:]
	}
	return nil
}

// Secret implements Storage.
func (m *MemoryStorage) Secret() []byte { return m.secret }

// Append implements Storage.
func (m *MemoryStorage) Append(txns []*state.Txn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, txn := range txns {
		mark := len(m.log)
		m.log = txn.AppendTo(append(m.log, 0, 0, 0, 0))
		binary.BigEndian.PutUint32(m.log[mark:], uint32(len(m.log)-mark-4))
	}
	return nil
}
