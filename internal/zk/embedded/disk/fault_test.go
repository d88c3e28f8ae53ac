package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
)

// TestAFullDiskLosesNothing runs on a small file system in memory, in a child with a mount namespace of its own, so that the
// mount ends with it.
func TestAFullDiskLosesNothing(t *testing.T) {
	cmd := child(t, "full", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
	}
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Logf("%s", out)
		return
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || bytes.Contains(out, []byte(cannotMount)) {
		t.Skipf("no file system can be mounted here: %v %s", err, out)
	}
	t.Fatalf("%v: %s", err, out)
}

const cannotMount = "cannot mount: "

func fullChild(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf(cannotMount+"%w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		return fmt.Errorf(cannotMount+"%w", err)
	}
	config := Config{Dir: filepath.Join(dir, "data"), journalHalf: 128 << 10}
	s, err := Open(config)
	if err != nil {
		return err
	}
	var m model
	for round := range times(5, 20) {
		full, err := fillUp(s, &m, round)
		if err != nil {
			return err
		}
		if !full {
			return errors.New("the disk does not get full")
		}
		if err := s.Probe(); !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("round %d: the disk is full, and the probe says %v", round, err)
		}
		if left, _ := filepath.Glob(filepath.Join(config.Dir, newPattern)); len(left) > 0 {
			return fmt.Errorf("the probe left %v behind", left)
		}
		if err := s.Append(embedded.Batch{Txns: txns(s.progress.Last, 1, 1)}); !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("appended after a failure: %v", err)
		}
		if err := s.Close(); err != nil {
			return err
		}
		// A start while the disk is still full may work or fail, and loses nothing either.
		if s, err := Open(config); err == nil {
			s.Close()
		} else if !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("round %d: opened on a full disk: %w", round, err)
		}
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT, fmt.Sprintf("size=%dm", 3+round)); err != nil {
			return err
		}
		if s, err = Open(config); err != nil {
			return err
		}
		if err := s.Probe(); err != nil {
			return fmt.Errorf("round %d: there is room again: %w", round, err)
		}
		got, err := load(s)
		if err != nil {
			return err
		}
		if err := m.differs(got); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	fmt.Printf("%d transactions", len(m.txns))
	return s.Close()
}

// fillUp appends until the disk is full. A batch that does not fit cannot have been persisted, so the model is exact.
func fillUp(s *Store, m *model, round int) (full bool, err error) {
	for i := range 10_000 {
		b := embedded.Batch{Txns: txns(m.zxid+int64(len(m.txns)), 1+i%5, 1000+round*400)}
		switch err := s.Append(b); {
		case err == nil:
			m.append(b)
		case errors.Is(err, unix.ENOSPC):
			return true, nil
		default:
			return false, err
		}
	}
	return false, nil
}

// TestEveryWriteAndSyncMayFail has strace fail the nth system call of its kind under a child that appends, for every n: the
// child's Append must say so; what was acknowledged before must be there, and at most that one batch more.
func TestEveryWriteAndSyncMayFail(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("no strace here")
	}
	if out, err := exec.Command(strace, "-f", "-qq", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("strace does not work here: %s", out)
	}
	for call, errno := range map[string]string{"pwrite64": "ENOSPC", "fdatasync": "EIO", "ftruncate": "ENOSPC", "fsync": "EIO"} {
		t.Run(call, func(t *testing.T) {
			failed, persisted := 0, 0
			step := 1
			if call == "pwrite64" {
				step = times(9, 1) // there are many
			}
			for n := 1; ; n += step {
				dir := t.TempDir()
				base := newRigIn(t, Config{Dir: dir})
				base.add(20, 200)
				base.Store.Close()
				cmd := child(t, "faults", dir, strace, "-f", "-qq", "-o", os.DevNull, "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:error=%s:when=%d", call, errno, n))
				out, err := cmd.Output()
				if err == nil { // it was not called as often as that
					break
				}
				var exit *exec.ExitError
				assert.Must(t, errors.As(err, &exit) && strings.Contains(string(exit.Stderr), syscallText(errno)),
					"%s %d: %v %s", call, n, err, exit.Stderr)
				failed++
				m := base.model
				done := bytes.Count(out, []byte("ok"))
				for i := range done {
					m.append(faultBatch(i, &m))
				}
				s := assert.Value(Open(Config{Dir: dir}))(t, "%s %d", call, n)
				got := assert.Value(load(s))(t)
				if err := m.differs(got); err != nil {
					// Failed, but persisted?
					more := m
					more.append(faultBatch(done, &m))
					assert.Must(t, more.differs(got) == nil, "%s %d, after %d: %v", call, n, done, err)
					persisted++
				}
				assert.NoError(t, s.Append(embedded.Batch{Txns: txns(s.progress.Last, 1, 1)}))
				assert.NoError(t, s.Close())
				if t.Failed() {
					return
				}
			}
			t.Logf("failed %d times, %d of them with the batch persisted", failed, persisted)
			assert.That(t, failed != 0, "it never failed")
		})
	}
}

