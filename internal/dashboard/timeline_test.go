package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

// shows requires that a page has parts, in this order.
func shows(t *testing.T, html string, parts ...string) {
	t.Helper()
	last := 0
	for _, part := range parts {
		at := strings.Index(html[last:], part)
		assert.Must(t, at >= 0, "%s is missing, or stands before what it must follow, in %s", part, html)
		last += at + len(part)
	}
}

// night is a history of the night before: ben's lease expired at three, cron holds since.
func night() *remembered {
	three := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	return &remembered{answer: history.Answer{
		Items: []history.Item{
			{Kind: history.Hold, NS: "default", Lock: "deploy", LeaseID: "lkcron", Owner: "cron", Mode: locks.Exclusive, Begin: three.Add(30 * time.Second), Waited: time.Minute, WaitedKnown: true, FencingToken: 9},
			{Kind: history.Hold, NS: "default", Lock: "deploy", LeaseID: "lkben", Owner: "ben", Purpose: evil, Mode: locks.Exclusive, Begin: three.Add(-7 * time.Minute), End: three.Add(30 * time.Second), FencingToken: 7,
				Reason: locks.ReasonExpired, Waited: 90 * time.Second, WaitedKnown: true, Gateway: "gw1"},
			{Kind: history.Hold, NS: "default", Lock: "deploy", LeaseID: "lkanna", Owner: "anna", Mode: locks.Exclusive, Begin: three.Add(-19 * time.Minute), End: three.Add(-7 * time.Minute), Reason: locks.ReasonReleased},
		},
		Coverage: history.Coverage{Since: three.Add(-15 * time.Minute), Gaps: []history.Gap{{From: three.Add(10 * time.Minute), To: three.Add(14 * time.Minute), Cause: history.CauseStopped}}},
	}}
}

func TestThePageSaysWhoHeldALockAtAnInstantAndHowThatEnded(t *testing.T) {
	past := night()
	r := newRig(t, func(o *Options) { o.History = past })
	r.fake.ends = map[string]locks.Postmortem{"lkben": {LeaseID: "lkben", LastHeartbeat: 61 * time.Second, TTL: time.Minute}}
	rules := assert.Value(access.New(access.Grant{NS: "default", Locks: "*", Verbs: []access.Verb{access.Read}}))(t)
	html := r.as(t, locks.Principal{Name: "token:ann", Rules: rules}, "/locks/deploy?at=2026-11-22T03:00Z").Body.String()
	shows(t, html, "2026-11-22 02:30 to 2026-11-22 03:30 UTC", "bar-loud", "ben", "History since", "2 parts of this time are not recorded", "2026-11-22 03:10 to 2026-11-22 03:14 UTC: the gateway did not run.",
		"2026-11-22 03:00 UTC: it was held by", "ben", "2026-11-22 02:53 to 2026-11-22 03:00:30 UTC:", "expired", "no heartbeat", "3 holds as a list", "cron", "ben", "anna")
	q := past.asked[0]
	three := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	assert.That(t, len(past.asked) == 1 && q.Rules.Key() == rules.Key() && q.NS == "default" && q.Lock == "deploy" && q.Kinds == history.Holds && q.From.Equal(three.Add(-30*time.Minute)) && q.To.Equal(three.Add(30*time.Minute)), "%+v", past.asked)

	card := r.get(t, "/locks/deploy?at=2026-11-22T03:00Z&hold=lkben").Body.String()
	shows(t, card, `id="hold"`, "ben", evilShown2, "expired", "Held", "7m 30s", "Waited", "1m 30s", "Last heartbeat", "1m 01s before the end", "TTL", "Fencing token", "7", "Gateway", "gw1", "Next holder", "cron", "0ms later", `href="/v1/leases/lkben/postmortem"`)
	shows(t, r.get(t, "/locks/deploy?at=2026-11-22T03:00Z&hold=lknone").Body.String(), "The history has no such hold in this time.")
	shows(t, r.get(t, "/locks/deploy?at=2026-11-22T02:35Z").Body.String(), "2026-11-22 02:35 UTC: the history does not know of a holder: the history does not reach back that far.")
	past.answer.Items = nil
	shows(t, r.get(t, "/locks/deploy?at=2026-11-22T02:55Z&range=6h").Body.String(), "2026-11-22 02:55 UTC: the lock was free.")
	shows(t, r.get(t, "/locks/deploy?at=2026-11-22T03:11Z").Body.String(), "2026-11-22 03:11 UTC: the history does not know of a holder: the gateway did not run.")
	shows(t, r.get(t, "/locks/deploy?"+url.Values{"at": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}}.Encode()).Body.String(), "has not come yet")
}

