package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/webhooks"
)

// withTeams adds two teams to the guests, which may acquire their own locks.
func withTeams(t *testing.T) *guests {
	g := newGuests(t)
	for team, verb := range map[string]access.Verb{"shop": access.Acquire, "bank": access.Acquire, "auditor": access.Read} {
		rules := assert.Value(access.New(access.Grant{NS: "default", Locks: team + ":*", Verbs: []access.Verb{verb}}))(t)
		g.known["Bearer "+team] = auth.Caller{Principal: locks.Principal{Name: "token:" + team, Rules: rules}, Kind: auth.Token, ID: team + "-id", Roles: []string{team}}
	}
	return g
}

// withHooksOf gives a gateway webhooks on the shelf, whose makers are guests.
func withHooksOf(t *testing.T, on *shelf, g *guests) (*webhooks.Service, func(*Options)) {
	t.Helper()
	return withWebhooksOf(t, on, func(o *webhooks.Options) {
		o.Standing = func(name, _, credential string, _ []string) (*access.Rules, string, bool) {
			c, err := g.find("Bearer " + strings.TrimPrefix(name, "token:"))
			if err != nil || c.ID != credential {
				return nil, "the token was revoked", true
			}
			return c.Principal.Rules, "", true
		}
	})
}

func TestAWebhookBelongsToItsMaker(t *testing.T) {
	guests, shelf, r := withTeams(t), newShelf(), receiver(t)
	_, with := withHooksOf(t, shelf, guests)
	g := serve(t, guests.options, with)
	make := func(who string) api.Webhook {
		a := g.expect(t, 201, "", "POST", "/v1/webhooks", as(who), jsonParts(`{"url":"`, r.url, `","description":"canary-of-`, who, `"}`))
		return read[api.Webhook](t, a)
	}
	shop, bank := make("shop"), make("bank")
	assert.That(t, shop.Maker == "token:shop" && shop.PausedReason == "", "%+v", shop)
	g.expect(t, 403, "forbidden", "POST", "/v1/webhooks", as("auditor"), jsonParts(`{"url":"`, r.url, `"}`))
	g.expect(t, 403, "forbidden", "POST", "/v1/webhooks", as("shop"), jsonParts(`{"url":"`, r.url, `","ns":"default","locks":"bank:vault"}`))
	g.expect(t, 401, "", "POST", "/v1/webhooks", jsonParts(`{"url":"`, r.url, `"}`))

	// To others it is a webhook that is not there.
	other, missing := "/v1/webhooks/"+bank.ID, "/v1/webhooks/"+someHook
	before := shelf.text()
	for _, c := range [][2]string{{"GET", ""}, {"PATCH", "?description=x"}, {"DELETE", ""}, {"POST", "/rotate"}, {"POST", "/test"}, {"POST", "/replay"}, {"GET", "/attempts"}, {"GET", "/dead-letters"}} {
		hidden, none := g.send(t, c[0], other+c[1], as("shop")), g.send(t, c[0], missing+c[1], as("shop"))
		assert.That(t, hidden.Status == 404 && hidden.Code() == "webhook_not_found" && hidden.Problem.Detail == none.Problem.Detail && len(hidden.Header) == len(none.Header), "%v: %d %s", c, hidden.Status, hidden.Body)
	}
	assert.Equal(t, shelf.text(), before, "what a stranger has changed")
	assert.Equal(t, r.count(), 0, "tests that a stranger has sent")

	ids := func(who string) (list []string, outbox bool) {
		a := g.expect(t, 200, "", "GET", "/v1/webhooks", as(who))
		l := read[api.WebhookList](t, a)
		for _, w := range l.Items {
			list = append(list, w.ID)
		}
		return list, l.Outbox != nil
	}
	for who, want := range map[string][]string{"shop": {shop.ID}, "bank": {bank.ID}, "auditor": nil, "all": nil, "admin": {shop.ID, bank.ID}} {
		got, outbox := ids(who)
		slices.Sort(got)
		slices.Sort(want)
		assert.That(t, slices.Equal(got, want) && outbox == (who == "admin" || who == "all"), "%s sees %q, and how full the outbox is: %v", who, got, outbox)
	}
	mine := "/v1/webhooks/" + shop.ID
	for _, who := range []string{"shop", "admin"} {
		for _, c := range [][2]string{{"GET", ""}, {"PATCH", "?description=x"}, {"POST", "/rotate"}, {"POST", "/test"}, {"POST", "/replay"}, {"GET", "/attempts"}, {"GET", "/dead-letters"}} {
			g.expect(t, 200, "", c[0], mine+c[1], as(who))
		}
	}
	assert.Equal(t, read[api.Webhook](t, g.send(t, "GET", mine, as("admin"))).Maker, "token:shop", "what an administrator has changed")
	g.expect(t, 403, "forbidden", "PATCH", mine, as("shop"), jsonParts(`{"ns":"default","locks":"bank:vault"}`))

	// Whose token may acquire nothing any more may look at its own, and remove it.
	guests.change(func(known map[string]auth.Caller) {
		c := known["Bearer shop"]
		c.Principal.Rules = known["Bearer reader"].Principal.Rules
		known["Bearer shop"] = c
	})
	g.expect(t, 403, "forbidden", "PATCH", mine+"?description=y", as("shop"))
	g.expect(t, 200, "", "GET", mine, as("shop"))
	g.expect(t, 204, "", "DELETE", mine, as("shop"))
	g.expect(t, 204, "", "DELETE", other, as("admin"))
}

