package standalone

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/zk/wire"
)

// crashDir is the environment variable that makes this test binary a server to be killed.
const crashDir = "LOCKKEEPER_TEST_CRASH_DIR"

// TestServerToBeKilled is no test: it is the process that TestKilledUnderLoadNothingAcknowledgedIsLost kills.
func TestServerToBeKilled(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("run by another test, in a process of its own")
	}
	n := assert.Value(Open(Config{Dir: dir, Listen: "127.0.0.1:0"}))(t)
	fmt.Printf("listening %s\n", n.Addr())
	_ = n.Run(context.Background()) // until it is killed
}

// serveToBeKilled starts the process and returns where it listens.
func serveToBeKilled(t *testing.T, dir string) (*childproc.Process, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestServerToBeKilled$", "-test.timeout", "10m")
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	out := assert.Value(cmd.StdoutPipe())(t)
	p := assert.Value(childproc.Start(cmd))(t)
	t.Cleanup(p.Kill)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			return p, addr
		}
	}
	t.Fatalf("the server does not start: %v", p.Wait())
	return nil, ""
}

var everyone = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

// writer makes pairs of nodes, each pair in one transaction that also takes an older pair away.
type writer struct {
	dir    string
	acked  int // the newest pair that the server has acknowledged
	asked  int // the newest that it was asked for
	zxid   int64
	faulty error
}

// kept is how many pairs there are at a time.
const kept = 8

// write goes on until the connection breaks. ready is told of the first acknowledged pair.
func (w *writer) write(addr string, ready *sync.WaitGroup) {
	said := sync.OnceFunc(ready.Done)
	defer said()
	l, err := rawzk.Dial(addr, patience, 10*time.Second)
	if err != nil {
		w.faulty = err
		return
	}
	defer l.Conn.Close()
	for {
		w.asked = w.acked + 1
		multi := &wire.MultiRequest{}
		for _, side := range []string{"a", "b"} {
			multi.Ops = append(multi.Ops, wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: w.path(side, w.asked), Data: []byte("pair"), ACL: everyone}})
			if old := w.asked - kept; old > 0 {
				multi.Ops = append(multi.Ops, wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: w.path(side, old), Version: -1}})
			}
		}
		h, err := l.Call(wire.OpMulti, multi, nil)
		if err != nil {
			return // it was killed
		}
		if h.Err != wire.OK {
			w.faulty = fmt.Errorf("pair %d: %w", w.asked, h.Err)
			return
		}
		if h.Zxid <= w.zxid {
			w.faulty = fmt.Errorf("pair %d has zxid %#x, after %#x", w.asked, h.Zxid, w.zxid)
		}
		w.acked, w.zxid = w.asked, h.Zxid
		said()
	}
}

func (w *writer) path(side string, n int) string { return w.dir + "/" + side + strconv.Itoa(n) }

// check compares what is there with what was acknowledged. The one pair that was under way may be there or not.
func (w *writer) check(l *rawzk.Client) error {
	if w.faulty != nil {
		return w.faulty
	}
	var reply wire.ChildrenReply
	if h, err := l.Call(wire.OpGetChildren, &wire.ReadRequest{Path: w.dir}, &reply); err != nil || h.Err != wire.OK {
		return errors.Join(err, h.Err.Err())
	}
	slices.Sort(reply.Children)
	newest := w.acked
	if slices.Contains(reply.Children, "a"+strconv.Itoa(w.asked)) {
		newest = w.asked
	}
	var want []string
	for n := max(1, newest-kept+1); n <= newest; n++ {
		want = append(want, "a"+strconv.Itoa(n), "b"+strconv.Itoa(n))
	}
	slices.Sort(want)
	if !slices.Equal(want, reply.Children) {
		return fmt.Errorf("%s has %v; pair %d was acknowledged and %d asked for", w.dir, reply.Children, w.acked, w.asked)
	}
	w.acked = newest
	return nil
}

func TestKilledUnderLoadNothingAcknowledgedIsLost(t *testing.T) {
	rounds := 12
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		rounds = 400
	}
	dir := t.TempDir()
	writers := make([]*writer, 8)
	for i := range writers {
		writers[i] = &writer{dir: fmt.Sprintf("/writer-%d", i)}
	}
	var highest int64
	pairs := 0
	for round := range rounds {
		p, addr := serveToBeKilled(t, dir)
		l := assert.Value(rawzk.Dial(addr, patience, 10*time.Second))(t)
		for _, w := range writers {
			if round > 0 {
				assert.NoError(t, w.check(l), "round %d", round)
			} else if h, err := l.Call(wire.OpCreate, &wire.CreateRequest{Path: w.dir, ACL: everyone}, nil); err != nil || h.Err != wire.OK {
				t.Fatalf("creating %s: %v, %v", w.dir, h.Err, err)
			}
		}
		h, err := l.Call(wire.OpSetData, &wire.SetDataRequest{Path: "/", Version: -1}, nil)
		assert.Must(t, err == nil && h.Err == wire.OK && h.Zxid > highest,
			"round %d: zxid %#x after %#x: %v, %v", round, h.Zxid, highest, h.Err, err)
		l.Conn.Close()
		var ready, running sync.WaitGroup
		ready.Add(len(writers))
		before := writers[0].acked
		for _, w := range writers {
			running.Go(func() { w.write(addr, &ready) })
		}
		ready.Wait()
		// The moment of the kill is what this test is about: any will do, as long as they differ.
		<-time.After(time.Duration(rand.Int64N(int64(60 * time.Millisecond))))
		p.Signal(syscall.SIGKILL)
		_ = p.Wait() // killed
		running.Wait()
		pairs += writers[0].acked - before
		for _, w := range writers {
			highest = max(highest, w.zxid)
		}
	}
	assert.That(t, pairs >= rounds, "%d pairs of the first writer in %d rounds: this shows little", pairs, rounds)
	t.Logf("%d kills, the first writer made %d pairs", rounds, pairs)
}
