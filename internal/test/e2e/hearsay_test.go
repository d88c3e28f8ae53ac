package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// twoGateways are gateways that have found each other: what the one knows, the other is told.
func twoGateways(t *testing.T, flags ...string) (one, two *gateway, addr, chroot string) {
	t.Helper()
	addr, chroot = zkreal.SharedT(t)
	one, two = startGateway(t, addr+chroot, flags...), startGateway(t, addr+chroot, flags...)
	for _, g := range []*gateway{one, two} {
		other := map[*gateway]*gateway{one: two, two: one}[g]
		eventually(t, patience, func() error {
			probe := g.hold("probe", "ttl=10s")
			g.letGo(probe.Token)
			time.Sleep(20 * time.Millisecond)
			_, err := other.said(probe.LeaseID, "released")
			return err
		}, "the other gateway has heard")
	}
	return one, two, addr, chroot
}

// said is a gateway's postmortem of a lease that ended for that reason.
func (g *gateway) said(id, reason string) (p api.Postmortem, err error) {
	a, err := g.Send(g.t.Context(), http.MethodGet, "/v1/leases/"+id+"/postmortem")
	if err == nil {
		err = json.Unmarshal(a.Body, &p)
	}
	if err == nil && (a.Status != http.StatusOK || string(p.Reason) != reason) {
		err = unexpected(a)
	}
	return p, err
}

// storyOf reads a lock's events up to the end of the last lease, as words.
func storyOf(t *testing.T, from <-chan apitest.StreamEvent, last string) (words []string, at []time.Time) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case e := <-from:
			words = append(words, fmt.Sprintf("%s %s %s %s", e.Type, e.LeaseID, e.Reason, e.Detail))
			at = append(at, time.Now())
			if e.LeaseID == last && e.Reason != "" {
				return words, at
			}
		case <-timer.C:
			t.Fatalf("the end of %s is not told; only %q", last, words)
		}
	}
}

func TestBothGatewaysTellTheSameStoryAndTheOwnersClientIsToldWhy(t *testing.T) {
	t.Parallel()
	one, two, addr, chroot := twoGateways(t)
	var streams []<-chan apitest.StreamEvent
	for _, g := range []*gateway{one, two} {
		streams = append(streams, follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
			return g.Events(t.Context(), apitest.Query("lock=deploy&type=lease.*"))
		}))
	}
	told := func(l api.Lease, reason, words string) {
		t.Helper()
		eventually(t, patience, func() error {
			_, a, err := one.Heartbeat(t.Context(), l.Token)
			if err != nil || a.Status != http.StatusGone || !strings.Contains(string(a.Body), `"reason":"`+reason+`"`) || !strings.Contains(string(a.Body), words) {
				return unexpected(a)
			}
			return nil
		}, "the client is told %s, %s", reason, words)
		for _, g := range []*gateway{one, two} {
			eventually(t, patience, func() error {
				p, err := g.said(l.LeaseID, reason)
				if err == nil && p.Detail != words {
					err = fmt.Errorf("the words are %q", p.Detail)
				}
				return err
			}, "the postmortem says so")
		}
	}
	var want []string
	add := func(l api.Lease, kind, reason, words string) {
		want = append(want, "lease.queued "+l.LeaseID+"  ", "lease.granted "+l.LeaseID+"  ", fmt.Sprintf("%s %s %s %s", kind, l.LeaseID, reason, words))
	}
	hold := func(parameters string) api.Lease {
		l := one.hold("deploy", parameters)
		two.awaitLock(patience, "deploy", 1, 0)
		return l
	}
	l := hold("ttl=1m&owner=me")
	one.letGo(l.Token)
	add(l, "lease.released", "released", "")
	l = hold("ttl=1s&owner=me")
	one.awaitLock(patience, "deploy", 0, 0)
	add(l, "lease.expired", "expired", "")
	l = hold("ttl=1m&owner=me")
	post[struct{}](two, "POST", "/v1/leases/"+l.LeaseID+"/break?reason=burnt+down", 204, "")
	told(l, "revoked", "burnt down")
	add(l, "lease.revoked", "revoked", "burnt down")
	l = hold("ttl=1m&owner=me")
	post[struct{}](two, "POST", "/v1/locks/deploy/reap?older_than=0s&reason=too+old", 200, "")
	told(l, "revoked", "too old")
	add(l, "lease.revoked", "revoked", "too old")
	l = hold("ttl=1m&owner=me")
	post[struct{}](two, "POST", "/v1/locks/deploy/destroy?reason=no+more", 200, "")
	told(l, "destroyed", "no more")
	add(l, "lease.revoked", "destroyed", "no more")
	l = hold("ttl=1m&owner=me")
	post[struct{}](two, "POST", "/v1/locks/deploy/revoke?force_after=1ms&reason=now", 200, "")
	one.awaitLock(patience, "deploy", 0, 0)
	told(l, "revoked", "now")
	add(l, "lease.revoked", "revoked", "now")
	l = hold("ttl=1m&owner=me")
	out, err := zkreal.CLI(addr, "delete "+chroot+l.Znode)
	assert.Must(t, err == nil, "%v\n%s", err, out)
	add(l, "lease.removed", "removed", "")
	for i, stream := range streams {
		got, _ := storyOf(t, stream, l.LeaseID)
		got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "lease.revoke_requested") })
		assert.That(t, slices.Equal(got, want),
			"gateway %d tells\n\t%s\nwant\n\t%s", i+1, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	// A dashboard is made of the same events, and shows them in words.
	for _, g := range []*gateway{one, two} {
		eventually(t, patience, func() error {
			answer, err := http.Get(g.url() + "/locks/deploy") // a page is not in the specification
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			read, err := io.ReadAll(answer.Body)
			if err != nil {
				return err
			}
			page := string(read)
			for _, words := range []string{"burnt down", "too old", "no more"} {
				if !strings.Contains(page, words) {
					return fmt.Errorf("the page does not say %q", words)
				}
			}
			return nil
		}, "the dashboard tells it")
	}
}

