package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// onShared starts a gateway on the ZooKeeper that the tests share, in a chroot of its own.
func onShared(t *testing.T, flags ...string) *gateway {
	t.Helper()
	addr, chroot := zkreal.SharedT(t)
	return startGateway(t, addr+chroot, flags...)
}

func TestAnAcquireIsAnsweredWithTheWholeLease(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lease, a, err := g.Acquire(t.Context(), "deploy", apitest.Query("ttl=10s&owner=me&metadata=job+17"))
	expect(t, a, err, http.StatusCreated, "")
	assert.Equal(t, a.Header.Get("Location"), "/v1/leases/"+lease.LeaseID, "Location")
	assert.Equal(t, a.Header.Get("Cache-Control"), "no-store", "Cache-Control")
	assert.That(t, a.Header.Get("Lockkeeper-Request-Id") != "", "there is no Lockkeeper-Request-Id")
	if lease.Lock != "deploy" || lease.NS != "default" || lease.Mode != api.ModeExclusive || lease.State != api.StateHeld ||
		lease.Owner != "me" || lease.Metadata != "job 17" || lease.TTLMS != 10_000 || !lease.FailoverSafe ||
		lease.FencingToken <= 0 || lease.Rev == "" || lease.Position != 0 || lease.Reason != "" {
		t.Errorf("the lease is %s", a.Body)
	}
	assert.That(t, lease.ExpiresInMS != nil && *lease.ExpiresInMS > 8000 && *lease.ExpiresInMS <= 10_000, "expires_in_ms in %s", a.Body)
	assert.That(t, lease.QueueLength != nil && *lease.QueueLength == 0, "queue_length in %s", a.Body)
	assert.That(t, strings.HasPrefix(lease.Token, "lk1."+lease.LeaseID+"."), "the token %q does not name its lease", lease.Token)
	want := "/lockkeeper/locks/deploy/write-v1." + lease.LeaseID + "-lock-0000000000"
	assert.That(t, lease.Znode == want, "znode is %q, want %q", lease.Znode, want)

	seen, a, err := g.Lease(t.Context(), lease.LeaseID)
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, a.Header.Get("ETag") == `"`+seen.Rev+`"`, "ETag is %q, rev %q", a.Header.Get("ETag"), seen.Rev)
	assert.That(t, seen.Token == "" && seen.FencingToken == lease.FencingToken, "an outsider sees %s", a.Body)
	brief, a, err := g.Acquire(t.Context(), "brief", apitest.Query("ttl=5s"))
	expect(t, a, err, http.StatusCreated, "")
	assert.That(t, !brief.FailoverSafe, "5s do not ride over a crash with a session timeout of %v: %s", sessionTimeout, a.Body)
}

func TestAShellGetsLinesToEvaluate(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lines := regexp.MustCompile(`^LEASE_ID=(\S+)\nLEASE_TOKEN=(lk1\.\S+)\nFENCING_TOKEN=([0-9]+)\nLEASE_STATE=held\nLEASE_TTL_MS=30000\nLEASE_WAITED_MS=[0-9]+\nNOTIFY_SECRET=\nLEASE_ERROR=\nLEASE_STATUS=201\n$`)
	for i, option := range []apitest.Option{apitest.Query("format=env"), apitest.Header("Accept", "text/plain")} {
		_, a, err := g.Acquire(t.Context(), fmt.Sprintf("shell-%d", i), option)
		expect(t, a, err, http.StatusCreated, "")
		m := lines.FindSubmatch(a.Body)
		assert.Must(t, m != nil && strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain"),
			"%s %q", a.Header.Get("Content-Type"), a.Body)
		lease, a, err := g.Lease(t.Context(), "self", apitest.Token(string(m[2])))
		expect(t, a, err, http.StatusOK, "")
		assert.That(t, lease.LeaseID == string(m[1]) && fmt.Sprint(lease.FencingToken) == string(m[3]), "the lines and %s", a.Body)
		g.letGo(string(m[2]))
	}
}

