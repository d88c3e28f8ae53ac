package manager

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

// The principals of the table, in the order of its columns. Each may do what its name says with shop:web.
var principals = []string{"nothing", "read elsewhere", "read", "acquire", "operate", "admin"}

func principal(t testing.TB, name string) locks.Principal {
	t.Helper()
	grant := access.Grant{NS: "default", Locks: "shop:*"}
	switch name {
	case "nothing":
		return locks.Principal{Name: name}
	case "read elsewhere":
		grant.Locks, grant.Verbs = "other:*", []access.Verb{access.Read}
	case "admin":
		grant.NS, grant.Locks, grant.Verbs = "*", "*", []access.Verb{access.Admin}
	default:
		grant.Verbs = []access.Verb{assert.Value(access.ParseVerb(name))(t)}
	}
	return locks.Principal{Name: name, Rules: assert.Value(access.New(grant))(t)}
}

// shop is the scene of the table: a lease holds shop:web together with a lock of another team, and another one waits.
type shop struct {
	m           *Manager
	held, waits locks.Lease
	ended       locks.Lease
}

func openShop(g *gate) shop {
	s := shop{m: g.m.Manager}
	s.ended = g.mustHold(locks.AcquireRequest{Lock: "shop:web", TTL: time.Minute, Owner: "canary"})
	g.mustRelease(s.ended)
	s.held = g.mustHold(locks.AcquireRequest{TTL: time.Minute, Owner: "canary", Metadata: "canary", Group: []locks.Want{{Lock: "shop:web"}, {Lock: "secret"}}})
	s.waits = g.mustAcquire(locks.AcquireRequest{Lock: "shop:web", TTL: time.Minute, Async: true, Owner: "canary"})
	return s
}

// operation is a row of the table: what each principal is answered, "" for success.
type operation struct {
	method  string // of the manager
	answers [6]locks.Code
	ask     func(ctx context.Context, s *shop, p locks.Principal) (answer any, err error)
}

const (
	done      = locks.Code("")
	forbidden = locks.CodeForbidden
	absent    = locks.CodeNotFound
)

var (
	reads    = [6]locks.Code{forbidden, forbidden, done, done, done, forbidden}
	operates = [6]locks.Code{forbidden, forbidden, forbidden, forbidden, done, forbidden}
	anybody  = [6]locks.Code{}
)

func orError[T any](v T, err error) (any, error) { return v, err }

