package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/webhooks"
	"lockkeeper/web/templates"
)

// queueOf makes a lock of words: "x" an exclusive one, "s" a shared one, "3/10" three of ten permits, "d" one whose place
// is kept, "g" or "gs" one of a group. What is before the bar holds.
func queueOf(words string) *locks.Lock {
	l := &locks.Lock{NS: "default", Name: "a", State: locks.LockHeld}
	holds, position := true, 0
	var ahead recipe.Ahead
	for i, word := range strings.Fields(words) {
		if word == "|" {
			holds = false
			continue
		}
		name := string(rune('A' + i))
		c := locks.Contender{At: now, LeaseID: name, Owner: name, Znode: "/a/" + name, Mode: locks.Exclusive}
		if rest, ok := strings.CutPrefix(word, "g"); ok {
			c.Group, word = []string{"b"}, rest
		}
		switch word {
		case "s":
			c.Mode = locks.Shared
		case "d":
			c.Delayed, c.Clock, c.ExpiresIn = true, time.Minute, time.Minute
		case "x", "":
		default:
			c.Mode = locks.Semaphore
			if _, err := fmt.Sscanf(word, "%d/%d", &c.Permits, &c.Limit); err != nil {
				panic(err)
			}
		}
		entry := &recipe.Contender{LeaseID: recipe.LeaseID(name), Ours: true, Permits: int32(c.Permits), Limit: int32(c.Limit),
			Mode: map[locks.Mode]recipe.Mode{locks.Shared: recipe.Shared, locks.Semaphore: recipe.Permit}[c.Mode]}
		if holds {
			ahead.Next(entry, 0)
			l.Holders = append(l.Holders, c)
			continue
		}
		position++
		c.Position = position
		c.Wait = ahead.Next(entry, position)
		l.Waiters = append(l.Waiters, c)
	}
	l.QueueLength = position
	return l
}

func TestAPageSaysWhyAWaiterWaits(t *testing.T) {
	who := func(names ...string) (list []templates.Who) {
		for _, n := range names {
			list = append(list, templates.Who{Owner: n, LeaseID: n})
		}
		return list
	}
	for _, c := range []struct {
		queue string
		want  []templates.Why
	}{
		{"x | x x", []templates.Why{{For: who("A")}, {}}},
		{"s s s | x s s x s", []templates.Why{{For: who("A", "B"), Others: 1, Readers: true}, {At: 1, Writer: true, Together: 1}, {}, {}, {At: 4, Writer: true}}},
		{"x | s s", []templates.Why{{For: who("A"), Together: 1}, {}}},
		{"d | x", []templates.Why{{For: []templates.Who{{Owner: "A", LeaseID: "A", Delayed: true}}, Delay: true, Until: now.Add(time.Minute)}}},
		{"4/10 3/10 | 4/10 1/10 2/20", []templates.Why{{Need: 4, Free: 3, Of: 10}, {Need: 1, Of: 10}, {}}},
		{"x | 1/2 1/2", []templates.Why{{For: who("A")}, {}}},
		{"2/2 | s", []templates.Why{{For: who("A")}}},
		{"2/2 | 1/2 s", []templates.Why{{Need: 1, Of: 2}, {At: 1}}},
		{"| x", []templates.Why{{}}}, // it is being granted
		{"| g", []templates.Why{{}}},
		{"x | g", []templates.Why{{For: who("A")}}},
		{"s | gs s gs x", []templates.Why{{}, {}, {}, {For: who("A", "C"), Others: 2, Readers: true}}},
		{"| g x", []templates.Why{{}, {For: who("B")}}},
		{"2/10 | g4/10 g5/10", []templates.Why{{}, {Need: 5, Free: 4, Of: 10}}},
	} {
		var v templates.Lock
		l := queueOf(c.queue)
		showLock(&v, l, access.Everything(), "/r", true)
		for i := range v.Waiters {
			diff := cmp.Diff(c.want[i], v.Waiters[i].Why)
			assert.That(t, diff == "", "%s: waiter %d: %s", c.queue, i+1, diff)
			front := slices.Contains([]string{"| g 1", "s | gs s gs x 1", "s | gs s gs x 3", "2/10 | g4/10 g5/10 1", "| g x 1"}, fmt.Sprint(c.queue, " ", i+1))
			assert.That(t, v.Waiters[i].AtFront == front, "%s: waiter %d: at the front is %t", c.queue, i+1, !front)
		}
	}
}

