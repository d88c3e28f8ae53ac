package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/disk"
)

const patience = 20 * time.Second

// platter stands for a disk: what is stored on it outlives stores, and it can be made to fail.
type platter struct {
	*embedded.MemoryStorage

	mu        sync.Mutex
	full      error // what appending and probing return
	persisted bool  // and yet what was appended is there
	broken    error // what opening returns
	opened    int
	open      bool
}

func newPlatter() *platter { return &platter{MemoryStorage: embedded.NewMemoryStorage()} }

func (d *platter) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// store opens it. One store at a time is open.
func (d *platter) store(string, bool) (store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return nil, d.broken
	}
	if d.open {
		return nil, errors.New("open already")
	}
	d.open = true
	d.opened++
	return &file{platter: d}, nil
}

type file struct {
	*platter
	failed bool
}

func (f *file) Append(b embedded.Batch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed {
		panic("appended after a failure")
	}
	if f.full != nil {
		f.failed = true
		if f.persisted {
			_ = f.MemoryStorage.Append(b) // never fails
		}
		return f.full
	}
	return f.MemoryStorage.Append(b)
}

func (f *file) Probe() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full
}

// Backup writes until it is told to stop.
func (f *file) Backup(ctx context.Context, w io.Writer) (int64, error) {
	for n := int64(0); ; n++ {
		if ctx.Err() != nil {
			return n, ctx.Err()
		}
		if _, err := w.Write([]byte{0}); err != nil {
			return n, err
		}
	}
}

func (f *file) Close() error {
	f.set(func() { f.open = false })
	return nil
}

// journal is a log for a test to read.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) count(part string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.b.String(), part)
}

// process is a node as a process has it.
type process struct {
	*Node
	log   *journal
	end   context.CancelFunc
	ended chan error
}

func start(t *testing.T, d *platter, listen string) *process {
	t.Helper()
	p := &process{log: new(journal), ended: make(chan error, 1)}
	p.Node = assert.Value(Open(Config{Dir: "x", Listen: listen, Logger: slog.New(slog.NewTextHandler(p.log, nil)), open: d.store}))(t)
	p.end = p.run()
	return p
}

// run starts it, and returns what ends it.
func (p *process) run() context.CancelFunc {
	ctx, end := context.WithCancel(context.Background())
	go func() { p.ended <- p.Run(ctx) }()
	return end
}

// stop ends it in good order.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.end()
	assert.Nil(t, testkit.Receive(t, patience, p.ended, "the node ends"), "the node ended with")
	p.ended <- nil
}

// client is the unmodified go-zookeeper client.
func client(t *testing.T, addr string, dial func(context.Context, string, string) (net.Conn, error)) *gozk.Conn {
	t.Helper()
	conn, events, err := gozk.Connect([]string{addr}, 10*time.Second, gozk.WithLogger(silent{}),
		gozk.WithDialer(func(network, addr string, within time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			return dial(ctx, network, addr)
		}))
	assert.NoError(t, err)
	go func() {
		for range events {
		}
	}()
	return conn
}

func (p *process) client(t *testing.T) *gozk.Conn { return client(t, "127.0.0.1:2181", p.Dial) }