var operations = []operation{
	{"Acquire", [6]locks.Code{forbidden, forbidden, forbidden, locks.CodeHeldByOther, forbidden, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Acquire(ctx, locks.AcquireRequest{Principal: p, Lock: "shop:web"}))
	}},
	{"Acquire", [6]locks.Code{forbidden, forbidden, forbidden, forbidden, forbidden, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Acquire(ctx, locks.AcquireRequest{Principal: p, Group: []locks.Want{{Lock: "shop:db"}, {Lock: "taken"}}}))
	}},
	{"Acquire", [6]locks.Code{forbidden, forbidden, forbidden, done, forbidden, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Acquire(ctx, locks.AcquireRequest{Principal: p, Lock: "shop:web", DryRun: true}))
	}},
	{"Lease", [6]locks.Code{absent, absent, done, done, done, absent}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Lease(ctx, locks.LeaseRequest{Principal: p, ID: s.held.ID}))
	}},
	{"Lease", [6]locks.Code{absent, absent, done, done, done, absent}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Lease(ctx, locks.LeaseRequest{Principal: p, ID: s.ended.ID}))
	}},
	{"Lease", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		_, err := s.m.Lease(ctx, locks.LeaseRequest{Principal: p, Token: s.waits.Token})
		return nil, err // its own client may see all of it
	}},
	{"Leases", [6]locks.Code{forbidden, done, done, done, done, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Leases(ctx, locks.LeaseFilter{Principal: p, NS: "default"}))
	}},
	{"Leases", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Leases(ctx, locks.LeaseFilter{Principal: p}))
	}},
	{"Graph", reads, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Graph(ctx, locks.GraphRequest{Principal: p, Lock: "shop:web"}))
	}},
	{"Graph", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Graph(ctx, locks.GraphRequest{Principal: p}))
	}},
	{"Waits", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		w, err := s.m.Waits(ctx, p)
		if err != nil {
			return nil, err
		}
		return w.Answer(&locks.GraphRequest{Principal: p, Limit: locks.DefaultPage}), nil
	}},
	{"Find", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		found, err := s.m.Find(ctx, locks.FindRequest{Principal: p, Text: "e"}) // a part of the hidden lock's name, too
		shows := len(found.Locks) > 0
		if reads := p.Rules.May(access.Read, "default", "shop:web"); err == nil && shows != reads {
			return nil, fmt.Errorf("it finds locks: %v, and the principal may read them: %v", shows, reads)
		}
		return found, err
	}},
	{"Heartbeat", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Heartbeat(ctx, p, s.held.ID, s.held.Token, 0))
	}},
	{"Heartbeat", [6]locks.Code{forbidden, forbidden, forbidden, done, forbidden, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Heartbeat(ctx, p, s.waits.ID, s.waits.Token, time.Hour))
	}},
	{"AwaitChange", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.AwaitChange(ctx, p, s.held.ID, s.held.Token, time.Second))
	}},
	{"Heartbeats", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		if e := s.m.Heartbeats(ctx, p, []string{s.held.Token})[0].Err; e != nil {
			return nil, e
		}
		return nil, nil
	}},
	{"HeartbeatFor", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.HeartbeatFor(ctx, p, s.held.Token))
	}},
	{"Release", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return nil, s.m.Release(ctx, p, s.held.ID, s.held.Token)
	}},
	{"ReleaseFor", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return nil, s.m.ReleaseFor(ctx, p, s.held.Token)
	}},
	{"ReleaseHold", [6]locks.Code{locks.CodeInvalid, locks.CodeInvalid, locks.CodeInvalid, locks.CodeInvalid, locks.CodeInvalid, locks.CodeInvalid},
		func(ctx context.Context, s *shop, p locks.Principal) (any, error) { // it has none of that name
			return nil, s.m.ReleaseHold(ctx, p, s.held.ID, s.held.Token, "none")
		}},
	{"Update", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Update(ctx, locks.UpdateRequest{Principal: p, ID: s.waits.ID, Token: s.waits.Token, Owner: new("me")}))
	}},
	{"Update", [6]locks.Code{forbidden, forbidden, forbidden, done, forbidden, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Update(ctx, locks.UpdateRequest{Principal: p, ID: s.waits.ID, Token: s.waits.Token, TTL: time.Hour}))
	}},
	{"Downgrade", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		_, err := s.m.Downgrade(ctx, p, s.held.ID, s.held.Token)
		return nil, err
	}},
	{"Postmortem", [6]locks.Code{absent, absent, done, done, done, absent}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Postmortem(ctx, p, s.ended.ID))
	}},
	{"Postmortem", [6]locks.Code{absent, absent, absent, absent, absent, absent}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Postmortem(ctx, p, s.held.ID)) // it lives
	}},
	{"Lock", reads, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Lock(ctx, locks.LockRequest{Principal: p, Lock: "shop:web"}))
	}},
	{"Locks", [6]locks.Code{forbidden, done, done, done, done, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Locks(ctx, locks.LockFilter{Principal: p}))
	}},
	{"Locks", [6]locks.Code{forbidden, done, done, done, done, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Locks(ctx, locks.LockFilter{Principal: p, Sort: locks.SortWaiters}))
	}},
	{"Fence", reads, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Fence(ctx, locks.FenceRequest{Principal: p, Lock: "shop:web", Token: s.held.FencingToken}))
	}},
	{"Configure", operates, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Configure(ctx, locks.SettingsRequest{Principal: p, Lock: "shop:web", Limit: 3}))
	}},
	{"Periods", operates, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Periods(ctx, locks.PeriodsRequest{Principal: p, Lock: "shop:web"}))
	}},
	{"ForgetPeriod", [6]locks.Code{forbidden, forbidden, forbidden, forbidden, locks.CodeNoPeriod, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return nil, s.m.ForgetPeriod(ctx, locks.PeriodsRequest{Principal: p, Lock: "shop:web", Period: "2026-11-22"})
	}},
	{"Remove", [6]locks.Code{forbidden, forbidden, forbidden, forbidden, locks.CodeLockInUse, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return nil, s.m.Remove(ctx, p, "", "shop:web")
	}},
	{"Revoke", [6]locks.Code{forbidden, forbidden, forbidden, done, forbidden, forbidden}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Revoke(ctx, locks.RevokeRequest{Principal: p, Lock: "shop:web"}))
	}},
	{"Revoke", operates, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Revoke(ctx, locks.RevokeRequest{Principal: p, Lock: "shop:web", ForceAfter: time.Second}))
	}},
	{"Withdraw", operates, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Withdraw(ctx, locks.WithdrawRequest{Principal: p, Lock: "shop:web"}))
	}},
	{"Break", [6]locks.Code{absent, absent, forbidden, forbidden, done, absent}, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return nil, s.m.Break(ctx, locks.BreakRequest{Principal: p, ID: s.held.ID})
	}},
	{"Break", operates, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return nil, s.m.Break(ctx, locks.BreakRequest{Principal: p, Lock: "shop:web", Name: s.waits.Znode[strings.LastIndexByte(s.waits.Znode, '/')+1:]})
	}},
	{"Reap", operates, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Reap(ctx, locks.ReapRequest{Principal: p, Lock: "shop:web"}))
	}},
	{"Reap", operates, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Reap(ctx, locks.ReapRequest{Principal: p, Lock: "shop:web", DryRun: true}))
	}},
	{"Destroy", operates, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Destroy(ctx, locks.DestroyRequest{Principal: p, Lock: "shop:web"}))
	}},
	{"Namespaces", anybody, func(ctx context.Context, s *shop, p locks.Principal) (any, error) {
		return orError(s.m.Namespaces(ctx, p))
	}},
}

