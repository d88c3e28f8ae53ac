package templates

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/a-h/templ"

	"lockkeeper/web/static"
)

// render is a component's output.
func render(c templ.Component) string {
	var b strings.Builder
	if err := c.Render(context.Background(), &b); err != nil {
		panic(err)
	}
	return b.String()
}

// hostile is what a client or another program may put wherever text is free.
const hostile = `"><script>alert(1)</script><img src=x onerror='alert(2)'>' onmouseover="alert(3)" javascript:alert(4) </title></textarea><!-- ` + "\x1b[31m\u202e"

func page(now time.Time, title string) Page {
	return Page{
		Title: title, Live: "/ui/live?page=sample", Poll: "/ui/poll?page=sample", Assets: static.URLs(),
		Pages: []Link{{"Locks", "/"}, {"Namespaces", "/namespaces"}, {"Activity", "/activity"}, {"Gateways", "/gateways"}, {"Webhooks", "/webhooks"}},
		Status: Status{
			GatewayID: "3q7vwkd2xhm5a", Version: "0.4.0", Build: "9f303e3b05a779ae", Started: now.Add(-50 * time.Hour), Now: now, ZooKeeper: "connected",
			Servers: []string{"zk1:2181", "zk2:2181", "zk3:2181"}, Root: "/lockkeeper", Trusted: true, ReplicaCurrent: true, Serving: true,
			Locks: 1284, Contenders: 5210, Held: 431, Waiting: 1022,
		},
	}
}

func away(p Page) Page {
	p.Status.ZooKeeper, p.Status.ReplicaCurrent, p.Status.Serving, p.Status.Trusted = "suspended", false, false, false
	return p
}

func leaseID(n int) string { return fmt.Sprintf("lk2s4u7q3vwkd2xhm5a%08x", n*2654435761%(1<<32)) }

func overviewSample(now time.Time) Overview {
	held := func(ns, name, owner string, waiting int, since, left time.Duration) LockRow {
		return LockRow{NS: ns, Name: name, URL: "/lock", State: "held", HolderCount: 1, Waiting: waiting,
			Holders: []Who{{Owner: owner, LeaseID: leaseID(len(name))}}, HeldSince: now.Add(-since), ExpiresAt: now.Add(left)}
	}
	usual := &Usual{3 * time.Minute, 42, "24 hours"}
	rows := []LockRow{
		held("default", "billing:close-month", "worker-14@fra1", 7, 12*time.Minute, 24*time.Second),
		held("default", "db:migrate:orders", "ci-runner-3", 31, 4*time.Second, 8*time.Minute),
		{NS: "default", Name: "cache:warm", URL: "/lock", State: "held", Mode: "shared", HolderCount: 9, Waiting: 2, Usual: usual, Trend: Trend{"0,9 12,9 13,4 20,0 31,3 40,9 52,9 53,6 59,5", 13}, HeldSince: now.Add(-3 * time.Hour),
			Holders: []Who{{Owner: "edge-1", LeaseID: leaseID(1)}, {Owner: "edge-2", LeaseID: leaseID(2)}, {LeaseID: leaseID(3)}}},
		{NS: "curator", Name: "leader", URL: "/lock", State: "held", HolderCount: 1, Waiting: 2, HeldSince: now.Add(-49 * time.Hour), HeldLonger: true,
			Holders: []Who{{Foreign: true, Program: "Curator"}}, Hazards: 1},
		{NS: "default", Name: "deploy:prod", URL: "/lock", State: "unclaimed", HolderCount: 1, Waiting: 1,
			Holders: []Who{{Owner: "deploy-bot", LeaseID: leaseID(9), Purpose: "deploying orders 4.7.11 to production"}}, HeldSince: now.Add(-2 * time.Second), ExpiresAt: now.Add(3 * time.Second)},
		{NS: "default", Name: "report:nightly", URL: "/lock", State: "queued", Waiting: 4},
		{NS: "default", Name: "sweep", URL: "/lock", State: "free"},
		{NS: "default", Name: "gpu", URL: "/lock", State: "held", Mode: "semaphore", Permits: 8, Limit: 10, HolderCount: 3, Waiting: 2, HeldSince: now.Add(-40 * time.Minute),
			Holders: []Who{{Owner: "transcode-1", LeaseID: leaseID(21)}, {Owner: "transcode-4", LeaseID: leaseID(22)}, {Owner: "thumbs", LeaseID: leaseID(23)}}},
		{NS: "default", Name: "release:notes", URL: "/lock", State: "delayed", Mode: "exclusive", HolderCount: 1, Waiting: 2, ExpiresAt: now.Add(48 * time.Second),
			Holders: []Who{{Owner: "ci-runner-1", LeaseID: leaseID(24), Delayed: true}}},
		held("default", "x"+strings.Repeat("very-long-lock-name.", 10)[:199], strings.Repeat("an-owner-with-a-long-label ", 4), 1200, 26*time.Hour, 59*time.Minute),
		held("default", "payments@eu-west-1", "api-7f9c", 0, 700*time.Millisecond, 29*time.Second),
		held("default", "index:rebuild", "search-2", 1, 95*time.Second, 25*time.Second),
	}
	rows[0].Usual, rows[0].Trend = usual, Trend{"0,9 1,4 2,7 3,2 4,5 5,0 6,3 7,9 30,9 31,3 45,3 59,0", 9}
	rows[1].Usual = usual
	rows[3].Usual = usual
	p := page(now, "Locks · Lockkeeper")
	return Overview{Page: p, Rows: rows, Namespaces: []string{"default", "curator"}, Next: "/?cursor=abc"}
}