// A webhook of the time before authentication has no maker: the administrators have it, and it gets all.
func TestAWebhookWithoutAMakerIsTheAdministrators(t *testing.T) {
	guests, shelf, r := withTeams(t), newShelf(), receiver(t)
	service, with := withHooksOf(t, shelf, guests)
	made := read[api.Webhook](t, serve(t, with).expect(t, 201, "", "POST", "/v1/webhooks", jsonParts(`{"url":"`, r.url, `"}`)))
	assert.Equal(t, made.Maker, "")
	g := serve(t, guests.options, with)
	g.expect(t, 404, "webhook_not_found", "GET", "/v1/webhooks/"+made.ID, as("shop"))
	g.expect(t, 200, "", "PATCH", "/v1/webhooks/"+made.ID+"?description=x", as("admin"))
	sub := assert.Value(service.Get(made.ID))(t)
	assert.That(t, sub.Maker == nil && sub.Wants(&webhooks.Event{Type: webhooks.Expired, NS: "default", Lock: "bank:vault"}), "%+v", sub)
}

// Where a token is replaced, its maker goes on with the new one.
func TestAChangeByTheMakerResumesAPausedWebhook(t *testing.T) {
	guests, r := withTeams(t), receiver(t)
	service, with := withHooksOf(t, newShelf(), guests)
	g := serve(t, guests.options, with)
	made := read[api.Webhook](t, g.expect(t, 201, "", "POST", "/v1/webhooks", as("shop"), jsonParts(`{"url":"`, r.url, `"}`)))
	at := "/v1/webhooks/" + made.ID
	guests.change(func(known map[string]auth.Caller) {
		c := known["Bearer shop"]
		c.ID = "the next"
		known["Bearer shop"] = c
	})
	until(t, "it is paused", func() bool {
		return read[api.Webhook](t, g.expect(t, 200, "", "GET", at, as("shop"))).PausedReason == "the token was revoked"
	})
	g.expect(t, 422, "", "POST", at+"/replay", as("shop"))
	w := read[api.Webhook](t, g.expect(t, 200, "", "PATCH", at+"?description=x", as("admin")))
	assert.Equal(t, w.PausedReason, "the token was revoked", "a change by an administrator")
	w = read[api.Webhook](t, g.expect(t, 200, "", "PATCH", at+"?enabled=true", as("shop")))
	sub := assert.Value(service.Get(made.ID))(t)
	assert.That(t, w.PausedReason == "" && sub.Maker.Credential == "the next" && sub.Standing.Paused == "", "%+v %+v", w, sub)
}

