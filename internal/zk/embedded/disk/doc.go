// Package disk keeps what the embedded ZooKeeper server must not lose: a durable embedded.Storage in a directory of its own.
// Its file is lockkeeper.db. While it is open, and after a crash, lockkeeper.db-journal has the newest batches.
//
// # What it promises
//
//   - What Append has returned for is on the disk. It survives the process, kill -9 and the loss of power.
//   - A batch, its piece of a snapshot included, is there whole or not at all. Transactions are there in their order and
//     without gaps, and a zxid is never given twice.
//   - A store is opened with everything it had, or it is not opened. Open reads the whole file and the journal before anything
//     is trusted; what is missing, cut off, changed or older than the rest ends in ErrDamaged, with the place and with what
//     to do. (One thing no file can show: see below.)
//   - One process at a time has a store open. The next one gets ErrLocked.
//   - A store that was closed is lockkeeper.db alone.
//   - The file stays bounded, and the journal has a fixed size. Once the log behind the newest snapshot is longer than SnapshotDue allows, a new snapshot
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
// any. One mutex guards the store: a backup holds it while the file takes the journal over, and not while it copies. Close waits
// for backups that are under way, and comes after the server.
//
// # On failure
//
// An Append that fails (a full disk, a failed write or sync) returns the error, and from then on every Append fails. What
// that batch was may be there or not: to go on, close the store and open it again. Open commits a transaction of
// its own before Open returns, with everything that it has read from the journal. A meta page or a record that a failed sync
// has left in the system's cache alone is thereby followed by one that is on the disk, and a disk that is still full fails
// right there. Probe asks for more than that: for room to go on.
//
// # The journal
//
// bbolt makes a batch durable with two syncs and some ten writes of pages. The journal takes one write and one sync, to a file
// whose size and place on the disk stay. So Append puts a batch there and in memory. Once the present half of the journal is
// full, one transaction of bbolt takes all of its batches over; the same happens with a piece of a snapshot, with a batch of more
// than a quarter of a half, before a backup, and when the store is closed or opened.
//
// Each half has records of one generation, and generations use the halves in turns:
//
//  1. The beginning of generation n+1 is written and synced, in the half that generation n does not use.
//  2. One transaction of bbolt takes the batches of generation n over, and refers to generation n+1.
//  3. Batches are appended to generation n+1.
//
// A crash before the end of 2 leaves a file that refers to generation n, which is whole; later, one that refers to n+1 and needs
// nothing of n. A batch that went to the file at once stands between the records of a generation as a gap. Open knows it by
// the file's last zxid, and passes over records up to there.
//
// A record is a batch with the chunks and checksums that it has in the file, so the chain of checksums goes through both. It
// also has a checksum over the store's instance, the generation, its number and its data, and begins at a sector of its own:
// no write changes a sector of a record that was acknowledged. The system writes whole blocks, and so writes such sectors again
// with the same bytes. It is assumed that a device does not spoil those when its power fails. Each record is synced before the next is written. So only the last one of a
// generation can be cut off by a crash: Open leaves it out, because no client has had an answer. A record that is broken with a
// later one behind it is damage. So is a journal that is missing, cut off, of another store, or without the
// beginning of the generation that the file refers to. A record of a later generation than that shows that the file is an older one.
//
// # Why bbolt
//
// One file holds log and snapshot in the same transactions; a lock and consistent copies of a living store come with it; and
// etcd has kept it, and has been kept by it, for years. Its two syncs are what makes it robust: when the first fails, the old meta page is still in force and the pages are written again; when
// the second fails, all that the new meta page refers to is safe already. hashicorp/raft-wal is faster, calls itself
// experimental, and stops reading without a word at damage in the middle of its tail. etcd's WAL reads all of itself into
// memory, brings gRPC and raft along, and takes a record of zeros in the middle for the end.
//
// # What is in the file
//
// Buckets: "lockkeeper" with four records (format: version and the oldest reader it allows; identity: secret, instance,
// time; progress: what the file ends with, written with every transaction; journal: the generation that it refers to), "log-<n>" with batches by zxid, and "snap-<n>" with
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
// was acknowledged and lost. One thing cannot be seen: the loss of the very last write of the meta page, or of the last record of
// the journal, looks like a crash before it. A disk that loses or spoils writes it has acknowledged can lose what was written
// last; everything else is noticed.
//
// # Why the file is read without bbolt
//
// Checking and loading read pages with their own small reader (image.go): every number is checked before it is followed,
// memory is bounded, a failing disk is an error. bbolt maps the file and believes it. With one bit flipped in 300 files, its
// own Check ended the process with a fault eight times, in a goroutine of its own from which no caller can recover, and hung
// four times. Reading this way also leaves no pages of the file in the process's memory; those that bbolt touches are given
// back now and then (trim.go).
package disk