func lockSample(now time.Time, waiters int) Lock {
	const dir = "/lockkeeper/locks/db:migrate:orders"
	znode := func(n int) string { return fmt.Sprintf("%s/write-v1.%s-lock-%010d", dir, leaseID(n), n) }
	v := Lock{
		Page: page(now, "db:migrate:orders · Lockkeeper"), NS: "default", Dialect: "native", Name: "db:migrate:orders", Tab: "queue", QueueURL: "/lock", NodesURL: "/nodes",
		Overview: "/", State: "held", Dir: dir, QueueLength: waiters, HolderCount: 1,
		Holders: []Contender{{
			Who: Who{Owner: "ci-runner-3", LeaseID: leaseID(12), Purpose: "deploying orders 4.7.11 to production"}, Mode: "exclusive", Znode: znode(12), FencingToken: 17179869591,
			Since: now.Add(-5 * time.Minute), HeldSince: now.Add(-192 * time.Second), ExpiresAt: now.Add(42 * time.Second), Clock: time.Minute,
			EndsAt:   now.Add(42 * time.Second).UTC(),
			Metadata: "{\n  \"pipeline\": \"orders/4711\",\n  \"commit\": \"9fceb02\"\n}",
		}},
		History: []Happening{
			{At: now.Add(-192 * time.Second), Event: "lease.granted", Who: Who{Owner: "ci-runner-3", LeaseID: leaseID(12), Purpose: "deploying orders 4.7.11 to production"}, FencingToken: 17179869591},
			{At: now.Add(-192 * time.Second), Event: "lease.expired", Who: Who{Owner: "ci-runner-1", LeaseID: leaseID(11)}, FencingToken: 17179869570, Reason: "no heartbeat for 1m0s"},
			{At: now.Add(-5 * time.Minute), Event: "lease.queued", Who: Who{Owner: "ci-runner-3", LeaseID: leaseID(12)}},
			{At: now.Add(-20 * time.Minute), Event: "lease.granted", Who: Who{Owner: "ci-runner-1", LeaseID: leaseID(11)}, FencingToken: 17179869570},
			{At: now.Add(-21 * time.Minute), Event: "lease.released", Who: Who{Foreign: true, Program: "Curator"}},
			{At: now.Add(-3 * time.Hour), Event: "lease.revoke_requested", Who: Who{Owner: "nightly"}, Reason: "the operator asked: maintenance at 03:00"},
		},
		Nodes: []NodeEvent{
			{At: now.Add(-1 * time.Second), Event: "node.created", Path: znode(14)},
			{At: now.Add(-192 * time.Second), Event: "node.deleted", Path: znode(11)},
			{At: now.Add(-200 * time.Second), Event: "node.changed", Path: znode(12)},
			{At: now.Add(-300 * time.Second), Event: "node.created", Path: znode(12)},
			{At: now.Add(-300 * time.Second), Event: "node.created", Path: dir},
		},
	}
	for i := range min(waiters, 100) {
		c := Contender{
			Who: Who{Owner: fmt.Sprintf("ci-runner-%d", 4+i), LeaseID: leaseID(13 + i)}, Position: i + 1, Mode: "exclusive", Znode: znode(13 + i),
			Since: now.Add(-time.Duration(180-i) * time.Second), ExpiresAt: now.Add(time.Duration(4+7*i%50) * time.Second), Clock: time.Minute,
		}
		switch i {
		case 1:
			c = Contender{Who: Who{Foreign: true, Program: "Curator"}, Position: 2, Mode: "exclusive", Since: now.Add(-170 * time.Second),
				Znode: dir + "/_c_0b6f6f0e-6a4c-4f0e-8a0e-5f3c2b1a0d9e-lock-0000000014", Session: "0x100000a5f2c0007", Data: "10.0.3.17"}
		case 3:
			c.Metadata = `{"job":"` + strings.Repeat("backfill-", 400) + `"}`
		case 4:
			c.Owner = ""
		case 5:
			c.Purpose, c.ReservedFor = "load test of the new index", 2*time.Hour
		}
		v.Waiters = append(v.Waiters, c)
	}
	if waiters > 100 {
		v.Next = "/lock?cursor=100"
	}
	return v
}

