package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/webhooks"
	"lockkeeper/web/templates"
)

// member is a caller with a grant for the locks that match.
func member(t *testing.T, name, ns, glob string, verbs ...access.Verb) locks.Principal {
	t.Helper()
	return locks.Principal{Name: name, Rules: assert.Value(access.New(access.Grant{NS: ns, Locks: glob, Verbs: verbs}))(t)}
}

// teams lets the fake have a lock of each of two teams, as the manager shows them to a principal.
func (f *fakeLocks) teams() {
	held := func(ns, name string) locks.Lock {
		return locks.Lock{NS: ns, Name: name, State: locks.LockHeld, HolderCount: 1, QueueLength: 1, Holders: []locks.Contender{
			{LeaseID: "lk1", Owner: name + "-owner", Znode: "/lockkeeper/locks/" + name + "/write-1", Mode: locks.Exclusive, FencingToken: 7}}}
	}
	f.set(func() {
		f.lock = func(r locks.LockRequest) (locks.Lock, error) {
			if err := r.Principal.Check(access.Read, r.NS, r.Lock); err != nil {
				return locks.Lock{}, err
			}
			return held(r.NS, r.Lock), nil
		}
		f.locks = func(r locks.LockFilter) (page locks.LockPage, err error) {
			if err := r.Principal.CheckIn(access.Read, r.NS); err != nil {
				return page, err
			}
			for _, name := range []string{"shop:till", "bank:vault"} {
				if r.Principal.Rules.May(access.Read, r.NS, name) {
					page.Items = append(page.Items, held(r.NS, name))
				}
			}
			return page, nil
		}
		f.peers = []locks.Peer{{Gateway: "gw1", Self: true, Leases: 471}}
	})
}

// as asks on behalf of a principal, without a network.
func (r *rig) as(t *testing.T, who locks.Principal, target string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, target, nil)
	kind := auth.Token
	if who.Name == "anonymous" {
		kind = auth.Anonymous
	}
	req = req.WithContext(auth.WithVisitor(req.Context(), &auth.Visitor{Caller: auth.Caller{Principal: who, Kind: kind}}))
	w := httptest.NewRecorder()
	r.Dashboard.ServeHTTP(w, req)
	return w
}

func TestEachTeamSeesItsOwnLocksInEachPageAndEachPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Logins = &fakeLogins{} })
		r.fake.teams()
		synctest.Wait()
		for _, c := range []struct {
			who          locks.Principal
			mine, others string
		}{
			{member(t, "token:shop", "default", "shop:*", access.Acquire), "shop:till", "bank"},
			{member(t, "token:bank", "default", "bank:*", access.Acquire), "bank:vault", "shop"},
		} {
			time.Sleep(linger + 2*tick) // no topic is left
			r.fake.set(func() { r.fake.as = nil })
			views := []page{overview, overviewPage{ns: "default", query: "a"}, namespacesPage{}, gatewaysPage{},
				lockPage{ns: "default", lock: c.mine, tab: tabQueue}, lockPage{ns: "default", lock: c.mine, tab: tabZooKeeper}}
			for _, v := range views {
				topic := assert.Value(r.join(v, c.who))(t)
				synctest.Wait()
				r.hub.Publish(&events.Event{Type: events.LeaseQueued, NS: "default", Lock: "shop:till", Owner: "shop-canary", Dir: "/r/shop", Name: "shop"})
				r.hub.Publish(&events.Event{Type: events.NodeCreated, NS: "default", Lock: "shop:till", Owner: "shop-canary", Dir: "/r/shop", Name: "shop"})
				r.hub.Publish(&events.Event{Type: events.LeaseQueued, NS: "default", Lock: "bank:vault", Owner: "bank-canary", Dir: "/r/bank", Name: "bank"})
				r.hub.Publish(&events.Event{Type: events.NodeCreated, NS: "default", Lock: "bank:vault", Owner: "bank-canary", Dir: "/r/bank", Name: "bank"})
				time.Sleep(tick)
				synctest.Wait()
				pushed := string(assert.Value(topic.latest.Load().message(t.Context()))(t))
				r.leave(topic)
				for what, html := range map[string]string{"the page": r.as(t, c.who, urlOf(v)).Body.String(), "the poll": r.as(t, c.who, pollURL(v)).Body.String(), "the push": pushed} {
					assert.That(t, len(html) > 100 && !strings.Contains(html, c.others), "%s of %s shows the other team's: %s", what, urlOf(v), html)
					assert.That(t, !strings.Contains(html, ">471<"), "%s of %s counts the leases of all", what, urlOf(v))
					if v.name() == pageLock || v.name() == pageOverview {
						assert.That(t, strings.Contains(html, c.mine), "%s of %s lacks the team's own", what, urlOf(v))
					}
					assert.Equal(t, strings.Contains(html, c.who.Name), what == "the page", "%s of %s names its viewer", what, urlOf(v))
				}
			}
			r.fake.set(func() {
				for _, p := range r.fake.as {
					assert.Equal(t, p.Rules.Key(), c.who.Rules.Key(), "asked on behalf of another")
				}
			})
			foreign := map[string]string{"shop:till": "bank:vault", "bank:vault": "shop:till"}[c.mine]
			w := r.as(t, c.who, "/locks/"+foreign)
			assert.That(t, w.Code == http.StatusForbidden && !strings.Contains(w.Body.String(), "-owner"), "%d %s", w.Code, w.Body)
			w = r.as(t, c.who, "/locks/"+foreign+"?tab=zookeeper")
			assert.That(t, w.Code == http.StatusForbidden && !strings.Contains(w.Body.String(), "/r/"), "%d %s", w.Code, w.Body)
			for _, tab := range []string{tabQueue, tabZooKeeper} { // a socket and a poll say what is wrong in the fragments
				v := lockPage{ns: "default", lock: foreign, tab: tab}
				topic := assert.Value(r.join(v, c.who))(t)
				synctest.Wait()
				pushed := string(assert.Value(topic.latest.Load().message(t.Context()))(t))
				r.leave(topic)
				for _, html := range []string{pushed, r.as(t, c.who, pollURL(v)).Body.String()} {
					assert.That(t, strings.Contains(html, "must give the verb read") && !strings.Contains(html, "canary") && !strings.Contains(html, "/r/"), "%s tells of the lock: %s", pollURL(v), html)
				}
			}
		}
	})
}

