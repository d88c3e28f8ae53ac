package webhooks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

// anyEvent shows every dead letter.
func anyEvent(*Event) bool { return true }

// standings are what makers may do, by name.
type standings struct {
	mu sync.Mutex
	of map[string]Standing
}

func (s *standings) ask(name, _, _ string, _ []string) (rules *access.Rules, paused string, known bool) {
	is := s.get(name)
	return is.Rules, is.Paused, !is.Unknown
}

func (s *standings) get(name string) Standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[name]
}

func (s *standings) set(name string, is Standing) {
	s.mu.Lock()
	s.of[name] = is
	s.mu.Unlock()
}

func reading(t *testing.T, locks string) Standing {
	return Standing{Rules: assert.Value(access.New(access.Grant{NS: "*", Locks: locks, Verbs: []access.Verb{access.Read}}))(t)}
}

// withTeams is withFleet with two makers, each of which may read its own locks.
func withTeams(t *testing.T, n int, f func(t *testing.T, b *bench, s *standings)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &standings{of: map[string]Standing{"token:shop": reading(t, "shop:*"), "token:bank": reading(t, "bank:*")}}
		f(t, newFleetOf(t, n, func(o *Options) { o.Standing = s.ask }), s)
	})
}

func (b *bench) subscribeAs(t *testing.T, maker string) *Subscription {
	t.Helper()
	sub := &Subscription{URL: "https://example.com/hook", Events: slices.Concat(Durable, BestEffort), Enabled: true, Maker: &Maker{Name: maker, Kind: "token", Credential: "abcdefgh", Roles: []string{"r"}}}
	return assert.Value(b.services[0].Create(t.Context(), sub))(t)
}

// tell is a best-effort event at a gateway.
func (b *bench) tell(i int, lock string) {
	s := b.services[i]
	if to := s.Wanting(&Event{Type: Granted, NS: "default", Lock: lock}); len(to) > 0 {
		s.Tell("granted "+lock, &Event{Type: Granted, NS: "default", Lock: lock, Detail: "best effort " + lock}, to)
	}
}

// got is what a subscription was sent, in no order.
func (b *bench) got(sub *Subscription) string {
	return strings.Join(slices.Sorted(slices.Values(b.delivered(sub.ID))), ",")
}

func await(d time.Duration) { time.Sleep(d); synctest.Wait() }

func TestASubscriptionGetsWhatItsMakerMayRead(t *testing.T) {
	withTeams(t, 1, func(t *testing.T, b *bench, s *standings) {
		shop, bank, nobodys := b.subscribeAs(t, "token:shop"), b.subscribeAs(t, "token:bank"), b.subscribe(t, 0, "")
		b.end(t, 0, "l1", "shop:web")
		b.end(t, 0, "l2", "bank:vault")
		entry := b.end(t, 0, "l3", "elsewhere")
		assert.That(t, slices.Equal(entry.Subscriptions, []string{nobodys.ID}), "noted for %q", entry.Subscriptions)
		b.tell(0, "shop:web")
		b.tell(0, "bank:vault")
		await(time.Minute)
		assert.Equal(t, b.got(shop), "best effort shop:web,l1")
		assert.Equal(t, b.got(bank), "best effort bank:vault,l2")
		assert.Equal(t, b.got(nobodys), "l1,l2,l3")
		assert.Equal(t, len(b.left()), 0)
	})
}

// What was noted while the maker could read it is not sent when it may not any more: not again, not as a dead letter.
func TestWhatTheMakerMayNotReadAnyMoreIsNotSent(t *testing.T) {
	withTeams(t, 1, func(t *testing.T, b *bench, s *standings) {
		s.set("token:shop", reading(t, "*"))
		sub := b.subscribeAs(t, "token:shop")
		await(time.Second)
		b.answering(func() {
			b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Error: "500"} }
		})
		b.end(t, 0, "l1", "shop:web")
		b.end(t, 0, "l2", "bank:vault")
		b.tell(0, "bank:vault")
		synctest.Wait()
		assert.Equal(t, len(b.seen), 3, "attempts")
		s.set("token:shop", reading(t, "shop:*"))
		await(decideEvery)
		b.answering(func() { b.seen, b.answer = nil, ok })
		await(10 * time.Minute)
		assert.Equal(t, b.got(sub), "l1")
		assert.Equal(t, len(b.seen), 1, "attempts")
		assert.That(t, len(b.left()) == 0 && len(b.services[0].DeadLetters(sub.ID, 9, anyEvent)) == 0, "outbox %q", b.left())
	})
}