func namespacesSample(now time.Time) Namespaces {
	row := func(name, root, dialect string, locks int) NamespaceRow {
		return NamespaceRow{Name: name, URL: "/", Root: root, Dialect: dialect, Ready: true, Locks: locks}
	}
	hazardous := row("curator", "/curator/locks", "curator-rw", 14)
	hazardous.Hazards, hazardous.HazardsURL = 2, "/?state=hazard"
	own := row("hosts", "/services/hosts/"+strings.Repeat("a-long-path/", 8)+"locks", "custom", 3)
	own.Names = "{id}-W- {id}-R-"
	return Namespaces{Page: page(now, "Namespaces · Lockkeeper"), Rows: []NamespaceRow{
		row("default", "/lockkeeper/locks", "native", 1284), row("all-of-them", "/shared/locks", "all", 0), hazardous, own,
		row("python", "/app/locks", "kazoo", 12), {Name: "ruby", Root: "/ruby", Dialect: "kazoo"},
		{Name: "tomorrow", Problem: "Namespace tomorrow has the dialect \"quantum\", which this gateway does not know: upgrade it."},
	}}
}

func gatewaysSample(now time.Time) Gateways {
	row := func(id, address, state, tone string, leases int) GatewayRow {
		return GatewayRow{ID: id, Address: address, Version: "1.4.0", Started: now.Add(-26 * time.Hour), Leases: leases, State: state, Tone: tone}
	}
	own, silent := row("hoa2n62b2646q", "gateway-0.gateways.lockkeeper.svc:8080", "serving", "good", 1204), row("yeixhkrpomlfi", "https://gateway-2.example.com:8443", "silent", "warn", 7)
	own.Self, own.Succeeded, silent.Seen = true, 2, "no write for 14 s"
	return Gateways{Page: page(now, "Gateways · Lockkeeper"),
		Rows: []GatewayRow{own, row("6umd6vlxihgyo", "gateway-1.gateways.lockkeeper.svc:8080", "writing", "good", 988), silent, {ID: "aaaaaaaaaaaaa", State: "registered", Tone: "good"}},
		Servers: []ServerRow{{Address: "zookeeper-0.zookeeper:2181", Mode: "leader", Version: "3.8.4", Zxid: "0x50000a1b2c", Connections: 12},
			{Address: "zookeeper-1.zookeeper:2181", Mode: "follower", Version: "3.8.4", Zxid: "0x50000a1b2a", Connections: 9, Lag: "2 behind when last asked"},
			{Address: "zookeeper-2.zookeeper:2181", Problem: "It cannot be reached."}}}
}