func TestAChangeThatAViewerMayNotReadWakesNoTopicOfItsRules(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.fake.teams()
		synctest.Wait()
		topic := assert.Value(r.join(overview, member(t, "a", "default", "shop:*", access.Read)))(t)
		defer r.leave(topic)
		time.Sleep(tick + tick/2)
		synctest.Wait()
		asked := r.fake.count("locks")
		r.happen("bank:vault")
		time.Sleep(tick / 4)
		assert.Equal(t, r.fake.count("locks"), asked, "it looks: its viewers learn that something happens")
		r.happen("shop:till")
		time.Sleep(tick / 4)
		assert.Equal(t, r.fake.count("locks"), asked+1, "it does not look")
	})
}

func TestATopicIsSharedByAllWithTheSameRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.MaxSets = 2 })
		r.fake.teams()
		synctest.Wait()
		var left []*topic
		join := func(v page, who locks.Principal) (*topic, error) {
			got, err := r.join(v, who)
			if err == nil {
				left = append(left, got)
			}
			return got, err
		}
		ann, bob := member(t, "corp:ann", "default", "shop:*", access.Read), member(t, "corp:bob", "default", "shop:*", access.Read)
		one, _ := join(overview, ann)
		two, _ := join(overview, bob)
		assert.That(t, one == two && one.who.Name == "", "callers with the same rules have a topic each")
		other, err := join(overview, member(t, "token:x", "default", "bank:*", access.Read))
		assert.That(t, err == nil && other != one, "other rules, the same topic: %v", err)
		third := member(t, "token:y", "default", "*", access.Read)
		_, err = join(overview, third)
		assert.That(t, errors.Is(err, errNoRoom), "a third set of rules of two: %v", err)
		_, err = join(deploy, ann)
		assert.NoError(t, err, "another page by the same rules")
		w := r.as(t, third, "/ui/fragments?page=overview")
		assert.That(t, w.Code == http.StatusOK && strings.Contains(w.Body.String(), "bank:vault"), "its page cannot poll: %d", w.Code)
		r.leave(other)
		left = slices.DeleteFunc(left, func(t *topic) bool { return t == other })
		_, err = join(overview, third)
		assert.NoError(t, err, "rules without viewers make no room")
		// The pages of webhooks show their viewers' own: they are no one else's.
		hooks := webhooksPage{}
		one, _ = join(hooks, ann)
		two, _ = join(hooks, bob)
		assert.That(t, one != two && one.who.Name == "corp:ann", "a page of webhooks is shared")
		for _, t := range left {
			r.leave(t)
		}
		time.Sleep(linger + 2*tick)
		topics, _ := r.inUse()
		assert.Equal(t, topics, 0)
	})
}

