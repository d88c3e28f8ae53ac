package dashboard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

// remembered is a history with a given answer.
type remembered struct {
	answer history.Answer
	err    error
	asked  []history.Query

	stats   map[time.Duration]history.Spans // of holds, by window
	counted int                             // how often stats were asked for
	problem string
}

func (r *remembered) Stats(_ context.Context, q history.StatsQuery) (*history.Stats, error) {
	r.counted++
	return &history.Stats{Hold: r.stats[q.Window]}, r.err
}

func (r *remembered) Status() history.Status { return history.Status{Problem: r.problem} }

func (r *remembered) Query(_ context.Context, q history.Query) (history.Answer, error) {
	r.asked = append(r.asked, q)
	return r.answer, r.err
}

// owned is a contender as a search finds it.
func owned(lock string, position int) locks.FoundContender {
	return locks.FoundContender{NS: "default", Lock: lock, Contender: locks.Contender{At: started, LeaseID: "lk@" + lock, Owner: "alice@ci-1", Znode: "/locks/" + lock + "/n", Position: position, HeldFor: time.Minute}}
}

func TestThePageOfAnOwnerShowsWhatItHoldsAndWaitsFor(t *testing.T) {
	past := &remembered{answer: history.Answer{Items: []history.Item{
		{Kind: history.Hold, NS: "default", Lock: "backup", Owner: "alice@ci-1", Begin: started, End: started.Add(3 * time.Minute), Reason: locks.ReasonExpired},
		{Kind: history.Wait, NS: "team", Lock: "later", Owner: "alice@ci-1", Begin: started, End: started.Add(5 * time.Minute), Reason: locks.ReasonWaitElapsed, Detail: evil},
		{Kind: history.Hold, NS: "default", Lock: "still-held", Owner: "alice@ci-1", Begin: started},
	}}}
	r := newRig(t, func(o *Options) { o.History = past })
	var asked locks.FindRequest
	r.fake.found = func(q locks.FindRequest) locks.Found {
		asked = q
		return locks.Found{Contenders: []locks.FoundContender{owned("deploy", 0), owned("shop:till", 0), owned("db", 3)}}
	}
	rules := assert.Value(access.New(access.Grant{NS: "default", Locks: "*", Verbs: []access.Verb{access.Read}}, access.Grant{NS: "default", Locks: "shop:*", Verbs: []access.Verb{access.Acquire}}))(t)
	html := r.as(t, locks.Principal{Name: "token:ann", Rules: rules}, "/owners/alice@ci-1").Body.String()
	assert.That(t, asked.Owner == "alice@ci-1" && asked.Host == "" && asked.Limit == ownedLength && asked.Principal.Rules.Key() == rules.Key(), "%+v", asked)
	last := 0
	for _, part := range []string{`href="/hosts/ci-1"`, "alice@ci-1</h1>", "holds 2 locks, waits for 1", "Ask all to release…", `href="/locks/deploy"`, `href="/locks/shop:till"`, `href="/locks/db"`, `href="/locks/db?contender=lk%40db"`,
		`href="/locks/later?ns=team"`, "waited 5m0s", "wait elapsed", evilShown2, `href="/locks/backup"`, "held 3m0s", "expired"} {
		at := strings.Index(html[last:], part)
		assert.Must(t, at >= 0, "%s is missing, or stands before what it must follow, in %s", part, html)
		last += at
	}
	assert.That(t, !strings.Contains(html, "still-held"), "what goes on has ended")
	// Only what the viewer may ask is offered to be asked.
	assert.That(t, strings.Contains(html, `data-revoke="/v1/locks/shop:till/revoke"`) && !strings.Contains(html, `data-revoke="/v1/locks/deploy/revoke"`), "%s", html)
	assert.That(t, len(past.asked) == 1 && past.asked[0].Rules.Key() == rules.Key() && past.asked[0].Owner == "alice@ci-1", "%+v", past.asked)

	reader := assert.Value(access.New(access.Grant{NS: "default", Locks: "*", Verbs: []access.Verb{access.Read}}))(t)
	html = r.as(t, locks.Principal{Name: "token:eve", Rules: reader}, "/owners/alice@ci-1").Body.String()
	assert.That(t, !strings.Contains(html, "Ask all to release…") && !strings.Contains(html, "data-revoke"), "one who may not ask is offered to")
}

// evilShown2 is evil as HTML has it.
const evilShown2 = "␛[31m&lt;b&gt;\\u{202e}txt.exe"

func TestThePageOfAHostNamesTheOwnersOfItsLeases(t *testing.T) {
	r := newRig(t)
	var asked locks.FindRequest
	r.fake.found = func(q locks.FindRequest) locks.Found {
		asked = q
		return locks.Found{Contenders: []locks.FoundContender{owned("deploy", 0)}, More: true}
	}
	html := r.get(t, "/hosts/ci-1").Body.String()
	assert.That(t, asked.Host == "ci-1" && asked.Owner == "", "%+v", asked)
	for _, part := range []string{`href="/owners/alice@ci-1"`, "There are more", `data-who="deploy, alice@ci-1"`} {
		assert.That(t, strings.Contains(html, part), "%s is missing in %s", part, html)
	}
	assert.That(t, !strings.Contains(html, "Ended in the last day"), "without a history it tells of the past")
	r.fake.found = func(locks.FindRequest) locks.Found { return locks.Found{Stopped: true} }
	assert.That(t, strings.Contains(r.get(t, "/hosts/ci-1").Body.String(), "may lack some"), "a search that stopped is not said to have")
	assert.That(t, strings.Contains(r.get(t, "/owners/10.0.0.7").Body.String(), "An address"), "an address is called a party")
}

func TestAPageOfAnOwnerGoesOnWithoutTheHistory(t *testing.T) {
	r := newRig(t, func(o *Options) { o.History = &remembered{err: errors.New("damaged")} })
	w := r.get(t, "/owners/alice")
	assert.That(t, w.Code == 200 && !strings.Contains(w.Body.String(), "Ended in the last day"), "%d %s", w.Code, w.Body)
}

func TestAnOwnerThatCannotBeIsRefused(t *testing.T) {
	r := newRig(t)
	assert.Equal(t, r.get(t, "/owners/").Code, 404)
	assert.Equal(t, r.get(t, "/hosts/").Code, 404)
	assert.Equal(t, r.get(t, "/owners/"+strings.Repeat("x", locks.MaxOwner+1)).Code, 422)
	assert.Equal(t, r.get(t, "/owners/%00").Code, 422)
}