// Each principal gets its answer to each operation. One that is refused has changed nothing, and no answer names a lock that
// the principal may not read, or shows anything of its leases.
func TestEachOperationIsForWhoHasItsVerb(t *testing.T) {
	for i, op := range operations {
		for k, name := range principals {
			t.Run(fmt.Sprintf("%02d %s as %s", i, op.method, name), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
				p := principal(t, name)
				scene := openShop(g)
				before := s.everything()
				answer, err := op.ask(t.Context(), &scene, p)
				code := locks.Code("")
				if e, ok := errors.AsType[*locks.Error](err); ok {
					code = e.Code
					assert.That(t, code != forbidden || e.Denied != nil && strings.Contains(e.Detail, name) && e.RetryAfter == 0, "%+v", e)
				} else {
					assert.NoError(t, err)
				}
				assert.MustEqual(t, code, op.answers[k])
				pass(0)
				if code == forbidden || code == absent {
					assert.Equal(t, s.everything(), before)
				}
				carries := fmt.Sprintf("%+v %+v", answer, err)
				assert.That(t, !strings.Contains(carries, "secret"), "a lock that may not be read is named: %s", carries)
				if !p.Rules.May(access.Read, "default", "shop:web") && op.answers != anybody {
					assert.That(t, !strings.Contains(carries, "canary"), "%s", carries)
				}
			}))
		}
	}
}

// everything is all that the store has, as text.
func (s *fakeStore) everything() string {
	var b strings.Builder
	for _, p := range s.paths() {
		if n := s.node(p); !strings.HasPrefix(p, "/lockkeeper/guards/") {
			fmt.Fprintf(&b, "%s %s\n", p, n.data)
		}
	}
	return b.String()
}

// Operations of the manager that take a principal, or a request with one, have a row.
func TestEachOperationWithAPrincipalHasARow(t *testing.T) {
	rows := map[string]bool{}
	for _, op := range operations {
		rows[op.method] = true
	}
	who := reflect.TypeFor[locks.Principal]()
	for m := range reflect.TypeFor[*Manager]().Methods() {
		asks := false
		for i := 1; i < m.Type.NumIn(); i++ {
			in := m.Type.In(i)
			field, has := reflect.StructField{}, false
			if in.Kind() == reflect.Struct {
				field, has = in.FieldByName("Principal")
			}
			asks = asks || in == who || has && field.Type == who
		}
		assert.Equal(t, rows[m.Name], asks, "%s has a row, and takes a principal", m.Name)
	}
}

