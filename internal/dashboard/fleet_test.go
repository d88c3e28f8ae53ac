package dashboard

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/web/templates"
)

// fakeFleet answers after a while.
type fakeFleet struct {
	figures map[string]templates.GatewayFigures
	hangs   atomic.Bool // it takes an hour
	took    time.Duration
	owned   func(owner, host string) Owned
	asked   atomic.Int32
}

func (f *fakeFleet) Figures(ctx context.Context) map[string]templates.GatewayFigures {
	f.asked.Add(1)
	select {
	case <-time.After(f.takes()):
		return maps.Clone(f.figures)
	case <-ctx.Done():
		return nil
	}
}

func (f *fakeFleet) takes() time.Duration {
	if f.hangs.Load() {
		return time.Hour
	}
	return f.took
}

func (f *fakeFleet) Owned(ctx context.Context, owner, host string) Owned {
	f.asked.Add(1)
	select {
	case <-time.After(f.takes()):
		return f.owned(owner, host)
	case <-ctx.Done():
		return Owned{}
	}
}

// withFleet runs a test in virtual time with a dashboard that can ask other gateways.
func withFleet(t *testing.T, fleet *fakeFleet, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t, func(o *Options) { o.Fleet = fleet })) })
}

func wantParts(t *testing.T, html string, parts ...string) {
	t.Helper()
	_, html, _ = strings.Cut(html, "<main")
	html, _, _ = strings.Cut(html, "</main>")
	for _, part := range parts {
		assert.That(t, strings.Contains(html, part), "the page lacks %q:\n%s", part, html)
	}
}

func TestThePageOfGatewaysShowsHowEachOfThemDoes(t *testing.T) {
	f := &fakeFleet{took: 100 * time.Millisecond}
	withFleet(t, f, func(t *testing.T, r *rig) {
		f.figures = map[string]templates.GatewayFigures{
			"one":  {P50: 800 * time.Microsecond, P99: 3200 * time.Microsecond, Opened: time.Now().Add(-time.Hour)},
			"two":  {P50: 2 * time.Millisecond, P99: 70 * time.Millisecond, Opened: time.Now().Add(-time.Minute), Lag: 450 * time.Millisecond},
			"dead": {Silent: "it does not answer"},
		}
		r.fake.set(func() {
			r.fake.peers = []locks.Peer{{Gateway: "one", Self: true}, {Gateway: "two"}, {Gateway: "dead"}, {Gateway: "new"}}
		})
		synctest.Wait()
		wantParts(t, r.get(t, "/gateways").Body.String(), "commits 0.8 ms · p99 3.2 ms", "not behind", "commits 2 ms · p99 70 ms", "at most 450 ms behind", `title="it does not answer">no answer`)
		r.get(t, "/gateways")
		assert.Equal(t, f.asked.Load(), 1, "questions within a second")
		time.Sleep(figuresEvery)
		began := time.Now()
		wantParts(t, r.get(t, "/gateways").Body.String(), "commits 0.8 ms")
		assert.Equal(t, time.Since(began), 0, "there is an answer to show meanwhile")
		time.Sleep(f.took)
		assert.Equal(t, f.asked.Load(), 2, "questions")

		// A gateway that hangs delays no page for long, and what was said before stays for a while.
		f.hangs.Store(true)
		time.Sleep(figuresEvery)
		wantParts(t, r.get(t, "/gateways").Body.String(), "commits 0.8 ms")
		time.Sleep(fleetOld)
		began = time.Now()
		for range 20 {
			assert.That(t, !strings.Contains(r.get(t, "/gateways").Body.String(), "commits"), "figures of long ago are shown")
			time.Sleep(time.Second)
		}
		assert.That(t, time.Since(began) <= 20*time.Second+fleetPatience, "20 pages took %v", time.Since(began)-20*time.Second)
		assert.That(t, f.asked.Load() <= 9, "%d questions at a gateway that hangs", f.asked.Load())
	})
}

// A gateway that has gone does not vanish from the page at once, and the page says where its leases are.
func TestAGatewayThatHasLeftIsShownForAWhile(t *testing.T) {
	for name, c := range map[string]struct {
		left locks.LeftGateway
		all  bool // the viewer may read every lock
		want string
		not  string
	}{
		"succeeded":     {locks.LeftGateway{Leases: 3, Successor: "two"}, true, `its 3 leases went to <span class="space-name">two</span>`, "deposed"},
		"one lease":     {locks.LeftGateway{Leases: 1, Successor: "two", Deposed: true}, true, `deposed: it committed nothing</span> <span class="space-names">its 1 lease went to`, ""},
		"no successor":  {locks.LeftGateway{Leases: 2}, true, "its 2 leases will go to another gateway", "went to"},
		"nothing":       {locks.LeftGateway{Successor: "two"}, true, "it ran no leases", "two</span>"},
		"not for all":   {locks.LeftGateway{Leases: 3, Successor: "two"}, false, `its leases went to <span class="space-name">two</span>`, "3 leases"},
		"not, and none": {locks.LeftGateway{Leases: 3}, false, "left", `space-names">its`},
	} {
		t.Run(name, func(t *testing.T) {
			withRig(t, func(t *testing.T, r *rig) {
				c.left.Gateway, c.left.Ago = "lost", 20*time.Second
				r.fake.set(func() {
					r.fake.peers, r.fake.left = []locks.Peer{{Gateway: "one", Self: true}}, []locks.LeftGateway{c.left}
				})
				who := locks.Principal{Rules: access.Everything()}
				if !c.all {
					who.Rules = assert.Value(access.New())(t)
				}
				page := assert.Value(r.read(t.Context(), gatewaysPage{}, who, nil))(t)
				var html strings.Builder
				assert.NoError(t, templates.GatewaysFragment(page.(*gatewaysContent).Gateways).Render(t.Context(), &html))
				at := strings.Index(html.String(), `id="gw/lost"`)
				assert.Must(t, at >= 0, "%s", &html)
				row := html.String()[at:]
				row, _, _ = strings.Cut(row, "</tr>")
				assert.That(t, strings.Contains(row, c.want) && (c.not == "" || !strings.Contains(row, c.not)), "%q, and not %q, in\n%s", c.want, c.not, row)
			})
		})
	}
}

