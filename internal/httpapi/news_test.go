package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

// gazette is what a gateway tells others.
type gazette struct {
	mu   sync.Mutex
	news []string
	more chan struct{}
	over bool
}

func (g *gazette) tell(news ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.news = append(g.news, news...)
	close(g.more)
	g.more = make(chan struct{})
}

// since takes a place as the number of what has been told before it.
func (g *gazette) since(at string) (news [][]byte, next string, more <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(at) < len(g.news) {
		return [][]byte{[]byte(g.news[len(at)])}, at + "x", nil
	}
	if g.over {
		return nil, at, nil
	}
	return nil, at, g.more
}

func TestOnlyAnotherGatewayGetsTheEndReports(t *testing.T) {
	secret := func(key string) func() []layout.TokenKey {
		return func() []layout.TokenKey { return []layout.TokenKey{{ID: "k1", Key: []byte(key)}} }
	}
	const ours, theirs = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	g := &gazette{more: make(chan struct{}), news: []string{`"first"`, `"second"`}}
	own := fleet.New(fleet.Options{Secret: secret(ours), Self: func() (string, int64) { return "gatewayone", 1 }})
	defer own.Close()
	manager := &fake{id: "gatewayone"}
	s := New(Options{Locks: manager, Fleet: own, News: g.since})
	s.feed.keepalive = 10 * time.Millisecond
	server := httptest.NewServer(s)
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")

	follow := func(key, from, to, since string, hear func(at string, news [][]byte)) error {
		f := fleet.New(fleet.Options{Secret: secret(key), Self: func() (string, int64) { return from, 1 }})
		defer f.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return f.Follow(ctx, fleet.Peer{Gateway: to, Address: address}, since, hear)
	}
	self := manager.GatewayID()
	var heard []string
	quiet := 0
	err := follow(ours, "gatewaytwo", self, "", func(_ string, news [][]byte) {
		for _, one := range news {
			heard = append(heard, string(one))
		}
		switch {
		case len(news) > 0:
			quiet = 0
		case len(heard) == 2:
			if quiet++; quiet == 3 {
				g.tell(`"third"`)
			}
		default: // the last word has been told
			g.mu.Lock()
			g.over = true
			g.mu.Unlock()
			g.tell()
		}
	})
	assert.That(t, errors.Is(err, io.EOF) && slices.Equal(heard, []string{`"first"`, `"second"`, `"third"`}),
		"heard %q, then %v", heard, err)
	heard = nil
	if err := follow(ours, "gatewaytwo", self, "xx", func(_ string, news [][]byte) {
		for _, one := range news {
			heard = append(heard, string(one))
		}
	}); !errors.Is(err, io.EOF) || !slices.Equal(heard, []string{`"third"`}) {
		t.Errorf("from a place on: heard %q, then %v", heard, err)
	}

	nothing := func(at string, news [][]byte) { t.Errorf("heard %s %s", at, news) }
	for name, err := range map[string]error{
		"fleet_seal_refused":     follow(theirs, "gatewaytwo", self, "", nothing),
		"owned_by_other_gateway": errors.Join(follow(ours, "gatewaytwo", "gatewaythree", "", nothing), follow(ours, self, self, "", nothing)),
	} {
		assert.That(t, err != nil && strings.Contains(err.Error(), name), "%s: %v", name, err)
	}
	answer, err := http.Get(server.URL + fleet.StreamPath)
	assert.NoError(t, err)
	defer answer.Body.Close()
	assert.That(t, answer.StatusCode == http.StatusNotFound, "a client is answered %d", answer.StatusCode)
}

// A stream does not outlive its key: what follows it begins another one, under the key of that moment.
func TestAStreamEndsWithItsKey(t *testing.T) {
	old, young := layout.TokenKey{ID: "k1", Key: []byte("one")}, layout.TokenKey{ID: "k2", Key: []byte("two")}
	var secret atomic.Pointer[[]layout.TokenKey]
	secret.Store(&[]layout.TokenKey{old, young})
	own := fleet.New(fleet.Options{Secret: func() []layout.TokenKey { return *secret.Load() }, Self: func() (string, int64) { return "gatewayone", 1 }})
	defer own.Close()
	manager := &fake{id: "gatewayone"}
	s := New(Options{Locks: manager, Fleet: own, News: (&gazette{more: make(chan struct{})}).since})
	s.feed.keepalive = 10 * time.Millisecond
	server := httptest.NewServer(s)
	defer server.Close()
	follow := func(key layout.TokenKey, line func(n int)) error {
		f := fleet.New(fleet.Options{Secret: func() []layout.TokenKey { return []layout.TokenKey{key} }, Self: func() (string, int64) { return "gatewaytwo", 1 }})
		defer f.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		lines := 0
		return f.Follow(ctx, fleet.Peer{Gateway: manager.GatewayID(), Address: strings.TrimPrefix(server.URL, "http://")}, "", func(string, [][]byte) {
			lines++
			line(lines)
		})
	}
	err := follow(old, func(n int) {
		if n == 3 {
			secret.Store(&[]layout.TokenKey{young})
		}
	})
	assert.That(t, errors.Is(err, io.EOF), "the stream ends with %v", err)
	err = follow(old, func(int) { t.Error("a stream begins under a key that is gone") })
	assert.That(t, err != nil && strings.Contains(err.Error(), "fleet_seal_refused"), "%v", err)
}

func TestTheGatewaysToFollowAreTheOthersThatSayWhereTheyAre(t *testing.T) {
	list := Others([]locks.Peer{{Gateway: "one", Address: "one:8080", Self: true, Registered: true}, {Gateway: "two", Address: "two:8080", Registered: true},
		{Gateway: "three", Registered: true}, {Gateway: "four", Address: "four:8080"}})
	assert.That(t, slices.Equal(list, []fleet.Peer{{Gateway: "two", Address: "two:8080"}}), "%+v", list)
}