// samples are all pages worth looking at, by the path that the preview serves them under.
func samples(now time.Time) map[string]templ.Component {
	// Pages that the preview does not push to: they are looked at as they are.
	lockSample := func(now time.Time, waiters int) Lock {
		v := lockSample(now, waiters)
		v.Live, v.Poll = "/ui/live?still", "/ui/poll?still"
		return v
	}
	empty := overviewSample(now)
	empty.Live, empty.Poll = "/ui/live?still", "/ui/poll?still"
	empty.Rows, empty.Next, empty.Namespaces, empty.MayTake = nil, "", nil, true
	nothing := empty
	nothing.Query = "no-such"
	gone := overviewSample(now)
	gone.Live, gone.Poll = "/ui/live?still", "/ui/poll?still"
	gone.Page = away(gone.Page)
	never := empty
	never.Page = away(never.Page)
	never.Status.ZooKeeper, never.Status.GatewayID = "none", ""
	never.Problem = "ZooKeeper has not been reached yet: which locks there are is not known."

	spaces := namespacesSample(now)
	spaces.Live, spaces.Poll = "/ui/live?still", "/ui/poll?still"
	spaces.Status.Hazards, spaces.Status.HazardsURL = 2, "/namespaces"

	past := lockSample(now, 12)
	past.Timeline, past.API = timelineSample(now), "/v1/locks/x"
	past.Holders[0].Usual, past.Holders[0].BeatAt, past.Holders[0].EndsAt = &Usual{3 * time.Minute, 42, "24 hours"}, now.Add(-3*time.Second), time.Time{}
	past.Waiters[0].Expected = &Expected{Before: 1, Usual: past.Holders[0].Usual, At: now.Add(6 * time.Minute)}
	past.Waiters[2].Expected, past.Waiters[2].Late, past.Waiters[2].BeatAt = &Expected{Before: 3, Usual: past.Holders[0].Usual, AtLeast: 6 * time.Minute}, true, now.Add(-40*time.Second)
	moving := lockSample(now, 12)
	moving.Live, moving.Poll = "/ui/live", "/ui/poll"
	free := lockSample(now, 0)
	free.Holders, free.HolderCount, free.History, free.Nodes, free.State, free.MayTake = nil, 0, nil, nil, "free", true
	shared := lockSample(now, 1204)
	for i := range 4 {
		h := shared.Holders[0]
		h.Znode, h.LeaseID, h.Mode = h.Znode+fmt.Sprint(i), leaseID(100+i), "shared"
		switch i {
		case 1:
			h.Unclaimed, h.ExpiresAt = true, now.Add(3*time.Second)
		case 2:
			h = Contender{Who: Who{Foreign: true, Program: "Kazoo"}, Mode: "shared", Znode: "/lockkeeper/locks/db:migrate:orders/a__rlock__0000000003",
				Session: "0x200000a5f2c0003", Data: "aGVsbG8AAQI=", DataBinary: true, HeldSince: now.Add(-10 * time.Minute), HeldLonger: true, HeldEarliest: now.Add(-22 * time.Minute)}
		case 3:
			h.Mode, h.Permits, h.Owner = "semaphore", 3, strings.Repeat("an owner with a long label ", 4)
		}
		shared.Holders = append(shared.Holders, h)
	}
	shared.HolderCount = 1000
	shared.Hazards = []Hazard{
		{"stray_child", "The directory has children that are no contenders: they may starve other programs' clients: " + strings.Repeat("lost+found ", 12)},
		{"unreadable", "2 contenders may not be read with this gateway's credentials, so their owners are not known."},
		{"programs_ignore_each_other", "Curator's mutex does not wait for Kazoo's Lock; give each a directory of its own"},
	}
	shared.Name = "x" + strings.Repeat("very-long-lock-name.", 10)[:199]
	nodes := lockSample(now, 12)
	nodes.Tab = "zookeeper"
	quietNodes := free
	quietNodes.Tab = "zookeeper"
	gateway := lockSample(now, 3)
	gateway.Page = away(gateway.Page)
	queued := lockSample(now, 2)
	queued.Holders, queued.HolderCount, queued.State = nil, 0, "queued"

	evil := lockSample(now, 2)
	evil.Holders[0].Owner, evil.Holders[0].Metadata, evil.Holders[0].Znode, evil.Holders[0].LeaseID, evil.Holders[0].Purpose = hostile, hostile, hostile, hostile, hostile
	evil.Waiters[1].Program, evil.Waiters[1].Session, evil.Waiters[1].Data, evil.Waiters[1].Znode = hostile, hostile, hostile, hostile
	evil.Name, evil.NS, evil.Dir, evil.State, evil.Problem, evil.Title = hostile, hostile, hostile, hostile, hostile, hostile
	evil.Hazards = []Hazard{{hostile, hostile}}
	evil.History[0].Owner, evil.History[0].Reason, evil.History[0].Event = hostile, hostile, hostile
	evil.Status.GatewayID, evil.Status.Version, evil.Status.Servers, evil.Status.Root = hostile, hostile, []string{hostile}, hostile
	evilNodes := evil
	evilNodes.Tab, evilNodes.Nodes = "zookeeper", []NodeEvent{{now, hostile, hostile}}
	evilList := overviewSample(now)
	evilList.Query, evilList.Namespaces, evilList.Problem = hostile, []string{hostile, "b"}, hostile
	evilList.Rows = []LockRow{{NS: hostile, Name: hostile, URL: "javascript:alert(5)", State: hostile, HolderCount: 2,
		Holders: []Who{{Owner: hostile, LeaseID: hostile}, {Foreign: true, Program: hostile}}}}

	problem := Problem{Page: page(now, "Not found · Lockkeeper"), Status: 404, Title: "There is no such page", Detail: "A lock's page is at /ui/locks/NAMESPACE/NAME."}
	problem.Live = ""

	evil.Timeline, evil.Holders[0].Usual = evilTimeline(now), &Usual{Held: time.Minute, Of: 9, Window: hostile}
	evil.Holders[0].Break, evil.Revoke, evil.Reap, evil.Destroy = "/v1/leases/x/break", "/v1/x", "/v1/y", "/v1/z"
	evil.Holders[0].Group, evil.Holders[0].Holds, evil.Holders[0].Ended = []Link{{hostile, "javascript:alert(6)"}}, []string{hostile}, hostile
	evil.Holders[0].Asked = &Asked{Reason: hostile, Until: now}
	evil.Waiters[0].Why = Why{For: []Who{{Owner: hostile}}}
	evil.Permits = &Permits{Limit: 4, Taken: 2, Shares: []Share{{Who{Owner: hostile}, 2}}, Next: 3, NextWho: Who{Owner: hostile}}
	all := map[string]templ.Component{
		"/":              OverviewPage(overviewSample(now)),
		"/empty":         OverviewPage(empty),
		"/nothing":       OverviewPage(nothing),
		"/away":          OverviewPage(gone),
		"/never":         OverviewPage(never),
		"/lock-past":     LockPage(past),
		"/lock":          LockPage(moving),
		"/lock-free":     LockPage(free),
		"/lock-shared":   LockPage(shared),
		"/lock-away":     LockPage(gateway),
		"/lock-queued":   LockPage(queued),
		"/nodes":         LockPage(nodes),
		"/nodes-empty":   LockPage(quietNodes),
		"/problem":       ProblemPage(problem),
		"/evil":          LockPage(evil),
		"/evil-nodes":    LockPage(evilNodes),
		"/evil-list":     OverviewPage(evilList),
		"/namespaces":    NamespacesPage(spaces),
		"/evil-spaces":   NamespacesPage(Namespaces{Page: evil.Page, Problem: hostile, Rows: []NamespaceRow{{Name: hostile, Root: hostile, Dialect: hostile, Names: hostile, Problem: hostile}}}),
		"/webhooks":      WebhooksPage(webhooksSample(now)),
		"/webhooks-none": WebhooksPage(Webhooks{Page: page(now, "Webhooks · Lockkeeper")}),
		"/webhooks-away": WebhooksPage(Webhooks{Page: away(page(now, "Webhooks · Lockkeeper")), Problem: "ZooKeeper has not been reached yet."}),
		"/webhook":       WebhookPage(webhookSample(now)),
		"/webhook-gone":  WebhookPage(Webhook{Page: page(now, "wh · Lockkeeper"), WebhookRow: WebhookRow{ID: "wh_aaaabbbbccccdddd"}, List: "/webhooks", Gone: true}),
		"/evil-webhooks": WebhooksPage(evilWebhooks(evil.Page)),
		"/evil-webhook":  WebhookPage(evilWebhook(evil.Page)),
		"/gateways":      GatewaysPage(gatewaysSample(now)),
		"/evil-fleet": GatewaysPage(Gateways{Page: evil.Page, Rows: []GatewayRow{{ID: hostile, Address: hostile, Version: hostile, State: "silent", Tone: "bad", Seen: hostile}},
			Servers: []ServerRow{{Address: hostile, Mode: hostile, Version: hostile, Zxid: hostile, Lag: hostile, Problem: hostile}}}),
		"/evil-problem": ProblemPage(Problem{Page: evil.Page, Status: 400, Title: hostile, Detail: hostile}),
	}
	maps.Copy(all, statePages(now))
	maps.Copy(all, viewerSamples(now))
	maps.Copy(all, activitySamples(now))
	return all
}

// fragments are those of a page, by id.
func fragments(now time.Time) map[string]templ.Component {
	lock := lockSample(now, 12)
	return map[string]templ.Component{
		"status": StatusFragment(lock.Status), "locks": LocksFragment(overviewSample(now)), "lock-head": LockHeadFragment(lock),
		"queue": QueueFragment(lock), "timeline": TimelineFragment(*timelineSample(now)), "holds": HoldsFragment(*timelineSample(now)), "history": HistoryFragment(lock), "nodes": NodesFragment(lock),
		"namespaces": NamespacesFragment(namespacesSample(now)), "gateways": GatewaysFragment(gatewaysSample(now)),
		"activity": ActivityFragment(activitySample(now)), "attention": AttentionFragment(Overview{Attention: attentionSample(now), Hazardous: 1}),
		"pinned": PinnedFragment(Pinned{Rows: overviewSample(now).Rows}), "wall": WallFragment(wallSample(now)),
	}
}