// What is random in lease ids is most of what a long timeline weighs.
func TestTheEndOfALeaseIDIsEnoughToAskForItsHold(t *testing.T) {
	past := night()
	const lease, end = "lk7zeszcneibhyj6bvgateway00random0123456789", "0123456789"
	past.answer.Items[1].LeaseID = lease
	r := newRig(t, func(o *Options) { o.History = past })
	r.fake.ends = map[string]locks.Postmortem{lease: {LeaseID: lease, LastHeartbeat: 61 * time.Second, TTL: time.Minute}}
	html := r.get(t, "/locks/deploy?at=2026-11-22T03:00Z").Body.String()
	shows(t, html, "hold="+end)
	assert.That(t, !strings.Contains(html, "hold="+lease), "a link has the whole lease id")
	for _, hold := range []string{end, lease} {
		shows(t, r.get(t, "/locks/deploy?at=2026-11-22T03:00Z&hold="+hold).Body.String(), "bar-chosen", `id="hold"`, `href="/v1/leases/`+lease+`/postmortem"`)
	}
	shows(t, r.get(t, "/locks/deploy?at=2026-11-22T03:00Z&hold="+end[1:]).Body.String(), "The history has no such hold in this time.")
}

func TestAPageWithoutAHistorySaysSo(t *testing.T) {
	shows(t, newRig(t).get(t, "/locks/deploy").Body.String(), "This gateway keeps no history (--history=off)")
	past := &remembered{err: history.ErrOff, problem: "disk full"}
	r := newRig(t, func(o *Options) { o.History = past })
	shows(t, r.get(t, "/locks/deploy").Body.String(), "The history cannot be read now: disk full.")
	past.err = errors.New("secret detail")
	html := r.get(t, "/locks/other").Body.String()
	shows(t, html, "See the gateway&#39;s log.")
	assert.That(t, !strings.Contains(html, "secret detail"), "it shows the error")
}

func TestATimeThatIsWrittenWronglyIsRefused(t *testing.T) {
	r := newRig(t, func(o *Options) { o.History = night() })
	for _, query := range []string{"at=yesterday", "until=3", "at=1000-01-01T00:00Z", "range=2h", "at=99999-01-01T00:00Z"} {
		w := r.get(t, "/locks/deploy?"+query)
		assert.That(t, w.Code == http.StatusUnprocessableEntity && strings.Contains(w.Body.String(), query[:strings.Index(query, "=")]+" is "), "%s: %d", query, w.Code)
	}
	for _, at := range []string{"2026-11-22T03:00Z", "2026-11-22T03:00", "2026-11-22T03:00:00Z", "2026-11-22T04:00:00+01:00", "2026-11-22T03:00:00.000"} {
		shows(t, r.get(t, "/locks/deploy?"+url.Values{"at": {at}}.Encode()).Body.String(), "2026-11-22 03:00 UTC: it was held by")
	}
}

// Pages are read ten times a second, and many look at the same.
func TestTheHistoryIsAskedOnceForAllReadingsOfAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		past := night()
		r := newRig(t, func(o *Options) { o.History = past })
		read := func(path string) {
			for range 20 {
				r.get(t, path)
			}
		}
		read("/locks/deploy")
		assert.That(t, len(past.asked) == 1 && past.counted == len(usualWindows), "asked %d times for holds, %d times for figures", len(past.asked), past.counted)
		time.Sleep(4 * time.Second)
		read("/locks/deploy")
		assert.Equal(t, len(past.asked), 1, "after 4 s")
		time.Sleep(10 * time.Second)
		read("/locks/deploy")
		assert.Equal(t, len(past.asked), 2, "after 14 s")
		read("/locks/deploy?range=7d")
		time.Sleep(40 * time.Second)
		read("/locks/deploy?range=7d")
		assert.Equal(t, len(past.asked), 3, "the week, 40 s later")
		for n := range 3 * maxRemembered {
			r.get(t, fmt.Sprintf("/locks/l%d", n))
		}
		assert.That(t, len(r.memory.known.of) <= maxRemembered, "%d answers are kept", len(r.memory.known.of))
	})
}

func TestATimelineOfManyHoldsReadsABoundedPartOfThem(t *testing.T) {
	past := night()
	past.answer.Next = "more"
	r := newRig(t, func(o *Options) { o.History = past })
	shows(t, r.get(t, "/locks/deploy?at=2026-11-22T03:00Z").Body.String(), "there were too many holds since: choose a shorter range", "The latest 9 of more than 9 holds as a list")
	assert.That(t, len(past.asked) == maxPages && past.asked[maxPages-1].Cursor == "more", "asked %d times", len(past.asked))
}