// Two gateways of a fleet, with dead letters and attempts about locks of which the maker may read some any more.
func TestWhatOthersKnowOfAWebhookIsForWhoMayReadIt(t *testing.T) {
	guests, shelf, r := withTeams(t), newShelf(), receiver(t)
	r.answers(http.StatusGone)
	guests.change(func(known map[string]auth.Caller) {
		c := known["Bearer shop"]
		c.Principal.Rules = assert.Value(access.New(access.Grant{NS: "*", Locks: "*", Verbs: []access.Verb{access.Acquire}}))(t)
		known["Bearer shop"] = c
	})
	one, withOne := withHooksOf(t, shelf, guests)
	two, withTwo := withHooksOf(t, shelf, guests)
	here, _ := member(t, "gatewayone", "secret", guests.options, withOne)
	there, _ := member(t, "gatewaytwo", "secret", guests.options, withTwo)
	here.peers = []locks.Peer{{Gateway: "gatewayone", Self: true, Registered: true}, {Gateway: "gatewaytwo", Registered: true, Address: there.address(), Seals: 3}}
	made := read[api.Webhook](t, here.expect(t, 201, "", "POST", "/v1/webhooks", as("shop"), jsonParts(`{"url":"`, r.url, `"}`)))
	two.Refresh()
	until(t, "the other gateway knows it", func() bool { return len(two.List()) == 1 })
	tell(one, "l1", "shop:web")
	tell(two, "l2", "bank:canary")
	tell(two, "l3", "shop:db")
	until(t, "the receiver was asked", func() bool { return len(one.Attempts(made.ID)) > 0 && len(two.Attempts(made.ID)) > 0 })
	until(t, "both have dead letters", func() bool { return one.Statuses()[made.ID].Dead == 1 && two.Statuses()[made.ID].Dead == 2 })
	guests.change(func(known map[string]auth.Caller) {
		c := known["Bearer shop"]
		c.Principal.Rules = assert.Value(access.New(access.Grant{NS: "*", Locks: "shop:*", Verbs: []access.Verb{access.Acquire}}))(t)
		known["Bearer shop"] = c
	})
	at := "/v1/webhooks/" + made.ID
	for _, path := range []string{"/dead-letters?limit=2", "/attempts", ""} {
		a := here.expect(t, 200, "", "GET", at+path, as("shop"))
		assert.That(t, !strings.Contains(string(a.Body), "canary") && !strings.Contains(string(a.Body), "unreached"), "%s: %s", path, a.Body)
	}
	dead := read[api.DeadLetterList](t, here.send(t, "GET", at+"/dead-letters?limit=2", as("shop")))
	assert.Equal(t, len(dead.Items), 2, "dead letters that it may read")

	// A page shows its viewer the same.
	for who, want := range map[string]int{"shop": 1, "bank": 0, "admin": 1} {
		p := guests.known["Bearer "+who].Principal
		list := assert.Value(here.server.ShowWebhooks(t.Context(), p))(t)
		assert.That(t, len(list.Items) == want && list.Unreached == nil, "%s: %+v", who, list)
		_, attempts, letters, err := here.server.ShowWebhook(t.Context(), p, made.ID, 50, 50)
		switch who {
		case "bank":
			assert.ErrorIs(t, err, webhooks.ErrNotFound)
		case "shop":
			assert.That(t, err == nil && len(letters.Items) == 2 && len(attempts.Items) > 0, "%v %+v", err, letters)
		case "admin": // with that verb alone no lock may be read
			assert.That(t, err == nil && len(letters.Items) == 0 && len(attempts.Items) == 0, "%v %+v", err, letters)
		}
	}
}

// text is all that is on the shelf.
func (s *shelf) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for p, n := range s.nodes {
		lines = append(lines, p+" "+string(n.data))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestTotalsAreForWhoMayReadEveryLock(t *testing.T) {
	guests := withTeams(t)
	g := serve(t, guests.options)
	g.peers = []locks.Peer{{Gateway: "gatewayone", Self: true, Registered: true, Leases: 4711, GuardAge: time.Second}}
	for who, told := range map[string]bool{"shop": false, "all": true, "admin": false} {
		list := read[api.GatewayList](t, g.expect(t, 200, "", "GET", "/v1/gateways", as(who)))
		assert.That(t, (list.Items[0].Leases != nil) == told, "%s is told how many leases there are: %+v", who, list.Items[0])
		info := read[api.Info](t, g.expect(t, 200, "", "GET", "/v1/info", as(who)))
		assert.That(t, (info.Locks != nil) == told && (info.Contenders != nil) == told && (info.Leases != nil) == told, "%s: %+v", who, info)
		status := map[bool]int{true: 200, false: 403}[told]
		g.expect(t, status, "", "GET", "/metrics", as(who))
	}
}
