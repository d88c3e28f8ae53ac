// Package disk keeps what the embedded ZooKeeper server must not lose: a durable embedded.Storage in one file,
// lockkeeper.db, in a directory of its own.
//
// # What it promises
//
//   - What Append has returned for is on the disk. It survives the process, kill -9 and the loss of power.
//   - A batch, its piece of a snapshot included, is there whole or not at all. Transactions are there in their order and
//     without gaps, and a zxid is never given twice.
//   - A store is opened with everything it had, or it is not opened. Open reads the whole file before anything is trusted;
//     what is missing, cut off, changed or older than the rest ends in ErrDamaged, with the place and with what to do.
//     (One thing no single file can show: see below.)
//   - One process at a time has a store open. The next one gets ErrLocked.
//   - The file stays bounded. Once the log behind the newest snapshot is longer than SnapshotDue allows, a new snapshot
//     takes its place, and the pages of both are used again.
//   - Backup copies one moment of a store that goes on being written to. Verify tells what a file holds, by the checks of
//     Open.
//
// # What it refuses
//
// A directory that is a file, a file that is no store or is of length zero (a new store gets its name only when it is
// complete), a store that a newer release has written and that this one must not read (ErrNewer). It repairs nothing: a
// damaged store is replaced by a backup.
//
// # Goroutines
//
// It has none. Load, Append and SnapshotDue are called from one goroutine, the server's core; Backup, Probe and Secret from
// any. Close waits for backups that are under way, and comes after the server.
//
// # On failure
//
// An Append that fails (a full disk, a failed write or sync) returns the error, and from then on every Append fails. What
// that batch was may be there or not: to go on, close the store and open it again. Open commits a transaction of
// its own before Open returns. A meta page that a failed sync has left in the system's cache alone is
// thereby followed by one that is on the disk, and a disk that is still full fails right there. Probe asks for more than
// that: for room to go on.
//
// # Why bbolt
//
// One file holds log and snapshot in the same transactions; a lock and consistent copies of a living store come with it; and
// etcd has kept it, and has been kept by it, for years. Its two syncs cost about twice as much as a bare log's one. They are
// also what makes it robust: when the first fails, the old meta page is still in force and the pages are written again; when
// the second fails, all that the new meta page refers to is safe already. hashicorp/raft-wal is faster, calls itself
// experimental, and stops reading without a word at damage in the middle of its tail. etcd's WAL reads all of itself into
// memory, brings gRPC and raft along, and takes a record of zeros in the middle for the end.
//
// # What is in the file
//
// Buckets: "lockkeeper" with three records (format: version and the oldest reader it allows; identity: secret, instance,
// time; progress: what the store ends with, written with every batch), "log-<n>" with batches by zxid, and "snap-<n>" with
// the pieces of a snapshot. Snapshot n and segment n of the log begin in the same batch. When the last piece of snapshot n
// is stored, the same transaction drops the older snapshot and the segments before n. A snapshot that was not finished is
// dropped by the next Open; its segment stays, as a part of the log.
//
// A batch or piece is cut into chunks, so small that a page holds four. So every page is allocated alone, free space cannot
// fragment, and an append rewrites little of what was there before. bbolt's list of free pages is not written: with the
// pages of a whole log free it would be longer than the batches. It is made anew by Open.
//
// What makes less than everything visible: each chunk carries a CRC32C over its key, its data and the CRC before it, and
// progress has the last one of log and of snapshot, so that nothing can be missing, repeated or from another time. progress
// also has the number of the transaction that wrote it, which must be the meta page's: this shows a write of the root that
// was acknowledged and lost. One thing cannot be seen from one file: the loss of the very last write of the meta page looks
// like a crash before it. A disk that loses writes it has acknowledged can lose that one; everything else is noticed.
//
// # Why the file is read without bbolt
//
// Checking and loading read pages with their own small reader (image.go): every number is checked before it is followed,
// memory is bounded, a failing disk is an error. bbolt maps the file and believes it. With one bit flipped in 300 files, its
// own Check ended the process with a fault eight times, in a goroutine of its own from which no caller can recover, and hung
// four times. Reading this way also leaves no pages of the file in the process's memory; those that bbolt touches are given
// back now and then (trim.go).
package disk
