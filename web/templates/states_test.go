package templates

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"
	"github.com/gorilla/websocket"

	"lockkeeper/internal/test/assert"
	"lockkeeper/web/static"
)

// What the recipes make of a queue.

const queueDir = "/lockkeeper/locks/db:migrate:orders"

func znodeOf(kind string, n int) string {
	return fmt.Sprintf("%s/%s-v1.%s-lock-%010d", queueDir, kind, leaseID(n), n)
}

// ours is a contender of a gateway.
func ours(now time.Time, n int, owner, mode string) Contender {
	c := Contender{Who: Who{Owner: owner, LeaseID: leaseID(n)}, Mode: mode, Znode: znodeOf(map[string]string{"exclusive": "write", "shared": "read", "semaphore": "permit"}[mode], n),
		Since: now.Add(-time.Duration(900-10*n) * time.Second), ExpiresAt: now.Add(time.Duration(11+7*n%40) * time.Second), Clock: time.Minute}
	c.Break = "/v1/leases/" + c.LeaseID + "/break"
	return c
}

func in(now time.Time, c Contender) Contender {
	c.CanAsk, c.HeldSince, c.FencingToken = true, now.Add(-3*time.Minute), 17179869500+int64(len(c.Owner))
	return c
}

// states are locks in all the states that the recipes know.
func states(now time.Time) map[string]Lock {
	base := func(name string, holders []Contender, waiters ...Contender) Lock {
		v := lockSample(now, 0)
		v.Name, v.Title, v.Holders, v.HolderCount, v.QueueLength, v.Waiters = name, name+" · Lockkeeper", holders, len(holders), len(waiters), waiters
		v.Live, v.Poll = "/ui/live?still", "/ui/poll?still"
		v.Force, v.Reserve, v.Revoke, v.Reap, v.Destroy = true, "/v1/locks/sample/leases", "/v1/locks/sample/revoke", "/v1/locks/sample/reap", "/v1/locks/sample/destroy"
		for i := range waiters {
			waiters[i].Position = i + 1
		}
		return v
	}
	convoy := func(c Contender, at Convoy, w Why) Contender {
		c.Convoy, c.Why = at, w
		return c
	}
	foreign := Contender{Who: Who{Foreign: true, Program: "Curator"}, Mode: "exclusive", Session: "0x100000a5f2c0007", Data: "10.0.3.17", Since: now.Add(-170 * time.Second),
		Znode: queueDir + "/_c_0b6f6f0e-6a4c-4f0e-8a0e-5f3c2b1a0d9e-lock-0000000014", Break: "/v1/locks/sample/contenders/_c_0b6f-lock-0000000014/break"}

	readers := base("catalogue", []Contender{in(now, ours(now, 1, "web-1", "shared")), in(now, ours(now, 2, "web-2", "shared")), in(now, ours(now, 3, "web-7", "shared"))},
		convoy(ours(now, 4, "indexer", "exclusive"), "", Why{For: []Who{{Owner: "web-1"}, {Owner: "web-2"}}, Others: 1, Readers: true}),
		convoy(ours(now, 5, "web-3", "shared"), ConvoyFirst, Why{At: 1, Writer: true, Together: 2}),
		convoy(ours(now, 6, "web-4", "shared"), ConvoyMiddle, Why{}),
		convoy(ours(now, 7, "web-9", "shared"), ConvoyLast, Why{}),
		foreign,
		convoy(ours(now, 9, "web-5", "shared"), "", Why{At: 5, Writer: true}))

	permit := func(n, permits int, owner string) Contender {
		c := ours(now, n, owner, "semaphore")
		c.Permits, c.Limit = permits, 10
		return c
	}
	share := func(c Contender) Share { return Share{c.Who, c.Permits} }
	a, b, c := in(now, permit(1, 4, "transcode-1")), in(now, permit(2, 3, "transcode-4")), in(now, permit(3, 1, "thumbs"))
	d := permit(4, 4, "transcode-2")
	d.Why = Why{Need: 4, Free: 2, Of: 10}
	e := permit(5, 1, "thumbs-2")
	e.Why = Why{Need: 1, Of: 10}
	permits := base("gpu", []Contender{a, b, c}, d, e)
	permits.Limit, permits.LimitAgreed = 10, true
	permits.Permits = &Permits{Limit: 10, Taken: 8, Shares: []Share{share(a), share(b), share(c)}, Next: 4, NextWho: d.Who}

	gone := ours(now, 1, "ci-runner-1", "exclusive")
	gone.Delayed, gone.Ended, gone.ExpiresAt, gone.Clock, gone.FencingToken = true, "expired", now.Add(48*time.Second), time.Minute, 17179869570
	next := ours(now, 2, "ci-runner-3", "exclusive")
	next.Why = Why{For: []Who{gone.Who}, Delay: true, Until: gone.ExpiresAt}
	delayed := base("deploy:prod", []Contender{gone}, next, ours(now, 3, "ci-runner-5", "exclusive"))
	delayed.State = "delayed"
	delayed.History = append([]Happening{{At: now.Add(-12 * time.Second), Event: "lease.expired", Who: gone.Who, FencingToken: 17179869570, Reason: "expired"}}, delayed.History...)

	front := ours(now, 1, "mover-1", "exclusive")
	front.AtFront, front.Group = true, []Link{{"account:4711", "/locks/account:4711"}, {"account:815", "/locks/account:815"}, {"team/ledger", "/locks/ledger?ns=team"}}
	behind := ours(now, 2, "mover-2", "exclusive")
	behind.Group = []Link{{"account:815", "/locks/account:815"}}
	group := base("account:1001", nil, front, behind, ours(now, 3, "audit", "shared"))
	group.State = "queued"

	asked := in(now, ours(now, 1, "nightly-report", "exclusive"))
	asked.Asked = &Asked{Reason: "maintenance of the warehouse at 03:00", Until: now.Add(52 * time.Second), Withdraw: "/v1/locks/sample/revoke?lease_ids=" + leaseID(1)}
	asked.Holds, asked.Ephemeral = []string{"extract", "load"}, true
	politely := ours(now, 2, "vacuum", "exclusive")
	politely.Why = Why{For: []Who{asked.Who}}
	revoked := base("warehouse", []Contender{asked}, politely)
	revoked.History = []Happening{
		{At: now.Add(-8 * time.Second), Event: "lease.revoke_requested", Who: asked.Who, Detail: "maintenance of the warehouse at 03:00"},
		{At: now.Add(-3 * time.Minute), Event: "lease.granted", Who: asked.Who, FencingToken: 17179869514},
		{At: now.Add(-4 * time.Minute), Event: "lease.revoked", Who: Who{Owner: "etl-2", LeaseID: leaseID(40)}, FencingToken: 17179869511, Reason: "revoked", Detail: "stuck since Monday"},
		{At: now.Add(-5 * time.Minute), Event: "lease.removed", Who: Who{Owner: "etl-1", LeaseID: leaseID(41)}, Reason: "gateway_left"},
		{At: now.Add(-6 * time.Minute), Event: "lease.revoked", Who: Who{Owner: "etl-0", LeaseID: leaseID(42)}, Reason: "destroyed"},
		{At: now.Add(-7 * time.Minute), Event: "lease.cancelled", Who: Who{Owner: "etl-9", LeaseID: leaseID(43)}, Reason: "wait_elapsed"},
	}
	return map[string]Lock{"/lock-readers": readers, "/lock-permits": permits, "/lock-delayed": delayed, "/lock-group": group, "/lock-asked": revoked}
}

