package disk

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	bolt "go.etcd.io/bbolt"

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

	mu       sync.Mutex
	progress progress // with what is pending
	pending  pending
	journal  journal
	failed   error
	closed   bool
	batch    batchBuffer
	touched  int64 // bytes of the file that may be in memory; about
	update   func(func(*bolt.Tx) error) error
}

// Secret implements embedded.Storage.
func (s *Store) Secret() []byte { return s.identity.Secret[:] }

// Path is the store's file.
func (s *Store) Path() string { return s.path }

// Close closes the store, once backups that are under way are done. The file has everything then, and the journal is gone.
// Where that cannot be written the journal stays, and the next Open reads it.
func (s *Store) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		if s.failed == nil && s.journal.open {
			if err := s.seal(); err != nil {
				s.logger.Warn("the journal cannot be taken over: the next start does that", "path", s.path, "error", err)
			}
		}
		s.journal.close()
	}
	s.mu.Unlock()
	if err := s.db.Close(); err != nil {
		return &Error{Path: s.path, Err: err}
	}
	return nil
}

// begin is the transaction that Open makes: it takes the journal over, drops a snapshot that was not finished, and puts
// everything on the disk that an earlier, failed sync may have left in the system's cache only.
func (s *Store) begin(old format) error {
	p := s.progress
	s.touched = trimBytes // bbolt has just looked for free pages everywhere
	return s.commit(&p, func(tx *bolt.Tx) error {
		if old.Version < formatVersion {
			if err := tx.Bucket(bucketRecords).Put(keyFormat, seal(nil, keyFormat, format{formatVersion, formatVersion})); err != nil {
				return err
			}
		}
		if err := s.putRef(tx, s.journal.ref()); err != nil {
			return err
		}
		return s.dropUnfinished(tx, &p)
	})
}

// commit makes a change durable, behind what is pending and together with where the store then ends. After an error it is
// unknown which of the two the disk has, so nothing more is written.
func (s *Store) commit(p *progress, change func(*bolt.Tx) error) error {
	err := s.update(func(tx *bolt.Tx) error {
		s.trim(tx)
		s.touched += commitTouches
		p.Tx, p.Written = uint64(tx.ID()), now()
		bucket := tx.Bucket([]byte(logName(s.progress.Segment)))
		for first, sealed := range s.pending.each {
			if err := putChunks(bucket, sealed, logKeys(first)); err != nil {
				return err
			}
		}
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
	s.pending.clear()
	return nil
}

// rotate has the store's file take over what is pending, and the journal go on in its other half.
func (s *Store) rotate() error {
	if err := s.journal.begin(); err != nil {
		return err
	}
	return s.commitRef(s.journal.ref())
}

// seal has the store's file take over what is pending, so that it needs no journal.
func (s *Store) seal() error {
	ref := s.journal.ref()
	ref.Open = false
	err := s.commitRef(ref)
	s.journal.open = err != nil
	return err
}

func (s *Store) commitRef(ref journalRef) error {
	p := s.progress
	return s.commit(&p, func(tx *bolt.Tx) error { return s.putRef(tx, ref) })
}

func (s *Store) putRef(tx *bolt.Tx, ref journalRef) error {
	return tx.Bucket(bucketRecords).Put(keyJournal, seal(s.identity.Instance[:], keyJournal, ref))
}

// SnapshotDue implements embedded.Storage.
func (s *Store) SnapshotDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.progress
	return p.Under.Generation == 0 && p.LogBytes > max(s.snapshotBytes, snapshotShare*p.Whole.Bytes)
}

// usable says why nothing can be written, if that is so.
func (s *Store) usable() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.failed != nil:
		return fmt.Errorf("closed to writes since an earlier failure: %w", s.failed)
	}
	return nil
}

// Append implements embedded.Storage.
func (s *Store) Append(b embedded.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return &Error{Path: s.path, Err: err}
	}
	if err := s.append(b); err != nil {
		s.failed = err
		return &Error{Path: s.path, Err: fmt.Errorf("append: %w", err)}
	}
	return nil
}

// append puts a batch into the journal, or into the store's file where it is too large for that or has a piece.
func (s *Store) append(b embedded.Batch) error {
	if b.Piece == nil {
		if len(b.Txns) == 0 {
			return nil
		}
		p := s.progress
		sealed, err := s.next(&p, b.Txns)
		if err != nil {
			return err
		}
		if s.journal.takes(len(sealed)) {
			return s.journalize(&p, sealed)
		}
	}
	p := s.progress
	return s.commit(&p, func(tx *bolt.Tx) error {
		if b.Piece != nil && b.Piece.First {
			if err := s.beginSnapshot(tx, &p, b.Piece.Zxid); err != nil {
				return err
			}
		}
		if err := s.putTxns(tx, &p, b.Txns); err != nil {
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
}

// journalize appends a sealed batch to the journal; p is where the store then ends.
func (s *Store) journalize(p *progress, sealed []byte) error {
	if !s.journal.fits(len(sealed)) {
		if err := s.rotate(); err != nil {
			return err
		}
	}
	first := s.progress.Last + 1
	if err := s.journal.append(first, sealed); err != nil {
		return err
	}
	// A rotation has written where the store ends: all but these.
	s.progress.Last, s.progress.Chain, s.progress.LogBytes, s.progress.LogTxns = p.Last, p.Chain, p.LogBytes, p.LogTxns
	s.pending.add(first, sealed)
	return nil
}

// next gives the sealed chunks of a batch, and has p go on behind it.
func (s *Store) next(p *progress, txns []*state.Txn) ([]byte, error) {
	for i, txn := range txns {
		if want := p.Last + 1 + int64(i); txn.Zxid != want {
			return nil, fmt.Errorf("transaction %#x where %#x should be", txn.Zxid, want)
		}
	}
	sealed, keys := s.batch.encode(txns), logKeys(p.Last+1)
	p.Last += int64(len(txns))
	p.LogTxns += int64(len(txns))
	sealChunks(sealed, &p.Chain, &p.LogBytes, keys)
	return sealed, nil
}

// putTxns puts a batch into the newest segment.
func (s *Store) putTxns(tx *bolt.Tx, p *progress, txns []*state.Txn) error {
	if len(txns) == 0 {
		return nil
	}
	keys := logKeys(p.Last + 1)
	sealed, err := s.next(p, txns)
	if err != nil {
		return err
	}
	return putChunks(tx.Bucket([]byte(logName(p.Segment))), sealed, keys)
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
	n := u.Pieces
	u.Pieces++
	sealed, keys := s.batch.space(piece.Data), func(chunk uint32) []byte { return snapKey(n, chunk) }
	sealChunks(sealed, &u.Chain, &u.Bytes, keys)
	return putChunks(tx.Bucket([]byte(snapName(u.Generation))), sealed, keys)
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