func TestButtonsAreThoseOfWhatTheViewerMayDo(t *testing.T) {
	l := locks.Lock{NS: "default", Name: "a", State: locks.LockHeld, HolderCount: 1, QueueLength: 1,
		Holders: []locks.Contender{{LeaseID: "lk1", Znode: "/r/a/1", Revoke: &locks.Revocation{}}},
		Waiters: []locks.Contender{{LeaseID: "lk2", Znode: "/r/a/2", Position: 1, Group: []string{"b", "ops/c"}}}}
	shown := func(rules *access.Rules) string {
		var v templates.Lock
		showLock(&v, &l, rules, "/r", true)
		assert.Equal(t, v.Reserve != "", v.MayTake)
		return fmt.Sprintf("revoke %t force %t reap %t destroy %t withdraw %t break %t %t", v.Revoke != "", v.Force, v.Reap != "", v.Destroy != "",
			v.Holders[0].Asked.Withdraw != "", v.Holders[0].Break != "", v.Waiters[0].Break != "")
	}
	for _, c := range []struct {
		of   locks.Principal
		want string
	}{
		{member(t, "", "default", "a", access.Read), "revoke false force false reap false destroy false withdraw false break false false"},
		{member(t, "", "default", "a", access.Acquire), "revoke true force false reap false destroy false withdraw false break false false"},
		{member(t, "", "default", "a", access.Operate), "revoke false force true reap true destroy true withdraw true break true true"},
		{member(t, "", "default", "b", access.Operate), "revoke false force false reap false destroy false withdraw false break false true"},
		{member(t, "", "ops", "*", access.Operate), "revoke false force false reap false destroy false withdraw false break false true"},
		{locks.Anonymous, "revoke true force true reap true destroy true withdraw true break true true"},
	} {
		assert.Equal(t, shown(c.of.Rules), c.want)
	}
}

// hooksOf are webhooks as the API shows them: those of their maker, and all to an administrator.
type hooksOf map[string]templates.Webhook

func (h hooksOf) List(_ context.Context, p locks.Principal) (list templates.Webhooks, err error) {
	for maker, one := range h {
		if maker == p.Name || p.Rules.MayAll(access.Admin) {
			list.Rows = append(list.Rows, one.WebhookRow)
		}
	}
	return list, nil
}

func (h hooksOf) One(_ context.Context, p locks.Principal, id string) (templates.Webhook, error) {
	for maker, one := range h {
		if one.ID == id && (maker == p.Name || p.Rules.MayAll(access.Admin)) {
			return one, nil
		}
	}
	return templates.Webhook{}, webhooks.ErrNotFound
}

func TestEachViewerSeesItsOwnWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := func(id, target string) templates.Webhook {
			return templates.Webhook{WebhookRow: templates.WebhookRow{ID: id, Target: target, Enabled: true}}
		}
		const anns, bobs = "wh_aaaaaaaaaaaaaaaa", "wh_bbbbbbbbbbbbbbbb"
		r := newRig(t, func(o *Options) {
			o.Webhooks = hooksOf{"corp:ann": hook(anns, "https://ann.example"), "corp:bob": hook(bobs, "https://bob.example")}
		})
		synctest.Wait()
		ann, bob := member(t, "corp:ann", "default", "shop:*", access.Acquire), member(t, "corp:bob", "default", "shop:*", access.Acquire)
		list := webhooksPage{}
		one, two := assert.Value(r.join(list, ann))(t), assert.Value(r.join(list, bob))(t)
		synctest.Wait()
		for topic, others := range map[*topic]string{one: "bob.example", two: "ann.example"} {
			html := string(assert.Value(topic.latest.Load().message(t.Context()))(t))
			assert.That(t, strings.Contains(html, ".example") && !strings.Contains(html, others), "%s", html)
			r.leave(topic)
		}
		assert.Equal(t, r.as(t, ann, "/webhooks/"+anns).Code, http.StatusOK)
		assert.Equal(t, r.as(t, ann, "/webhooks/"+bobs).Code, http.StatusNotFound)
		acts := func(who locks.Principal, target string) int {
			return strings.Count(r.as(t, who, target).Body.String(), "data-act=")
		}
		reader := member(t, "corp:ann", "default", "shop:*", access.Read)
		assert.That(t, acts(ann, "/webhooks") == 1 && acts(reader, "/webhooks") == 0, "one who may acquire nothing is offered a new webhook")
		assert.That(t, acts(ann, "/webhooks/"+anns) == 5 && acts(reader, "/webhooks/"+anns) == 1, "what may be done: %d, %d", acts(ann, "/webhooks/"+anns), acts(reader, "/webhooks/"+anns))
		admin := member(t, "token:root", "*", "*", access.Admin)
		assert.That(t, r.as(t, admin, "/webhooks/"+bobs).Code == http.StatusOK && acts(admin, "/webhooks") == 1, "an administrator sees all")
	})
}

