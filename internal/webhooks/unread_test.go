package webhooks

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// byHand changes the tree without a gateway; the gateways get the event.
func (b *bench) byHand(f func(nodes map[string]*node)) {
	b.tree.with(func() { f(b.nodes) })
	for _, s := range b.services {
		s.Refresh()
	}
	synctest.Wait()
}

// full makes as many subscriptions as there may be.
func (b *bench) full() {
	b.byHand(func(nodes map[string]*node) {
		for range MaxSubscriptions {
			sub := Subscription{ID: NewID(), URL: "https://example.com/hook", Enabled: true, Secrets: []Secret{NewSecret()}}
			nodes["/l/webhooks/"+sub.ID] = &node{data: sub.Record()}
		}
		nodes["/l/webhooks"] = &node{version: 1, mzxid: b.zxid + 1}
		b.zxid++
	})
}

// refuses has the receiver take nothing until back is called.
func (b *bench) refuses() (back func()) {
	var mu sync.Mutex
	off := true
	b.answer = func(*Subscription, *Message, int) Attempt {
		mu.Lock()
		defer mu.Unlock()
		if off {
			return Attempt{Result: Failed, Error: "down"}
		}
		return Attempt{Status: 200}
	}
	return func() { mu.Lock(); off = false; mu.Unlock() }
}

func TestWhatWaitsForASubscriptionThatCannotBeReadWaitsOn(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(b *bench, path string)
		all  bool // of them; they are as they were before, as far as is known
	}{
		"damaged by hand": {harm: func(b *bench, path string) {
			b.byHand(func(n map[string]*node) { n[path] = &node{data: []byte("{"), version: 1} })
		}},
		"written by a newer gateway": {harm: func(b *bench, path string) {
			b.byHand(func(n map[string]*node) { n[path] = &node{data: []byte(`{"v":99}`), version: 1} })
		}},
		"hidden by its ACL": {harm: func(b *bench, path string) {
			b.byHand(func(map[string]*node) { b.hidden = map[string]bool{path: true} })
		}},
		"hidden with all of them": {all: true, harm: func(b *bench, _ string) {
			b.byHand(func(map[string]*node) { b.hidden = map[string]bool{"/l/webhooks": true} })
		}},
		"gone with all of them": {all: true, harm: func(b *bench, _ string) {
			b.byHand(func(n map[string]*node) { delete(n, "/l/webhooks") })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withFleet(t, 1, func(t *testing.T, b *bench) {
				back := b.refuses()
				sub, others := b.subscribe(t, 0, "a*"), b.subscribe(t, 0, "b*")
				path := "/l/webhooks/" + sub.ID
				parent, kept := *b.nodes["/l/webhooks"], *b.nodes[path]
				b.end(t, 0, "lease", "a")
				synctest.Wait()
				c.harm(b, path)
				assert.MustSlices(t, b.left(), []string{"lease"}, "the outbox holds")
				// Ends go on, and other subscriptions get them.
				b.end(t, 0, "other", "b")
				back()
				time.Sleep(time.Minute)
				told := b.delivered(sub.ID)
				assert.That(t, (len(told) == 1) == c.all, "told meanwhile: %q", told)
				told = b.delivered(others.ID)
				assert.That(t, (len(told) == 0) == c.all, "others are told of %q", told)
				b.byHand(func(n map[string]*node) {
					kept.version++
					n["/l/webhooks"], n[path], b.hidden = &parent, &kept, nil
				})
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Slices(t, b.delivered(sub.ID), []string{"lease"}, "told of")
				left := b.left()
				assert.That(t, len(left) == 0, "the outbox holds %q", left)
			})
		})
	}
}

func TestASubscriptionThatCannotBeReadCanBeRemoved(t *testing.T) {
	for name, remove := range map[string]func(b *bench, s *Service, id string) error{
		"by the API": func(_ *bench, s *Service, id string) error {
			return s.Delete(context.Background(), id, -1, anySubscription)
		},
		"by hand": func(b *bench, s *Service, id string) error {
			b.byHand(func(n map[string]*node) { delete(n, "/l/webhooks/"+id) })
			s.Refresh()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFleet(t, 1, func(t *testing.T, b *bench) {
				b.refuses()
				sub := b.subscribe(t, 0, "")
				path := "/l/webhooks/" + sub.ID
				b.end(t, 0, "lease", "a")
				b.byHand(func(n map[string]*node) { n[path] = &node{data: []byte("{"), version: 1} })
				// Another gateway, that has never been able to read it, keeps what waits for it as well.
				ctx, cancel := context.WithCancel(t.Context())
				next := New(Options{Store: b.tree, Root: "/l", Addresses: mustAddresses(t, false), Transport: b.receivers, Mine: func(string) bool { return true }})
				done := make(chan struct{})
				go func() { defer close(done); _ = next.Run(ctx) }()
				synctest.Wait()
				left := b.left()
				assert.That(t, slices.Equal(left, []string{"lease"}) && next.courier.has("lease"), "the outbox holds %q", left)
				_, err := next.Update(ctx, sub.ID, -1, func(*Subscription) error { return nil })
				assert.That(t, errors.Is(err, ErrNotFound), "changing it: %v", err)
				assert.Nil(t, remove(b, next, sub.ID), "removing it")
				synctest.Wait()
				left = b.left()
				assert.That(t, len(left) == 0 && b.nodes[path] == nil && !next.courier.has("lease"), "the outbox holds %q", left)
				cancel()
				<-done
			})
		})
	}
}

