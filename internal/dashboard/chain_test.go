package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/web/templates"
)

func TestAChainIsFollowedToItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		graph     locks.WaitGraph
		contender string
		want      string
		end       chainEnd
	}{
		"to one that goes on":          {graphOf("job-web>bob", "bob-orders>cron"), "job@web", "job web bob, bob orders cron", endsFree},
		"from its middle":              {graphOf("job-web>bob", "bob-orders>cron"), "bob@orders", "bob orders cron", endsFree},
		"its own wait, not another":    {graphOf("job-a>ann", "job-web>bob", "bob-orders>cron"), "job@web", "job web bob, bob orders cron", endsFree},
		"a circle":                     {graphOf("Ann-two>Bob", "Bob-one>Ann"), "ann@two", "ann two bob, bob one ann", endsCircle},
		"into a circle":                {graphOf("Zoe-two>Bob", "Ann-two>Bob", "Bob-one>Ann"), "zoe@two", "zoe two bob, bob one ann, ann two bob", endsCircle},
		"by way of those that stick":   {graphOf("Job-pool>free", "Job-pool>Bob", "Bob-one>Job"), "job@pool", "job pool bob +1, bob one job", endsCircle},
		"holders before those ahead":   {graphOf("job-web>>eve", "job-web>bob"), "job@web", "job web bob", endsFree},
		"behind a waiter":              {graphOf("reader-web>>writer", "writer-web>other"), "reader@web", "reader web writer, writer web other", endsFree},
		"others that hold":             {graphOf("job-pool>ann", "job-pool>bob", "job-pool>cyd"), "job@pool", "job pool ann +2", endsFree},
		"it waits for itself":          {graphOf("Ann-one>Ann"), "ann@one", "ann one ann", endsCircle},
		"more waits than a page shows": {graphOf("a-1>b", "b-2>c", "c-3>d", "d-4>e", "e-5>f", "f-6>g", "g-7>h", "h-8>i", "i-9>j"), "a@1", "a 1 b, b 2 c, c 3 d, d 4 e, e 5 f, f 6 g, g 7 h, h 8 i", endsCut},
		"one that is not there":        {graphOf("job-web>bob"), "none", "", endsFree},
	} {
		t.Run(name, func(t *testing.T) {
			v := fakeWaits{c.graph}.Ahead("default", "", c.contender, 0)
			hops, end := chainOf(&v, c.contender)
			var got []string
			for _, h := range hops {
				s := strings.ReplaceAll(h.wait.From+" "+h.wait.Lock+" "+h.wait.To, "owner:", "")
				if h.others > 0 {
					s += fmt.Sprintf(" +%d", h.others)
				}
				got = append(got, s)
			}
			assert.Equal(t, strings.Join(got, ", "), c.want)
			assert.Equal(t, end, c.end)
		})
	}
}