func statePages(now time.Time) map[string]templ.Component {
	pages := map[string]templ.Component{}
	for path, v := range states(now) {
		pages[path] = LockPage(v)
	}
	return pages
}

// contentSecurityPolicy is the strictest that the pages work under.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// previewHandler serves the samples as a gateway would: live, and with a push every second in which the queue moves.
func previewHandler(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/", api)
	mux.Handle(static.Prefix, static.Handler())
	start := time.Now()
	push := func(n int) []byte {
		list := overviewSample(start)
		list.Status.Now = time.Now()
		list.Rows = list.Rows[n%3:]
		lock := lockSample(start, 12)
		lock.Waiters = lock.Waiters[n%3:]
		return []byte(render(StatusFragment(list.Status)) + render(LocksFragment(list)) + render(QueueFragment(lock)) + render(HistoryFragment(lock)))
	}
	mux.HandleFunc("/ui/poll", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "still" {
			_, _ = w.Write(push(0))
		}
	})
	mux.HandleFunc("/ui/live", func(w http.ResponseWriter, r *http.Request) {
		if os.Getenv("LOCKKEEPER_PREVIEW_NOSOCKET") != "" {
			http.Error(w, "no socket here", http.StatusServiceUnavailable)
			return
		}
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for n := 0; ; n++ {
			message := push(n)
			if r.URL.RawQuery == "still" {
				message = []byte(" ")
			}
			if conn.WriteMessage(websocket.TextMessage, message) != nil {
				return
			}
			time.Sleep(time.Second)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c, ok := samples(start)[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", contentSecurityPolicy)
		switch q := r.URL.Query().Get("q"); q {
		case "":
		case "refuse":
			w.WriteHeader(http.StatusUnprocessableEntity)
			c = ProblemPage(Problem{Page: page(start, "No"), Status: http.StatusUnprocessableEntity, Title: "Invalid URL", Detail: "No page shows this."})
		default:
			v := overviewSample(start)
			v.Query, v.Live = q, "/ui/live?q="+url.QueryEscape(q)
			v.Rows = v.Rows[:4]
			c = OverviewPage(v)
		}
		_ = c.Render(r.Context(), w)
	})
	return mux
}

// LOCKKEEPER_PREVIEW=localhost:8099 go test -run TestPreview -timeout 0 ./web/templates serves the samples until it is
// interrupted. With LOCKKEEPER_PREVIEW_NOSOCKET=1 it refuses sockets, so that the pages poll.
func TestPreview(t *testing.T) {
	addr := os.Getenv("LOCKKEEPER_PREVIEW")
	if addr == "" {
		t.Skip("LOCKKEEPER_PREVIEW=host:port serves the sample pages there, for those who design them")
	}
	for path := range samples(time.Now()) {
		fmt.Printf("http://%s%s\n", addr, path)
	}
	t.Fatal(http.ListenAndServe(addr, previewHandler(new(fakeAPI))))
}

func TestWhyAWaiterWaitsIsASentence(t *testing.T) {
	a, b := Who{Owner: "alice"}, Who{Owner: "bob"}
	for _, c := range []struct {
		why  Why
		want string
	}{
		{Why{}, ""},
		{Why{For: []Who{a}}, "waits for alice"},
		{Why{For: []Who{a, b}}, "waits for alice and bob"},
		{Why{For: []Who{a, b}, Others: 1}, "waits for alice, bob and 1 other"},
		{Why{For: []Who{a, b}, Others: 1200, Readers: true}, "waits for 1,202 readers"},
		{Why{For: []Who{a}, Delay: true}, "waits for the end of alice's lock delay"},
		{Why{For: []Who{a}, Delay: true, Until: noon}, "waits for the end of alice's lock delay:"},
		{Why{At: 3, Writer: true, Together: 2}, "waits for the writer at 3; is granted with the next 2 readers"},
		{Why{At: 3}, "waits for the one at 3"},
		{Why{Together: 1}, "is granted with the next reader"},
		{Why{Need: 4, Free: 2, Of: 10}, "needs 4 permits; those ahead leave 2 of 10"},
		{Why{Need: 1, Of: 10}, "needs 1 permit; those ahead leave none of 10"},
	} {
		assert.Equal(t, c.why.text(), c.want, "%+v", c.why)
	}
}

// The reasons of the gateway's list are sentences; callers' reasons stay as they are.
func TestEndsAreExplained(t *testing.T) {
	for _, c := range []struct{ event, reason, words, want string }{
		{"lease.expired", "expired", "", "no heartbeat"},
		{"lease.released", "released", "", ""},
		{"lease.revoked", "destroyed", "", "lock destroyed"},
		{"lease.revoked", "revoked", "maintenance", "by an administrator: maintenance"},
		{"lease.removed", "gateway_left", "", "ephemeral: its gateway's session has ended"},
		{"lease.cancelled", "wait_elapsed", "", "its wait time was over"},
		{"lease.revoke_requested", "", "expired", "expired"},
		{"lease.of_tomorrow", "a new one", "", "a new one"},
	} {
		assert.Equal(t, explained(Happening{Event: c.event, Reason: c.reason, Detail: c.words}), c.want, "%+v", c)
	}
}

func TestTheBarOfPermitsShowsTheSharesAndWhatTheNextNeeds(t *testing.T) {
	p := Permits{Limit: 10, Taken: 8, Shares: []Share{{Who{Owner: "a"}, 4}, {Who{Owner: "b"}, 2}}, Next: 4, NextWho: Who{Owner: "c"}}
	want := "share 0.000% 40.000% 4 a|share 40.000% 20.000% 2 b|rest 60.000% 20.000% 2 of others|next 80.000% 20.000% "
	var got []string
	for _, part := range p.parts() {
		got = append(got, fmt.Sprintf("%s %s %s %s", part.Kind, part.X, part.Width, part.Text))
	}
	assert.That(t, strings.Join(got, "|") == want, "%q", got)
	assert.That(t, p.beyond() && p.percent(p.Limit) == "100.000%" && p.nextNeeds() == "c needs 4, 2 are free",
		"%t, %s, %s", p.beyond(), p.percent(p.Limit), p.nextNeeds())
	if p := (Permits{Limit: 4, Taken: 9}); p.percent(9) != "100.000%" || p.nextNeeds() == "" {
		t.Error("more is taken than a limit that was lowered: ", p.percent(9))
	}
}

func TestTheChamberSaysWhatItIsUsedFor(t *testing.T) {
	reader := Contender{Mode: "shared"}
	for want, v := range map[string]Lock{
		"Holder":                     {},
		"Held by":                    {State: "held", HolderCount: 1},
		"Held by 2 readers together": {State: "held", HolderCount: 2, Holders: []Contender{reader, reader}},
		"Held by 2":                  {State: "held", HolderCount: 2, Holders: []Contender{reader, {Mode: "semaphore"}}},
		"In lock delay":              {State: "delayed", HolderCount: 1},
		"At the front":               {State: "queued", HolderCount: 1},
	} {
		assert.Equal(t, chamberTitle(v), want)
	}
}

// There are no actions on what the page cannot show, and none on the tab of znodes.
func TestActionsAreThereWhenThereAreContenders(t *testing.T) {
	v := states(noon)["/lock-readers"]
	got := render(LockHeadFragment(v))
	assert.That(t, strings.Count(got, "data-act=") == 4, "%v", got)
	v.Revoke, v.Reserve = "", ""
	got = render(LockHeadFragment(v))
	assert.That(t, !strings.Contains(got, `data-act="revoke"`) && !strings.Contains(got, `data-act="reserve"`) && strings.Contains(got, `data-act="destroy"`), "%v", got)
	v.Tab = "zookeeper"
	assert.That(t, !strings.Contains(render(LockPage(v)), "data-act="), "the tab of znodes offers to act")
	assert.That(t, !strings.Contains(render(QueueFragment(lockSample(noon, 3))), `data-act="break"`),
		"a contender without an address can be broken")
}