// Dead letters that the maker may not read any more go nowhere when they are replayed.
func TestAReplaySendsWhatTheMakerMayRead(t *testing.T) {
	withTeams(t, 1, func(t *testing.T, b *bench, s *standings) {
		s.set("token:shop", reading(t, "*"))
		sub := b.subscribeAs(t, "token:shop")
		b.answering(func() {
			b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Error: "500"} }
		})
		b.end(t, 0, "l1", "shop:web")
		b.end(t, 0, "l2", "bank:vault")
		await(100 * time.Hour)
		assert.Equal(t, len(b.services[0].DeadLetters(sub.ID, 9, anyEvent)), 2)
		of := func(e *Event) bool { return e.Lock == "shop:web" }
		assert.Equal(t, len(b.services[0].DeadLetters(sub.ID, 1, of)), 1, "dead letters that are shown")
		s.set("token:shop", reading(t, "shop:*"))
		await(decideEvery)
		b.answering(func() { b.seen, b.answer = nil, ok })
		assert.Value(b.services[0].Replay(t.Context(), sub.ID, ""))(t)
		await(time.Minute)
		assert.That(t, len(b.seen) == 1 && b.seen[0].lock == "shop:web" && len(b.left()) == 0, "sent: %+v, outbox %q", b.seen, b.left())
	})
}

// The gateway that delivers decides by the rules that it has, whatever the one that noted the end had.
func TestTheGatewayThatDeliversDecidesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		b := newFleetOf(t, 2, func(o *Options) {
			rules := reading(t, []string{"*", "shop:*"}[made]) // the second has read the file already
			made++
			o.Standing = func(string, string, string, []string) (*access.Rules, string, bool) { return rules.Rules, "", true }
		})
		sub := b.subscribeAs(t, "token:shop")
		b.answering(func() {
			b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Error: "down"} }
		})
		b.end(t, 0, "l1", "shop:web")
		b.end(t, 0, "l2", "bank:vault")
		synctest.Wait()
		b.services[0].courier.Close() // it dies
		b.answering(func() { b.seen, b.answer = nil, ok })
		b.owner = func(string) int { return 1 }
		b.services[1].Adopt()
		await(time.Minute)
		assert.That(t, slices.Equal(b.delivered(sub.ID), []string{"l1"}) && len(b.seen) == 1 && len(b.left()) == 0, "sent: %+v, outbox %q", b.seen, b.left())
	})
}

// A maker whose token was revoked: its subscriptions pause, say why, and go on when the maker is let in again.
func TestAMakerThatIsNotLetInPausesItsSubscriptions(t *testing.T) {
	withTeams(t, 1, func(t *testing.T, b *bench, s *standings) {
		sub, other, svc := b.subscribeAs(t, "token:shop"), b.subscribeAs(t, "token:bank"), b.services[0]
		was := s.get("token:shop")
		b.answering(func() {
			b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Error: "down"} }
		})
		b.end(t, 0, "l1", "shop:web")
		synctest.Wait()
		s.set("token:shop", Standing{Paused: "the API token was revoked"})
		await(decideEvery)
		b.answering(func() { b.seen, b.answer = nil, ok })
		assert.That(t, b.end(t, 0, "l2", "shop:web") == nil, "an end is noted for a paused subscription")
		b.tell(0, "shop:web")
		await(time.Hour)
		assert.Equal(t, len(b.seen), 0, "attempts while it is paused")
		dead := svc.DeadLetters(sub.ID, 9, anyEvent)
		assert.That(t, len(dead) == 1 && strings.Contains(dead[0].Error, "revoked"), "%+v", dead)
		shown := assert.Value(svc.Get(sub.ID))(t)
		assert.That(t, shown.Enabled && shown.Standing.Paused == "the API token was revoked", "%+v", shown)
		assert.Equal(t, assert.Value(svc.Get(other.ID))(t).Standing.Paused, "", "another maker's")
		_, err := svc.Replay(t.Context(), sub.ID, "")
		_, wrong := errors.AsType[*FieldError](err)
		assert.That(t, wrong && strings.Contains(err.Error(), "revoked"), "a replay: %v", err)
		s.set("token:shop", was)
		await(decideEvery)
		assert.Value(svc.Replay(t.Context(), sub.ID, ""))(t)
		b.end(t, 0, "l3", "shop:web")
		await(time.Second)
		assert.Equal(t, b.got(sub), "l1,l3")
	})
}

