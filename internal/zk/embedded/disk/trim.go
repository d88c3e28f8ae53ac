package disk

import (
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

const (
	// trimBytes is how much of the file may be in the process's memory before it is given back.
	trimBytes = 8 << 20
	// commitTouches is what a commit reads at most in usual: a path of four pages, each of which the system maps together with its
	// neighbours.
	commitTouches = 4 * 64 << 10
)

// trim gives back the pages of the file that are mapped into the process: those that bbolt has read, most of which it has written
// shortly before, and those that it walked over when it was opened or dropped a bucket. They stay in the system's cache and come
// back when they are touched. Within a write transaction the mapping cannot move.
func (s *Store) trim(tx *bolt.Tx) {
	if s.touched < trimBytes {
		return
	}
	s.touched = 0
	// tx.Size is what the store uses of the file: all of that is mapped, and perhaps more. That it may fail costs memory, no more.
	unix.Syscall(unix.SYS_MADVISE, s.db.Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED)
}