func TestThePageOfAnOwnerShowsWhatOtherGatewaysKnow(t *testing.T) {
	f := &fakeFleet{took: 50 * time.Millisecond}
	withFleet(t, f, func(t *testing.T, r *rig) {
		synctest.Wait()
		now := time.Now()
		f.owned = func(owner, host string) Owned {
			if owner != "alice@ci-1" && host != "ci-1" {
				return Owned{}
			}
			return Owned{Unreached: []string{"silent"}, Leases: map[string]OwnedLease{"lk@deploy": {Owner: "alice@ci-1", Metadata: "run 42", TTL: time.Minute,
				ExpiresAt: now.Add(40 * time.Second), HeardAt: now.Add(-20 * time.Second)}}}
		}
		var asked locks.FindRequest
		r.fake.found = func(q locks.FindRequest) locks.Found {
			asked = q
			c := owned("deploy", 0)
			c.At = time.Now()
			return locks.Found{Contenders: []locks.FoundContender{c}}
		}
		for _, path := range []string{"/owners/alice@ci-1", "/hosts/ci-1"} {
			wantParts(t, r.get(t, path).Body.String(), "holds 1 lock", "No answer from silent: their part is missing here.", `href="/locks/deploy"`)
			assert.That(t, len(asked.Owners) == 1 && asked.Owners["lk@deploy"] == "alice@ci-1", "%+v", asked)
		}
		page := assert.Value(r.read(t.Context(), ownerPage{owner: "alice@ci-1"}, locks.Principal{Rules: access.Everything()}, nil))(t).(*ownerContent)
		row := page.Holds[0]
		assert.That(t, row.Metadata == "run 42" && row.ExpiresAt.Equal(now.Add(40*time.Second)) && row.BeatAt.Equal(now.Add(-20*time.Second)), "%+v", row)
		assert.Equal(t, f.asked.Load(), 2, "questions: one for each page, whatever is read within some seconds")
		time.Sleep(ownedEvery)
		r.get(t, "/owners/alice@ci-1")
		synctest.Wait()
		assert.Equal(t, f.asked.Load(), 3, "questions some seconds later")
		f.hangs.Store(true)
		wantParts(t, r.get(t, "/owners/bob").Body.String(), "Other gateways have not answered yet")
		for range 3 * fleetKept {
			r.get(t, "/owners/bob"+time.Now().Format("150405.000"))
		}
		assert.That(t, r.fleet.underWay <= fleetWaiting, "%d questions are under way", r.fleet.underWay)
		assert.That(t, len(r.fleet.known.of) <= fleetKept, "%d answers are kept", len(r.fleet.known.of))
	})
}

// A question that is under way is not forgotten for others: its answer would be lost, and it be asked again.
func TestAQuestionThatIsUnderWayIsNotForgotten(t *testing.T) {
	f := newFleet(&fakeFleet{}, nil)
	first := ownedQuestion{owner: "first"}
	f.known.of[first] = &inquiry{underWay: make(chan struct{})} // without an answer it would be the oldest
	for n := range 2 * fleetKept {
		f.known.put(ownedQuestion{owner: fmt.Sprint(n)}, &inquiry{at: time.Now(), until: time.Now()})
	}
	assert.That(t, f.known.of[first] != nil && len(f.known.of) == fleetKept, "%d questions are known, the first %v", len(f.known.of), f.known.of[first] != nil)
}

// That other gateways run more leases of an owner than they list is no more for a viewer to know than the locks of these leases.
func TestThePageOfAnOwnerDoesNotTellOfLeasesThatItsViewerMayNotRead(t *testing.T) {
	const stopped = "more locks than one page looks at"
	f := &fakeFleet{owned: func(string, string) Owned { return Owned{More: true} }}
	withFleet(t, f, func(t *testing.T, r *rig) {
		page := func(list ...locks.FoundContender) string {
			r.fake.set(func() { r.fake.found = func(locks.FindRequest) locks.Found { return locks.Found{Contenders: list} } })
			time.Sleep(10 * time.Second) // the page before is not shown again
			return r.get(t, "/owners/alice@ci-1").Body.String()
		}
		assert.That(t, !strings.Contains(page(), stopped), "the page tells of leases of which it shows none")
		assert.That(t, strings.Contains(page(owned("deploy", 0)), stopped), "the page does not tell that there are others")
	})
}
