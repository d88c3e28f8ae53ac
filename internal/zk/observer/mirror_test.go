package observer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// patience bounds every wait of these tests; it is no expectation.
const patience = 30 * time.Second

// mirror is a Sink that rebuilds the tree from the changes alone and records changes that a Sink must never get.
type mirror struct {
	mu      sync.Mutex
	dirs    map[string]map[string]bool
	known   map[string]*zk.Dir
	created map[string]int32
	synced  bool
	syncs   int // Synced for all roots
	losses  int
	wrong   []string
	log     []string // "NodeAdded /locks/a x", Listed marked by a star; bounded
	slices  [][]zk.ChangeKind
	onApply func([]zk.Change)
}

func newMirror() *mirror {
	return &mirror{
		dirs:    make(map[string]map[string]bool),
		known:   make(map[string]*zk.Dir),
		created: make(map[string]int32),
	}
}

func (m *mirror) Apply(changes []zk.Change) {
	m.mu.Lock()
	var kinds []zk.ChangeKind
	for _, c := range changes {
		m.apply(c)
		kinds = append(kinds, c.Kind)
	}
	if len(m.slices) < 10_000 {
		m.slices = append(m.slices, kinds)
	}
	hook := m.onApply
	m.mu.Unlock()
	if hook != nil {
		hook(changes)
	}
}

func (m *mirror) apply(c zk.Change) {
	line := c.Kind.String()
	if c.Listed {
		line += "*"
	}
	if c.Dir != nil {
		line += " " + c.Dir.Path
	}
	if c.Node != "" {
		line += " " + c.Node
	}
	if c.Kind == zk.Synced && c.Root != nil {
		line += " " + c.Root.Path
	}
	if c.Err != nil {
		line += " " + c.Err.Error()
	}
	if len(m.log) < 100_000 {
		m.log = append(m.log, line)
	}
	bad := func(why string) { m.wrong = append(m.wrong, line+": "+why) }
	if c.Listed != (c.Zxid != 0) && !(c.Kind == zk.DirAdded && c.Listed) {
		bad(fmt.Sprintf("listed %v with zxid %d", c.Listed, c.Zxid))
	}
	if c.Dir != nil && c.Kind != zk.DirAdded && m.known[c.Dir.Path] != c.Dir {
		bad("a directory that is not the one that was added")
	}
	switch c.Kind {
	case zk.NodeAdded, zk.NodeRemoved, zk.NodeChanged:
		if c.Node == "" {
			bad("of no node")
		}
	default:
		if c.Node != "" {
			bad("of a node")
		}
	}
	switch c.Kind {
	case zk.DirAdded:
		if m.known[c.Dir.Path] != nil {
			bad("added twice")
		}
		m.known[c.Dir.Path] = c.Dir
		m.dirs[c.Dir.Path] = make(map[string]bool)
	case zk.DirRemoved:
		if n := len(m.dirs[c.Dir.Path]); n > 0 {
			bad(fmt.Sprintf("removed with %d nodes", n))
		}
		delete(m.known, c.Dir.Path)
		delete(m.dirs, c.Dir.Path)
		delete(m.created, c.Dir.Path)
	case zk.NodeAdded:
		if m.dirs[c.Dir.Path][c.Node] {
			bad("added twice")
		}
		m.dirs[c.Dir.Path][c.Node] = true
	case zk.NodeRemoved:
		if c.Listed && !m.dirs[c.Dir.Path][c.Node] {
			bad("a listing removed a node that was not there")
		}
		delete(m.dirs[c.Dir.Path], c.Node)
	case zk.NodeChanged:
		if !m.dirs[c.Dir.Path][c.Node] {
			bad("changed a node that is not there")
		}
	case zk.DirListed:
		m.created[c.Dir.Path] = c.Created
	case zk.Synced:
		m.synced = true
		if c.Root == nil {
			m.syncs++
		}
	case zk.Lost:
		m.synced = false
		m.losses++
	}
}

// tree is "/dir: a b" per directory, sorted.
func (m *mirror) tree() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return treeString(m.dirs)
}

func treeString[N any](dirs map[string]map[string]N) string {
	var b strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		fmt.Fprintf(&b, "%s: %s\n", dir, strings.Join(slices.Sorted(maps.Keys(dirs[dir])), " "))
	}
	return b.String()
}

func (m *mirror) lines() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

// count is how many lines of the log are this one.
func (m *mirror) count(line string) int {
	n := 0
	for _, l := range m.lines() {
		if l == line {
			n++
		}
	}
	return n
}

func (m *mirror) has(line string) bool { return m.count(line) > 0 }

// checkAll verifies what must hold after every step.
func (m *mirror) checkAll(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.wrong) > 0 {
		t.Fatalf("the sink was told %d impossible things, first: %s", len(m.wrong), strings.Join(m.wrong[:min(5, len(m.wrong))], "; "))
	}
}

// startObserver runs an observer until the test ends.
func startObserver(t testing.TB, cfg zk.Config, sink zk.Sink, writerZxid func() int64, roots ...zk.WatchRoot) *Observer {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	o := New(cfg, roots, sink, writerZxid)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.Nil(t, <-ended, "Run")
	})
	return o
}

// testWriter sends a logger's lines to the test's log.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// awaitSynced waits until the mirror has been synced at least n times.
func (m *mirror) awaitSynced(t testing.TB, n int) {
	t.Helper()
	testkit.Eventually(t, patience, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.synced && m.syncs >= n
	}, "synced %d times", n)
}

// What stands in a directory's place is told by its listing, and that its data was set by an event.
func TestAListingTellsWhatIsMoreThanADirectory(t *testing.T) {
	b := newBook(t, locksRoot)
	for _, test := range []struct {
		stat wire.Stat
		told bool
	}{
		{wire.Stat{}, false},
		{wire.Stat{DataLength: 1}, true},
		{wire.Stat{EphemeralOwner: 0x100000000000001}, true},
		{wire.Stat{EphemeralOwner: math.MinInt64}, false},       // a container
		{wire.Stat{EphemeralOwner: -1 << 56}, false},            // lives for a time
		{wire.Stat{EphemeralOwner: 0x7eadbeef0000 << 16}, true}, // a session
	} {
		test.stat.Czxid = 7
		b.r.listedDir(b.root("/locks"), "a", nil, &test.stat, 9)
		c := b.r.changes[len(b.r.changes)-1]
		assert.That(t, c.Kind == zk.DirListed && (c.Stat != nil) == test.told && (c.Stat == nil || *c.Stat == test.stat),
			"%+v: told %+v", test.stat, c)
		b.told()
	}
}

func TestThatADirectorysDataWasSetIsTold(t *testing.T) {
	b := newBook(t, locksRoot, zk.WatchRoot{Path: "/gateways", Depth: 1})
	b.event(wire.EventCreated, "/locks/a")
	b.event(wire.EventDataChanged, "/locks/a")
	b.event(wire.EventDataChanged, "/locks/unknown") // its listing is to come
	b.event(wire.EventCreated, "/gateways")
	b.event(wire.EventDataChanged, "/gateways")
	b.expect("DirAdded /locks/a", "DirChanged /locks/a", "DirAdded /gateways")
	assert.That(t, b.r.ignored == 2, "%d events ignored", b.r.ignored)
}
