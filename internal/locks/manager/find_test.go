package manager

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

func (g *gate) find(req locks.FindRequest) locks.Found {
	g.t.Helper()
	req.Principal = named(req.Principal)
	return assert.Value(g.m.Find(g.t.Context(), req))(g.t, "find")
}

// foundIn is what was found, in words.
func foundIn(f locks.Found) string {
	var parts []string
	for _, l := range f.Locks {
		parts = append(parts, fmt.Sprintf("lock %s %d+%d", l.Name, l.Holders, l.Waiting))
	}
	for _, o := range f.Owners {
		parts = append(parts, fmt.Sprintf("owner %s %d+%d", o.Name, o.Holds, o.Waiting))
	}
	for _, o := range f.Hosts {
		parts = append(parts, fmt.Sprintf("host %s %d+%d", o.Name, o.Holds, o.Waiting))
	}
	for i := range f.Contenders {
		parts = append(parts, fmt.Sprintf("%s in %s at %d", f.Contenders[i].Owner, f.Contenders[i].Lock, f.Contenders[i].Position))
	}
	if f.More {
		parts = append(parts, "more")
	}
	return strings.Join(parts, ", ")
}

func TestASearchFindsLocksOwnersHostsAndContenders(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		held := g.mustHold(ticket("alice@ci-1", "deploy:web"))
		waits := g.mustAcquire(ticket("bob@ci-1", "deploy:web"))
		g.mustHold(ticket("bob@ci-1", "redeploy"))
		g.mustHold(ticket("cron", "nightly"))
		g.mustAcquire(ticket("alice@ci-1", "nightly"))
		for _, c := range []struct {
			req  locks.FindRequest
			want string
		}{
			{locks.FindRequest{Text: "deploy"}, "lock deploy:web 1+1, lock redeploy 1+0"},
			{locks.FindRequest{Text: "bob"}, "owner bob@ci-1 1+1"},
			{locks.FindRequest{Text: "ci-1"}, "owner alice@ci-1 1+1, owner bob@ci-1 1+1, host ci-1 2+2"},
			{locks.FindRequest{Text: "nothing"}, ""},
			{locks.FindRequest{Text: held.ID}, "alice@ci-1 in deploy:web at 0"},
			{locks.FindRequest{Text: waits.ID[len(waits.ID)-8:]}, "bob@ci-1 in deploy:web at 1"},
			{locks.FindRequest{Text: "…" + strings.ToUpper(waits.ID[len(waits.ID)-8:])}, "bob@ci-1 in deploy:web at 1"},
			{locks.FindRequest{Text: fmt.Sprint(held.FencingToken)}, "alice@ci-1 in deploy:web at 0"},
			{locks.FindRequest{Text: fmt.Sprint("#", held.FencingToken)}, "alice@ci-1 in deploy:web at 0"},
			{locks.FindRequest{Text: waits.Znode}, "bob@ci-1 in deploy:web at 1"},
			{locks.FindRequest{Text: "/lockkeeper/locks/deploy:web"}, "lock deploy:web 1+1"},
			{locks.FindRequest{Text: "e", Limit: 1}, "lock deploy:web 1+1, owner alice@ci-1 1+1, more"},
			{locks.FindRequest{Owner: "alice@ci-1"}, "alice@ci-1 in deploy:web at 0, alice@ci-1 in nightly at 1"},
			{locks.FindRequest{Owner: "alice"}, ""},
			{locks.FindRequest{Host: "ci-1"}, "alice@ci-1 in deploy:web at 0, bob@ci-1 in redeploy at 0, bob@ci-1 in deploy:web at 1, alice@ci-1 in nightly at 1"},
			{locks.FindRequest{Host: "ci-1", Limit: 3}, "alice@ci-1 in deploy:web at 0, bob@ci-1 in deploy:web at 1, alice@ci-1 in nightly at 1, more"},
		} {
			assert.Equal(t, foundIn(g.find(c.req)), c.want, "%+v", c.req)
		}
		for _, wrong := range []locks.FindRequest{{Text: "\x00"}, {Text: strings.Repeat("x", locks.MaxFindText+1)}, {Limit: -1}, {Owner: "\xff"}} {
			wrong.Principal = locks.Anonymous
			_, err := g.m.Find(t.Context(), wrong)
			wantCode(t, err, locks.CodeInvalid)
		}
	})
}

func TestASearchFindsNothingOfLocksThatTheRulesHide(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		ours := g.mustHold(ticket("ann@h", "shop:1"))
		secret := g.mustHold(ticket("secret@vault", "bank:1"))
		waits := g.mustAcquire(ticket("ann@h", "bank:1"))
		p := locks.Principal{Name: "reader", Rules: assert.Value(access.New(access.Grant{NS: "default", Locks: "shop:*", Verbs: []access.Verb{access.Read}}))(t)}
		for _, text := range []string{"bank", "secret", "vault", secret.ID, waits.ID, fmt.Sprint(secret.FencingToken), secret.Znode, "/lockkeeper/locks/bank:1"} {
			assert.Equal(t, foundIn(g.find(locks.FindRequest{Principal: p, Text: text})), "", "%s", text)
		}
		assert.Equal(t, foundIn(g.find(locks.FindRequest{Principal: p, Owner: "ann@h"})), "ann@h in shop:1 at 0")
		assert.Equal(t, foundIn(g.find(locks.FindRequest{Principal: p, Text: "ann"})), "owner ann@h 1+0")
		assert.Equal(t, foundIn(g.find(locks.FindRequest{Principal: p, Text: ours.ID})), "ann@h in shop:1 at 0")
		assert.Equal(t, foundIn(g.find(locks.FindRequest{Principal: p, Host: "vault"})), "")
	})
}

func TestTheOwnersOfOtherGatewaysAreFoundOnceTheyAreKnown(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		two.mustHold(ticket("bob", "web"))
		two.mustAcquire(ticket("eve", "web"))
		time.Sleep(5 * time.Second) // the look for deadlocks has them read
		assert.Equal(t, foundIn(one.find(locks.FindRequest{Owner: "bob"})), "bob in web at 0")
		assert.Equal(t, foundIn(one.find(locks.FindRequest{Text: "eve"})), "owner eve 0+1")
	})
}

func TestASearchStopsAtItsBoundAndSaysSo(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for i := range 10 {
			g.mustHold(ticket("ann", fmt.Sprint("lock-", i)))
		}
		g.m.do(func() {
			search := newFindSearch(g.m.Manager, &locks.FindRequest{Principal: locks.Anonymous, Text: "lock", Limit: 20})
			search.left = 10
			next, done := search.scan(g.m.replica.Namespaces["default"], "")
			f := search.answer()
			assert.That(t, !done && next == "lock-5" && f.Stopped && len(f.Locks) == 5, "%q %v: %+v", next, done, f)
		})
		assert.That(t, !g.find(locks.FindRequest{Text: "lock"}).Stopped, "a search that has looked at everything says that it has not")
	})
}