// A page further back shows what the lock manager says of the whole queue.
func TestAPageFurtherBackSaysWhatAWaiterWaitsFor(t *testing.T) {
	var v templates.Lock
	l := queueOf("x | x x s s x s 1/10")
	l.Waiters = l.Waiters[2:]
	showLock(&v, l, access.Everything(), "/r", false)
	var got []templates.Why
	for _, w := range v.Waiters {
		got = append(got, w.Why)
	}
	diff := cmp.Diff([]templates.Why{{At: 2, Writer: true, Together: 1}, {}, {}, {At: 5, Writer: true}, {}}, got)
	assert.That(t, diff == "", "%v", diff)
}

func TestReadersThatGoInTogetherAreDrawnTogether(t *testing.T) {
	var v templates.Lock
	showLock(&v, queueOf("x | s x s s s"), access.Everything(), "/r", true)
	var got []templates.Convoy
	for _, w := range v.Waiters {
		got = append(got, w.Convoy)
	}
	want := []templates.Convoy{"", "", templates.ConvoyFirst, templates.ConvoyMiddle, templates.ConvoyLast}
	assert.That(t, slices.Equal(got, want), "%q", got)
}

func TestPermitsAddUp(t *testing.T) {
	p := permitsOf(queueOf("4/10 3/10 | 4/10"), true)
	assert.That(t, p != nil && p.Limit == 10 && p.Taken == 7 && len(p.Shares) == 2 && p.Next == 4 && p.NextWho.Owner == "D", "%+v", p)
	// The lock's own limit is the newest; holders may count on another one.
	l := queueOf("4/10 4/10 |")
	l.Limit = 6
	p = permitsOf(l, true)
	assert.That(t, p.Limit == 6 && p.Taken == 8, "%+v", p)
	l = queueOf(strings.Repeat("1/100 ", 60) + "| 1/100")
	p = permitsOf(l, true)
	assert.That(t, p.Taken == 60 && len(p.Shares) == mostShares, "%d taken, %d parts", p.Taken, len(p.Shares))
	assert.That(t, permitsOf(l, false).Next == 0, "who is next is not on this page")
	for _, words := range []string{"x |", "x | 1/4", "s | x", "|"} {
		assert.That(t, permitsOf(queueOf(words), true) == nil, "%s", words)
	}
}

func TestTheOverviewShowsHowALockIsHeld(t *testing.T) {
	for words, want := range map[string][3]any{
		"x |": {"exclusive", 0, 0}, "s s |": {"shared", 0, 0}, "4/10 3/10 | 4/10": {"semaphore", 7, 10}, "| x": {"", 0, 0},
	} {
		row := rowOf(queueOf(words))
		assert.Equal(t, [3]any{row.Mode, row.Permits, row.Limit}, want, "%s", words)
	}
	row := rowOf(queueOf("d |"))
	assert.That(t, row.Holders[0].Delayed && row.ExpiresAt.Equal(now.Add(time.Minute)), "%+v", row)
}

func TestAskingIsNotOfferedWhereNoHolderCanBeAsked(t *testing.T) {
	theirs := locks.Contender{Znode: "/r/a/1", Foreign: &locks.Foreign{Program: "kazoo"}}
	ours := locks.Contender{Znode: "/r/a/2", LeaseID: "A"}
	for _, c := range []struct {
		holders []locks.Contender
		none    bool
	}{{[]locks.Contender{theirs}, true}, {[]locks.Contender{theirs, ours}, false}, {[]locks.Contender{ours}, false}} {
		var v templates.Lock
		showLock(&v, &locks.Lock{NS: "default", Name: "a", State: locks.LockHeld, Holders: c.holders}, access.Everything(), "/r", true)
		assert.That(t, v.NoneToAsk == c.none, "%+v: %v", c.holders, v.NoneToAsk)
	}
}

