package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
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