func tcp(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

type silent struct{}

func (silent) Printf(string, ...any) {}

var world = gozk.WorldACL(gozk.PermAll)

func create(t *testing.T, c *gozk.Conn, path string, flags int32) {
	t.Helper()
	assert.Value(c.Create(path, nil, flags, world))(t, "creating %s", path)
}

func exists(t *testing.T, c *gozk.Conn, path string) bool {
	t.Helper()
	there, _, err := c.Exists(path)
	assert.NoError(t, err, "looking for %s", path)
	return there
}

func TestTheSessionsOfAProcessThatIsGoneAreOverBeforeAnyClientIsServed(t *testing.T) {
	testkit.NoLeaks(t)
	d := newPlatter()
	first := start(t, d, "127.0.0.1:0")
	ours, theirs := first.client(t), client(t, first.Addr().String(), tcp)
	create(t, ours, "/ours", gozk.FlagEphemeral)
	create(t, theirs, "/theirs", gozk.FlagEphemeral)
	create(t, ours, "/kept", 0)
	first.stop(t) // no session was closed: for the store that is the same as kill -9
	ours.Close()
	theirs.Close()

	second := start(t, d, "")
	c := second.client(t)
	assert.That(t, !exists(t, c, "/ours"), "the gateway's own session of the process before lives")
	assert.That(t, exists(t, c, "/theirs"), "the session of a client outside did not outlive the process")
	assert.That(t, exists(t, c, "/kept"), "a node is lost")
	c.Close()
	second.stop(t)
}

func TestAFullDiskIsWaitedForAndNothingAcknowledgedIsLost(t *testing.T) {
	for name, persisted := range map[string]bool{"failed": false, "failed but persisted": true} {
		t.Run(name, func(t *testing.T) {
			testkit.NoLeaks(t)
			d := newPlatter()
			p := start(t, d, "127.0.0.1:0")
			ours, theirs := p.client(t), client(t, p.Addr().String(), tcp)
			create(t, ours, "/ours", gozk.FlagEphemeral)
			create(t, theirs, "/theirs", gozk.FlagEphemeral)
			session := ours.SessionID()

			full := errors.New("no space left on device")
			d.set(func() { d.full, d.persisted = full, persisted })
			_, err := ours.Create("/lost", nil, 0, world)
			assert.Must(t, err != nil, "acknowledged what was not stored")
			testkit.Eventually(t, patience, func() bool { return p.Err() != nil }, "the node is down")
			_, err = p.Dial(t.Context(), "", "")
			assert.That(t, errors.Is(err, ErrDown) && errors.Is(err, full), "dialing says %v", err)
			_, err = p.Backup(t.Context(), io.Discard)
			assert.That(t, errors.Is(err, ErrDown), "a backup says %v", err)
			nc := assert.Value(net.Dial("tcp", p.Addr().String()))(t)
			_, err = nc.Read(make([]byte, 1))
			assert.That(t, err != nil, "a connection from outside was served")
			nc.Close()

			d.set(func() { d.full = nil })
			testkit.Eventually(t, patience, func() bool { return p.Err() == nil }, "the node is back")
			again := p.client(t)
			for _, path := range []string{"/ours", "/theirs"} {
				assert.That(t, exists(t, again, path), "%s is lost", path)
			}
			assert.That(t, exists(t, again, "/lost") == persisted, "the unanswered write is there: %v", !persisted)
			create(t, ours, "/more", gozk.FlagEphemeral)
			assert.That(t, ours.SessionID() == session, "the gateway's session did not live on")
			n, m := p.log.count("cannot be written: requests are refused"), p.log.count("can be written again")
			assert.That(t, n == 1 && m == 1, "logged %d and %d times, want once each", n, m)
			for _, c := range []*gozk.Conn{ours, theirs, again} {
				c.Close()
			}
			p.stop(t)
		})
	}
}

func TestADiskThatIsFullAtTheStartIsWaitedForToo(t *testing.T) {
	testkit.NoLeaks(t)
	d := newPlatter()
	first := start(t, d, "")
	old := first.client(t)
	create(t, old, "/old", gozk.FlagEphemeral)
	first.stop(t)
	old.Close()

	d.set(func() { d.full = errors.New("no space left on device") })
	p := start(t, d, "")
	testkit.Eventually(t, patience, func() bool { return p.Err() != nil }, "the node is down")
	d.set(func() { d.full = nil })
	testkit.Eventually(t, patience, func() bool { return p.Err() == nil }, "the node is up")
	c := p.client(t)
	assert.That(t, !exists(t, c, "/old"), "the session of the process before lives, although no client was served since")
	c.Close()
	p.stop(t)
}

func TestANodeThatIsDownEndsWhenItIsTold(t *testing.T) {
	testkit.NoLeaks(t)
	d := newPlatter()
	p := start(t, d, "")
	c := p.client(t)
	create(t, c, "/a", 0)
	d.set(func() { d.full = errors.New("full") })
	_, err := c.Create("/b", nil, 0, world)
	assert.Must(t, err != nil, "acknowledged what was not stored")
	testkit.Eventually(t, patience, func() bool { return p.Err() != nil }, "the node is down")
	c.Close()
	p.stop(t)
	_, err = p.Dial(t.Context(), "", "")
	assert.That(t, errors.Is(err, ErrDown), "dialing after the end says %v", err)
}

func TestWhatWouldFailTheSameWayAgainIsFinal(t *testing.T) {
	for name, kind := range map[string]error{"damaged": disk.ErrDamaged, "newer": disk.ErrNewer, "taken by another process": disk.ErrLocked} {
		t.Run(name, func(t *testing.T) {
			testkit.NoLeaks(t)
			d := newPlatter()
			p := start(t, d, "")
			c := p.client(t)
			create(t, c, "/a", 0)
			d.set(func() { d.full, d.broken = errors.New("full"), &disk.Error{Kind: kind} })
			_, err := c.Create("/b", nil, 0, world)
			assert.Must(t, err != nil, "acknowledged what was not stored")
			assert.ErrorIs(t, testkit.Receive(t, patience, p.ended, "the node ends"), kind, "the node ended with")
			c.Close()
			_, err = Open(Config{Dir: "x", open: d.store})
			assert.That(t, errors.Is(err, kind), "opening says %v", err)
		})
	}
}

func TestABackupEndsWithTheStoreThatItReads(t *testing.T) {
	testkit.NoLeaks(t)
	d := newPlatter()
	p := start(t, d, "")
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := p.Backup(context.Background(), w)
		w.CloseWithError(err)
		done <- err
	}()
	assert.Value(r.Read(make([]byte, 1)))(t)
	go func() { _, _ = io.Copy(io.Discard, r) }() // until Backup ends
	p.stop(t)
	assert.ErrorIs(t, testkit.Receive(t, patience, done, "the backup ends"), context.Canceled, "the backup ended with")
}