// A gateway that has just begun may not have read the API tokens yet: nothing is sent, and nothing is lost.
func TestWhatIsNotKnownYetIsNotedAndWaits(t *testing.T) {
	withTeams(t, 1, func(t *testing.T, b *bench, s *standings) {
		was := s.get("token:shop")
		s.set("token:shop", Standing{Unknown: true})
		sub := b.subscribeAs(t, "token:shop")
		b.end(t, 0, "l1", "shop:web")
		b.end(t, 0, "l2", "bank:vault")
		b.tell(0, "shop:web")
		await(time.Minute)
		assert.That(t, len(b.seen) == 0 && slices.Equal(b.left(), []string{"l1", "l2"}), "sent %+v, outbox %q", b.seen, b.left())
		s.set("token:shop", was)
		await(time.Minute)
		assert.Equal(t, b.got(sub), "best effort shop:web,l1")
		assert.Equal(t, len(b.left()), 0)
	})
}

// A gateway without authentication has no rules: it must not take that for a maker that may read all.
func TestAGatewayThatAuthenticatesNoCallersDeliversNothingToAMaker(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		sub := b.subscribeAs(t, "token:shop")
		assert.That(t, b.end(t, 0, "l1", "shop:web") == nil, "noted")
		await(time.Minute)
		assert.Equal(t, len(b.seen), 0)
		assert.That(t, strings.Contains(assert.Value(b.services[0].Get(sub.ID))(t).Standing.Paused, "--auth-file"), "%+v", sub)
	})
}

func TestAMakerHasABoundedNumberOfSubscriptions(t *testing.T) {
	withTeams(t, 1, func(t *testing.T, b *bench, s *standings) {
		for range MaxOfMaker {
			b.subscribeAs(t, "token:shop")
		}
		_, err := b.services[0].Create(t.Context(), &Subscription{URL: "https://example.com/", Enabled: true, Maker: &Maker{Name: "token:shop", Kind: "token"}})
		assert.ErrorIs(t, err, ErrTooManyOfMaker)
		b.subscribeAs(t, "token:bank")
		b.subscribe(t, 0, "")
	})
}

// The subscriptions of one maker have one share of the outbox together.
func TestTheSubscriptionsOfAMakerShareTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 400
		s := &standings{of: map[string]Standing{"token:shop": {Rules: access.Everything()}, "token:bank": {Rules: access.Everything()}}}
		b := newFleetOf(t, 1, func(o *Options) { o.MaxEntries, o.Standing = room, s.ask })
		b.answering(func() { b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed} } })
		for i := range 8 {
			lock := string(rune('a' + i))
			sub := b.subscribeAs(t, "token:shop")
			assert.Value(b.services[0].Update(t.Context(), sub.ID, -1, func(s *Subscription) error { s.Locks = lock + "*"; return nil }))(t)
			for n := range room {
				b.end(t, 0, fmt.Sprint(lock, n), fmt.Sprint(lock, n))
			}
		}
		bank := b.subscribeAs(t, "token:bank")
		for n := range room {
			b.end(t, 0, fmt.Sprint("z", n), fmt.Sprint("z", n))
		}
		synctest.Wait()
		waiting := b.services[0].Statuses()[bank.ID].Waiting
		assert.That(t, waiting >= room/5, "eight subscriptions of one maker leave another %d of %d places", waiting, room)
	})
}

func TestARecordNamesItsMaker(t *testing.T) {
	sub := subscription("a")
	assert.That(t, strings.HasPrefix(string(sub.Record()), `{"v":1,`), "%s", sub.Record())
	sub.Maker = &Maker{Name: "corp:ann@example.com", Kind: "jwt", Roles: []string{"sre"}}
	data := string(sub.Record())
	assert.That(t, strings.HasPrefix(data, `{"v":2,`), "a gateway that knows no makers could read it: %s", data)
	again := assert.Value(ParseRecord(sub.ID, []byte(data), 0))(t)
	assert.That(t, again.Maker.Name == sub.Maker.Name && slices.Equal(again.Maker.Roles, sub.Maker.Roles), "%+v", again.Maker)
	for _, damaged := range []string{strings.Replace(data, `"v":2`, `"v":1`, 1), strings.Replace(data, `"maker"`, `"x"`, 1), strings.Replace(data, "corp:ann@example.com", "", 1)} {
		_, err := ParseRecord(sub.ID, []byte(damaged), 0)
		assert.That(t, err != nil, "%s is read", damaged)
	}
}

// anySubscription is there for the caller.
func anySubscription(*Subscription) bool { return true }