// The gateway that ran a lease stands still: who watches at another one waits for a second, and no longer.
func TestEventsAreASecondLateAtMostWhenAnotherGatewayStandsStill(t *testing.T) {
	t.Parallel()
	one, two, addr, chroot := twoGateways(t, "--session-timeout=20s") // for so long no gateway succeeds the one that stands still
	l := one.hold("deploy", "ttl=1m&owner=me")
	two.awaitLock(patience, "deploy", 1, 0)
	waiter := two.queue("deploy", "ttl=1m&owner=you")
	stream := follow(t, two, func() (*apitest.Stream, *apitest.Answer, error) {
		return two.Events(t.Context(), apitest.Query("lock=deploy&type=lease.*"))
	})
	one.freeze()
	defer one.thaw()
	out, err := zkreal.CLI(addr, "delete "+chroot+l.Znode)
	assert.Must(t, err == nil, "%v\n%s", err, out)
	began := time.Now()
	words, at := storyOf(t, stream, l.LeaseID)
	assert.That(t, words[len(words)-1] == "lease.removed "+l.LeaseID+" unknown " && at[len(at)-1].Sub(began) <= required(2*time.Second),
		"told %q after %v", words, at[len(at)-1].Sub(began))
	assert.Equal(t, nextOf(t, stream, "lease.granted").LeaseID, waiter.LeaseID, "granted")
}

func TestAPostmortemOutlivesTheGatewayThatRanTheLease(t *testing.T) {
	t.Parallel()
	one, two, addr, chroot := twoGateways(t)
	l := one.hold("deploy", "ttl=1m&owner=me")
	expired := one.hold("other", "ttl=1s&owner=me")
	two.awaitLock(patience, "deploy", 1, 0)
	one.letGo(l.Token)
	one.awaitLock(patience, "other", 0, 0)
	var was [2]api.Postmortem
	for i, id := range []string{l.LeaseID, expired.LeaseID} {
		eventually(t, patience, func() error {
			p, err := two.said(id, []string{"released", "expired"}[i])
			was[i] = p
			return err
		}, "the other gateway has heard")
	}
	late := startGateway(t, addr+chroot)
	eventually(t, patience, func() error {
		_, err := late.said(l.LeaseID, "released")
		return err
	}, "a gateway that came later can say it")
	// It may have asked the owner. What it says without the owner it has from the owner's stream.
	testkit.Eventually(t, patience, func() bool {
		return strings.Count(late.log.String(), "another gateway is followed") >= 2
	}, "the gateway that came later follows both others")
	one.kill()
	eventually(t, patience, func() error {
		_, a, err := two.Heartbeat(t.Context(), expired.Token)
		if err != nil || a.Status != http.StatusGone || !strings.Contains(string(a.Body), `"reason":"expired"`) {
			return unexpected(a)
		}
		return nil
	}, "the survivor says why the lease ended")
	for _, g := range []*gateway{two, late} {
		for i, id := range []string{l.LeaseID, expired.LeaseID} {
			p, err := g.said(id, string(was[i].Reason))
			if err != nil || p.Owner != "me" || *p.HeldMS != *was[i].HeldMS || p.FencingToken != was[i].FencingToken || p.EndedAt[:19] != was[i].EndedAt[:19] {
				t.Errorf("a survivor says %+v, before it was %+v (%v)", p, was[i], err)
			}
		}
	}
}
