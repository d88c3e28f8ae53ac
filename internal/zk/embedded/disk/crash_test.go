package disk

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
)

// childEnv makes the test binary another program: the name of a child, and the store's directory behind a colon.
const childEnv = "LOCKKEEPER_DISK_CHILD"

// children are those programs.
var children = map[string]func(dir string) error{"append": appendChild, "full": fullChild, "faults": faultsChild}

func TestMain(m *testing.M) {
	name, dir, ok := strings.Cut(os.Getenv(childEnv), ":")
	if !ok {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // strace counts the system calls of each thread for itself
	if err := children[name](dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is the command for one, run by what stands before it, if anything.
func child(t *testing.T, name, dir string, before ...string) *exec.Cmd {
	t.Helper()
	self := assert.Value(os.Executable())(t)
	argv := append(before, self)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"="+name+":"+dir)
	return cmd
}

// appendChild appends for ever and prints each zxid once Append has returned. Snapshots are due all the time.
func appendChild(dir string) error {
	s, err := Open(Config{Dir: dir, SnapshotBytes: 100_000})
	if err != nil {
		return err
	}
	last, pieces, zxid := s.progress.Last, 0, int64(0)
	for {
		n := 1 + int(last%7)
		b := embedded.Batch{Txns: txns(last, n, int(last*37%1500))}
		if pieces > 0 || s.SnapshotDue() {
			if pieces == 0 {
				zxid = last
			}
			b.Piece = &embedded.Piece{Zxid: zxid, Data: bytes.Repeat([]byte{byte(pieces), byte(zxid)}, 5_000), First: pieces == 0, Last: pieces == 4}
			pieces = (pieces + 1) % 5
		}
		if err := s.Append(b); err != nil {
			return err
		}
		last += int64(n)
		fmt.Println(last)
	}
}

func TestWhatWasAcknowledgedSurvivesKill9(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(7, 8))
	acknowledged, snapshots, between := int64(0), 0, 0
	var lastSnapshot int64
	for range times(25, 300) {
		cmd := child(t, "append", dir)
		out := assert.Value(cmd.StdoutPipe())(t)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		p := assert.Value(childproc.Start(cmd))(t)
		before := acknowledged
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil || n <= acknowledged {
				t.Fatalf("%q after %d", lines.Text(), acknowledged)
			}
			if before == acknowledged { // it is at work: kill it within the next appends
				time.AfterFunc(time.Duration(rng.IntN(60_000))*time.Microsecond, func() { cmd.Process.Kill() })
			}
			acknowledged = n
		}
		<-p.Done()
		assert.Must(t, stderr.Len() <= 0 && before != acknowledged, "after %d: %s", acknowledged, stderr.String())
		last, snapshot := readBack(t, dir)
		// The batch whose acknowledgement did not get out may be there.
		assert.Must(t, last >= acknowledged && last <= acknowledged+7, "acknowledged up to %d, and %d is there", acknowledged, last)
		if last > acknowledged {
			between++
		}
		acknowledged = last
		if snapshot != lastSnapshot {
			snapshots, lastSnapshot = snapshots+1, snapshot
		}
	}
	t.Logf("%d transactions; new snapshots after %d kills, a batch more than acknowledged after %d", acknowledged, snapshots, between)
}

// readBack opens a store, checks that everything in it is as appendChild writes it, and tells its last zxid and its snapshot's.
func readBack(t *testing.T, dir string) (last, snapshot int64) {
	t.Helper()
	s, err := Open(Config{Dir: dir})
	assert.NoError(t, err)
	defer s.Close()
	snapshot = s.progress.Whole.Zxid
	last = snapshot
	pieces := 0
	err = s.Load(embedded.Recovery{
		Piece: func(data []byte) error {
			if !bytes.Equal(data, bytes.Repeat([]byte{byte(pieces), byte(snapshot)}, 5_000)) {
				return fmt.Errorf("piece %d of the snapshot of %d is not what was stored", pieces, snapshot)
			}
			pieces++
			return nil
		},
		Txn: func(got *state.Txn) error {
			last++
			if size := len(got.Ops[0].Data); !bytes.Equal(got.AppendTo(nil), txn(last, size).AppendTo(nil)) {
				return fmt.Errorf("transaction %d is not what was stored", last)
			}
			return nil
		},
	})
	assert.NoError(t, err)
	assert.Must(t, snapshot <= 0 || pieces == 5, "%d pieces", pieces)
	return last, snapshot
}
