package interop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// plainLock is the books' exclusive lock: an ephemeral node in the lock's place.
type plainLock struct {
	conn *zk.Conn
	path string
}

func (p plainLock) lock(ctx context.Context) error {
	for {
		_, err := p.conn.Create(p.path, []byte("plain client"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
		there, _, deleted, err := p.conn.ExistsW(p.path)
		if err != nil {
			return err
		}
		if there {
			select {
			case <-deleted:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

func (p plainLock) unlock() error { return p.conn.Delete(p.path, -1) }

func TestAPlainNodeInTheLocksPlaceIsShownAndWaitedFor(t *testing.T) {
	w := newWorld(t)
	theirs := plainLock{w.conn, w.dir("native", "plain")}
	assert.NoError(t, theirs.lock(t.Context()))
	_, stat, err := w.conn.Get(theirs.path)
	assert.NoError(t, err)
	for _, query := range []string{"", "&async=true", "&wait=1s", "&mode=shared"} {
		_, err := w.acquire(t.Context(), "native", "plain", "ttl=60s"+query)
		if r := (*refusal)(nil); !errors.As(err, &r) || r.status != http.StatusConflict || !strings.Contains(r.body, "ephemeral node") {
			t.Errorf("%q: %v", query, err)
		}
	}
	l, _, err := w.Lock(t.Context(), "plain", apitest.Query("ns=native"))
	assert.Must(t, err == nil && l.State == "held" && len(l.Holders) == 1, "%+v, %v", l, err)
	h := l.Holders[0]
	if f := h.Foreign; f == nil || f.Program != "" || f.Kind != "ephemeral node" || f.Data == nil || f.Data.Text != "plain client" ||
		f.Session != fmt.Sprintf("0x%x", uint64(stat.EphemeralOwner)) || h.Znode != theirs.path || h.FencingToken != stat.Czxid {
		t.Errorf("%+v %+v", h, h.Foreign)
	}
	var turns []turn
	for i := range 3 {
		turns = append(turns, w.ourTurn(t, "native", "plain"))
		testkit.Eventually(t, patience, func() bool { return w.requests(t) > i }, "number %d waits", i)
	}
	assert.NoError(t, theirs.unlock())
	type grant struct {
		turn turn
		err  error
	}
	granted := make(chan grant, len(turns)) // in any order: the recipe promises none
	for _, turn := range turns {
		go func() { granted <- grant{turn, <-turn.held} }()
	}
	next := make(chan error, 1)
	for i := range turns {
		grant := testkit.Receive(t, patience, granted, "grant %d", i)
		assert.NoError(t, grant.err)
		if i == 0 { // the plain client waits for our directory, which goes when it is empty
			testkit.Eventually(t, patience, func() bool {
				l, _, err := w.Lock(t.Context(), "plain", apitest.Query("ns=native"))
				return err == nil && l.QueueLength == len(turns)-1
			}, "the others are in the queue")
			go func() { next <- theirs.lock(t.Context()) }()
		}
		testkit.Nothing(t, next, "theirs holds beside ours")
		assert.NoError(t, grant.turn.end())
	}
	assert.NoError(t, testkit.Receive(t, patience, next, "the plain client's turn"))
	a, err := w.Send(t.Context(), http.MethodPost, "/v1/locks/plain/contenders/plain/break?ns=native")
	assert.Must(t, err == nil && a.Status == http.StatusNoContent, "break: %+v, %v", a, err)
	there, _, err := w.conn.Exists(theirs.path)
	assert.That(t, err == nil && !there, "it is there after it was broken, %v", err)
}

// requests is the number of acquires that wait at the gateway.
func (w *world) requests(t *testing.T) int {
	t.Helper()
	a := assert.Value(w.Send(t.Context(), http.MethodGet, "/metrics"))(t)
	for line := range strings.Lines(string(a.Body)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "lockkeeper_http_waiting_requests "); ok {
			waiting := assert.Value(strconv.Atoi(n))(t)
			return waiting
		}
	}
	t.Fatalf("no such metric:\n%s", a.Body)
	return 0
}

// Both take the lock again and again, each in its own way.
func TestPlainNodesAndLeasesExcludeEachOther(t *testing.T) {
	w := newWorld(t)
	theirs := plainLock{w.conn, w.dir("native", "contest")}
	const rounds = 60
	var ours, other []interval
	var counter atomic.Int64 // which both read and then write
	section := func(list *[]interval) {
		begin := monotonic()
		n := counter.Load()
		time.Sleep(time.Millisecond)
		counter.Store(n + 1)
		*list = append(*list, interval{begin, monotonic()})
	}
	if err := theirs.lock(t.Context()); err != nil { // so that the gateway knows how this lock is used
		t.Fatal(err)
	}
	testkit.EventuallyNil(t, patience, func() error {
		l, _, err := w.Lock(t.Context(), "contest", apitest.Query("ns=native"))
		if err == nil && l.State != "held" {
			err = fmt.Errorf("%+v", l)
		}
		return err
	}, "the gateway shows it")
	done := make(chan error, 1)
	go func() {
		for range rounds {
			section(&other)
			if err := theirs.unlock(); err != nil {
				done <- err
				return
			}
			if err := theirs.lock(t.Context()); err != nil {
				done <- err
				return
			}
		}
		done <- theirs.unlock()
	}()
	for range rounds {
		var lease api.Lease
		testkit.EventuallyNil(t, patience, func() (err error) {
			lease, err = w.acquire(t.Context(), "native", "contest", "ttl=60s&wait=60s")
			// A node that comes and goes at each attempt to create the contender: nothing was done, and clients repeat.
			r := (*refusal)(nil)
			assert.Must(t, !errors.As(err, &r) || r.status == http.StatusServiceUnavailable, "%v", err)
			return err
		}, "a lease is granted")
		section(&ours)
		assert.NoError(t, w.release(t.Context(), lease))
	}
	assert.NoError(t, testkit.Receive(t, patience, done, "the plain client"))
	v := judge(ours, other, int(counter.Load()))
	t.Logf("%+v", v)
	if err := v.unsafe(2); err != nil { // no order is promised: whichever is quickest comes next
		t.Error(err)
	}
	names := w.names("native", "contest")
	assert.That(t, len(names) <= 0, "left behind: %q", names)
}

// eventually waits until the gateway shows a lock of the native namespace as wanted.
func (w *world) eventually(t *testing.T, lock, what string, is func(api.Lock) bool) (shown api.Lock) {
	t.Helper()
	testkit.EventuallyNil(t, patience, func() (err error) {
		shown, _, err = w.Lock(t.Context(), lock, apitest.Query("ns=native"))
		if err == nil && !is(shown) {
			err = fmt.Errorf("%+v", shown)
		}
		return err
	}, "the gateway shows %s", what)
	return shown
}

// wantRefusals asks for a lock in each way that would make a contender.
func (w *world) wantRefusals(t *testing.T, lock, code string) {
	t.Helper()
	for _, query := range []string{"", "&wait=60s", "&async=true", "&mode=shared&wait=60s"} {
		_, err := w.acquire(t.Context(), "native", lock, "ttl=60s"+query)
		r := (*refusal)(nil)
		assert.That(t, errors.As(err, &r) && r.status == http.StatusConflict && strings.Contains(r.body, code), "%q: %v", query, err)
	}
}

// Kazoo's Semaphore counts every child of its directory against its limit, which is 2 here.
func TestNoLeaseStandsInTheWayOfKazoosSemaphore(t *testing.T) {
	const kind = "kazoo-semaphore"
	w := newWorld(t)
	p := w.program(t, kind)
	jobs := map[string]<-chan said{}
	start := func(job string) {
		lines := assert.Value(p.start("hold", job, kind, w.dir("native", "pool")))(t)
		jobs[job] = lines
	}
	held := func(job string) { assert.Value(await(p, jobs[job], "held", patience))(t, "%s", job) }
	end := func(job string) {
		assert.NoError(t, p.stop(job))
		assert.Value(await(p, jobs[job], "done", patience))(t)
	}
	start("one")
	held("one")
	w.wantRefusals(t, "pool", "foreign_semaphore")
	start("two")
	held("two") // so nothing of ours was counted
	l := w.eventually(t, "pool", "both leases", func(l api.Lock) bool { return len(l.Holders) == 2 })
	for _, h := range l.Holders {
		if f := h.Foreign; f.Program != "kazoo" || f.Kind != "semaphore" || f.Decoded == nil || f.Decoded.Identifier != "worker" ||
			h.Mode != "semaphore" || h.Permits != 1 || h.Limit != 2 {
			t.Errorf("%+v %+v", h, f)
		}
	}
	start("three")
	w.eventually(t, "pool-__lock__", "who waits for a lease", func(l api.Lock) bool { return len(l.Holders) == 1 })
	list, _, err := w.Locks(t.Context(), apitest.Query("ns=native"))
	names := lockNames(list)
	assert.That(t, err == nil && slices.Equal(names, []string{"pool"}), "listed are %v, %v", names, err)
	w.wantRefusals(t, "pool", "foreign_semaphore")
	end("one")
	held("three")
	end("two")
	end("three")
	w.eventually(t, "pool", "that it is free", func(l api.Lock) bool { return l.State == "free" })
	w.wantRefusals(t, "pool", "foreign_semaphore") // Kazoo keeps its limit there
	names = w.names("native", "pool")
	assert.That(t, len(names) == 0, "left are %v", names)
}

func lockNames(list api.LockList) (names []string) {
	for _, l := range list.Items {
		names = append(names, l.Lock)
	}
	return names
}

// The marker by which bigdata's ZLock destroys a lock, as its source makes it.
func TestALockThatBigdataDestroysIsNotJoined(t *testing.T) {
	w := newWorld(t)
	lease := assert.Value(w.acquire(t.Context(), "native", "doomed", "ttl=60s"))(t)
	marker := plainLock{w.conn, w.dir("native", "doomed_INVALID")}
	assert.NoError(t, marker.lock(t.Context()))
	w.eventually(t, "doomed", "the hazard", func(l api.Lock) bool { return len(l.Hazards) == 1 && l.Hazards[0].Code == "lock_invalid" })
	w.wantRefusals(t, "doomed", "lock_invalid")
	list, _, err := w.Locks(t.Context(), apitest.Query("ns=native"))
	names := lockNames(list)
	assert.That(t, err == nil && slices.Equal(names, []string{"doomed"}), "listed are %v, %v", names, err)
	assert.NoError(t, w.conn.Delete(w.dir("native", "doomed")+"/"+w.names("native", "doomed")[0], -1))
	// Only then: a release that is quicker than the event finds what it wants, and is answered so.
	w.eventually(t, "doomed", "that it has no holder", func(l api.Lock) bool { return len(l.Holders) == 0 })
	a, err := w.Release(t.Context(), lease.Token)
	assert.That(t, err == nil && a.Status == http.StatusGone, "%+v, %v", a, err)
	assert.NoError(t, w.conn.Delete(w.dir("native", "doomed"), -1))
	assert.NoError(t, marker.unlock())
	testkit.EventuallyNil(t, patience, func() error {
		_, err := w.acquire(t.Context(), "native", "doomed", "ttl=60s")
		return err
	}, "a new lock of that name is taken")
}

// A LeaderLatch waits for its own participants alone, a LeaderSelector is a mutex; ours wait for both, and name them.
func TestTheQueuesOfLeaderLatchAndLeaderSelectorAreWatchedAndJoined(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		kind, shown, participant string
		respects                 bool
	}{
		{"curator-latch", "leader latch", "participant-7", false},
		{"curator-selector", "mutex", "participant-8", true},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			lock := pair{mode: "led", kind: c.kind}.lock()
			w.mkdir("/native/"+lock, nil)
			stream, _, err := w.Events(t.Context(), apitest.Query("ns=native&lock="+lock))
			assert.NoError(t, err)
			defer stream.Close()
			theirs := w.theirTurn(t, c.kind, "native", lock)
			assert.NoError(t, testkit.Receive(t, patience, theirs.held, "%s leads", c.kind))
			for {
				e := assert.Value(stream.Next())(t)
				if e.Type == "lease.granted" && e.Foreign != nil {
					break
				}
			}
			l := w.eventually(t, lock, "who leads", func(l api.Lock) bool { return len(l.Holders) == 1 })
			if f := l.Holders[0].Foreign; f.Program != "curator" || f.Kind != c.shown || f.Decoded == nil || f.Decoded.Participant != c.participant {
				t.Errorf("%+v", f)
			}
			_, err = w.acquire(t.Context(), "native", lock, "ttl=60s")
			if r := (*refusal)(nil); !errors.As(err, &r) || r.status != http.StatusConflict || !strings.Contains(r.body, c.participant) {
				t.Errorf("a try beside them: %v", err)
			}
			ours := w.ourTurn(t, "native", lock)
			w.eventually(t, lock, "that ours waits", func(l api.Lock) bool { return l.QueueLength == 1 })
			assert.NoError(t, theirs.end())
			assert.NoError(t, testkit.Receive(t, patience, ours.held, "ours after them"))
			there := w.names("native", lock)
			next := w.theirTurn(t, c.kind, "native", lock)
			if c.respects {
				w.awaitWatch(t, pair{ns: "native", mode: "led", kind: c.kind}, there)
			} else if err := testkit.Receive(t, patience, next.held, "%s beside ours", c.kind); err != nil {
				t.Fatal(err)
			} else {
				w.eventually(t, lock, "the hazard", func(l api.Lock) bool {
					return len(l.Hazards) == 1 && l.Hazards[0].Code == "program_ignores_leases" && slices.Equal(l.Hazards[0].Programs, []string{"curator-latch"})
				})
			}
			assert.NoError(t, ours.end())
			if c.respects {
				assert.NoError(t, testkit.Receive(t, patience, next.held, "%s after ours", c.kind))
			}
			assert.NoError(t, next.end())
		})
	}
}

// With names that sort among a LeaderLatch's the two exclude each other.
func TestALeaderLatchWaitsForLeasesWithItsNames(t *testing.T) {
	const ns, kind = "latches", "curator-latch"
	w := newWorld(t)
	w.namespace(ns, "custom exclusive={id}-latch- shared={id}-reads-latch-")
	p := pair{ns: ns, mode: "named", kind: kind}
	w.mkdir("/"+ns+"/"+p.lock(), nil)
	for range 3 {
		ours := w.ourTurn(t, ns, p.lock())
		assert.NoError(t, testkit.Receive(t, patience, ours.held, "ours"))
		there := w.names(ns, p.lock())
		theirs := w.theirTurn(t, kind, ns, p.lock())
		w.awaitWatch(t, p, there)
		next := w.ourTurn(t, ns, p.lock())
		testkit.Eventually(t, patience, func() bool { return len(w.names(ns, p.lock())) == 3 }, "ours is queued behind it")
		assert.NoError(t, ours.end())
		assert.NoError(t, testkit.Receive(t, patience, theirs.held, "the latch after ours"))
		testkit.Nothing(t, next.held, "ours beside the latch")
		l, _, err := w.Lock(t.Context(), p.lock(), apitest.Query("ns="+ns))
		assert.That(t, err == nil && len(l.Hazards) == 0 && l.QueueLength == 1, "%+v, %v", l, err)
		assert.NoError(t, theirs.end())
		assert.NoError(t, testkit.Receive(t, patience, next.held, "ours after the latch"))
		assert.NoError(t, next.end())
	}
}
