package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
)

// Store is an embedded.Storage in a file. Open makes one.
type Store struct {
	dir, path     string
	logger        *slog.Logger
	snapshotBytes int64
	identity      identity
	db            *bolt.DB
	file          *os.File // bbolt's own, which closes it

	// Of the goroutine that calls Load, Append and SnapshotDue.
	progress progress
	failed   error
	batch    batchBuffer
	touched  int64 // bytes of the file that may be in memory; about
	update   func(func(*bolt.Tx) error) error
}

// Secret implements embedded.Storage.
func (s *Store) Secret() []byte { return s.identity.Secret[:] }

// Path is the store's file.
func (s *Store) Path() string { return s.path }

// Close closes the store, once backups that are under way are done.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return &Error{Path: s.path, Err: err}
	}
	return nil
}

// begin is the transaction that Open makes: it drops a snapshot that was not finished, and puts everything on the disk that
// an earlier, failed sync may have left in the system's cache only.
func (s *Store) begin() error {
	p := s.progress
	s.touched = trimBytes // bbolt has just looked for free pages everywhere
	return s.commit(&p, func(tx *bolt.Tx) error { return s.dropUnfinished(tx, &p) })
}

// commit makes a change durable, together with where the store then ends. After an error it is unknown which of the two the
// disk has, so nothing more is written.
func (s *Store) commit(p *progress, change func(*bolt.Tx) error) error {
	err := s.update(func(tx *bolt.Tx) error {
		s.trim(tx)
		s.touched += commitTouches
		p.Tx, p.Written = uint64(tx.ID()), now()
		if err := change(tx); err != nil {
			return err
		}
		return tx.Bucket(bucketRecords).Put(keyProgress, seal(s.identity.Instance[:], keyProgress, p))
	})
	if err != nil {
		s.failed = err
		return err
	}
	s.progress = *p
	return nil
}

// SnapshotDue implements embedded.Storage.
func (s *Store) SnapshotDue() bool {
	p := &s.progress
	return p.Under.Generation == 0 && p.LogBytes > max(s.snapshotBytes, snapshotShare*p.Whole.Bytes)
}

// Append implements embedded.Storage.
func (s *Store) Append(b embedded.Batch) error {
	if s.failed != nil {
		return &Error{Path: s.path, Err: fmt.Errorf("closed to writes since an earlier failure: %w", s.failed)}
	}
	p := s.progress
	err := s.commit(&p, func(tx *bolt.Tx) error {
		if b.Piece != nil && b.Piece.First {
			if err := s.beginSnapshot(tx, &p, b.Piece.Zxid); err != nil {
				return err
			}
		}
		if err := s.appendTxns(tx, &p, b.Txns); err != nil {
			return err
		}
		if b.Piece == nil {
			return nil
		}
		if err := s.appendPiece(tx, &p, b.Piece); err != nil {
			return err
		}
		if b.Piece.Last {
			return s.finishSnapshot(tx, &p)
		}
		return nil
	})
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		err = ErrClosed
	}
	if err != nil {
		return &Error{Path: s.path, Err: fmt.Errorf("append: %w", err)}
	}
	return nil
}

func (s *Store) appendTxns(tx *bolt.Tx, p *progress, txns []*state.Txn) error {
	if len(txns) == 0 {
		return nil
	}
	for i, txn := range txns {
		if want := p.Last + 1 + int64(i); txn.Zxid != want {
			return fmt.Errorf("transaction %#x where %#x should be", txn.Zxid, want)
		}
	}
	bucket := tx.Bucket([]byte(logName(p.Segment)))
	bucket.FillPercent = 1 // keys only rise: a page that is full stays so
	first := p.Last + 1
	p.Last += int64(len(txns))
	p.LogTxns += int64(len(txns))
	return putChunks(bucket, s.batch.encode(txns), &p.Chain, &p.LogBytes, func(chunk uint32) []byte { return logKey(first, chunk) })
}

// beginSnapshot opens the snapshot's bucket, and the segment of the log that belongs to it.
func (s *Store) beginSnapshot(tx *bolt.Tx, p *progress, zxid int64) error {
	if zxid != p.Last {
		return fmt.Errorf("a snapshot of transaction %#x while the log ends with %#x", zxid, p.Last)
	}
	if err := s.dropUnfinished(tx, p); err != nil {
		return err
	}
	p.Segment++
	p.Under = snapshot{Generation: p.Segment, Zxid: zxid, Chain: s.identity.snapSeed(p.Segment, zxid), LogChain: p.Chain, LogBytes: p.LogBytes, LogTxns: p.LogTxns}
	for _, name := range []string{snapName(p.Segment), logName(p.Segment)} {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) appendPiece(tx *bolt.Tx, p *progress, piece *embedded.Piece) error {
	u := &p.Under
	if u.Generation == 0 || u.Zxid != piece.Zxid {
		return fmt.Errorf("a piece of the snapshot of transaction %#x, while that of %#x is under way", piece.Zxid, u.Zxid)
	}
	bucket := tx.Bucket([]byte(snapName(u.Generation)))
	bucket.FillPercent = 1
	n := u.Pieces
	u.Pieces++
	return putChunks(bucket, s.batch.space(piece.Data), &u.Chain, &u.Bytes, func(chunk uint32) []byte { return snapKey(n, chunk) })
}

// finishSnapshot drops what the snapshot that is now whole stands for.
func (s *Store) finishSnapshot(tx *bolt.Tx, p *progress) error {
	old := p.Whole
	p.Whole, p.Under = p.Under, snapshot{}
	p.LogBytes -= p.Whole.LogBytes
	p.LogTxns -= p.Whole.LogTxns
	if old.Generation > 0 {
		if err := tx.DeleteBucket([]byte(snapName(old.Generation))); err != nil {
			return err
		}
		s.touched += old.Bytes
	}
	for g := old.Generation; g < p.Whole.Generation; g++ {
		if err := tx.DeleteBucket([]byte(logName(g))); err != nil {
			return err
		}
	}
	s.touched += p.Whole.LogBytes
	return nil
}

// dropUnfinished drops a snapshot whose last piece has not come. The segment of the log that began with it stays.
func (s *Store) dropUnfinished(tx *bolt.Tx, p *progress) error {
	if p.Under.Generation == 0 {
		return nil
	}
	s.touched += p.Under.Bytes
	name := snapName(p.Under.Generation)
	p.Under = snapshot{}
	return tx.DeleteBucket([]byte(name))
}

// sweep removes new stores that never got their name. Only the process that has the store locked may do that.
func (s *Store) sweep() {
	left, _ := filepath.Glob(filepath.Join(s.dir, newPattern)) // the pattern is well-formed
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			s.logger.Warn("an unfinished store cannot be removed", "path", path, "error", err)
		}
	}
}
