package interop

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// pageTable is a table of docs/operate/interop.md, by its first column's title: each row's cells without backquotes. internal/locks
// holds these tables against its rules.
func pageTable(t *testing.T, title string) (rows [][]string) {
	page := assert.Value(os.ReadFile("../../../docs/operate/interop.md"))(t)
	_, table, _ := strings.Cut(string(page), "| `"+title+"` |")
	table, _, _ = strings.Cut(table, "\n\n")
	for i, line := range strings.Split(table, "\n") {
		if i >= 2 {
			cells := strings.Split(strings.Trim(strings.ReplaceAll(line, "`", ""), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// Every hazard on ZooKeeper itself: shown while it lasts, counted, and told when it appears and when it is over. Who really
// does not wait for other tests show.
func TestEveryHazardIsShownCountedAndTold(t *testing.T) {
	const curator, hex32 = "_c_12345678-1234-1234-1234-123456789abc-", "0123456789abcdef0123456789abcdef"
	const mutex, goZK, kazoo = "curator-mutex", "_c_" + hex32 + "-lock-", hex32 + "__lock__"
	prefixes := map[string]string{ // of sequential nodes, by program
		mutex: curator + "lock-", "curator-write": curator + "__WRIT__", "curator-read": curator + "__READ__", "curator-latch": curator + "latch-",
		"semaphore": curator + "lease-", "go-zookeeper": goZK, "kazoo-lock": kazoo, "kazoo-read": hex32 + "__rlock__", "kazoo-lock-named": hex32 + "-lock-",
		"hbase-write": "write-", "hbase-read": "read-", "zookeeper-writelock": "x-72057594037927936-",
	}
	type lock struct {
		code   string
		ns     string   // "" for native
		theirs []string // programs that have a contender there
		ours   string   // the mode of a lease that stands there first
		nodes  []string // as they are
	}
	table := []lock{
		{code: "disordered", nodes: []string{"write-0000000001", "write-1500000000", "write--1500000000"}},
		{code: "stray_child", nodes: []string{"stray"}},
		{code: "misplaced"},
		{code: "unreadable"},
		{code: "lock_invalid"},
		{code: "foreign_semaphore", theirs: []string{"semaphore"}, ours: "exclusive"},
	}
	for _, c := range []struct{ ns, program, ours string }{
		{"kazoo", mutex, "exclusive"}, {"native", "curator-write", "exclusive"}, {"native", "curator-read", "exclusive"}, {"all", "curator-latch", "exclusive"},
		{"curator-rw", "kazoo-lock", "exclusive"}, {"all", "kazoo-lock", "shared"}, {"native", "kazoo-read", "exclusive"}, {"kazoo", "kazoo-read", "exclusive"},
		{"kazoo", "kazoo-lock-named", "exclusive"}, {"kazoo", "hbase-read", "exclusive"}, {"curator-rw", "zookeeper-writelock", "exclusive"}, {"own", "go-zookeeper", "exclusive"},
	} {
		table = append(table, lock{code: "program_ignores_leases", ns: c.ns, theirs: []string{c.program}, ours: c.ours})
	}
	programs := pageTable(t, "programs")
	for i, row := range programs {
		for _, other := range programs[i+1:] {
			ignores := func(row, other []string) bool {
				return row[2] == "all" || slices.Contains(strings.Split(row[2], ", "), other[0])
			}
			if ignores(row, other) || ignores(other, row) {
				table = append(table, lock{code: "programs_ignore_each_other", theirs: []string{row[0], other[0]}})
			}
		}
	}
	codes := map[string]bool{}
	for _, c := range table {
		codes[c.code] = true
	}
	if page := pageTable(t, "code"); len(programs) != len(prefixes) || len(page) != len(codes) || slices.ContainsFunc(page, func(row []string) bool { return !codes[row[0]] }) {
		t.Fatalf("the page has %d programs and the codes %q, this test others", len(programs), page)
	}
	w := newWorld(t)
	w.namespace("own", "custom exclusive={id}-W-")
	stranger, _, err := zk.Connect([]string{w.zkAddr}, steadySession, zk.WithLogInfo(false))
	assert.NoError(t, err)
	t.Cleanup(stranger.Close)
	assert.NoError(t, stranger.AddAuth("digest", []byte("other:program")))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	events, _, err := w.Events(ctx, apitest.Query("format=jsonl&type=lock.hazard,lock.hazard_cleared"))
	assert.NoError(t, err)
	defer events.Close()
	told := func(what, code string, programs []string, ns, lock string) {
		t.Helper()
		if e, err := events.Next(); err != nil || string(e.Type) != what || string(e.Code) != code || !slices.Equal(e.Programs, programs) || e.NS != ns || e.Lock != lock || (e.Detail == "") != (what != "lock.hazard") {
			t.Errorf("%s: %s, %v", code, e.JSON, err)
		}
	}
	shown := func(ns, lock, code string, programs []string, n int) {
		t.Helper()
		testkit.EventuallyNil(t, patience, func() error {
			l, _, err := w.Lock(t.Context(), lock, apitest.Query("ns="+ns))
			if err == nil && (len(l.Hazards) != n || n == 1 && (string(l.Hazards[0].Code) != code || !slices.Equal(l.Hazards[0].Programs, programs))) {
				err = fmt.Errorf("hazards %+v, want %d of %s %q", l.Hazards, n, code, programs)
			}
			return err
		}, "%s %q is shown", code, programs)
		a, err := w.Send(t.Context(), http.MethodGet, "/metrics")
		line := fmt.Sprintf("lockkeeper_hazards{code=%q} %d\n", code, n)
		assert.That(t, err == nil && strings.Contains(string(a.Body), line), "the metrics lack %s %v", line, err)
	}
	for i, c := range table {
		code, programs := c.code, c.theirs
		ns, lock := c.ns, fmt.Sprintf("lock-%d", i)
		if ns == "" {
			ns = "native"
		}
		dir := w.root + "/" + ns + "/" + lock
		if code == "misplaced" {
			lock = kazoo + "0000000005"
			dir = w.root + "/" + ns + "/" + lock
		}
		w.mkdir("/"+ns+"/"+lock, nil)
		var there []string
		create := func(conn *zk.Conn, path string, flags int32, acl []zk.ACL) {
			path = assert.Value(conn.Create(path, nil, flags, acl))(t)
			there = append(there, path)
		}
		end := func() error { return nil }
		if c.ours != "" {
			lease := assert.Value(w.acquire(t.Context(), ns, lock, "ttl=60s&mode="+c.ours))(t, "%s", code)
			end = func() error { return w.release(t.Context(), lease) }
		}
		for _, program := range c.theirs {
			create(w.conn, dir+"/"+prefixes[program], zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		}
		for _, name := range c.nodes {
			create(w.conn, dir+"/"+name, 0, zk.WorldACL(zk.PermAll))
		}
		if code == "unreadable" {
			create(stranger, dir+"/"+goZK, zk.FlagEphemeral|zk.FlagSequence, zk.AuthACL(zk.PermAll))
			_, err := w.acquire(t.Context(), ns, lock, "")
			assert.That(t, err != nil, "a lease beside it")
		}
		if code == "lock_invalid" {
			create(w.conn, dir+"_INVALID", zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		}
		told("lock.hazard", code, programs, ns, lock)
		shown(ns, lock, code, programs, 1)
		for _, path := range slices.Backward(there) {
			assert.NoError(t, w.conn.Delete(path, -1))
		}
		if code == "misplaced" {
			assert.NoError(t, w.conn.Delete(dir, -1))
		}
		told("lock.hazard_cleared", code, programs, ns, lock)
		shown(ns, lock, code, programs, 0)
		assert.Nil(t, end(), "%s", code)
	}
}

// Attack 5: ZooKeeper sends a client no events of a node that it may not read. Kazoo's Lock of a client with an ACL of its own is
// such a contender: it is in the listing, and neither comes nor goes as far as the watch can tell.
func TestAContenderThatMayNotBeReadIsWaitedForAndItsEndIsNoticed(t *testing.T) {
	identity := filepath.Join(t.TempDir(), "identity")
	assert.NoError(t, os.WriteFile(identity, []byte("digest fleet:sesame\n"), 0o600))
	for _, c := range []struct {
		kind   string // of Kazoo's client
		flags  []string
		hidden bool
	}{
		{"kazoo-private", nil, true},
		{"kazoo-private", []string{"--zk-auth-file=" + identity}, true},
		{"kazoo-shown", nil, true},
		{"kazoo-shown", []string{"--zk-auth-file=" + identity}, false}, // the observer has the fleet's identity, too
	} {
		t.Run(fmt.Sprint(c.kind, " ", len(c.flags)), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.flags...)
			w.mkdir("/kazoo/deploy", nil)
			lease, err := w.acquire(t.Context(), "kazoo", "deploy", "ttl=60s") // the directory is known from its first child on
			assert.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			events, _, err := w.Events(ctx, apitest.Query("format=jsonl&type=lock.*"))
			assert.NoError(t, err)
			defer events.Close()
			theirs := w.theirTurn(t, c.kind, "kazoo", "deploy")
			testkit.Eventually(t, patience, func() bool { return len(w.names("kazoo", "deploy")) == 2 }, "Kazoo is queued")
			assert.NoError(t, w.release(t.Context(), lease))
			assert.NoError(t, testkit.Receive(t, patience, theirs.held, "Kazoo's turn"))
			ours := w.ourTurn(t, "kazoo", "deploy")
			l := w.awaitQueue(t, "kazoo", "deploy", 1)
			codes := codesOf(l)
			want := []string{"unreadable"}
			assert.That(t, (!c.hidden || slices.Equal(codes, want)) && (c.hidden || codes == nil), "hazards %q", codes)
			if h := l.Holders[0]; h.Foreign == nil || h.Foreign.Program != "kazoo" || (h.Foreign.Data == nil) != c.hidden {
				t.Errorf("the holder is shown as %+v", h)
			}
			testkit.Nothing(t, ours.held, "ours beside Kazoo's")
			assert.NoError(t, theirs.end())
			assert.NoError(t, testkit.Receive(t, patience, ours.held, "our turn"))
			l = w.awaitQueue(t, "kazoo", "deploy", 0)
			assert.That(t, len(l.Hazards) == 0, "hazards are left: %+v", l.Hazards)
			assert.NoError(t, ours.end())
			if !c.hidden {
				return
			}
			for _, want := range []string{"lock.hazard", "lock.hazard_cleared"} {
				e, err := events.Next()
				assert.That(t, err == nil && string(e.Type) == want && strings.Contains(e.JSON, `"unreadable"`),
					"%+v, %v; want %s", e, err, want)
			}
		})
	}
}

// awaitQueue waits until the gateway shows one holder and so many who wait.
func (w *world) awaitQueue(t *testing.T, ns, lock string, waiting int) (l api.Lock) {
	t.Helper()
	testkit.EventuallyNil(t, patience, func() (err error) {
		l, _, err = w.Lock(t.Context(), lock, apitest.Query("ns="+ns))
		if err == nil && (len(l.Holders) != 1 || l.QueueLength != waiting) {
			err = fmt.Errorf("%+v", l)
		}
		return err
	}, "one holds %s and %d wait", lock, waiting)
	return l
}

func codesOf(l api.Lock) (codes []string) {
	for _, h := range l.Hazards {
		codes = append(codes, string(h.Code))
	}
	return codes
}
