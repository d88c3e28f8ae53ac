package dashboard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/web/templates"
)

var (
	overview = overviewPage{ns: "default"}
	deploy   = lockPage{ns: "default", lock: "deploy", tab: tabQueue}
	nodes    = lockPage{ns: "default", lock: "deploy", tab: tabZooKeeper}
)

// watch makes the test a viewer of v and waits for the first rendering.
func (r *rig) watch(t *testing.T, v page) *topic {
	t.Helper()
	synctest.Wait()
	topic := assert.Value(r.join(v, locks.Anonymous))(t)
	t.Cleanup(func() { r.leave(topic) })
	synctest.Wait()
	assert.Must(t, topic.latest.Load().seq != 0, "nothing was rendered")
	return topic
}

// next waits for a newer snapshot and returns what it changed, and after how long.
func next(t *testing.T, topic *topic, within time.Duration) (html string, after time.Duration) {
	t.Helper()
	began, last := time.Now(), topic.latest.Load()
	select {
	case <-last.next:
	case <-time.After(within):
		t.Fatalf("nothing new within %v", within)
	}
	snap := topic.latest.Load()
	return string(snap.changedSince(last.seq)), time.Since(began)
}

func TestAChangeIsShownAtOnceAndAStreamOfThemAtAPace(t *testing.T) {
	for _, c := range []struct {
		page  page
		pause time.Duration
		asks  string
	}{{deploy, lockPause, "lock"}, {overview, listPause, "locks"}} {
		t.Run(c.page.name(), func(t *testing.T) {
			withRig(t, func(t *testing.T, r *rig) {
				topic := r.watch(t, c.page)
				time.Sleep(700 * time.Millisecond) // past the pause, before the tick
				r.fake.holds("first")
				r.happen("deploy")
				html, after := next(t, topic, time.Minute)
				assert.That(t, after <= settle+2*events.WakePause && strings.Contains(html, "first"), "after %v:\n%s", after, html)
				before := r.fake.count(c.asks)
				const span = 10 * time.Second
				for i := range int(span / time.Millisecond) {
					r.fake.holds(fmt.Sprint("owner", i, "."))
					r.happen("deploy")
					time.Sleep(time.Millisecond)
				}
				rendered := r.fake.count(c.asks) - before
				most := burst + int((span-burst*c.pause)/streamPause) + 2
				assert.That(t, rendered <= most && rendered >= most*2/3, "looked %d times in %v, want some %d", rendered, span, most)
				time.Sleep(streamPause)
				synctest.Wait()
				if html, _ := topic.latest.Load().message(t.Context()); !strings.Contains(string(html), "owner9999.") {
					t.Error("the last state is not shown")
				}
			})
		})
	}
}

func TestAPageOfWhichMuchChangesIsShownLessOftenButEachSecond(t *testing.T) {
	for _, c := range []struct {
		pushed, stream int
		cost, want     time.Duration
	}{
		{1_000, burst, 0, lockPause},
		{1_000, burst + 1, 0, streamPause},
		{60_000, burst + 1, 0, 600 * time.Millisecond},
		{1_000_000, burst, 0, lockPause},
		{1_000_000, burst + 1, 0, slowest},
		{1_000_000, burst + 1, 200 * time.Millisecond, 2 * time.Second},
	} {
		pause := (&topic{page: deploy, pushed: c.pushed}).pause(c.cost, c.stream)
		assert.Equal(t, pause, c.want, "%+v", c)
	}
}

func TestWhatHappensTogetherIsShownTogether(t *testing.T) {
	for _, v := range []page{deploy, overview} {
		withRig(t, func(t *testing.T, r *rig) {
			topic := r.watch(t, v)
			time.Sleep(700 * time.Millisecond)
			r.fake.holds("queued.")
			r.happen("deploy")
			time.Sleep(8 * time.Millisecond)
			r.fake.holds("granted.")
			r.happen("deploy")
			if html, after := next(t, topic, time.Minute); !strings.Contains(html, "granted.") || after > settle+2*events.WakePause {
				t.Errorf("%s: after %v:\n%s", v.name(), after, html)
			}
		})
	}
}

func TestAPageLooksEverySecondThoughNoEventCame(t *testing.T) {
	for _, v := range []page{deploy, overview} {
		withRig(t, func(t *testing.T, r *rig) {
			topic := r.watch(t, v)
			r.fake.holds("quietly")
			html, after := next(t, topic, time.Minute)
			assert.That(t, after <= tick && strings.Contains(html, "quietly"), "%s: after %v:\n%s", v.name(), after, html)
		})
	}
}

