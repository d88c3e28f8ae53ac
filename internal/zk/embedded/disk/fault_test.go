package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded"
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
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf(cannotMount+"%w", err)
	}
	config := Config{Dir: filepath.Join(dir, "data")}
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
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT, fmt.Sprintf("size=%dm", 2+round)); err != nil {
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

// TestASyncThatFailsAndLosesTheWritesLosesNothingAcknowledged puts /dev/null under bbolt's feet: writes are gone, and the sync
// says that something is wrong. And /dev/full, where writes fail.
func TestASyncThatFailsAndLosesTheWritesLosesNothingAcknowledged(t *testing.T) {
	for _, device := range []string{"/dev/null", "/dev/full"} {
		t.Run(filepath.Base(device), func(t *testing.T) {
			r := newRig(t)
			r.add(30, 300)
			r.snapshot(1, 300, 0) // there are free pages: the file need not grow
			dev, err := os.OpenFile(device, os.O_RDWR, 0)
			if err != nil {
				t.Skip(err)
			}
			defer dev.Close()
			assert.NoError(t, unix.Dup3(int(dev.Fd()), int(r.file.Fd()), unix.O_CLOEXEC))
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