func TestActionsGoWhereTheAPIHasThem(t *testing.T) {
	var v templates.Lock
	l := queueOf("x | x")
	l.NS, l.Name = "team", "a+b:c"
	l.Waiters[0] = locks.Contender{Znode: "/r/a+b:c/<img \xff\u202e>-0000000001", Position: 1, Foreign: &locks.Foreign{}}
	showLock(&v, l, access.Everything(), "/r", true)
	want := []string{"/v1/locks/a+b:c/leases?ns=team", "/v1/locks/a+b:c/revoke?ns=team", "/v1/locks/a+b:c/reap?ns=team", "/v1/locks/a+b:c/destroy?ns=team", "/v1/leases/A/break",
		"/v1/locks/a+b:c/contenders/%3Cimg%20%FF%E2%80%AE%3E-0000000001/break?ns=team"}
	diff := cmp.Diff(want, []string{v.Reserve, v.Revoke, v.Reap, v.Destroy, v.Holders[0].Break, v.Waiters[0].Break})
	assert.That(t, diff == "", "%v", diff)
	for _, c := range []struct {
		words string
		state locks.LockState
		want  [3]bool // revoke, reap, destroy
	}{{"|", locks.LockFree, [3]bool{}}, {"| x", locks.LockQueued, [3]bool{false, true, true}}, {"d | x", locks.LockDelayed, [3]bool{false, true, true}}, {"x |", locks.LockUnclaimed, [3]bool{true, true, true}}} {
		l, v := queueOf(c.words), templates.Lock{}
		l.State = c.state
		showLock(&v, l, access.Everything(), "/r", true)
		assert.Equal(t, [3]bool{v.Revoke != "", v.Reap != "", v.Destroy != ""}, c.want, "%s, %s", c.words, c.state)
	}
}

const someHook = "wh_aaaabbbbccccdddd"

// fakeHooks has given answers.
type fakeHooks struct {
	one    templates.Webhook
	outbox templates.WebhookOutbox
	err    error
}

func (f *fakeHooks) List(context.Context, locks.Principal) (templates.Webhooks, error) {
	return templates.Webhooks{Rows: []templates.WebhookRow{f.one.WebhookRow}, Unreached: []string{"lost"}, Outbox: f.outbox}, f.err
}

func (f *fakeHooks) One(context.Context, locks.Principal, string) (templates.Webhook, error) {
	return f.one, f.err
}

func TestThePagesOfWebhooksNameTheGatewaysThatDidNotAnswer(t *testing.T) {
	r := newRig(t)
	hooks := &fakeHooks{one: templates.Webhook{
		WebhookRow: templates.WebhookRow{ID: someHook, Target: "https://example.com/hook", Description: "the \u202eboard", Events: []string{webhooks.Expired}, Locks: "deploy:*", Owner: "ci-*", Reason: "expired", Format: "slack", Enabled: true, Failing: time.Now().Add(-time.Minute), Waiting: 3, Dead: 2},
		Headers:    []string{"Authorization"}, Created: time.Now(), Unreached: []string{"lost"},
		Attempts:    []templates.WebhookAttempt{{At: time.Now(), Message: "msg_a", Lock: "deploy:prod", Number: 2, Status: 503, Error: "the receiver answered 503", Answer: "busy\x1b[31m", Gateway: "one"}},
		DeadLetters: []templates.WebhookDeadLetter{{At: time.Now(), Message: "msg_b", Lock: "deploy:old", Attempts: 10, Error: "no answer within 15s"}},
	}}
	r.opt.Webhooks = hooks
	list := r.get(t, "/webhooks").Body.String()
	for _, part := range []string{"/webhooks/" + someHook, "lease.expired of deploy:*, owner ci-*, reason expired", "failing", "No answer from lost:", "https://example.com/hook"} {
		assert.That(t, strings.Contains(list, part), "the list lacks %s", part)
	}
	page := r.get(t, "/webhooks/"+someHook).Body.String()
	for _, part := range []string{"3 waiting", "2 dead letters", "<dd>slack</dd>", "Authorization", "The receiver answered 503.", "deploy:old", "No answer within 15s.", `the \u{202e}board`, "busy\u241b", "/v1/webhooks/" + someHook + "/replay"} {
		assert.That(t, strings.Contains(page, part), "the page lacks %s", part)
	}
	// Nothing that is meant for the templates gets out.
	assert.That(t, !strings.Contains(list+page, "@since") && !strings.Contains(list+page, "@countdown"), "a part was not rendered")
	fragments := r.get(t, "/ui/fragments?page=webhook&lock="+someHook).Body.String()
	assert.That(t, strings.Contains(fragments, `id="attempts"`) && strings.Contains(fragments, `id="dead-letters"`), "%v", fragments)
}

