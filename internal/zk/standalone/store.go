package standalone

import (
	"context"
	"io"

	"lockkeeper/internal/zk/embedded"
)

// store is what a Node keeps everything in.
type store interface {
	embedded.Storage
	// Probe fails when there is no room to write.
	Probe() error
	// Backup writes a consistent copy while the store is in use.
	Backup(ctx context.Context, w io.Writer) (int64, error)
	Close() error
}

// memory is a store that does not outlive the process.
type memory struct{ *embedded.MemoryStorage }

func (memory) Probe() error                                     { return nil }
func (memory) Backup(context.Context, io.Writer) (int64, error) { return 0, nil }
func (memory) Close() error                                     { return nil }

func openStore(string) (store, error) { return memory{embedded.NewMemoryStorage()}, nil }

// final says that opening again would fail the same way.
func final(error) bool { return false }
