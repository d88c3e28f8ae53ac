package standalone

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/disk"
	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// A fencing token is the fence base and the zxid of the transaction that made the lease. What was given after the backup is
// unknown, but not how much it can be: zxids rise by one, and no server makes a million transactions in a second, for each
// batch waits for the disk. fenceRate is that bound for a millisecond.
//
// A restore has the tokens go on where the clock is, at that rate. They rise more slowly from there than the clock does, so the
// next restore begins above them, whichever backups were restored until then and in which order. (Raising what the backup has,
// by a distance, is not enough: a backup, then a later one, and then the first again, would come out below the
// second.) The leases that the backup has come before, by as many transactions as they are old: above everything that the store
// gave which was lost, and above what a restore before this one gave unless it was a moment ago. Tokens stay below 2^53, where
// JSON numbers end for some readers, until 2248.
//
// Tokens that the clock has not reached are of a clock that was ahead, or of an ensemble with many epochs. They are raised by
// the rate since the backup, and by fenceMargin: twelve days of a million transactions a second.
const (
	fenceRate   = 1 << 10
	fenceMargin = 1 << 40
)

// fenceBase is that of a store that is restored now from a backup, which was written with the base old and ended with a zxid.
func fenceBase(old, zxid int64, written, now time.Time) int64 {
	least := old + zxid + max(now.Sub(written).Milliseconds(), 0)*fenceRate
	if byClock := now.UnixMilli() * fenceRate; byClock >= least {
		return byClock - zxid
	}
	return least + fenceMargin
}

// Restored is what a restore has done.
type Restored struct {
	Backup      disk.Summary
	SessionsEnd int   // sessions of the backup that were ended
	FenceBase   int64 // what every new fencing token is above
}

// Why Restore refuses, beside what package disk says of the backup and of the store.
var (
	ErrNotEmpty = errors.New("the directory is not empty")
	ErrUnderWay = errors.New("another restore into the directory is under way")
	ErrNoRoot   = errors.New("the backup has no such root")
)

// unfinished is the directory within the data directory in which a restore works. What it left when it died is cleared by the
// next one; until then Open refuses to make a store there.
const unfinished = ".restoring"

// Restore makes the store of a data directory out of a backup, which it leaves alone. The directory must be empty or missing;
// it has either the whole store afterwards or none. All sessions that were in the backup are ended, with their ephemeral
// nodes, and the fence base of the root is raised above every token that was or may have been given since.
func Restore(backup, dir, root string, now time.Time) (*Restored, error) {
	if err := vacant(dir); err != nil {
		return nil, err
	}
	sum, err := disk.Verify(backup)
	if err != nil {
		return nil, err
	}
	if err := disk.MakeDir(dir); err != nil {
		return nil, fmt.Errorf("making room for the store: %w", err)
	}
	alone, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer alone.Close()
	work := filepath.Join(dir, unfinished)
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o700)); err != nil {
		return nil, fmt.Errorf("making room for the store: %w", err)
	}
	defer os.RemoveAll(work)
	made := filepath.Join(work, disk.FileName)
	if err := copyStore(backup, made); err != nil {
		return nil, fmt.Errorf("copying the backup: %w", err)
	}
	done := &Restored{Backup: sum}
	if err := done.revise(work, root, now); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(disk.JournalPath(made)); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the store could not be closed in good order: it needs its journal; is the disk full?")
	}
	// Link and not Rename: it refuses to replace a store that another process has made here meanwhile.
	if err := os.Link(made, filepath.Join(dir, disk.FileName)); err != nil {
		return nil, fmt.Errorf("giving the store its name: %w", err)
	}
	return done, syncDir(dir)
}

// lockDir keeps two restores from working in one directory, where one would give its name to what the other is still writing.
// Closing what it returns gives the lock back.
func lockDir(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	// Not every file system can lock a directory. On one that cannot, no process is kept out.
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		d.Close()
		return nil, fmt.Errorf("%s: %w", dir, ErrUnderWay)
	}
	return d, nil
}

// refuseUnfinished refuses a directory in which a restore has not come to its end: a store that was made there would be an
// empty one, where leases are expected.
func refuseUnfinished(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, disk.FileName)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, unfinished)); err != nil {
		return nil // opening the store finds any fault of the directory
	}
	return &disk.Error{Path: dir, Err: errors.New("a restore into it runs, or has died half way"), Hint: "wait for it, or repeat gateway restore"}
}

// vacant refuses a directory in which there is anything.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != unfinished {
			return fmt.Errorf("%w: there is %s", ErrNotEmpty, filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// revise makes the copy in dir one to go on with, in ordinary transactions that are stored at once.
func (r *Restored) revise(dir, root string, now time.Time) error {
	store, err := disk.Open(disk.Config{Dir: dir})
	if err != nil {
		return err
	}
	tree, err := embedded.Recover(store)
	if err == nil {
		var txns []*state.Txn
		if txns, err = r.changes(tree, root, now); err == nil {
			err = store.Append(embedded.Batch{Txns: txns})
		}
	}
	return errors.Join(err, store.Close())
}

// changes are the transactions that revise the tree, which they are applied to.
func (r *Restored) changes(tree *state.State, root string, now time.Time) ([]*state.Txn, error) {
	at := now.UnixMilli()
	var txns []*state.Txn
	for id := range tree.Sessions() { // a copy of the ids
		r.SessionsEnd++
		txns = append(txns, tree.CloseSession(at, id))
	}
	// Reading takes a session, like everything.
	me := state.NewSuper("127.0.0.1")
	me.Session = embedded.NextLocalSession(tree)
	txns = append(txns, tree.OpenSession(at, me.Session, 4000))
	path := root + "/fence_base"
	reply := tree.Request(me, at, wire.RequestHeader{Op: wire.OpGetData}, (&wire.ReadRequest{Path: path}).AppendTo(nil))
	node, ok := reply.Body.(*wire.DataReply)
	if !ok && reply.Header.Err == wire.ErrNoNode {
		return nil, fmt.Errorf("%w: %s", ErrNoRoot, root)
	}
	if !ok {
		return nil, fmt.Errorf("reading %s: %w", path, reply.Header.Err)
	}
	if err := json.Unmarshal(node.Data, &r.FenceBase); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	r.FenceBase = fenceBase(r.FenceBase, r.Backup.LastZxid, r.Backup.Written, now)
	data, err := json.Marshal(r.FenceBase)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	raise := &state.Txn{Zxid: tree.LastZxid() + 1, Time: at, Session: me.Session,
		Ops: []state.TxnOp{{Kind: state.TxnSetData, Path: path, Data: data, Version: node.Stat.Version + 1}}}
	if err := tree.Apply(raise); err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return append(txns, raise, tree.CloseSession(at, me.Session)), nil
}

// copyStore copies a store that is not open. A backup has no journal; what a crash has left has one.
func copyStore(from, to string) error {
	err := copyFile(disk.JournalPath(from), disk.JournalPath(to))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, copyFile(from, to))
}

// copyFile copies a file to a new one, which is on the disk then.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Sync()
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