func TestAFullOutboxIsSaidInRed(t *testing.T) {
	r := newRig(t)
	hooks := &fakeHooks{outbox: templates.WebhookOutbox{Entries: 99_999, Limit: 100_000}}
	r.opt.Webhooks = hooks
	assert.That(t, !strings.Contains(r.get(t, "/webhooks").Body.String(), "outbox"), "it is said before it is so")
	hooks.outbox = templates.WebhookOutbox{Entries: 100_000, Limit: 100_000, Dropped: 1312, LastDropped: time.Now()}
	if list := r.get(t, "/webhooks").Body.String(); !strings.Contains(list, `<p class="banner bad">The outbox`) || !strings.Contains(list, "The outbox is full (100,000 entries)") || !strings.Contains(list, "1,312 ends had no room") {
		t.Errorf("it is not said that the outbox is full: %s", list)
	}
	hooks.outbox.Entries = 7
	if list := r.get(t, "/webhooks").Body.String(); strings.Contains(list, "is full") || !strings.Contains(list, "1,312 ends had no room") {
		t.Error("what was lost is forgotten, or it is still said to be full")
	}
}

func TestAWebhookThatIsLeftOutSaysSoOnItsPage(t *testing.T) {
	r := newRig(t)
	hooks := &fakeHooks{one: templates.Webhook{WebhookRow: templates.WebhookRow{ID: someHook, Target: "https://example.com/...", Enabled: true}}}
	r.opt.Webhooks = hooks
	assert.That(t, !strings.Contains(r.get(t, "/webhooks/"+someHook).Body.String(), "no room"), "it is said before it is so")
	hooks.one.Dropped, hooks.one.LastDropped = 1312, time.Now()
	if page := r.get(t, "/webhooks/"+someHook).Body.String(); !strings.Contains(page, "1,312 ends had no room in the outbox and will not be delivered to this webhook.") {
		t.Errorf("it is not said: %s", page)
	}
}

func TestAWebhookThatIsNotThereIsSaidToBeGone(t *testing.T) {
	r := newRig(t)
	hooks := &fakeHooks{err: webhooks.ErrNotFound}
	r.opt.Webhooks = hooks
	assert.Equal(t, r.get(t, "/webhooks/"+someHook).Code, http.StatusNotFound)
	assert.Equal(t, r.get(t, "/webhooks/deploy").Code, http.StatusNotFound)
	if a := r.get(t, "/ui/fragments?page=webhook&lock="+someHook); a.Code != http.StatusOK || !strings.Contains(a.Body.String(), "This webhook was removed.") {
		t.Error(a.Code, a.Body.String())
	}
	hooks.err = webhooks.ErrUnavailable
	for _, path := range []string{"/webhooks", "/webhooks/" + someHook} {
		a := r.get(t, path)
		assert.That(t, a.Code == http.StatusOK && strings.Contains(a.Body.String(), notReached), "%v %v", path, a.Code)
	}
	r.opt.Webhooks = nil
	for _, path := range []string{"/webhooks", "/webhooks/" + someHook, "/ui/fragments?page=webhooks"} {
		a := r.get(t, path)
		assert.That(t, a.Code == http.StatusNotFound || path == "/ui/fragments?page=webhooks", "%v %v", path, a.Code)
	}
}