// What may be read of a lease of several locks, of lists and of counts.
func TestWhatOneMayNotReadDoesNotExist(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		scene := openShop(g)
		for range 3 {
			g.mustAcquire(locks.AcquireRequest{Lock: "secret", TTL: time.Minute, Async: true, Owner: "canary"})
		}
		m, reader, stranger := g.m.Manager, principal(t, "read"), principal(t, "read elsewhere")
		l := assert.Value(m.Lease(t.Context(), locks.LeaseRequest{Principal: reader, ID: scene.held.ID}))(t)
		assert.That(t, len(l.Locks) == 1 && l.Locks[0].Lock == "shop:web" && l.QueueLength == 1, "%+v", l)
		page := assert.Value(m.Leases(t.Context(), locks.LeaseFilter{Principal: reader, Limit: 2}))(t)
		assert.That(t, len(page.Items) == 2 && page.NextCursor == "", "the others are counted: %+v", page)
		listed := assert.Value(m.Locks(t.Context(), locks.LockFilter{Principal: reader, Limit: 1}))(t)
		assert.That(t, len(listed.Items) == 1 && listed.NextCursor == "" && listed.Items[0].Holders[0].Group != nil && len(listed.Items[0].Holders[0].Group) == 0, "%+v", listed)
		for p, want := range map[*locks.Principal]int{&reader: 1, &stranger: 0, &locks.Anonymous: 2} {
			spaces := assert.Value(m.Namespaces(t.Context(), *p))(t)
			assert.That(t, len(spaces) == 1 && spaces[0].Locks == want, "%s: %+v", p.Name, spaces)
		}
		none := assert.Value(m.Namespaces(t.Context(), locks.Principal{}))(t)
		assert.Equal(t, len(none), 0)
		info := m.Info(t.Context()).For(stranger)
		assert.That(t, info.Locks == 0 && info.Contenders == 0 && info.Leases == nil, "%+v", info)

		// A lease that may not be read is answered as one that is not there.
		_, hidden := m.Lease(t.Context(), locks.LeaseRequest{Principal: stranger, ID: scene.held.ID})
		_, missing := m.Lease(t.Context(), locks.LeaseRequest{Principal: stranger, ID: unknown(scene.held.ID)})
		assert.Equal(t, fmt.Sprint(hidden), fmt.Sprint(missing))
		_, hidden = m.Postmortem(t.Context(), stranger, scene.ended.ID)
		_, missing = m.Postmortem(t.Context(), stranger, unknown(scene.ended.ID))
		assert.Equal(t, fmt.Sprint(hidden), fmt.Sprint(missing))
	})
}

// unknown is an id of the same gateway that no lease has.
func unknown(id string) string {
	last := "b"
	if strings.HasSuffix(id, last) {
		last = "c"
	}
	return id[:len(id)-1] + last
}

func TestATTLIsBoundedByTheRules(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		m := g.m.Manager
		rules := assert.Value(access.New(access.Grant{NS: "default", Locks: "shop:*", Verbs: []access.Verb{access.Acquire}, MaxTTL: 20 * time.Second}))(t)
		p := locks.Principal{Name: "ci", Rules: rules}
		_, err := m.Acquire(t.Context(), locks.AcquireRequest{Principal: p, Lock: "shop:web", TTL: time.Minute})
		e := wantCode(t, err, forbidden)
		assert.That(t, e.Field == "ttl" && strings.Contains(e.Detail, "at most 20s"), "%+v", e)
		for field, req := range map[string]locks.AcquireRequest{"at_least": {AtLeast: 21 * time.Second}, "lock_delay": {LockDelay: 2 * time.Hour}, "for": {For: time.Minute, Owner: "me"}} {
			req.Principal, req.Lock = p, "shop:web"
			_, err := m.Acquire(t.Context(), req)
			e := wantCode(t, err, forbidden)
			assert.That(t, e.Field == field && strings.Contains(e.Detail, field+" must be at most 20s"), "%+v", e)
		}
		res := assert.Value(m.Acquire(t.Context(), locks.AcquireRequest{Principal: p, Lock: "shop:web"}))(t)
		l := res.Lease
		assert.Equal(t, l.TTL, 20*time.Second)
		for who, want := range map[*locks.Principal]locks.Code{&p: forbidden, {}: forbidden} {
			_, err = m.Heartbeat(t.Context(), *who, l.ID, l.Token, time.Hour)
			wantCode(t, err, want)
			_, err = m.Update(t.Context(), locks.UpdateRequest{Principal: *who, ID: l.ID, Token: l.Token, TTL: time.Hour})
			wantCode(t, err, want)
		}
		beat := assert.Value(m.Heartbeat(t.Context(), locks.Principal{}, l.ID, l.Token, 10*time.Second))(t)
		assert.Equal(t, beat.TTL, 10*time.Second)
		assert.Value(m.Acquire(t.Context(), locks.AcquireRequest{Lock: "shop:web", Hold: "inner", Token: l.Token}))(t)
	})
}

