package httpapi

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// Defects that a newcomer met with plain curl, each by its number. Those of one part of the API are with the tests of that part.

func TestD4RemovingALockInUseNamesTheReleaseAndNoDestruction(t *testing.T) {
	g := serve(t)
	g.admin = &locks.Error{Code: locks.CodeLockInUse, Holders: queue().Holders, RetryAfter: locks.RetryAfter(queue().Holders)}
	a := g.expect(t, 409, "lock_in_use", "DELETE", "/v1/locks/x")
	assert.That(t, a.Header.Get("Retry-After") == "5", "%v %s", a.Header, a.Body)
}

func TestD10And11ARefusalTellsWhenAnAnswerCanChange(t *testing.T) {
	g := serve(t)
	for _, c := range []struct {
		code    locks.Code
		holders []locks.Contender
		seconds string
		ms      int64
	}{
		{locks.CodeHeldByOther, []locks.Contender{{ExpiresIn: time.Hour}}, "5", 5000},
		{locks.CodeHeldByOther, []locks.Contender{{ExpiresIn: 2300 * time.Millisecond}, {ExpiresIn: time.Hour}}, "3", 2300},
		{locks.CodeHeldByOther, []locks.Contender{{ExpiresIn: time.Millisecond}}, "1", 1000},
		{locks.CodeHeldByOther, []locks.Contender{{ExpiresIn: time.Hour}, {}}, "1", 1000}, // the second runs elsewhere
		{locks.CodeHeldByOther, nil, "1", 1000},
		{locks.CodeLockDelayed, []locks.Contender{{Delayed: true, ExpiresIn: 90*time.Second + 10*time.Millisecond}}, "91", 90_010},
		{locks.CodeLockDelayed, []locks.Contender{{Delayed: true, ExpiresIn: 10 * time.Millisecond}}, "1", 10},
		{locks.CodeHeldByOther, []locks.Contender{{Delayed: true, ExpiresIn: time.Hour}, {ExpiresIn: time.Minute}}, "5", 5000},
	} {
		for i := range c.holders {
			c.holders[i].Mode, c.holders[i].Znode = locks.Exclusive, "/x"
		}
		g.acquire = refuse(&locks.Error{Code: c.code, Holders: c.holders, RetryAfter: locks.RetryAfter(c.holders)})
		a := g.expect(t, 409, string(c.code), "POST", "/v1/locks/x/leases")
		assert.That(t, a.Header.Get("Retry-After") == c.seconds && a.Problem.RetryAfterMS != nil && *a.Problem.RetryAfterMS == c.ms,
			"%+v: Retry-After %q, %s", c.holders, a.Header.Get("Retry-After"), a.Body)
	}
}

func TestD12NaturalGuessesGetTheLineThatWorks(t *testing.T) {
	g := serve(t)
	const acquire, release = "POST /v1/locks/x/leases", "DELETE /v1/leases/self"
	for path, line := range map[string]string{
		"/v1/locks/x/acquire": acquire, "/v1/locks/x/lock": acquire, "/v1/locks/x": acquire,
		"/v1/locks/x/release": release, "/v1/locks/x/unlock": release,
		"/v1/locks/$(x)/acquire": "POST /v1/locks/NAME/leases",
	} {
		a := g.send(t, http.MethodPost, path)
		assert.That(t, a.Problem != nil && strings.Contains(a.Problem.Detail, line), "POST %s: %d %s", path, a.Status, a.Body)
	}
}

func TestD20OptionsTellsTheMethods(t *testing.T) {
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	for _, r := range routeTable() {
		path := strings.NewReplacer("{lock}", "deploy", "{id}", someID, "{name}", "n", "{code}", "internal").Replace(r.pattern)
		a := g.send(t, "OPTIONS", path)
		if allow := strings.Split(a.Header.Get("Allow"), ", "); a.Status != 204 || !slices.Contains(allow, r.method) || !slices.Contains(allow, "OPTIONS") {
			t.Errorf("OPTIONS %s: %d %v", path, a.Status, allow)
		}
	}
	g.expect(t, 403, "cross_origin", "OPTIONS", "/v1/locks", apitest.Header("Origin", "http://evil.example"))
}

func TestD24And25TextsForPeopleNameCharactersAndRanges(t *testing.T) {
	g := serve(t)
	for path, words := range map[string]string{
		"/v1/locks/%C3%BC/leases":                                "must not contain 'ü'",
		"/v1/locks/a%20b/leases":                                 "must not contain ' '",
		"/v1/locks/a%E2%80%8Bb/leases":                           "the character U+200B",
		"/v1/locks/x/leases?ttl=9999999999999h":                  "ttl must be between 1s and 24h",
		"/v1/locks/x/leases?wait=9999999999999h":                 "wait must be between 0 and 24h",
		"/v1/locks/x/leases?ttl=-9999999999999h":                 "ttl must be between 1s and 24h",
		"/v1/locks/x/leases?lock_delay=99999999999999999999h30m": "lock_delay must be between 0 and 168h",
		"/v1/locks/x/revoke?force_after=9999999999999h":          "force_after must be at most 24h",
		"/v1/locks/x/leases?ttl=9x":                              "ttl must be a number with a unit",
	} {
		a := g.send(t, "POST", path)
		assert.That(t, a.Problem != nil && strings.Contains(a.Problem.Detail, words) && !strings.Contains(a.Problem.Detail, `\`),
			"%s: %s", path, a.Body)
	}
}

func TestD26ARequestKeepsItsID(t *testing.T) {
	log := new(lines)
	g := serve(t, logTo(t, log, slog.LevelInfo))
	for given, kept := range map[string]bool{
		"7b1f0e1c-2b3a-4c5d-8e6f-708192a3b4c5": true, "1-67891233:a/b@c+d~e.f_g": true, strings.Repeat("x", 64): true,
		strings.Repeat("x", 65): false, "a b": false, "$(x)": false, `"a"`: false, "ü": false,
	} {
		a := g.send(t, "POST", "/v1/nothing", apitest.Header("X-Request-Id", given))
		if id := a.Header.Get("Lockkeeper-Request-Id"); (id == given) != kept || id == "" || a.Problem.RequestID != id {
			t.Errorf("%q is %q, and in the problem %q", given, id, a.Problem.RequestID)
		} else if line := log.next(t); line["request_id"] != id {
			t.Errorf("%q is %v in the log", given, line["request_id"])
		}
	}
}

func TestAMissingLeaseTokenIs403(t *testing.T) {
	g := serve(t)
	a := g.expect(t, 403, "lease_token_missing", "DELETE", "/v1/leases/self")
	assert.That(t, a.Header.Get("WWW-Authenticate") == "", "%v", a.Header)
}
