package token

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// nodes is ZooKeeper as several stores see it.
type nodes struct {
	mu     sync.Mutex
	data   map[string]string // by path
	of     map[string]int32  // versions
	writes []zk.Op
	down   bool
	loses  bool // the answers to writes
	watch  []func(id string)
}

func newNodes() *nodes { return &nodes{data: map[string]string{}, of: map[string]int32{}} }

func (n *nodes) follow(s *Store) *Store {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watch = append(n.watch, s.Look)
	return s
}

func (n *nodes) Commit(_ context.Context, ops []zk.Op) zk.Result {
	n.mu.Lock()
	defer n.mu.Unlock()
	refuse := func(err error) zk.Result { return zk.Result{Outcome: zk.NotDone, Err: err} }
	op := ops[0]
	_, there := n.data[op.Path]
	switch {
	case n.down:
		return refuse(zk.ErrUnavailable)
	case op.Kind == zk.OpCreate && there:
		return refuse(zk.ErrNodeExists)
	case op.Kind != zk.OpCreate && !there:
		return refuse(zk.ErrNoNode)
	case op.Kind != zk.OpCreate && op.Version != n.of[op.Path]:
		return refuse(zk.ErrBadVersion)
	case op.Kind == zk.OpCreate && !op.Private:
		return refuse(errors.New("a record that others can read"))
	}
	n.writes = append(n.writes, op)
	if op.Kind == zk.OpDelete {
		delete(n.data, op.Path)
		delete(n.of, op.Path)
	} else {
		n.data[op.Path] = string(op.Data)
		if there {
			n.of[op.Path]++
		}
	}
	for _, changed := range n.watch {
		changed(op.Path[strings.LastIndexByte(op.Path, '/')+1:])
	}
	if n.loses {
		return zk.Result{Outcome: zk.Unknown, Err: zk.ErrUnavailable}
	}
	return zk.Result{Outcome: zk.Done}
}

func (n *nodes) Barrier(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return zk.ErrUnavailable
	}
	return nil
}

func (n *nodes) Get(_ context.Context, path string) ([]byte, zk.Stat, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	data, there := n.data[path]
	switch {
	case n.down:
		return nil, zk.Stat{}, zk.ErrUnavailable
	case !there:
		return nil, zk.Stat{}, zk.ErrNoNode
	}
	return []byte(data), zk.Stat{Version: n.of[path]}, nil
}

func (n *nodes) Children(context.Context, string) (ids []string, _ zk.Stat, _ error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, zk.Stat{}, zk.ErrUnavailable
	}
	for path := range maps.Keys(n.data) {
		ids = append(ids, strings.TrimPrefix(path, "/l/auth/tokens/"))
	}
	return ids, zk.Stat{}, nil
}

func (n *nodes) with(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
}

func (n *nodes) tree() Tree { return Tree{Nodes: n, Root: "/l"} }

// made creates a token by the tree alone, as the command does.
func made(t *testing.T, n *nodes, name string, ttl time.Duration) (text string, r *Record) {
	t.Helper()
	known := assert.Value(n.tree().List(t.Context()))(t)
	text, r, err := n.tree().Create(t.Context(), Request{Name: name, By: "me", TTL: ttl}, known)
	assert.NoError(t, err)
	return text, r
}

func TestARecordHasNoSecret(t *testing.T) {
	n := newNodes()
	text, r := made(t, n, "ci-shop", time.Hour)
	for path, data := range n.data {
		secret := strings.Split(text, "_")[2]
		assert.That(t, !strings.Contains(data, secret) && !strings.Contains(path, secret), "%s: %s", path, data)
		assert.That(t, strings.Contains(data, `"sha256"`), "no hash in %s", data)
	}
	assert.That(t, !strings.Contains(fmt.Sprintf("%+v", r), strings.Split(text, "_")[2]), "the record shows the secret")
	list := assert.Value(n.tree().List(t.Context()))(t)
	assert.That(t, len(list) == 1 && list[0].Name == "ci-shop" && list[0].CreatedBy == "me" && list[0].Expires.Equal(r.Created.Add(time.Hour)), "listed: %+v", list[0])
	_, err := n.tree().Revoke(t.Context(), "ci-shop", "you", list)
	assert.NoError(t, err)
	assert.That(t, !strings.Contains(n.data["/l/auth/tokens/"+r.ID], "sha256"), "the hash of a revoked token stays: %s", n.data)
}

