package disk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded"
)

// restored opens a copy, as a store of its own.
func restored(t *testing.T, b []byte) (Summary, *rig) {
	t.Helper()
	dir := shm(t)
	path := filepath.Join(dir, FileName)
	assert.NoError(t, os.WriteFile(path, b, 0o600))
	sum := assert.Value(Verify(path))(t)
	after, err := os.ReadFile(path)
	assert.That(t, err == nil && bytes.Equal(after, b), "verifying has changed the file: %v", err)
	return sum, newRigIn(t, Config{Dir: dir})
}

func TestABackupHasEverything(t *testing.T) {
	start := time.Now().Add(-time.Second)
	r := newRig(t)
	r.add(20, 100)
	r.snapshot(2, 9_000, 3)
	for i := range 4 { // both ways in which bbolt's meta pages can stand
		r.add(2, 100+i)
		var copied bytes.Buffer
		n, err := r.Backup(t.Context(), &copied)
		assert.Must(t, err == nil && n == int64(copied.Len()), "copied %d of %d: %v", copied.Len(), n, err)
		sum, other := restored(t, copied.Bytes())
		want := Summary{Bytes: n, LastZxid: r.last(), SnapshotZxid: r.model.zxid, Transactions: int64(len(r.model.txns)), Created: sum.Created, Written: sum.Written}
		assert.That(t, sum == want && !sum.Created.Before(start) && !sum.Written.Before(sum.Created) && !sum.Written.After(time.Now()),
			"it is %+v, want %+v", sum, want)
		assert.That(t, bytes.Equal(other.Secret(), r.Secret()), "the copy has another secret")
		other.model = r.model
		other.check()
		other.add(3, 10)
		other.reopen()
		other.Store.Close()
	}
	r.reopen()
}

// TestTheFirstCommitOfARestoredStoreKeepsTheLastMetaPage: it must write over the older one of the two.
func TestTheFirstCommitOfARestoredStoreKeepsTheLastMetaPage(t *testing.T) {
	r := newRig(t)
	for range 4 {
		r.add(1, 10)
		var copied bytes.Buffer
		assert.Value(r.Backup(t.Context(), &copied))(t)
		im := assert.Value(openImage(bytes.NewReader(copied.Bytes()), int64(copied.Len())))(t)
		m, err := im.readMeta(im.meta.tx % 2)
		assert.That(t, err == nil && m.tx == im.meta.tx,
			"the newest meta page, of transaction %d, is not in its place: %+v, %v", im.meta.tx, m, err)
	}
}

func TestABackupIsOneMomentWhileAppendsGoOn(t *testing.T) {
	r := newRigIn(t, Config{Dir: filepath.Join(shm(t), "data"), SnapshotBytes: 50_000})
	ch := &churn{rig: r, snapshotBytes: 10_000}
	for range 200 {
		ch.batch(3, 200)
	}
	at := ch.last
	var copied bytes.Buffer
	_, err := r.Backup(t.Context(), writerFunc(func(p []byte) (int, error) {
		for range 100 {
			ch.batch(3, 200) // also drops what the copy still needs
		}
		return copied.Write(p)
	}))
	assert.NoError(t, err)
	snapshots := ch.snapshots
	sum, other := restored(t, copied.Bytes())
	assert.That(t, sum.LastZxid == at, "the copy is of transaction %d, and was begun at %d", sum.LastZxid, at)
	_, err = load(other.Store)
	assert.Nil(t, err)
	assert.That(t, ch.last >= at+600 && snapshots >= 2, "appended up to %d with %d snapshots meanwhile", ch.last, snapshots)
}

// TestABackupDoesNotHoldUpAppends: bbolt does not move the mapping of the file while it is read.
func TestABackupDoesNotHoldUpAppends(t *testing.T) {
	r := newRigIn(t, Config{Dir: filepath.Join(shm(t), "data")})
	r.add(1, 10)
	first := true
	_, err := r.Backup(t.Context(), writerFunc(func(p []byte) (int, error) {
		if first {
			for range 6 { // the file has to grow, several times over
				r.add(1, 1<<20)
			}
			first = false
		}
		return len(p), nil
	}))
	assert.NoError(t, err)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestABackupEndsWithItsContextOrItsWriter(t *testing.T) {
	r := newRig(t)
	r.add(100, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err := r.Backup(ctx, writerFunc(func(p []byte) (int, error) {
		if n += len(p); n > 3*pageSize {
			cancel()
		}
		return len(p), nil
	}))
	assert.That(t, errors.Is(err, context.Canceled), "cancelled, and %v", err)
	_, err = r.Backup(t.Context(), writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe }))
	assert.That(t, errors.Is(err, io.ErrClosedPipe), "the writer has failed, and %v", err)
	r.add(1, 1)
	r.reopen()
}

func TestVerifyFindsWhatOpenFindsAndMore(t *testing.T) {
	_, b := patient(t)
	path := filepath.Join(t.TempDir(), "backup")
	check := func(b []byte) error {
		t.Helper()
		assert.NoError(t, os.WriteFile(path, b, 0o600))
		_, err := Verify(path)
		return err
	}
	assert.Nil(t, check(b))
	assert.ErrorIs(t, check(b[:len(b)-pageSize]), ErrDamaged, "cut off")
	_, err := Verify(filepath.Join(t.TempDir(), "none"))
	assert.That(t, errors.Is(err, os.ErrNotExist), "no file: %v", err)
	// A transaction that cannot be read, though its checksum is right.
	r := newRig(t)
	bad := txn(1, 10)
	bad.Ops[0].Kind = 77
	assert.NoError(t, r.Append(embedded.Batch{Txns: append(txns(0, 0, 0), bad)}))
	r.Store.Close()
	_, err = Verify(r.path)
	assert.That(t, errors.Is(err, ErrDamaged), "a transaction of an unknown kind: %v", err)
}
