package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
)

// shelf is ZooKeeper as a webhooks.Store: what several gateways have in common.
type shelf struct {
	mu    sync.Mutex
	zxid  int64
	nodes map[string]shelved
	down  error
}

type shelved struct {
	data []byte
	stat zk.Stat
}

func newShelf() *shelf {
	return &shelf{nodes: map[string]shelved{"/l/webhooks": {}, "/l/outbox": {}}}
}

func (s *shelf) Commit(_ context.Context, ops []zk.Op) zk.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	fail := func(err error) zk.Result { return zk.Result{Outcome: zk.NotDone, Culprit: -1, Err: err} }
	if s.down != nil {
		return fail(s.down)
	}
	next, zxid := maps.Clone(s.nodes), s.zxid+1
	for _, op := range ops {
		n, there := next[op.Path]
		switch {
		case op.Kind == zk.OpCreate && there:
			return fail(zk.ErrNodeExists)
		case op.Kind == zk.OpCreate:
			next[op.Path] = shelved{op.Data, zk.Stat{Czxid: zxid, Mzxid: zxid}}
			continue
		case !there:
			return fail(zk.ErrNoNode)
		case op.Version >= 0 && op.Version != n.stat.Version:
			return fail(zk.ErrBadVersion)
		}
		switch op.Kind {
		case zk.OpDelete:
			delete(next, op.Path)
		case zk.OpSetData:
			n.data, n.stat.Version, n.stat.Mzxid = op.Data, n.stat.Version+1, zxid
			next[op.Path] = n
		}
	}
	s.nodes, s.zxid = next, zxid
	return zk.Result{Outcome: zk.Done, Culprit: -1, Zxid: zxid}
}

func (s *shelf) Barrier(context.Context) error { return nil }

func (s *shelf) Get(_ context.Context, path string) ([]byte, zk.Stat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, there := s.nodes[path]
	switch {
	case s.down != nil:
		return nil, zk.Stat{}, s.down
	case !there:
		return nil, zk.Stat{}, zk.ErrNoNode
	}
	return n.data, n.stat, nil
}

func (s *shelf) Children(_ context.Context, of string) (names []string, _ zk.Stat, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.nodes {
		if path.Dir(p) == of {
			names = append(names, path.Base(p))
		}
	}
	return names, zk.Stat{}, s.down
}

func (s *shelf) Exists(ctx context.Context, path string) (*zk.Stat, error) {
	_, stat, err := s.Get(ctx, path)
	names, _, _ := s.Children(ctx, path)
	stat.NumChildren = int32(len(names))
	return &stat, err
}

// withWebhooks gives a gateway webhooks of its own on the shelf, which tell receivers on loopback.
func withWebhooks(t *testing.T, on *shelf) (*webhooks.Service, func(*Options)) {
	t.Helper()
	return withRoomFor(t, on, 0)
}

// withRoomFor is the same with an outbox of that size.
func withRoomFor(t *testing.T, on *shelf, room int) (*webhooks.Service, func(*Options)) {
	t.Helper()
	return withWebhooksOf(t, on, func(o *webhooks.Options) { o.MaxEntries = room })
}

func withWebhooksOf(t *testing.T, on *shelf, change func(*webhooks.Options)) (*webhooks.Service, func(*Options)) {
	t.Helper()
	allowed, err := webhooks.NewAddresses(true, nil)
	assert.NoError(t, err)
	sender := webhooks.NewSender(webhooks.SenderOptions{Addresses: allowed, Version: "test"})
	options := webhooks.Options{Store: on, Root: "/l", Addresses: allowed, Transport: sender, Mine: func(string) bool { return false }}
	change(&options)
	service := webhooks.New(options)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = service.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; sender.Close() })
	until(t, "the webhooks are known", func() bool { return service.Known() == nil })
	return service, func(o *Options) { o.Webhooks = service }
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		assert.Must(t, !time.Now().After(end), "%v", "it does not come to pass: "+what)
	}
}

// received is a receiver, what came and what it answers.
type received struct {
	url    string
	mu     sync.Mutex
	status int
	bodies []string
	heads  []http.Header
}

func receiver(t *testing.T) *received {
	t.Helper()
	r := &received{status: 200}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies, r.heads = append(r.bodies, string(body)), append(r.heads, q.Header.Clone())
		w.WriteHeader(r.status)
		_, _ = io.WriteString(w, "thanks")
	}))
	t.Cleanup(server.Close)
	r.url = server.URL + "/hook"
	return r
}

func (r *received) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func (r *received) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

// tell has a gateway tell of an end, as of a contender that another program has removed.
func tell(s *webhooks.Service, lease, lock string) {
	s.Record(&webhooks.End{Entry: webhooks.EntryOf(lease), Events: []webhooks.Event{{Type: webhooks.Removed, Time: time.Now().UTC().Truncate(time.Millisecond), NS: "default", Lock: lock, LeaseID: lease, Owner: "me", FencingToken: 7}}})
}

func read[T any](t *testing.T, a *apitest.Answer) (v T) {
	t.Helper()
	assert.NoError(t, json.Unmarshal(a.Body, &v), "%d %s", a.Status, a.Body)
	return v
}

func jsonParts(parts ...string) apitest.Option { return apitest.JSON(strings.Join(parts, "")) }