func TestWithAKeyThePlaceOfAClientThatGoesAwayIsKept(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	holder := g.hold("deploy", "ttl=1m")
	key := apitest.Key("a-fresh-random-key-0001")
	ctx, hangUp := context.WithCancel(t.Context())
	gone := g.acquiring(ctx, "deploy", "ttl=1m&wait=forever&owner=me", key)
	id := g.awaitLock(patience, "deploy", 1, 1).Waiters[0].LeaseID
	hangUp()
	gone.answered(patience)
	testkit.Never(t, 1500*time.Millisecond, func() bool {
		q, a, err := g.Lock(t.Context(), "deploy")
		return err != nil || a.Status != http.StatusOK || q.QueueLength != 1 || q.Waiters[0].LeaseID != id
	}, "the place is given up")
	again := g.acquiring(t.Context(), "deploy", "ttl=1m&wait=1m&owner=me", key)
	elapse(t, 100*time.Millisecond) // let it arrive before the release, mostly; either order must do
	g.letGo(holder.Token)
	again.answered(patience)
	expect(t, again.a, again.err, http.StatusOK, "")
	assert.That(t, again.lease.LeaseID == id && again.lease.State == api.StateHeld && again.a.Header.Get("Idempotency-Replayed") == "true",
		"the repeat got %s", again.a.Body)
}

// Another program's lock may be called as it likes: it is listed, told, shown on its page and ended like every other, and
// no client can take it here.
func TestALockThatAnotherProgramCalledAsItLikedIsShownAndEnded(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	theirs := newForeign(t, addr, chroot)
	told := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Events(t.Context(), apitest.Query("lock=my%2520lock*"))
	})
	const dir, name = "/lockkeeper/locks/my lock ü", "my%20lock%20%C3%BC"
	assert.Value(theirs.Create(chroot+dir, nil, 0, zk.WorldACL(zk.PermAll)))(t)
	theirs.put(dir+"/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", []byte("10.0.3.17"))
	e := nextOf(t, told, "lease.granted")
	assert.That(t, e.Lock == name && strings.HasPrefix(e.Znode, dir), "told: %s", e.JSON)
	list, a, err := g.Locks(t.Context())
	assert.Must(t, err == nil && len(list.Items) == 1 && list.Items[0].Lock == name, "listed: %v %s", err, a.Body)
	for _, path := range []string{url.PathEscape(name), "my%20lock%20%C3%BC"} {
		a, err := g.Send(t.Context(), "GET", "/v1/locks/"+path)
		if err != nil || a.Status != http.StatusOK || !strings.Contains(string(a.Body), `"lock":"`+name+`"`) || !strings.Contains(string(a.Body), "10.0.3.17") {
			t.Errorf("%s: %v %d %s", path, err, a.Status, a.Body)
		}
		a, err = g.Send(t.Context(), "POST", "/v1/locks/"+path+"/leases?ttl=10s")
		expect(t, a, err, http.StatusUnprocessableEntity, "invalid_field")
		assert.That(t, a.Problem.Field == "lock" && strings.Contains(a.Problem.Detail, "allowed are"), "refused: %s", a.Body)
	}
	for path, says := range map[string][]string{
		"/":                                 {`href="/locks/my%2520lock%2520%25C3%25BC"`, name},
		"/locks/my%2520lock%2520%25C3%25BC": {name, "10.0.3.17", "/v1/locks/my%2520lock%2520%25C3%25BC/contenders/"},
		"/locks/my%20lock%20%C3%BC":         {name, "10.0.3.17"},
	} {
		res := assert.Value(http.Get(g.url() + path))(t)
		page, err := io.ReadAll(res.Body)
		res.Body.Close()
		assert.NoError(t, err)
		body := string(page)
		for _, s := range says {
			assert.That(t, res.StatusCode == http.StatusOK && strings.Contains(body, s), "%s: %d, and lacks %s", path, res.StatusCode, s)
		}
	}
	contender := theirs.children(dir)[0]
	a, err = g.Send(t.Context(), "POST", "/v1/locks/"+url.PathEscape(name)+"/contenders/"+contender+"/break", apitest.JSON(`{"reason":"stuck"}`))
	expect(t, a, err, http.StatusNoContent, "")
	nextOf(t, told, "lease.revoked")
	left := theirs.children(dir)
	assert.That(t, len(left) <= 0, "left: %q", left)
	a, err = g.Send(t.Context(), "DELETE", "/v1/locks/"+url.PathEscape(name))
	expect(t, a, err, http.StatusNoContent, "")
	left = theirs.children("/lockkeeper/locks")
	assert.That(t, len(left) <= 0, "left: %q", left)
	// Names that are no text cannot be.
	for _, bad := range []string{"a\xff", "\U0001F512", "a\x01"} {
		_, err := theirs.Create(chroot+"/lockkeeper/locks/"+bad, nil, 0, zk.WorldACL(zk.PermAll))
		assert.That(t, err != nil, "ZooKeeper has a node %q", bad)
	}
}

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

func TestAScrapeTellsTheModes(t *testing.T) {
	t.Parallel()
	g := onShared(t)
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
