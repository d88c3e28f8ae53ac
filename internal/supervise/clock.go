package supervise

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// never is a KillBy that does not come.
const never = time.Duration(1<<63 - 1)

// looksAt bounds the time between two looks at the clock: a timer stands still while the machine sleeps.
const looksAt = 100 * time.Millisecond

// sharedTime is a time that watcher and keeper see in memory that they share: it can be read also while the one that writes it
// stands still.
type sharedTime struct{ at *atomic.Int64 }

func newSharedTime(f *os.File) (sharedTime, error) {
	memory, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return sharedTime{}, os.NewSyscallError("mmap", err)
	}
	return sharedTime{(*atomic.Int64)(unsafe.Pointer(&memory[0]))}, nil
}

func (t sharedTime) set(at time.Duration) { t.at.Store(int64(at)) }
func (t sharedTime) get() time.Duration   { return time.Duration(t.at.Load()) }