func TestThePageSaysWhatIsUsualAndHowLongToWait(t *testing.T) {
	now := time.Now()
	since := now.Add(-time.Minute)
	contender := func(owner string, position int) locks.Contender {
		return locks.Contender{At: now, LeaseID: "lk" + owner, Owner: owner, Znode: "/l/deploy/" + owner, Mode: locks.Exclusive, Position: position, HeldFor: time.Minute, Clock: time.Minute, ExpiresIn: 50 * time.Second, LastHeartbeat: 10 * time.Second}
	}
	day, week := usualWindows[0].span, usualWindows[1].span
	for what, c := range map[string]struct {
		stats  map[time.Duration]history.Spans
		change func(*locks.Lock)
		want   []string
		not    []string
	}{
		"of a day": {map[time.Duration]history.Spans{day: {Count: 42, P50: 3 * time.Minute}}, nil,
			[]string{"usually 3 min", "data-ago=", "1 before it, usually held 3 min (42 holds)", fmt.Sprintf(`data-about="%d"`, since.Add(3*time.Minute).UnixMilli()), "2 before it, usually held 3 min (42 holds)", fmt.Sprintf(`data-about="%d"`, since.Add(6*time.Minute).UnixMilli())}, nil},
		"of a week, when a day has too few": {map[time.Duration]history.Spans{day: {Count: 4, P50: time.Minute}, week: {Count: 9, P50: 2 * time.Hour}}, nil, []string{"of 9 holds that ended in the last 7 days", "usually 2 h"}, nil},
		"too few to say":                    {map[time.Duration]history.Spans{week: {Count: 4, P50: time.Minute}}, nil, nil, []string{"usually", "data-about"}},
		"held longer than usual":            {map[time.Duration]history.Spans{day: {Count: 42, P50: 20 * time.Second}}, nil, []string{"the holder has held longer", "soon, or not", "over 20 s"}, []string{"data-about"}},
		"quicker than is worth saying":      {map[time.Duration]history.Spans{day: {Count: 42, P50: time.Second}}, nil, []string{"usually 1 s"}, []string{"before it"}},
		"readers go in together": {map[time.Duration]history.Spans{day: {Count: 42, P50: 3 * time.Minute}}, func(l *locks.Lock) { l.Waiters[1].Mode = locks.Shared },
			[]string{"1 before it"}, []string{"2 before it"}},
		"several holders":             {map[time.Duration]history.Spans{day: {Count: 42, P50: 3 * time.Minute}}, func(l *locks.Lock) { l.HolderCount = 2 }, []string{"usually 3 min"}, []string{"before it"}},
		"another gateway's heartbeat": {nil, func(l *locks.Lock) { l.Holders[0].LastHeartbeat, l.Holders[0].Clock, l.Holders[0].ExpiresIn = 0, 0, 0 }, nil, []string{"Last heartbeat"}},
		"a waiter that fell silent":   {nil, func(l *locks.Lock) { l.Waiters[0].LastHeartbeat = 40 * time.Second }, []string{"Last heartbeat", "expires in"}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.History = &remembered{stats: c.stats} })
			r.fake.lock = func(q locks.LockRequest) (locks.Lock, error) {
				l := locks.Lock{NS: q.NS, Name: q.Lock, State: locks.LockHeld, HolderCount: 1, QueueLength: 2, Holders: []locks.Contender{contender("a", 0)}, Waiters: []locks.Contender{contender("b", 1), contender("c", 2)}}
				if c.change != nil {
					c.change(&l)
				}
				return l, nil
			}
			html := r.get(t, "/locks/deploy").Body.String()
			queue := html[strings.Index(html, `id="queue"`):]
			queue = queue[:strings.Index(queue, "</section>")]
			shows(t, queue, c.want...)
			for _, words := range c.not {
				assert.That(t, !strings.Contains(queue, words), "it says %q in %s", words, queue)
			}
		})
	}
}

func TestTheHistoryKnowsAGrantThatTheGatewayDidNotSee(t *testing.T) {
	now := time.Now()
	grant := now.Add(-9 * time.Hour)
	ours := locks.Contender{At: now, LeaseID: "lk1", Owner: "nightly", Znode: "/l/deploy/n1", Mode: locks.Exclusive, HeldFor: 12 * time.Second, HeldLonger: true}
	theirs := locks.Contender{At: now, Znode: "/l/deploy/_c_1-lock-0000000003", Foreign: &locks.Foreign{Program: "Curator"}, HeldFor: 12 * time.Second, HeldLonger: true}
	past := &remembered{answer: history.Answer{Items: []history.Item{
		{Kind: history.Hold, LeaseID: "lk1", Begin: grant},
		{Kind: history.Hold, Foreign: true, Name: "_c_1-lock-0000000003", Begin: grant.Add(time.Hour), Early: time.Hour},
		{Kind: history.Hold, LeaseID: "lk1", Begin: grant.Add(-time.Hour), End: grant}, // an earlier hold of it has ended
	}}}
	r := newRig(t, func(o *Options) { o.History = past })
	r.fake.lock = func(q locks.LockRequest) (locks.Lock, error) {
		return locks.Lock{NS: q.NS, Name: q.Lock, State: locks.LockHeld, HolderCount: 2, Holders: []locks.Contender{ours, theirs}}, nil
	}
	html := r.get(t, "/locks/deploy").Body.String()
	shows(t, html, fmt.Sprintf(`data-since="%d"`, grant.UnixMilli()), fmt.Sprintf(`data-since="%d" data-earliest="%d"`, grant.Add(time.Hour).UnixMilli(), grant.UnixMilli()))
	assert.That(t, !strings.Contains(html, "data-over"), "a hold of nine hours is called longer than 12 s")
}
