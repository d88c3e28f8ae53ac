package templates

import (
	"fmt"
	"time"

	"github.com/a-h/templ"
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
		v.Revoke, v.Reap, v.Destroy = "/v1/locks/sample/revoke", "/v1/locks/sample/reap", "/v1/locks/sample/destroy"
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