func TestAViewIsRenderedOnceHoweverManyLook(t *testing.T) {
	renders := func(viewers int) (n int64) {
		withRig(t, func(t *testing.T, r *rig) {
			var rendered atomic.Int64
			r.onRender = func(string) { rendered.Add(1) }
			for range viewers {
				r.watch(t, deploy)
			}
			for i := range 100 {
				r.fake.holds(fmt.Sprint("owner", i))
				r.happen("deploy")
				time.Sleep(50 * time.Millisecond)
			}
			n = rendered.Load()
		})
		return n
	}
	const onePage = 3 // fragments: two timers at one instant may give one rendering more
	if one, many := renders(1), renders(200); one == 0 || many > one+onePage {
		t.Errorf("%d fragments for one viewer, %d for 200", one, many)
	}
}

func TestOnlyFragmentsThatChangedAreSent(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.fake.holds("me")
		topic := r.watch(t, deploy)
		all := assert.Value(topic.latest.Load().message(t.Context()))(t)
		wantIDs(t, string(all), "status", "lock-head", "queue", "history")

		r.happen("deploy") // the history shows it, the queue is what it was
		html, _ := next(t, topic, time.Second)
		wantIDs(t, html, "history")
	})
}

func TestWhatDoesNotChangeIsNotSentAgainButForTheClock(t *testing.T) {
	for _, v := range []page{deploy, overview} {
		withRig(t, func(t *testing.T, r *rig) {
			began := time.Now()
			r.fake.set(func() {
				// A holder that heartbeats every 10 s, seen through a busy gateway.
				held := func() locks.Lock {
					at := time.Now().Add(-time.Duration(rand.IntN(100)) * time.Millisecond)
					since := max(at.Sub(began), 0)
					return locks.Lock{NS: "default", Name: "deploy", State: locks.LockHeld, Holders: []locks.Contender{{At: began.Add(since), Znode: "/l/deploy/1", Mode: locks.Exclusive,
						Age: since + time.Minute, AgeKnown: true, HeldFor: since + time.Minute, Clock: 30 * time.Second, ExpiresIn: 30*time.Second - since%(10*time.Second)}}}
				}
				r.fake.lock = func(locks.LockRequest) (locks.Lock, error) { return held(), nil }
				r.fake.locks = func(locks.LockFilter) (locks.LockPage, error) {
					return locks.LockPage{Items: []locks.Lock{held()}}, nil
				}
			})
			topic := r.watch(t, v)
			var heartbeats, clocks int
			for time.Since(began) < 25*time.Second {
				switch html, _ := next(t, topic, clockEvery+tick); {
				case slices.Equal(ids(html), []string{"status"}):
					clocks++
				case !strings.Contains(html, `id="status"`) || len(ids(html)) > 1:
					heartbeats++
				}
			}
			assert.That(t, heartbeats <= 2, "%s: sent %d times for two heartbeats", v.name(), heartbeats)
			assert.That(t, clocks >= 4 && clocks <= 7, "%s: the clock was sent %d times in 25 s", v.name(), clocks)
		})
	}
}

func TestAViewerThatSkippedSnapshotsGetsTheChangesOfAll(t *testing.T) {
	plain := func(id, html string, since uint64) fragment {
		return fragment{id: id, Parted: templates.Parted{Around: [][]byte{[]byte(html)}}, since: since}
	}
	s := &snapshot{seq: 9, fragments: []fragment{plain("status", "S", 3), plain("lock-head", "H", 9), plain("queue", "Q", 7), plain("history", "I", 5)}}
	for seen, want := range map[uint64]string{5: "HQ", 7: "H", 4: "HQI", 2: "SHQI"} {
		assert.Equal(t, string(s.changedSince(seen)), want, "since %d", seen)
	}
}

func TestATopicEndsSomeTimeAfterItsLastViewer(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		synctest.Wait()
		first := assert.Value(r.join(deploy, locks.Anonymous))(t)
		time.Sleep(time.Minute)
		r.leave(first)
		time.Sleep(linger / 2)
		second, err := r.join(deploy, locks.Anonymous)
		assert.Must(t, err == nil && second == first, "a reload made a new topic (%v)", err)
		time.Sleep(linger * 2)
		r.leave(second)
		time.Sleep(linger + 2*tick)
		topics, viewers := r.inUse()
		assert.That(t, topics == 0 && viewers == 0, "%d topics, %d viewers", topics, viewers)
		looks := r.fake.count("lock")
		time.Sleep(time.Minute)
		assert.That(t, r.fake.count("lock") == looks, "it still looks")
	})
}

func TestViewersAndViewsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.MaxViewers, o.MaxTopics = 3, 2 })
		synctest.Wait()
		other := lockPage{ns: "default", lock: "other", tab: tabQueue}
		a, _ := r.join(deploy, locks.Anonymous)
		b, _ := r.join(overview, locks.Anonymous)
		_, err := r.join(other, locks.Anonymous)
		assert.That(t, errors.Is(err, errNoRoom), "a third page: %v", err)
		c, err := r.join(deploy, locks.Anonymous)
		assert.Nil(t, err, "a third viewer of a page that there is")
		_, err = r.join(deploy, locks.Anonymous)
		assert.That(t, errors.Is(err, errNoRoom), "a fourth viewer: %v", err)
		r.leave(b) // its topic lingers
		d := assert.Value(r.join(other, locks.Anonymous))(t, "a lingering topic does not make room")
		for _, left := range []*topic{a, c, d} {
			r.leave(left)
		}
		time.Sleep(linger + 2*tick)
		topics, _ := r.inUse()
		assert.That(t, topics == 0, "%d topics are left", topics)
	})
}

func TestALocksPageShowsTheRecentPastAndGoesOn(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		for i := range 30 {
			r.hub.Publish(&events.Event{Type: events.LeaseGranted, NS: "default", Lock: "deploy", Owner: fmt.Sprint("old", i)})
			r.hub.Publish(&events.Event{Type: events.NodeCreated, NS: "default", Lock: "deploy", Dir: "/l/deploy", Name: fmt.Sprint("node", i)})
			r.hub.Publish(&events.Event{Type: events.LeaseGranted, NS: "default", Lock: "another", Owner: "stranger"})
			r.hub.Publish(&events.Event{Type: events.LeaseGranted, NS: "other", Lock: "deploy", Owner: "stranger"})
		}
		queue, zookeeper := r.watch(t, deploy), r.watch(t, nodes)
		check := func(topic *topic, most int, newest, oldest string) {
			t.Helper()
			kept := topic.feed.keeper.events
			name := func(e *events.Event) string { return e.Owner + e.Name }
			if len(kept) != most || name(kept[0]) != newest || name(kept[most-1]) != oldest {
				t.Errorf("%d kept, from %s to %s", len(kept), name(kept[0]), name(kept[len(kept)-1]))
			}
		}
		check(queue, 20, "old29", "old10")
		check(zookeeper, 30, "node29", "node0")
		for i := range 60 {
			r.hub.Publish(&events.Event{Type: events.LeaseReleased, NS: "default", Lock: "deploy", Owner: fmt.Sprint("new", i)})
			r.hub.Publish(&events.Event{Type: events.NodeDeleted, NS: "default", Lock: "deploy", Dir: "/l/deploy", Name: fmt.Sprint("gone", i)})
		}
		time.Sleep(2 * tick)
		synctest.Wait()
		check(queue, 20, "new59", "new40")
		check(zookeeper, 50, "gone59", "gone10")
		html, _ := zookeeper.latest.Load().message(t.Context())
		assert.That(t, strings.Contains(string(html), "gone59"), "the page does not show it")
	})
}

func TestATopicThatFallsBehindTheRingBeginsAnew(t *testing.T) {
	for _, v := range []page{deploy, nodes, overview} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				o.Events = events.New(events.Options{Ring: 64})
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() { defer close(done); _ = o.Events.Run(ctx) }()
				t.Cleanup(func() { cancel(); <-done })
			})
			topic := r.watch(t, v)
			for round := range 3 {
				for i := range 1000 {
					r.hub.Publish(&events.Event{Type: events.LeaseGranted, NS: "default", Lock: "deploy", Owner: fmt.Sprint("owner", round, ".", i)})
				}
				r.fake.holds(fmt.Sprint("holder", round))
				time.Sleep(2 * tick)
				synctest.Wait()
				html, _ := topic.latest.Load().message(t.Context())
				assert.Must(t, strings.Contains(string(html), fmt.Sprint("holder", round)) || v == nodes,
					"%+v: round %d is not shown", v, round)
				assert.That(t, v != deploy || topic.feed.keeper.events[0].Owner == fmt.Sprint("owner", round, ".999"),
					"the newest event is not of round %d", round)
			}
		})
	}
}