func TestWhatWasOpenedAndNeverRunIsGivenUp(t *testing.T) {
	testkit.NoLeaks(t)
	d := newPlatter()
	for range 2 {
		n := assert.Value(Open(Config{Dir: "x", Listen: "127.0.0.1:0", open: d.store}))(t)
		assert.Nil(t, n.Close())
		assert.ErrorIs(t, n.Run(t.Context()), ErrDown, "running it says")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NoError(t, err)
	defer taken.Close()
	_, err = Open(Config{Dir: "x", Listen: taken.Addr().String(), open: d.store})
	assert.That(t, err != nil, "listens where another does")
	assert.That(t, !d.open, "the store was left open")
}

// The first start finds the ACLs of a fresh server, the others what a client of an earlier release left.
func TestNoClientFromOutsideClosesZooKeepersOwnNodes(t *testing.T) {
	testkit.NoLeaks(t)
	d := newPlatter()
	evil := gozk.DigestACL(gozk.PermAll, "evil", "x")
	own := []string{"/", "/zookeeper", "/zookeeper/quota"}
	for i, left := range [][]gozk.ACL{world, evil, world} {
		p := start(t, d, "127.0.0.1:0")
		ours, theirs := p.client(t), client(t, p.Addr().String(), tcp)
		for _, path := range own {
			_, err := theirs.SetACL(path, evil, -1)
			assert.That(t, errors.Is(err, gozk.ErrNoAuth), "setACL on %s by a client from outside: %v, want NoAuth", path, err)
		}
		create(t, theirs, fmt.Sprintf("/app-%d", i), 0)
		for _, path := range own {
			assert.Value(ours.SetACL(path, left, -1))(t)
		}
		ours.Close()
		theirs.Close()
		p.stop(t)
	}
}

func TestNoOutsideClientIsServedBeforeItIsAdmitted(t *testing.T) {
	testkit.NoLeaks(t)
	dir := filepath.Join(t.TempDir(), "data")
	for name, admit := range map[string]bool{"admitted": true, "never admitted": false} {
		t.Run(name, func(t *testing.T) {
			p := &process{log: new(journal), ended: make(chan error, 1)}
			var err error
			p.Node = assert.Value(Open(Config{Dir: dir, Listen: "127.0.0.1:0", Hold: true}))(t)
			p.end = p.run()
			early := assert.Value(net.Dial("tcp", p.Addr().String()))(t)
			defer early.Close()
			assert.Value(early.Write([]byte("ruok")))(t)
			ours := p.client(t)
			create(t, ours, "/"+name, 0) // the process itself is served
			assert.NoError(t, early.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
			n, err := early.Read(make([]byte, 4))
			assert.That(t, os.IsTimeout(err), "answered %d bytes, %v", n, err)
			if admit {
				p.Admit()
				p.Admit()
				assert.NoError(t, early.SetReadDeadline(time.Now().Add(patience)))
				said, err := io.ReadAll(early)
				assert.That(t, string(said) == "imok", "answered %q, %v", said, err)
			}
			ours.Close()
			p.stop(t)
		})
	}
}
