package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// post sends a request that must be answered as expected, and decodes the answer.
func post[T any](g *gateway, method, path string, status int, code string, options ...apitest.Option) (v T) {
	g.t.Helper()
	a, err := g.Send(g.t.Context(), method, path, options...)
	expect(g.t, a, err, status, code)
	if len(a.Body) > 0 && code == "" {
		if err := json.Unmarshal(a.Body, &v); err != nil {
			g.t.Fatalf("%v\n%s", err, a.Body)
		}
	}
	return v
}

// awaitHeld polls a lease's ticket until it is held.
func (g *gateway) awaitHeld(l api.Lease) (held api.Lease) {
	g.t.Helper()
	eventually(g.t, patience, func() error {
		var err error
		if held, _, err = g.Lease(g.t.Context(), l.LeaseID, apitest.Token(l.Token)); err == nil && held.State != api.StateHeld {
			err = fmt.Errorf("it is %s", held.State)
		}
		return err
	}, "the lease is held")
	return held
}

func TestReadersShareALockAndWritersDoNot(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	first := g.hold("book", "ttl=1m&mode=shared&owner=reader-1")
	second := g.hold("book", "ttl=1m&mode=shared&owner=reader-2")
	writer := g.queue("book", "ttl=1m&owner=writer")
	late := g.queue("book", "ttl=1m&mode=shared&owner=reader-3")
	q := g.awaitLock(patience, "book", 2, 2)
	assert.That(t, q.Holders[0].Mode == api.ModeShared && q.Waiters[0].Mode == api.ModeExclusive && q.Waiters[1].Mode == api.ModeShared,
		"%+v", q)
	assert.That(t, first.FencingToken != second.FencingToken, "two readers have the fencing token %d", first.FencingToken)
	for _, l := range []api.Lease{first, second} {
		f := post[api.Fence](g, "GET", "/v1/locks/book/fence?fencing_token="+tokenOf(l), 200, "")
		assert.That(t, f.Current, "the token of a reader: %+v", f)
	}
	g.letGo(first.Token)
	g.letGo(second.Token)
	g.awaitHeld(writer)
	if l := post[api.Lease](g, "GET", "/v1/leases/"+late.LeaseID, 200, ""); l.State != api.StateWaiting || l.Position != 1 {
		t.Errorf("a reader behind a writer: %+v", l)
	}
	g.letGo(writer.Token)
	g.awaitHeld(late)
}

func TestAWriterBecomesAReaderAndKeepsItsToken(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	writer := g.hold("book", "ttl=1m")
	reader := g.queue("book", "ttl=1m&mode=shared")
	got := post[api.Lease](g, "POST", "/v1/leases/self/downgrade", 200, "", apitest.Token(writer.Token))
	assert.That(t, got.Mode == api.ModeShared && got.FencingToken == writer.FencingToken && got.Token == "", "%+v", got)
	g.awaitHeld(reader)
	f := post[api.Fence](g, "GET", "/v1/locks/book/fence?fencing_token="+tokenOf(writer), 200, "")
	assert.That(t, f.Current, "its token: %+v", f)
	post[api.Lease](g, "POST", "/v1/leases/"+reader.LeaseID+"/downgrade", 200, "", apitest.Token(reader.Token)) // it is shared already
	waits := g.queue("book", "ttl=1m")
	post[api.Lease](g, "POST", "/v1/leases/self/downgrade", 409, "lease_not_held", apitest.Token(waits.Token))
}

func TestSeveralLocksAreTakenAndReleasedAsOne(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	reader := g.hold("b", "ttl=1m&mode=shared")
	const body = `{"ttl":"1m","owner":"mover","locks":[{"lock":"c"},{"lock":"b","mode":"shared"},{"lock":"a"}]}`
	group := post[api.Lease](g, "POST", "/v1/leases", 201, "", apitest.JSON(body))
	if len(group.Locks) != 3 || group.Lock != "" || group.Mode != "" || group.Znode != "" || group.Locks[0].Lock != "c" || group.Locks[1].Mode != api.ModeShared || group.FencingToken == 0 {
		t.Fatalf("%+v", group)
	}
	for _, k := range group.Locks {
		f := post[api.Fence](g, "GET", fmt.Sprintf("/v1/locks/%s/fence?fencing_token=%d", k.Lock, group.FencingToken), 200, "")
		assert.That(t, f.Current && k.FencingToken == group.FencingToken, "its token in %s (%d): %+v", k.Lock, k.FencingToken, f)
		q := g.awaitLock(patience, k.Lock, 1+b2i(k.Lock == "b"), 0)
		mine := q.Holders[len(q.Holders)-1]
		assert.That(t, mine.LeaseID == group.LeaseID && mine.Znode == k.Znode && len(mine.Group) == 2, "%s shows %+v", k.Lock, mine)
	}
	// The same need in another order waits, whole, and is let in whole.
	other := post[api.Lease](g, "POST", "/v1/leases?locks=a,b,c&ttl=1m&async=true", 202, "")
	assert.That(t, other.State == api.StateWaiting && len(other.Locks) == 3, "%+v", other)
	post[api.Lease](g, "POST", "/v1/leases?locks=c,d", 409, "held_by_other")
	g.letGo(group.Token)
	assert.Equal(t, post[api.Lease](g, "GET", "/v1/leases/"+other.LeaseID, 200, "").State, api.StateWaiting, "a reader holds b, and yet")
	g.letGo(reader.Token)
	g.awaitHeld(other)
	g.letGo(other.Token)
	for _, lock := range []string{"a", "b", "c", "d"} {
		g.awaitLock(patience, lock, 0, 0)
	}
	// Asked for again with the same key it is the same lease, also when its locks are named in the query.
	key := apitest.Key("one-random-key-of-mine")
	once := post[api.Lease](g, "POST", "/v1/leases?locks=a,b&ttl=1m", 201, "", key)
	again := post[api.Lease](g, "POST", "/v1/leases", 200, "", key, apitest.JSON(`{"locks":[{"lock":"a","mode":"exclusive"},{"lock":"b","ns":"default"}],"ttl":"1m"}`))
	assert.That(t, again.LeaseID == once.LeaseID && again.Token == once.Token && reflect.DeepEqual(again.Locks, once.Locks),
		"once %+v\nagain %+v", once, again)
	post[api.Lease](g, "POST", "/v1/leases?locks=a,b&ttl=2m", 422, "idempotency_key_reused", key)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestAScrapeTellsTheModes(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	g.hold("book", "ttl=1m&mode=shared")
	g.queue("book", "ttl=1m")
	post[api.Lease](g, "POST", "/v1/leases?locks=x,y&ttl=1m", 201, "")
	a, err := g.Send(t.Context(), http.MethodGet, "/metrics")
	expect(t, a, err, http.StatusOK, "")
	for _, line := range []string{
		`lockkeeper_leases{mode="shared",state="held"} 1`, `lockkeeper_leases{mode="exclusive",state="waiting"} 1`,
		`lockkeeper_leases{mode="several",state="held"} 1`, `lockkeeper_leases{mode="semaphore",state="held"} 0`,
	} {
		assert.That(t, strings.Contains(string(a.Body), line+"\n"), "the metrics lack %s", line)
	}
}
