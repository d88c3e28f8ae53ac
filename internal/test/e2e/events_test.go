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

// follow opens the event stream and hands on what comes.
func follow(t testing.TB, g *gateway, open func() (*apitest.Stream, *apitest.Answer, error)) <-chan apitest.StreamEvent {
	t.Helper()
	stream, a, err := open()
	assert.Must(t, err == nil && stream != nil, "opening the stream: %v %v", err, a)
	events := make(chan apitest.StreamEvent, 1024)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			e, err := stream.Next()
			if err != nil {
				return
			}
			events <- e
		}
	}()
	t.Cleanup(func() { stream.Close(); <-ended })
	return events
}

// nextOf waits for the next event of that type; others may come before it.
func nextOf(t testing.TB, events <-chan apitest.StreamEvent, kind string) apitest.StreamEvent {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case e := <-events:
			if string(e.Type) == kind {
				return e
			}
		case <-timer.C:
			t.Fatalf("no %s", kind)
		}
	}
}

func TestTheStreamTellsTheLifeOfLeasesWithTheirReasons(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	events := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Events(t.Context(), apitest.Query("lock=deploy"))
	})
	sockets := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Socket(t.Context(), apitest.Query("owner=second"))
	})

	first := g.hold("deploy", "ttl=1m&owner=first")
	second := g.acquiring(t.Context(), "deploy", "ttl=1s&wait=1m&owner=second")
	g.awaitLock(patience, "deploy", 1, 1)
	third := g.queue("deploy", "ttl=1m&owner=third")
	g.hold("other", "ttl=1m&owner=second")
	g.letGo(third.Token)
	g.letGo(first.Token)
	held := second.granted(patience) // and no client keeps it alive

	type step struct{ kind, lease, reason string }
	for _, want := range []step{
		{"lease.queued", first.LeaseID, ""}, {"lease.granted", first.LeaseID, ""},
		{"lease.queued", held.LeaseID, ""}, {"lease.queued", third.LeaseID, ""},
		{"lease.cancelled", third.LeaseID, "cancelled"},
		{"lease.released", first.LeaseID, "released"}, {"lease.granted", held.LeaseID, ""},
		{"lease.expired", held.LeaseID, "expired"},
	} {
		e := nextOf(t, events, want.kind)
		assert.That(t, e.LeaseID == want.lease && string(e.Reason) == want.reason && e.Lock == "deploy" && e.NS == "default",
			"want %v, got %s", want, e.JSON)
		if want.kind == "lease.granted" && e.FencingToken == 0 || want.kind == "lease.expired" && e.FencingToken != held.FencingToken {
			t.Errorf("fencing token in %s", e.JSON)
		}
	}
	for _, want := range []step{{"lease.queued", "deploy", ""}, {"lease.queued", "other", ""}, {"lease.granted", "other", ""},
		{"lease.granted", "deploy", ""}, {"lease.expired", "deploy", "expired"}} {
		e := nextOf(t, sockets, want.kind)
		assert.That(t, e.Lock == want.lease && e.Owner == "second", "over the socket: want %v, got %s", want, e.JSON)
	}
}

func TestAForeignCreateAndDeleteIsInBothStreams(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	leases := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) { return g.Events(t.Context()) })
	nodes := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Events(t.Context(), apitest.Query("type=node.*&format=jsonl"))
	})
	dir := chroot + "/lockkeeper/locks/deploy"
	if out, err := zkreal.CLI(addr, "create "+dir, "create -s "+dir+"/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock- theirs",
		"delete "+dir+"/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-0000000000"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path := "/lockkeeper/locks/deploy/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-0000000000"
	for _, kind := range []string{"lease.queued", "lease.granted", "lease.removed"} {
		e := nextOf(t, leases, kind)
		assert.That(t, e.Foreign != nil && e.Foreign.Program == "curator" && e.Znode == path && e.LeaseID == "" && e.Lock == "deploy",
			"%s: %s", kind, e.JSON)
	}
	assert.Equal(t, nextOf(t, nodes, "node.created").Path, "/lockkeeper/locks/deploy", "the directory")
	for _, kind := range []string{"node.created", "node.deleted"} {
		e := nextOf(t, nodes, kind)
		assert.That(t, e.Path == path && e.Lock == "deploy", "%s: %s", kind, e.JSON)
	}
}

// A client that was cut off goes on where it was, as long as the gateway lives; a gateway that was started again tells it
// to look anew.
func TestAStreamIsResumedOrTellsToLookAnew(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	stream, a, err := g.Events(t.Context(), apitest.Query("lock=deploy"))
	assert.Must(t, err == nil && stream != nil, "%v %v", err, a)
	lease := g.hold("deploy", "ttl=1m")
	e, err := stream.Next()
	assert.Must(t, err == nil && e.Type == "lease.queued", "%v %s", err, e.JSON)
	position := stream.Position
	stream.Close()
	g.letGo(lease.Token)

	resumed := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Events(t.Context(), apitest.Query("lock=deploy"), apitest.Header("Last-Event-ID", position))
	})
	for _, kind := range []string{"lease.granted", "lease.released"} {
		e := <-resumed
		assert.That(t, string(e.Type) == kind && e.LeaseID == lease.LeaseID, "want %s, got %s", kind, e.JSON)
	}
	g.kill()
	g.start()
	g.awaitServing()
	anew := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Socket(t.Context(), apitest.Query("since="+position))
	})
	e = <-anew
	assert.That(t, e.Type == "resync" && e.Reason != "", "after a restart: %s", e.JSON)
}

func TestStreamsEndWhenTheGatewayIsStopped(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	stream, a, err := g.Events(t.Context())
	assert.Must(t, err == nil && stream != nil, "%v %v", err, a)
	socket, a, err := g.Socket(t.Context())
	assert.Must(t, err == nil && socket != nil, "%v %v", err, a)
	ended := make(chan error, 2)
	for _, s := range []*apitest.Stream{stream, socket} {
		go func() {
			for {
				if _, err := s.Next(); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	g.terminate() // fails when it takes too long
	for range 2 {
		err := <-ended
		assert.That(t, strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "1001"), "a stream ended with %v", err)
	}
}

func TestAForgedOriginIsRefusedByEverySocketAndStream(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	for _, path := range []string{"/v1/events", "/v1/events/ws", "/ui/live?page=overview", "/ui/fragments?page=overview", "/", "/locks/deploy"} {
		a, err := g.Send(t.Context(), http.MethodGet, path, apitest.Header("Origin", "http://evil.example"), apitest.Header("Connection", "Upgrade"),
			apitest.Header("Upgrade", "websocket"), apitest.Header("Sec-WebSocket-Version", "13"), apitest.Header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="))
		expect(t, a, err, http.StatusForbidden, "cross_origin")
	}
}

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
