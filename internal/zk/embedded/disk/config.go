package disk

import (
	"log/slog"
	"time"
)

// FileName is the store's file in its directory.
const FileName = "lockkeeper.db"

// Config says where a store is. Only Dir is needed.
type Config struct {
	// Dir is made, for its owner alone, when it is missing.
	Dir string
	// MustExist makes Open fail with fs.ErrNotExist where there is no store, instead of making one.
	MustExist bool
	// SnapshotBytes is how long the log may get, at least, before a snapshot is due; 16 MiB.
	SnapshotBytes int64
	// Logger may be nil for none.
	Logger *slog.Logger

	journalHalf int64 // 0: the constant; tests give others
}

const (
	// defaultSnapshotBytes: tens of thousands of transactions, which a start applies in well under a second. A smaller log would
	// have small stores written over and over.
	defaultSnapshotBytes = 16 << 20
	// snapshotShare is how many times the newest snapshot's size the log may get. A snapshot is then at most half of what the log
	// before it was, so that writing snapshots adds at most half to what is written anyway; and the file stays below about
	// five snapshots: the old one, its log twice as long, the new one, and what is appended meanwhile.
	snapshotShare = 2

	// lockPatience is how long Open waits for another process to close a store: a gateway that was just stopped.
	lockPatience = time.Second

	// mapSize is what bbolt maps from the start. It costs addresses, not memory; a file that outgrows its mapping would
	// have appends wait until backups under way are done.
	mapSize = 1 << 30

	// probeBytes is the room that Probe asks for: a few batches, with their pieces of a snapshot.
	probeBytes = 512 << 10
)
