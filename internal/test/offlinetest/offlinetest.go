// Package offlinetest is what the tests of the tools share that work on a root without a gateway: export, import and sweep.
package offlinetest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// Limit is the limit of every wait. Only failures reach it.
const Limit = 30 * time.Second

// Context ends with the test, or after Limit.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Open opens a root as the tools do, until the test ends.
func Open(t testing.TB, cfg zk.Config) *layout.Offline {
	t.Helper()
	o := assert.Value(layout.OpenOffline(Context(t), cfg))(t)
	t.Cleanup(o.Close)
	return o
}

// Site is another program at a root under test.
type Site struct {
	*layout.Offline
	T testing.TB
}

// Apply does the operations in one transaction.
func (s *Site) Apply(ops ...zk.Op) {
	s.T.Helper()
	at, err := s.Commit(Context(s.T), ops)
	assert.NoError(s.T, err, "operation %d", at)
}

// Put creates a node.
func (s *Site) Put(path, data string) {
	s.T.Helper()
	s.Apply(zk.Op{Kind: zk.OpCreate, Path: path, Data: []byte(data)})
}

// Ensure creates an empty node where there is none.
func (s *Site) Ensure(path string) {
	s.T.Helper()
	if assert.Value(s.Exists(Context(s.T), path))(s.T) == nil {
		s.Put(path, "")
	}
}

// NewLease is an id of the fleet.
func NewLease(t assert.T, fleet recipe.FleetID) recipe.LeaseID {
	t.Helper()
	gateway := assert.Value(recipe.NewGatewayID(rand.Reader))(t)
	return assert.Value(recipe.NewLeaseID(fleet, gateway, rand.Reader))(t)
}

// WantKind demands that an error says what is in the way, and all the words.
func WantKind(t testing.TB, err error, kind offline.Kind, words ...string) {
	t.Helper()
	var e *offline.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Errorf("got %v, want %s", err, kind)
		return
	}
	for _, word := range words {
		assert.That(t, strings.Contains(err.Error()+"\n"+e.Hint, word), "%q is not in: %v\nhint: %s", word, err, e.Hint)
	}
}
