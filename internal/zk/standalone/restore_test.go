package standalone

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/embedded/disk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/wire"
)

// stored is a node over a real store in dir.
func stored(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{log: new(journal), ended: make(chan error, 1)}
	p.Node = assert.Value(Open(Config{Dir: dir}))(t)
	ctx, end := context.WithCancel(context.Background())
	p.end = end
	go func() { p.ended <- p.Run(ctx) }()
	return p
}

func TestARestoreEndsTheSessionsAndRaisesTheFenceBase(t *testing.T) {
	testkit.NoLeaks(t)
	p := stored(t, filepath.Join(t.TempDir(), "data"))
	cfg := zk.Config{Servers: []string{"embedded:2181"}, Dial: p.Dial, CreateRoot: true}
	before := assert.Value(layout.Open(t.Context(), cfg))(t)
	c := p.client(t)
	create(t, c, "/gone", gozk.FlagEphemeral)
	create(t, c, "/kept", 0)
	backup := filepath.Join(t.TempDir(), "backup")
	f := assert.Value(os.OpenFile(backup, os.O_CREATE|os.O_WRONLY, 0o600))(t)
	assert.Value(p.Backup(t.Context(), f))(t)
	f.Close()
	create(t, c, "/later", 0)
	c.Close()
	p.stop(t)

	dir := filepath.Join(t.TempDir(), "new", "data")
	const age = time.Hour
	done := assert.Value(Restore(backup, dir, zk.DefaultRoot, time.Now().Add(age)))(t)
	assert.That(t, done.SessionsEnd == 1, "ended %d sessions", done.SessionsEnd)
	again := assert.Value(Restore(backup, dir+"-again", zk.DefaultRoot, time.Now().Add(age+time.Millisecond)))(t)
	assert.That(t, again.FenceBase > done.FenceBase+1000,
		"the same backup again, a millisecond later: %d, after %d", again.FenceBase, done.FenceBase)
	p = stored(t, dir)
	cfg.Dial = p.Dial
	after := assert.Value(layout.Open(t.Context(), cfg))(t)
	if least := before.FenceBase + 1<<40 + int64(age/time.Second)<<20; after.FenceBase < least || after.FenceBase != done.FenceBase {
		t.Errorf("the fence base is %d, was told as %d, and has to be %d", after.FenceBase, done.FenceBase, least)
	}
	assert.That(t, after.FleetID == before.FleetID, "it is another fleet")
	c = p.client(t)
	assert.That(t, !exists(t, c, "/gone") && exists(t, c, "/kept") && !exists(t, c, "/later"),
		"not what was there when the backup was made")
	c.Close()
	p.stop(t)
}

// TestARestoreTakesWhatACrashHasLeft: the store's file, and beside it the journal, which has what was written last.
func TestARestoreTakesWhatACrashHasLeft(t *testing.T) {
	testkit.NoLeaks(t)
	data := filepath.Join(t.TempDir(), "data")
	p := stored(t, data)
	cfg := zk.Config{Servers: []string{"embedded:2181"}, Dial: p.Dial, CreateRoot: true}
	assert.Value(layout.Open(t.Context(), cfg))(t)
	c := p.client(t)
	create(t, c, "/last", 0)
	left := filepath.Join(t.TempDir(), disk.FileName)
	assert.NoError(t, copyStore(filepath.Join(data, disk.FileName), left))
	c.Close()
	p.stop(t)

	dir := filepath.Join(t.TempDir(), "new")
	assert.Value(Restore(left, dir, zk.DefaultRoot, time.Now()))(t)
	p = stored(t, dir)
	c = p.client(t)
	assert.That(t, exists(t, c, "/last"), "what was written last is lost")
	c.Close()
	p.stop(t)
	assert.NoError(t, os.Remove(disk.JournalPath(left)))
	_, err := Restore(left, dir+"-2", zk.DefaultRoot, time.Now())
	assert.ErrorIs(t, err, disk.ErrDamaged, "without the journal")
}