// A client that may read one lock of a lease learns of no change at its others.
func TestALookAtALeaseWaitsForWhatItsClientMayRead(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		scene := openShop(g)
		m := g.m.Manager
		lookers := []locks.LeaseRequest{{Principal: principal(t, "read")}, {Principal: locks.Anonymous}, {Token: scene.held.Token}}
		for _, c := range []struct {
			owner  string // after the change, which is visible in all locks of the lease
			waited [3]time.Duration
		}{{"canary", [3]time.Duration{10 * time.Second, time.Second, time.Second}}, {"yranac", [3]time.Duration{time.Second, time.Second, time.Second}}} {
			var waited [3]time.Duration
			var looking sync.WaitGroup
			for i, req := range lookers {
				req.ID = scene.held.ID
				req.Since = assert.Value(m.Lease(t.Context(), req))(t).Rev
				req.Wait = 10 * time.Second
				looking.Go(func() {
					began := time.Now()
					assert.Value(m.Lease(t.Context(), req))(t)
					waited[i] = time.Since(began)
				})
			}
			time.Sleep(time.Second)
			locked(m, func() bool {
				l := m.leases.lease(recipe.LeaseID(scene.held.ID))
				l.owner = c.owner
				m.leases.touch(l)
				return true
			})
			looking.Wait()
			assert.Equal(t, waited, c.waited, "a reader of one lock, of all locks, its client")
		}
	})
}

func TestANotifyURLNamesAHostThatTheRulesAllow(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		grant := func(locks string, hosts ...string) access.Grant {
			return access.Grant{NS: "default", Locks: locks, Verbs: []access.Verb{access.Acquire}, NotifyHosts: hosts}
		}
		none := grant("none:*")
		none.NotifyHosts = []string{}
		rules := assert.Value(access.New(grant("few:*", "*.example.com"), grant("all:*"), none))(t)
		p := locks.Principal{Name: "ci", Rules: rules}
		try := func(url string, names ...string) error {
			req := locks.AcquireRequest{Principal: p, TTL: time.Minute, NotifyURL: url, DryRun: true, Lock: names[0]}
			if len(names) > 1 {
				req.Lock = ""
				for _, name := range names {
					req.Group = append(req.Group, locks.Want{Lock: name})
				}
			}
			_, err := g.m.Acquire(t.Context(), req)
			return err
		}
		for _, refused := range []struct {
			url   string
			names []string
		}{
			{"https://elsewhere.net/", []string{"few:a"}}, {"https://a.example.com/", []string{"none:a"}}, {"https://a.example.com@elsewhere.net/", []string{"few:a"}},
			{"https://elsewhere.net/", []string{"all:a", "few:a"}}, {"::", []string{"few:a"}}, {"https://example.com/", []string{"few:a"}},
		} {
			e := wantCode(t, try(refused.url, refused.names...), forbidden)
			assert.That(t, e.Field == "notify_url" && strings.Contains(e.Detail, "ci allows"), "%s for %q: %+v", refused.url, refused.names, e)
		}
		// Past the rules this gateway, which has no webhooks, says so.
		for _, allowed := range []struct {
			url   string
			names []string
		}{{"https://a.example.com/x", []string{"few:a"}}, {"https://A.Example.COM.:8443/", []string{"few:a"}}, {"https://elsewhere.net/", []string{"all:a"}}, {"https://a.example.com/", []string{"all:a", "few:a"}}} {
			wantCode(t, try(allowed.url, allowed.names...), locks.CodeInvalid)
		}
	})
}
