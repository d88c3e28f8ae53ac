package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

func (g *gateway) history(query string) api.HistoryList {
	g.t.Helper()
	return post[api.HistoryList](g, "GET", "/v1/history?"+query, http.StatusOK, "")
}

// awaitHistory waits until the history of a lock is as it must be.
func (g *gateway) awaitHistory(query string, is func([]api.HistoryItem) bool) (list api.HistoryList) {
	g.t.Helper()
	eventually(g.t, patience, func() error {
		if err := g.status(http.MethodGet, "/v1/history", http.StatusOK); err != nil {
			return err
		}
		if list = g.history(query); !is(list.Items) {
			return fmt.Errorf("%s: %+v, gaps %+v", query, list.Items, list.Gaps)
		}
		return nil
	}, "the history is as it must be")
	return list
}

func TestAKilledGatewayForgetsNothingOfItsHistory(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	first := g.hold("deploy", "ttl=10m&owner=anna@build-1&reason=release")
	g.letGo(first.Token)
	held := g.hold("deploy", "ttl=10m&owner=ben")
	before := g.awaitHistory("lock=deploy", func(l []api.HistoryItem) bool { return len(l) == 2 && l[0].Owner == "ben" })
	g.kill()
	g.restart()
	after := g.awaitHistory("lock=deploy", func(l []api.HistoryItem) bool { return len(l) == 2 })
	for i := range after.Items {
		was, is := before.Items[i], after.Items[i]
		assert.That(t, is.LeaseID == was.LeaseID && is.BeganAt == was.BeganAt && is.BeganAfter == "" && is.EndedAt == was.EndedAt && is.Owner == was.Owner && is.Reason == was.Reason,
			"before: %+v\nafter: %+v", was, is)
	}
	assert.Equal(t, after.Since, before.Since, "it reaches back as far as before")
	assert.That(t, len(after.Gaps) == 1 && after.Gaps[0].Cause == api.GapStopped, "the time in which it did not run is said at once: %+v", after.Gaps)
	g.letGo(held.Token)
	over := g.awaitHistory("lock=deploy&limit=1", func(l []api.HistoryItem) bool { return len(l) == 1 && l[0].EndedAt != "" })
	assert.That(t, over.Items[0].LeaseID == held.LeaseID && over.Items[0].Reason == "released" && over.Items[0].BeganAt == before.Items[0].BeganAt, "one hold over two lives of the gateway: %+v", over.Items[0])
}

// One gateway of two is away, and asks the other for what it missed. In memory it has nothing left at all.
func TestAGatewayAsksAnotherForWhatItMissed(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"on disk": {"--history=" + t.TempDir()}, "in memory": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, chroot := zkreal.SharedT(t)
			stays := startGateway(t, addr+chroot)
			goes := startGateway(t, addr+chroot, flags...)
			early := stays.hold("early", "ttl=10m&owner=early")
			two := goes.awaitHistory("lock=early", func(l []api.HistoryItem) bool { return len(l) == 1 && l[0].Owner == "early" })
			assert.That(t, two.Items[0].Gateway != "", "it is the other's: %+v", two.Items[0])
			goes.terminate()
			missed := stays.hold("missed", "ttl=10m&owner=missed@build-2&reason=why")
			stays.letGo(missed.Token)
			stays.letGo(early.Token)
			stays.hold("open", "ttl=10m&owner=open")
			stays.awaitHistory("", func(l []api.HistoryItem) bool { return len(l) == 3 })
			goes.restart()
			want := stays.history("")
			got := goes.awaitHistory("", func(l []api.HistoryItem) bool {
				return len(l) == 3 && l[0].Owner == "open" && l[0].BeganAfter == "" && l[2].EndedAt != "" && l[2].Reason == "released"
			})
			for i := range got.Items {
				a, b := want.Items[i], got.Items[i]
				assert.That(t, a.LeaseID == b.LeaseID && a.Owner == b.Owner && a.Reason == b.Reason && a.AcquireReason == b.AcquireReason && near(t, a.BeganAt, b.BeganAt) && near(t, a.EndedAt, b.EndedAt),
					"one has %+v\nthe other %+v", a, b)
			}
			eventually(t, patience, func() error {
				if gaps := goes.history("").Gaps; len(gaps) != 0 {
					return fmt.Errorf("gaps: %+v", gaps)
				}
				return nil
			}, "the gap is filled")
		})
	}
}

// near reports whether two gateways have observed the same moment.
func near(t *testing.T, a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	one, other := assert.Value(time.Parse(time.RFC3339Nano, a))(t), assert.Value(time.Parse(time.RFC3339Nano, b))(t)
	return one.Sub(other).Abs() < 5*time.Second
}