func TestARestoreTouchesNothingThatIsThereAndTakesNothingDamaged(t *testing.T) {
	p := stored(t, filepath.Join(t.TempDir(), "data"))
	_, err := layout.Open(t.Context(), zk.Config{Servers: []string{"embedded:2181"}, Dial: p.Dial, CreateRoot: true})
	assert.NoError(t, err)
	var b bytes.Buffer
	assert.Value(p.Backup(t.Context(), &b))(t)
	p.stop(t)
	whole, cut := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "cut")
	for path, data := range map[string][]byte{whole: b.Bytes(), cut: b.Bytes()[:b.Len()-4096]} {
		assert.NoError(t, os.WriteFile(path, data, 0o600))
	}

	full := t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(full, "x"), nil, 0o600))
	_, err = Restore(whole, full, zk.DefaultRoot, time.Now())
	assert.That(t, errors.Is(err, ErrNotEmpty), "into a directory with a file: %v", err)
	empty := t.TempDir()
	_, err = Restore(cut, empty, zk.DefaultRoot, time.Now())
	assert.That(t, errors.Is(err, disk.ErrDamaged), "from a damaged backup: %v", err)
	_, err = Restore(whole, empty, "/elsewhere", time.Now())
	assert.That(t, err != nil, "a root that the backup does not have")
	left, err := os.ReadDir(empty)
	assert.That(t, err == nil && len(left) == 0, "left behind: %v %v", left, err)
	// What a killed restore left does not stop the next one. No server begins there with nothing.
	assert.NoError(t, os.MkdirAll(filepath.Join(empty, unfinished, "x"), 0o700))
	_, err = Open(Config{Dir: empty})
	assert.That(t, err != nil && strings.Contains(err.Error(), "gateway restore"), "opening what was not restored to the end: %v", err)
	// Two at a time would mix what they write.
	other := assert.Value(lockDir(empty))(t)
	_, err = Restore(whole, empty, zk.DefaultRoot, time.Now())
	assert.That(t, errors.Is(err, ErrUnderWay), "while another restore works there: %v", err)
	other.Close()
	_, err = Restore(whole, empty, zk.DefaultRoot, time.Now())
	assert.Nil(t, err)
	left, err = os.ReadDir(empty)
	assert.That(t, err == nil && len(left) == 1 && left[0].Name() == disk.FileName, "there are %v %v", left, err)
	// What one left that died at the very end is cleared by the gateway.
	assert.NoError(t, os.Mkdir(filepath.Join(empty, unfinished), 0o700))
	n := assert.Value(Open(Config{Dir: empty}))(t)
	assert.Nil(t, n.Close())
	_, err = os.Lstat(filepath.Join(empty, unfinished))
	assert.That(t, err != nil, "what a restore left stays")
}

// backedUp is what a backup tells of a store.
type backedUp struct {
	base, zxid int64
	written    time.Time
}

func TestTokensRiseWhicheverBackupsAreRestoredInWhichOrder(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, choose := range map[string]func(random *rand.Rand, of []backedUp) backedUp{
		"the newest":  func(_ *rand.Rand, of []backedUp) backedUp { return of[len(of)-1] },
		"the oldest":  func(_ *rand.Rand, of []backedUp) backedUp { return of[0] },
		"any of them": func(random *rand.Rand, of []backedUp) backedUp { return of[random.IntN(len(of))] },
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			now, base, zxid := start, int64(0), int64(0)
			backups := []backedUp{{base, zxid, now}}
			greatest := int64(0)
			for life := range 200 {
				// From a moment to six days, with up to a million transactions in a second.
				lasts := time.Duration(random.Int64N(int64(time.Second) << random.IntN(20)))
				for range 2 {
					now = now.Add(lasts / 2)
					zxid += random.Int64N(int64(lasts/2/time.Microsecond) + 1)
					backups = append(backups, backedUp{base, zxid, now})
				}
				zxid += random.Int64N(1000)
				now = now.Add(time.Millisecond)
				greatest = max(greatest, base+zxid)

				b := choose(random, backups)
				base, zxid = fenceBase(b.base, b.zxid, b.written, now), b.zxid
				next := base + zxid + 1
				assert.Must(t, next > greatest, "life %d begins with token %d, and %d was given", life, next, greatest)
			}
			assert.That(t, greatest < 1<<53, "a token of %d", greatest)
		})
	}
}

func TestTokensRiseAlsoWhenTheClockWasSetBack(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, clock := range map[string]time.Time{"a year": now.AddDate(-1, 0, 0), "to its beginning": time.UnixMilli(0), "not at all": now} {
		base := fenceBase(0, 1000, now, now)
		again := fenceBase(base, 2000, now.Add(time.Second), clock)
		// A lease that has been held since the first transaction is above what may have been given last.
		given := base + 2000 + 1e6
		assert.That(t, again+1 > given, "set back %s: %d, and %d was given", name, again, given)
	}
}

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