func TestWithoutASubscriptionATopicStillLooks(t *testing.T) {
	for _, v := range []page{deploy, overview} {
		synctest.Test(t, func(t *testing.T) {
			hub := events.New(events.Options{MaxSubscribers: 1})
			other := assert.Value(hub.Subscribe(events.Filter{Rules: access.Everything()}, ""))(t)
			r := newRig(t, func(o *Options) { o.Events = hub })
			topic := r.watch(t, v)
			r.fake.holds("quietly")
			html, after := next(t, topic, time.Minute)
			assert.That(t, after <= tick && strings.Contains(html, "quietly"), "after %v:\n%s", after, html)
			other.Close()
			time.Sleep(2 * tick)
			synctest.Wait()
			assert.That(t, topic.feed.sub != nil, "it did not subscribe when there was room again")
		})
	}
}

func TestAnExpensiveViewIsLookedAtLessOften(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		const cost = 50 * time.Millisecond
		r.fake.set(func() {
			r.fake.locks = func(locks.LockFilter) (locks.LockPage, error) {
				time.Sleep(cost)
				return locks.LockPage{}, nil
			}
		})
		for i := range 4 {
			v := overview
			v.query = fmt.Sprint(i)
			synctest.Wait()
			topic := assert.Value(r.join(v, locks.Anonymous))(t)
			defer r.leave(topic)
		}
		time.Sleep(10 * time.Second)
		before := r.fake.count("locks")
		const span = time.Minute
		for range int(span / (10 * time.Millisecond)) {
			r.happen("deploy")
			time.Sleep(10 * time.Millisecond)
		}
		busy := float64(r.fake.count("locks")-before) * cost.Seconds() / span.Seconds()
		assert.That(t, busy <= 0.5, "four views keep the lock manager busy for %.0f%% of the time", 100*busy)
	})
}

func TestAPageComesToLifeWhenZooKeeperIsReached(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.fake.set(func() {
			r.fake.locks = func(locks.LockFilter) (locks.LockPage, error) { return locks.LockPage{}, unavailable() }
		})
		topic := r.watch(t, overview)
		r.fake.holds("at last")
		r.hub.Publish(&events.Event{Type: events.ZooKeeperConnected})
		html, _ := next(t, topic, tick)
		assert.That(t, strings.Contains(html, "at last"), "got\n%s", html)
	})
}

func TestPollingSharesWhatATopicRendered(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.fake.holds("me")
		r.watch(t, deploy)
		before := r.fake.count("lock")
		for range 50 {
			if body := r.get(t, pollURL(deploy)).Body.String(); !strings.Contains(body, "me") {
				t.Fatal(body)
			} else {
				wantIDs(t, body, "status", "lock-head", "queue", "history")
			}
		}
		n := r.fake.count("lock") - before
		assert.That(t, n <= 0, "50 polls looked %d times", n)
	})
}

func TestWithoutRunThereIsNothingLive(t *testing.T) {
	d := New(Options{Locks: newFake(), Events: events.New(events.Options{}), Logger: quiet()})
	_, err := d.join(deploy, locks.Anonymous)
	assert.That(t, errors.Is(err, errNotLive), "before: %v", err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Nil(t, d.Run(ctx))
	_, err = d.join(deploy, locks.Anonymous)
	assert.That(t, errors.Is(err, errNotLive), "after: %v", err)
}

func TestAResyncBeginsTheHistoryAnew(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.hub.Publish(&events.Event{Type: events.LeaseGranted, NS: "default", Lock: "deploy", Owner: "missed"})
		sub := assert.Value(r.hub.Subscribe(deploy.follows(access.Everything()), "an id of another process"))(t)
		f := feed{hub: r.hub, filter: deploy.follows(access.Everything()), keeper: deploy.keeps(access.Everything()), sub: sub}
		defer func() { f.close() }()
		assert.That(t, f.wait(t.Context(), tick) && len(f.keeper.events) == 1 && f.keeper.events[0].Owner == "missed",
			"kept %v", f.keeper.events)
		assert.That(t, !f.wait(t.Context(), tick), "it resyncs again and again")
	})
}

func TestATemplateThatPanicsDoesNotEndTheGateway(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		var bug atomic.Bool
		r.onRender = func(string) {
			if bug.Load() {
				panic("a bug")
			}
		}
		topic := r.watch(t, deploy)
		bug.Store(true)
		time.Sleep(10*tick + tick/2) // between two ticks
		synctest.Wait()
		bug.Store(false)
		r.fake.holds("mended")
		html, _ := next(t, topic, 2*tick)
		assert.That(t, strings.Contains(html, "mended"), "got\n%s", html)
	})
}