func TestAFreeLockIsOfferedToThoseWhoMayTakeIt(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Logins = &fakeLogins{} })
	offers := func(who locks.Principal, target string) bool {
		return strings.Contains(r.as(t, who, target).Body.String(), "curl -sX POST -H @TOKEN_FILE &#39;") || strings.Contains(r.as(t, who, target).Body.String(), "curl -sX POST -H @TOKEN_FILE '")
	}
	taker, reader := member(t, "token:a", "default", "*", access.Acquire), member(t, "token:b", "default", "*", access.Read)
	for _, target := range []string{"/", "/locks/deploy"} {
		assert.That(t, offers(taker, target), "%s does not say how", target)
		assert.That(t, !offers(reader, target), "%s is offered to one who may not take it", target)
	}
}

func TestTotalsAreForThoseWhoMayReadEveryLock(t *testing.T) {
	r := newRig(t)
	r.fake.set(func() {
		info := servingInfo()
		info.Locks, info.HazardousLocks = 4711, 12
		r.fake.info = func() locks.Info { return info }
	})
	all := r.as(t, member(t, "token:all", "*", "*", access.Read), "/namespaces").Body.String()
	assert.That(t, strings.Contains(all, "4,711") && strings.Contains(all, "12 locks"), "%s", all)
	some := r.as(t, member(t, "token:some", "default", "*", access.Read), "/namespaces").Body.String()
	assert.That(t, !strings.Contains(some, "4,711") && !strings.Contains(some, "12 locks") && !strings.Contains(some, "figures"), "%s", some)
	wrong := r.as(t, member(t, "token:some", "default", "*", access.Read), "/?wrong=1").Body.String()
	assert.That(t, !strings.Contains(wrong, "12 locks"), "%s", wrong)
	overview := r.as(t, member(t, "token:some", "team", "*", access.Read), "/?ns=team").Body.String()
	assert.That(t, !strings.Contains(overview, `value="default"`), "the filter offers a namespace that the viewer may not read")
}

func TestTheFirstPageIsOfANamespaceThatTheViewerMayRead(t *testing.T) {
	r := newRig(t)
	r.fake.teams()
	who := member(t, "token:team", "team", "*", access.Read)
	w := r.as(t, who, "/")
	assert.That(t, w.Code == http.StatusFound && w.Header().Get("Location") == "/?ns=team", "%d %v", w.Code, w.Header())
	assert.Equal(t, r.as(t, who, "/?ns=default").Code, http.StatusForbidden)
	assert.Equal(t, r.as(t, member(t, "token:none", "later", "*", access.Read), "/").Code, http.StatusForbidden)
}

func TestARequestThatDoesNotSayWhoAsksIsShownNothing(t *testing.T) {
	r := newRig(t)
	r.fake.teams()
	for _, target := range []string{"/", "/locks/shop:till", "/namespaces", "/gateways", "/webhooks", "/ui/fragments?page=overview", "/ui/live?page=overview", "/nowhere", "/?wrong=1"} {
		w := httptest.NewRecorder()
		r.Dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		body := w.Body.String()
		assert.That(t, w.Code == http.StatusUnauthorized && !strings.Contains(body, "shop") && !strings.Contains(body, "gw1") && !strings.Contains(body, "/lockkeeper"), "%s: %d %s", target, w.Code, body)
	}
	assert.Equal(t, len(r.fake.as), 0, "the lock manager was asked")
}

func TestASocketIsClosedAsItsContextWasEnded(t *testing.T) {
	for _, c := range []struct {
		cause error
		code  int
	}{
		{&auth.Error{Detail: "the API token has expired or was revoked"}, 4401}, {&auth.Error{Detail: "the rules have changed", Unavailable: true}, websocket.CloseTryAgainLater},
		{errors.New("the gateway drains"), websocket.CloseGoingAway},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(c.cause)
		code, _ := endOf(ctx)
		assert.Equal(t, code, c.code, "%v", c.cause)
	}
}