// asked asks something in the middle of a change of the subscriptions: when dead letters of a removed one are forgotten.
type asked struct {
	ServiceMetrics
	now func()
}

func (asked) WebhookAttempt(string) {}
func (asked) OutboxEntries(int)     {}
func (asked) WebhookDropped()       {}
func (a asked) WebhookDead(int)     { a.now() }

func TestNoEntryIsForASubscriptionThatTheCourierDoesNotKnow(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		var s *Service
		looked := 0
		ask := func() {
			_, entry, _ := s.Ending(false, func() *End {
				return &End{Entry: EntryOf("lease"), Events: []Event{{Type: Released, NS: "default", Lock: "new"}}}
			})
			if looked++; entry != nil {
				t.Errorf("the entry has %q, which the courier takes for removed", entry.Subscriptions)
			}
		}
		armed := false
		s = New(Options{Store: b.tree, Root: "/l", Addresses: mustAddresses(t, false), Transport: b.receivers, Mine: func(string) bool { return true },
			Metrics: asked{now: func() {
				if armed {
					ask()
				}
			}}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Gone, Error: "410"} }
		old := b.subscribe(t, 0, "old")
		s.Refresh()
		synctest.Wait()
		s.Record(&End{Entry: EntryOf("dead"), Events: []Event{{Type: Removed, NS: "default", Lock: "old"}}})
		synctest.Wait()
		_, dead := s.courier.Load()
		assert.Must(t, dead == 1, "%d dead letters", dead)
		// One is removed and another made before this gateway looks.
		armed = true
		assert.NoError(t, b.services[0].Delete(ctx, old.ID, -1, anySubscription))
		b.subscribe(t, 0, "new")
		s.Refresh()
		synctest.Wait()
		assert.That(t, looked == 1, "it was asked %d times", looked)
		cancel()
		<-done
	})
}

func TestConstantChangesOfWebhooksDelayNoEnd(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		b.full()
		b.takes = 2 * time.Millisecond
		before := time.Now()
		assert.Value(b.services[0].refresh(t.Context()))(t)
		took := time.Since(before)
		assert.That(t, took <= 20*b.takes, "the subscriptions are known after %v; who changes one in that time has it done again", took)
	})
}

func TestASubscriptionWithANewAddressIsNotDisabledForTheOldOne(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		var sub *Subscription
		b.receivers.answer = func(to *Subscription, _ *Message, _ int) Attempt {
			if to.URL == "https://example.com/hook" {
				b.took = time.Second // time to move
				return Attempt{Result: Gone, Error: "410"}
			}
			b.took = 0
			return Attempt{Status: 200}
		}
		sub = b.subscribe(t, 0, "")
		b.end(t, 0, "lease", "a")
		synctest.Wait()
		_, err := b.services[0].Update(t.Context(), sub.ID, -1, func(s *Subscription) error { s.URL = "https://example.com/moved"; return nil })
		assert.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		now, err := b.services[0].Get(sub.ID)
		assert.That(t, err == nil && now.Enabled, "%+v, %v", now, err)
		assert.Slices(t, b.delivered(sub.ID), []string{"lease"}, "told of")
	})
}

func TestAReceiverThatIsGoneIsDisabledAlsoWhenZooKeeperIsAwayThen(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Gone, Error: "410"} }
		b.took = time.Second
		sub := b.subscribe(t, 0, "")
		b.end(t, 0, "lease", "a")
		synctest.Wait()
		b.tree.with(func() { b.down = true })
		time.Sleep(time.Minute)
		b.tree.with(func() { b.down = false })
		time.Sleep(2 * retryEvery)
		synctest.Wait()
		now, err := b.services[0].Get(sub.ID)
		assert.That(t, err == nil && !now.Enabled, "%+v, %v", now, err)
	})
}
