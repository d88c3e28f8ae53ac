package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Sync implements journalFile.
func (f syncedFile) Sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