func TestRevokingByIdAndByName(t *testing.T) {
	n := newNodes()
	_, a := made(t, n, "ci", 0)
	_, b := made(t, n, "ci", 0)
	revoke := func(what string) (*Record, error) {
		return n.tree().Revoke(t.Context(), what, "you", assert.Value(n.tree().List(t.Context()))(t))
	}
	_, err := revoke("ci")
	several, ok := errors.AsType[*AmbiguousError](err)
	assert.That(t, ok && len(several.IDs) == 2, "two of one name: %v", err)
	r, err := revoke(a.ID)
	assert.That(t, err == nil && r.ID == a.ID && r.RevokedBy == "you" && r.StateAt(time.Now()) == Revoked, "%+v, %v", r, err)
	r, err = revoke("ci")
	assert.That(t, err == nil && r.ID == b.ID, "the other one by its name: %+v, %v", r, err)
	_, err = revoke(a.ID)
	assert.ErrorIs(t, err, ErrRevoked)
	_, err = revoke("ci")
	assert.ErrorIs(t, err, ErrRevoked)
	_, err = revoke("nothing")
	assert.ErrorIs(t, err, ErrNotFound)
}

func TestWhatCannotBeReadLetsNobodyInAndCanBeRevoked(t *testing.T) {
	n := newNodes()
	for i, data := range []string{"", "null", "{}", `{"v":2,"name":"a"}`, `{"v":1,"name":"a","sha256":"AAAA"}`, `{"v":1,"name":""}`,
		`{"v":1,"name":"a","sha256":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","created_ms":1,"created_by":"x","only_from":"10.0.0.1"}`,
		`{"v":1,"name":"a b","sha256":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","created_ms":1,"created_by":"x"}`} {
		n.data[fmt.Sprintf("/l/auth/tokens/abcdefg%d", i)] = data
	}
	list := assert.Value(n.tree().List(t.Context()))(t)
	assert.Equal(t, len(list), len(n.data))
	for _, r := range list {
		assert.Equal(t, r.StateAt(time.Now()), Unreadable, n.data["/l/auth/tokens/"+r.ID])
		_, err := n.tree().Revoke(t.Context(), r.ID, "me", list)
		assert.NoError(t, err)
	}
	assert.Equal(t, len(n.data), 0)
}

func TestACreationThatMayHaveBeenDoneShowsNoToken(t *testing.T) {
	n := newNodes()
	n.loses = true
	text, _, err := n.tree().Create(t.Context(), Request{Name: "ci", By: "me"}, nil)
	assert.That(t, text == "" && errors.Is(err, ErrUnknown), "%q, %v", text, err)
	n.loses, n.down = false, true
	_, _, err = n.tree().Create(t.Context(), Request{Name: "ci", By: "me"}, nil)
	assert.ErrorIs(t, err, ErrUnavailable)
}

func TestNamesAreChecked(t *testing.T) {
	for name, good := range map[string]bool{"ci-shop": true, "team/app@host:1": true, "A": true, "1.2_3": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "-ci": false, "a b": false, "a\nb": false, "ci*": false, "ä": false, "a\"": false} {
		assert.Equal(t, CheckName(name) == nil, good, name)
	}
	n := newNodes()
	_, r := made(t, n, "ci", 0)
	_, _, err := n.tree().Create(t.Context(), Request{Name: r.ID}, []*Record{r})
	assert.That(t, err != nil, "a name that is the id of another token")
	full := make([]*Record, MaxTokens)
	for i := range full {
		full[i] = r
	}
	_, _, err = n.tree().Create(t.Context(), Request{Name: "more"}, full)
	assert.ErrorIs(t, err, ErrTooMany)
}