func TestAWaiterIsMarkedWithItsChainAndTheTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		r.fake.waits.graph = graphOf("job-web>bob", "bob-orders>cron")
		contender := func(owner, lock string, position int, span time.Duration) locks.Contender {
			c := locks.Contender{At: started, LeaseID: owner + "@" + lock, Owner: owner, Znode: "/locks/" + lock + "/" + owner, Position: position}
			if position > 0 {
				c.Age, c.AgeKnown = span, true
			} else {
				c.HeldFor, c.Clock, c.ExpiresIn = span, time.Minute, 57*time.Second
			}
			return c
		}
		var around []string
		r.fake.lock = func(q locks.LockRequest) (locks.Lock, error) {
			around = append(around, q.Lock+" "+q.Around)
			l := locks.Lock{NS: q.NS, Name: q.Lock, State: locks.LockHeld, QueueLength: 1, HolderCount: 1}
			if q.Lock == "web" {
				l.Holders, l.Waiters = []locks.Contender{contender("bob", "web", 0, 22*time.Minute)}, []locks.Contender{contender("job", "web", 1, 4*time.Minute)}
			} else {
				l.Holders, l.Waiters = []locks.Contender{contender("cron", "orders", 0, 21*time.Minute)}, []locks.Contender{contender("bob", "orders", 1, 20*time.Minute)}
			}
			return l, nil
		}
		plain := r.get(t, "/locks/web").Body.String()
		assert.That(t, strings.Contains(plain, `href="/locks/web?contender=job%40web"`) && !strings.Contains(plain, `class="chain"`), "no waiter leads to its chain")
		html := r.get(t, "/locks/web?contender=job%40web").Body.String()
		chain := html[strings.Index(html, `<div class="chain">`):]
		last := 0
		for _, part := range []string{"job", `data-since="` + ms(-4*time.Minute), `href="/locks/web"`, "bob", `data-since="` + ms(-22*time.Minute), `data-since="` + ms(-20*time.Minute), `href="/locks/orders"`, "cron",
			`data-since="` + ms(-21*time.Minute), "heartbeat", `data-ago="` + ms(-3*time.Second), "same owner name", `href="/graph?lock=web"`, `href="/locks/web"`} {
			at := strings.Index(chain[last:], part)
			assert.Must(t, at >= 0, "the chain lacks %s behind %s", part, chain[:last])
			last += at
		}
		assert.That(t, strings.Contains(html, `aria-current="true"`) && strings.Contains(html, "is-marked"), "the row is not marked")
		assert.That(t, around[1] == "web job@web" && around[len(around)-1] == "orders bob@orders", "%q", around)
		gone := r.get(t, "/locks/web?contender=nobody").Body.String()
		assert.That(t, strings.Contains(gone, "is not in the queue") && !strings.Contains(gone, `class="chain"`), "%s", gone)
	})
}

func ms(d time.Duration) string { return fmt.Sprint(started.Add(d).UnixMilli()) }

func TestAPartyHasAName(t *testing.T) {
	for _, c := range []struct {
		give locks.Party
		want templates.Who
	}{
		{locks.Party{ID: "owner:" + evil, Kind: locks.PartyOwner, Owner: evil}, templates.Who{Owner: evilShown}},
		{locks.Party{ID: "lease:lk1", Kind: locks.PartyLease, Owner: "10.0.0.7"}, templates.Who{Owner: "10.0.0.7", LeaseID: "lk1"}},
		{locks.Party{ID: "lease:lk1", Kind: locks.PartyLease}, templates.Who{LeaseID: "lk1"}},
		{locks.Party{ID: "session:0x1f", Kind: locks.PartySession, Program: "Curator"}, templates.Who{Foreign: true, Program: "Curator", Owner: "session 0x1f"}},
		{locks.Party{ID: "session:0x1f", Kind: locks.PartySession, Program: "Kazoo", Label: "job " + evil}, templates.Who{Foreign: true, Program: "Kazoo", Owner: "job " + evilShown}},
		{locks.Party{ID: "znode:/a/b-1", Kind: locks.PartyZnode}, templates.Who{Foreign: true, Owner: "znode /a/b-1"}},
	} {
		assert.Equal(t, partyWho(&c.give), c.want)
	}
}

func TestTheLastHeartbeatIsSaidOnlyWhereItIsKnown(t *testing.T) {
	c := locks.Contender{At: now, Clock: time.Minute, ExpiresIn: 57 * time.Second}
	assert.Equal(t, lastBeat(&c), now.Add(-3*time.Second))
	for _, change := range []func(*locks.Contender){
		func(c *locks.Contender) { c.Clock = 0 }, func(c *locks.Contender) { c.ExpiresIn = 0 }, func(c *locks.Contender) { c.Delayed = true },
		func(c *locks.Contender) { c.Unclaimed = true }, func(c *locks.Contender) { c.EndsAt = now }, func(c *locks.Contender) { c.ReservedFor = 1 },
		func(c *locks.Contender) { c.Revoke = &locks.Revocation{Forced: true} },
	} {
		other := c
		change(&other)
		assert.That(t, lastBeat(&other).IsZero(), "%+v", other)
	}
}
