package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
)

// churn appends batches, and takes snapshots as a server does: one piece with each batch, as soon as one is due.
type churn struct {
	*rig
	snapshotBytes int
	last          int64
	left          int // pieces of the snapshot under way
	zxid          int64
	snapshots     int
}

func (c *churn) batch(n, size int) {
	c.Helper()
	const piece = 64 << 10
	b := embedded.Batch{Txns: txns(c.last, n, size)}
	if c.left == 0 && c.SnapshotDue() {
		c.left, c.zxid = max(1, c.snapshotBytes/piece), c.last
		b.Piece = &embedded.Piece{First: true}
	} else if c.left > 0 {
		b.Piece = &embedded.Piece{}
	}
	if b.Piece != nil {
		c.left--
		b.Piece.Zxid, b.Piece.Last, b.Piece.Data = c.zxid, c.left == 0, bytes.Repeat([]byte{byte(c.last)}, min(piece, c.snapshotBytes))
		if b.Piece.Last {
			c.snapshots++
		}
	}
	assert.NoError(c, c.Store.Append(b))
	c.last += int64(n)
}

// used is how many bytes the store uses of its file.
func (r *rig) used() int64 { return int64(r.contents().image.meta.pages) * pageSize }

func TestTheFileStopsGrowing(t *testing.T) {
	dir := shm(t)
	for name, c := range map[string]struct{ snapshot, batches int }{
		"small snapshots": {20 << 10, times(6_000, 100_000)},
		"large snapshots": {512 << 10, times(6_000, 100_000)},
	} {
		t.Run(name, func(t *testing.T) {
			const threshold = 256 << 10
			r := newRigIn(t, Config{Dir: filepath.Join(dir, t.Name()), SnapshotBytes: threshold})
			ch := &churn{rig: r, snapshotBytes: c.snapshot}
			var early int64
			for i := range c.batches {
				ch.batch(1+i%16, 20+i%300)
				if i == c.batches/2 {
					early = r.used()
				}
				if i%(c.batches/5) == c.batches/10 { // a restart, perhaps in the middle of a snapshot
					r.Store.Close()
					r.open()
					ch.left = 0
				}
			}
			late, bound := r.used(), int64(5*c.snapshot+3*threshold)
			t.Logf("%d batches, %d snapshots: %d kB in use after half, %d kB at the end", c.batches, ch.snapshots, early>>10, late>>10)
			assert.That(t, ch.snapshots >= 5, "only %d snapshots", ch.snapshots)
			assert.That(t, late <= early+early/10 && late <= bound,
				"the file has grown from %d to %d bytes, with a bound of %d", early, late, bound)
			r.Store.Close()
			_, err := Verify(r.path)
			assert.Nil(t, err)
		})
	}
}

func TestASnapshotIsDueWhenTheLogIsLongerThanAllowed(t *testing.T) {
	r := newRigIn(t, Config{Dir: shm(t), SnapshotBytes: 100_000})
	for r.progress.LogBytes <= 100_000 {
		assert.Must(t, !r.SnapshotDue(), "due with %d bytes of log", r.progress.LogBytes)
		r.add(1, 900)
	}
	assert.That(t, r.SnapshotDue(), "not due with a log that is longer")
	r.piece(r.last(), 0, 200_000, 10, false)
	assert.That(t, !r.SnapshotDue(), "due while one is under way")
	r.reopen()
	assert.That(t, r.SnapshotDue(), "not due after the one under way was dropped")
	r.snapshot(1, 200_000, 10)
	got := r.progress.LogBytes
	assert.That(t, got > 0 && got <= 5_000, "%d bytes of log are behind the snapshot", got)
	for r.progress.LogBytes <= 2*r.progress.Whole.Bytes {
		assert.Must(t, !r.SnapshotDue(), "due with %d bytes of log behind a snapshot of %d", r.progress.LogBytes, r.progress.Whole.Bytes)
		r.add(1, 9_000)
	}
	assert.That(t, r.SnapshotDue(), "not due with a log of twice the snapshot")
}

func TestTheFileDoesNotStayInTheProcessesMemory(t *testing.T) {
	r := newRigIn(t, Config{Dir: filepath.Join(shm(t), "data")})
	before := mapped(t, r.path)
	for range 200 {
		r.add(64, 4_000) // 50 MB in all
		now := mapped(t, r.path)
		assert.Must(t, now <= before+2*trimBytes, "%d kB of the file are in memory", now>>10)
	}
	r.Store.Close()
	r.open()
	n := 0
	err := r.Load(embedded.Recovery{Txn: func(*state.Txn) error { n++; return nil }})
	assert.Must(t, err == nil && n == 200*64, "%v %v", n, err)
	if now := mapped(t, r.path); now > 1<<20 {
		t.Errorf("%d kB of the file are in memory after opening and loading", now>>10)
	}
	r.snapshot(1, 1000, 0)
	for range 40 {
		r.add(1, 10)
	}
	if now := mapped(t, r.path); now > 2*trimBytes {
		t.Errorf("%d kB of the file are in memory after the log was dropped", now>>10)
	}
}

// mapped is how many bytes of a file are mapped into this process's memory right now.
func mapped(t testing.TB, path string) (n int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	in := false
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		switch {
		case len(f) > 1 && bytes.Contains(f[0], []byte("-")):
			in = bytes.HasSuffix(bytes.TrimSpace(line), []byte(path))
		case in && len(f) > 1 && string(f[0]) == "Rss:":
			kb := assert.Value(strconv.ParseInt(string(f[1]), 10, 64))(t)
			n += kb << 10
		}
	}
	return n
}
