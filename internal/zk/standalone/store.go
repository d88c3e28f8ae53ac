package standalone

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/disk"
)

// store is what a Node keeps everything in: a disk.Store, but for tests.
type store interface {
	embedded.Storage
	// Probe fails when there is no room to write.
	Probe() error
	// Backup writes a consistent copy while the store is in use.
	Backup(ctx context.Context, w io.Writer) (int64, error)
	Close() error
}

// onDisk opens stores, and makes one that is missing only when create says so.
func onDisk(logger *slog.Logger) func(dir string, create bool) (store, error) {
	return func(dir string, create bool) (store, error) {
		s, err := disk.Open(disk.Config{Dir: dir, MustExist: !create, Logger: logger})
		if err != nil {
			return nil, err // not a nil *disk.Store
		}
		return s, nil
	}
}

// final says that opening again would fail the same way, or must not be tried: once another process has the store, it has
// ended our sessions.
func final(err error) bool {
	return errors.Is(err, disk.ErrDamaged) || errors.Is(err, disk.ErrNewer) || errors.Is(err, disk.ErrLocked)
}
