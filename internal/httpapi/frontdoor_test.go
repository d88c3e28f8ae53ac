package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
)

// Defects that a newcomer met with plain curl, each by its number.

func TestD4RemovingALockInUseNamesTheReleaseAndNoDestruction(t *testing.T) {
	g := serve(t)
	g.admin = &locks.Error{Code: locks.CodeLockInUse, Holders: queue().Holders, RetryAfter: locks.RetryAfter(queue().Holders)}
	a := g.expect(t, 409, "lock_in_use", "DELETE", "/v1/locks/x")
	if a.Header.Get("Retry-After") != "5" {
		t.Errorf("%v %s", a.Header, a.Body)
	}
}

func TestD5AWaitForNothingIsRefused(t *testing.T) {
	g := serve(t)
	for path, names := range map[string][]string{
		"/v1/leases/self?wait=30s":                      {"wait", "since", "until=granted|ended|changed"},
		"/v1/locks/x?wait=30s":                          {"wait", "since", "until=free|changed"},
		"/v1/locks/x?until=free":                        {"until", "wait"},
		"/v1/leases/self?wait=1s&until=free":            {"until", "granted, ended or changed"},
		"/v1/leases/self?wait=1s&until=ended&since=abc": {"since", "until=changed"},
	} {
		a := g.expect(t, 422, "invalid_field", "GET", path, apitest.Token(someToken))
		if a.Problem == nil || a.Problem.Field != names[0] {
			t.Errorf("%s: %s", path, a.Body)
			continue
		}
		for _, name := range names[1:] {
			if !strings.Contains(a.Problem.Detail, name) {
				t.Errorf("%s: %q lacks %s", path, a.Problem.Detail, name)
			}
		}
	}
	if calls := g.asked(); len(calls) > 0 {
		t.Errorf("asked %q", calls)
	}
}

func TestD5ALookWaitsUntilTheLeaseIsGranted(t *testing.T) {
	g := serve(t)
	states := []locks.State{locks.Waiting, locks.Waiting, locks.Held}
	var asked []locks.LeaseRequest
	g.lease = func(_ context.Context, req locks.LeaseRequest) (locks.Lease, error) {
		l := waiting()
		l.State, l.Token = states[len(asked)], ""
		l.Rev = string(rune('a' + len(asked)))
		asked = append(asked, req)
		return l, nil
	}
	a := g.send(t, "GET", "/v1/leases/self?wait=50s&until=granted", apitest.Token(someToken))
	if a.Status != 200 || a.Header.Get("ETag") != `"c"` || len(asked) != 3 {
		t.Fatalf("%d %s after %+v", a.Status, a.Body, asked)
	}
	if asked[0].Wait != 0 || asked[1].Since != "a" || asked[2].Since != "b" || asked[2].Wait <= 0 || asked[2].Wait > asked[1].Wait || asked[1].Wait > 50*time.Second {
		t.Errorf("asked %+v", asked)
	}
}

func TestD5AnAwaitEndsWithTheWaitOrWhatItWaitsFor(t *testing.T) {
	for _, c := range []struct {
		until, since string
		states       string // of the lock, one at each second from now: f is free, h held, g held with another rev
		wait         time.Duration
		after        time.Duration
		last         string
	}{
		{until: "free", states: "f", wait: time.Minute, last: "f"},
		{until: "free", states: "hhf", wait: time.Minute, after: 2 * time.Second, last: "f"},
		{until: "free", states: "hgh", wait: time.Minute, after: time.Minute, last: "h"},
		{until: "changed", states: "hhg", wait: time.Minute, after: 2 * time.Second, last: "g"},
		{until: "changed", states: "h", wait: time.Minute, after: time.Minute, last: "h"},
		{until: "changed", since: "h", states: "hg", wait: time.Minute, after: time.Second, last: "g"},
		{since: "g", states: "h", wait: time.Minute, last: "h"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			look := func(wait time.Duration, since string) (locks.Lock, error) {
				for {
					at := min(int(time.Since(begun)/time.Second), len(c.states)-1)
					rev := c.states[at : at+1]
					if rev != since || wait <= 0 {
						return locks.Lock{Rev: rev, State: map[string]locks.LockState{"f": locks.LockFree, "h": locks.LockHeld, "g": locks.LockHeld}[rev]}, nil
					}
					step := min(wait, time.Second)
					time.Sleep(step)
					wait -= step
				}
			}
			p := &poll{until: c.until}
			l, err := await(p, c.wait, c.since, look, p.free)
			if took := time.Since(begun); err != nil || l.Rev != c.last || took != c.after {
				t.Errorf("%+v: %v %v after %s", c, l.Rev, err, took)
			}
		})
	}
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
		if a.Header.Get("Retry-After") != c.seconds || a.Problem.RetryAfterMS == nil || *a.Problem.RetryAfterMS != c.ms {
			t.Errorf("%+v: Retry-After %q, %s", c.holders, a.Header.Get("Retry-After"), a.Body)
		}
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
		if a.Problem == nil || !strings.Contains(a.Problem.Detail, line) {
			t.Errorf("POST %s: %d %s", path, a.Status, a.Body)
		}
	}
}
