package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// Backup writes the store as it is now to w: a file that Verify and Open accept. Appends go on meanwhile; the space that they
// give free is used again only when the copy is done, so a slow w lets the file grow by what is appended. It ends with ctx,
// at the next write.
func (s *Store) Backup(ctx context.Context, w io.Writer) (int64, error) {
	tx, err := s.moment()
	if err != nil {
		return 0, &Error{Path: s.path, Err: fmt.Errorf("backup: %w", err)}
	}
	defer tx.Rollback()
	bw := &backupWriter{ctx: ctx, w: w, tx: uint64(tx.ID())}
	n, err := tx.WriteTo(bw)
	if bw.err != nil {
		err = bw.err // bbolt keeps no more than the text
	}
	if err != nil {
		return n, &Error{Path: s.path, Err: fmt.Errorf("backup: %w", err)}
	}
	return n, nil
}

// moment is a view of the store as it is now, with all that the journal has.
func (s *Store) moment() (*bolt.Tx, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	if s.journal.open {
		if err := s.seal(); err != nil {
			return nil, err
		}
	}
	return s.db.Begin(false)
}

// backupWriter passes on what bbolt copies. bbolt begins with the newest meta page, whichever of the two places it belongs to;
// in the wrong one the next commit would write over the only meta page of its kind. So the two are put in their places.
type backupWriter struct {
	ctx   context.Context
	w     io.Writer
	tx    uint64
	metas []byte // until both are there
	err   error
}

func (b *backupWriter) Write(p []byte) (n int, err error) {
	n, err = b.pass(p)
	b.err = err
	return n, err
}

func (b *backupWriter) pass(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if len(b.metas) == 2*pageSize {
		return b.w.Write(p)
	}
	if len(p) > 2*pageSize-len(b.metas) {
		return 0, errors.New("the copy does not begin with two meta pages")
	}
	b.metas = append(b.metas, p...)
	if len(b.metas) < 2*pageSize {
		return len(p), nil
	}
	first, second := b.metas[:pageSize], b.metas[pageSize:]
	if b.tx%2 == 1 {
		for i := headerSize; i < pageSize; i++ { // the page's number stays
			first[i], second[i] = second[i], first[i]
		}
	}
	if _, err := b.w.Write(b.metas); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Summary is what a store holds.
type Summary struct {
	Bytes        int64     // what the store uses of its file, which may be longer
	LastZxid     int64     // of the newest transaction
	SnapshotZxid int64     // of the newest whole snapshot, 0 for none
	Transactions int64     // behind that snapshot
	Created      time.Time // when the store was made
	Written      time.Time // its last commit: not later than the time of a backup
}

// Verify checks the file of a store that is not open, a backup mostly, as Open does, and each transaction besides. It changes
// nothing. A store that is open is ErrLocked: make a backup of it, and verify that.
func Verify(path string) (Summary, error) {
	f, err := openLocked(path, os.O_RDONLY, unix.LOCK_SH, 0)
	if err != nil {
		return Summary{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Summary{}, &Error{Path: path, Err: err}
	}
	c, err := readStore(path, f, info.Size())
	if err == nil {
		err = c.scan(visitor{txn: func(zxid int64, data []byte) error {
			_, err := decodeTxn(zxid, data)
			return err
		}})
	}
	if err != nil {
		return Summary{}, refuse(path, err)
	}
	p := &c.end
	return Summary{
		Bytes: int64(c.image.meta.pages) * pageSize, LastZxid: p.Last, SnapshotZxid: p.Whole.Zxid, Transactions: p.LogTxns,
		Created: time.UnixMilli(c.identity.Created).UTC(), Written: time.UnixMilli(p.Written).UTC(),
	}, nil
}
