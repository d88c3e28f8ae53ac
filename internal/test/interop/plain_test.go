package interop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
		select {
		case err := <-next:
			t.Fatalf("theirs holds beside ours: %v", err)
		default:
		}
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