func syscallText(name string) string {
	return map[string]string{"ENOSPC": syscall.ENOSPC.Error(), "EIO": syscall.EIO.Error()}[name]
}

// faultBatch is the ith batch of the child: with pieces of a snapshot, and so large that the file grows.
func faultBatch(i int, m *model) embedded.Batch {
	last := m.zxid + int64(len(m.txns))
	b := embedded.Batch{Txns: txns(last, 3, 300+i*200)}
	if i > 0 && i < 4 {
		b.Piece = &embedded.Piece{Zxid: m.underZ, Data: bytes.Repeat([]byte{byte(i)}, 9_000), First: i == 1, Last: i == 3}
		if i == 1 {
			b.Piece.Zxid = last
		}
	}
	return b
}

func faultsChild(dir string) error {
	s, err := Open(Config{Dir: dir})
	if err != nil {
		return err
	}
	got, err := load(s)
	if err != nil {
		return err
	}
	m := *got
	for i := range 6 {
		b := faultBatch(i, &m)
		if err := s.Append(b); err != nil {
			again := s.Append(b)
			if again == nil {
				return errors.New("appended after a failure")
			}
			return err
		}
		m.append(b)
		fmt.Println("ok")
	}
	return nil // not closed: its system calls are none of this test's
}

// TestASyncThatFailsAndLosesTheWritesLosesNothingAcknowledged puts /dev/null in the place of the store's file and of its journal:
// writes are gone, and the sync says that something is wrong. And /dev/full, where writes fail.
func TestASyncThatFailsAndLosesTheWritesLosesNothingAcknowledged(t *testing.T) {
	files := map[string]func(*rig) uintptr{
		"store":   func(r *rig) uintptr { assert.NoError(t, r.seal()); return r.file.Fd() },
		"journal": func(r *rig) uintptr { return r.journal.file.(syncedFile).Fd() },
	}
	for _, c := range []struct{ device, file string }{{"/dev/null", "store"}, {"/dev/full", "store"}, {"/dev/null", "journal"}, {"/dev/full", "journal"}} {
		t.Run(filepath.Base(c.device)+" "+c.file, func(t *testing.T) {
			r := newRig(t)
			r.add(30, 300)
			r.snapshot(1, 300, 0) // there are free pages: the file need not grow
			r.add(1, 300)
			dev, err := os.OpenFile(c.device, os.O_RDWR, 0)
			if err != nil {
				t.Skip(err)
			}
			defer dev.Close()
			assert.NoError(t, unix.Dup3(int(dev.Fd()), int(files[c.file](r)), unix.O_CLOEXEC))
			err = r.Append(embedded.Batch{Txns: txns(r.last(), 1, 10)})
			assert.Must(t, err != nil, "appended to a device")
			t.Log(err)
			r.Store.Close()
			r.open()
			r.check()
			r.add(1, 1)
			r.reopen()
		})
	}
}

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
