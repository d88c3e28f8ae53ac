package webhooks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func TestASubscriptionLivesInZooKeeper(t *testing.T) {
	withFleet(t, 2, func(t *testing.T, b *bench) {
		sub := b.subscribe(t, 0, "deploy*")
		assert.That(t, strings.HasPrefix(sub.Secrets[0].Value, secretPrefix), "no secret")
		list := b.services[0].List()
		assert.That(t, len(list) == 1 && list[0].ID == sub.ID, "where it was made: %+v", list)
		b.services[1].Refresh() // what the watch does
		synctest.Wait()
		other := assert.Value(b.services[1].Get(sub.ID))(t)
		changed, err := b.services[1].Update(t.Context(), sub.ID, other.Version, func(s *Subscription) error { s.Description = "changed"; return nil })
		assert.That(t, err == nil && changed.Description == "changed" && changed.Version == other.Version+1, "%+v, %v", changed, err)
		_, err = b.services[0].Update(t.Context(), sub.ID, other.Version, func(*Subscription) error { return nil })
		assert.That(t, errors.Is(err, ErrConflict), "a change of what was changed meanwhile: %v", err)
		_, err = b.services[0].Update(t.Context(), sub.ID, -1, func(s *Subscription) error { s.URL = "ftp://x"; return nil })
		assert.That(t, err != nil, "a change to what is wrong")
		rotated, fresh, err := b.services[0].Rotate(t.Context(), sub.ID, time.Hour, anySubscription)
		assert.That(t, err == nil && fresh != sub.Secrets[0] && len(rotated.Secrets) == 2 && rotated.Description == "changed",
			"%+v, %v", rotated, err)
		assert.Nil(t, b.services[1].Delete(t.Context(), sub.ID, -1, anySubscription))
		assert.ErrorIs(t, b.services[0].Delete(t.Context(), sub.ID, -1, anySubscription), ErrNotFound, "a second removal")
		list = b.services[0].List()
		assert.That(t, len(list) == 0, "left: %+v", list)
	})
}

func TestAnEndIsInTheOutboxUntilItIsDelivered(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		sub := b.subscribe(t, 0, "deploy*")
		b.took = time.Second
		assert.That(t, b.end(t, 0, "l1", "other") == nil, "an end without a subscription is recorded")
		b.end(t, 0, "l2", "deploy")
		assert.That(t, slices.Equal(b.left(), []string{"l2"}), "outbox: %q", b.left())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.That(t, slices.Equal(b.delivered(sub.ID), []string{"l2"}) && len(b.left()) == 0,
			"delivered %q, outbox %q", b.delivered(sub.ID), b.left())
	})
}

// What is delivered at about the same time is deleted together, also when another gateway has deleted some of it.
func TestEntriesAreDeletedTogether(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		sub := b.subscribe(t, 0, "")
		b.took = time.Millisecond
		const ends = 200
		transactions := 0
		b.with(func() {
			b.commit = func(ops []zk.Op) (bool, *zk.Result) {
				if ops[len(ops)-1].Kind == zk.OpDelete {
					transactions++
				}
				return true, nil
			}
		})
		for i := range ends {
			b.end(t, 0, fmt.Sprint("l", i), fmt.Sprint("lock", i))
		}
		b.with(func() { delete(b.nodes, "/l/outbox/l150") }) // as another gateway would
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.That(t, len(b.delivered(sub.ID)) == ends && len(b.left()) == 0, "delivered %d, outbox %q", len(b.delivered(sub.ID)), b.left())
		assert.That(t, transactions <= ends/perReceiver+2*deletedAtOnce, "%d transactions", transactions)
		assert.Equal(t, b.services[0].Outbox().Entries, 0, "entries are counted")
	})
}

// Attack 19: subscribed at one gateway, released by another that does not know of it yet.
func TestAttack19AGatewayThatLagsDeliversToANewSubscription(t *testing.T) {
	withFleet(t, 2, func(t *testing.T, b *bench) {
		sub := b.subscribe(t, 0, "")
		assert.Must(t, len(b.services[1].List()) == 0, "the other gateway knows it: nothing is shown")
		b.owner = func(string) int { return 1 }
		assert.That(t, b.end(t, 1, "l1", "deploy") != nil, "no entry is written")
		synctest.Wait()
		assert.That(t, slices.Equal(b.delivered(sub.ID), []string{"l1"}), "delivered %q", b.delivered(sub.ID))
		assert.That(t, b.changed[1] != 0, "ends that wait are not told that they can go on")
	})
}

// Every release asks: without subscriptions that must cost the check alone.
func TestAnEndWithoutSubscriptionsIsCheckedWithoutAllocating(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		described := 0
		describe := func() *End { described++; return &End{} }
		n := testing.AllocsPerRun(100, func() { b.services[0].Ending(false, describe) })
		assert.That(t, n == 0 && described == 0, "%v allocations, described %d times", n, described)
		ops, entry, ready := b.services[0].Ending(false, describe)
		assert.That(t, len(ops) == 1 && ops[0].Kind == zk.OpCheck && ops[0].Path == "/l/webhooks" && entry == nil && ready,
			"the end is checked by %+v, %v, %v", ops, entry, ready)
	})
}

func TestALostAnswerLosesNoEntry(t *testing.T) {
	for _, persisted := range []bool{true, false} {
		withFleet(t, 1, func(t *testing.T, b *bench) {
			sub := b.subscribe(t, 0, "")
			b.with(func() {
				b.commit = func([]zk.Op) (bool, *zk.Result) { return persisted, &zk.Result{Outcome: zk.Unknown, Culprit: -1} }
			})
			b.end(t, 0, "l1", "deploy")
			b.with(func() { b.commit = nil })
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := b.delivered(sub.ID); len(got) == 1 != persisted || len(b.left()) != 0 {
				t.Errorf("persisted %v: delivered %q, outbox %q", persisted, got, b.left())
			}
		})
	}
}

func TestWhatADeadGatewayLeftIsDelivered(t *testing.T) {
	withFleet(t, 2, func(t *testing.T, b *bench) {
		sub := b.subscribe(t, 0, "")
		b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Error: "down"} }
		var want []string
		for i := range 30 {
			want = append(want, fmt.Sprint("l", i))
			b.end(t, 0, want[i], "a")
		}
		synctest.Wait()
		before := b.seen[0].id
		b.services[0].courier.Close() // it dies
		b.answer = ok
		b.owner = func(string) int { return 1 }
		b.services[1].Adopt() // a takeover
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.That(t, slices.Equal(b.delivered(sub.ID), want) && len(b.left()) == 0,
			"delivered %q, outbox %q", b.delivered(sub.ID), b.left())
		assert.That(t, len(b.seen) <= 1 || b.seen[1].id == before, "the same message has another id at another gateway")
	})
}

func TestWhatIsAboutNoLeaseIsDeliveredByItsMakerAsLongAsThatIsThere(t *testing.T) {
	withFleet(t, 2, func(t *testing.T, b *bench) {
		sub := b.subscribe(t, 0, "")
		alive := true
		b.owner = func(string) int { return 1 }
		b.services[1].opt.MineFrom = func(entry, gateway string) bool { return entry == "f-1f" && gateway == "g0" && !alive }
		b.took = time.Hour
		b.services[0].Record(&End{Entry: ForeignEntry(0x1f), Events: []Event{{Type: Removed, NS: "default", Lock: "b", Detail: "foreign", Gateway: "g0"}}})
		time.Sleep(time.Second)
		b.services[1].Adopt()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, len(b.seen), 1, "attempts while its maker is there")
		b.services[0].courier.Close()
		alive, b.took = false, 0
		b.services[1].Adopt()
		time.Sleep(time.Second)
		synctest.Wait()
		got := b.delivered(sub.ID)
		assert.That(t, slices.Contains(got, "foreign"), "delivered %q", got)
	})
}

func TestDeadLettersOutliveTheirGateway(t *testing.T) {
	withFleet(t, 2, func(t *testing.T, b *bench) {
		sub := b.subscribe(t, 0, "")
		b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Error: "500"} }
		b.end(t, 0, "l1", "a")
		time.Sleep(8 * 24 * time.Hour)
		synctest.Wait()
		assert.MustEqual(t, len(b.services[0].DeadLetters(sub.ID, 10, anyEvent)), 1, "dead letters")
		b.services[0].courier.Close()
		b.owner = func(string) int { return 1 }
		b.services[1].Adopt()
		synctest.Wait()
		tries := len(b.seen)
		dead := b.services[1].DeadLetters(sub.ID, 10, anyEvent)
		assert.Must(t, len(dead) == 1 && dead[0].Error == "500" && dead[0].Attempts == len(schedule)+1, "at its successor: %+v", dead)
		time.Sleep(time.Hour)
		assert.That(t, len(b.seen) == tries, "a dead letter is tried again")
		b.answer = ok
		n, err := b.services[1].Replay(t.Context(), sub.ID, "")
		assert.That(t, n == 1 && err == nil, "%d replayed, %v", n, err)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.That(t, len(b.delivered(sub.ID)) == 1 && len(b.left()) == 0, "delivered %q, outbox %q", b.delivered(sub.ID), b.left())
	})
}

func TestAReceiverThatIsGoneIsDisabledForTheWholeFleet(t *testing.T) {
	withFleet(t, 2, func(t *testing.T, b *bench) {
		sub := b.subscribe(t, 0, "")
		b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Gone, Status: 410, Error: "410"} }
		b.end(t, 0, "l1", "a")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.That(t, b.end(t, 1, "l2", "a") == nil, "an end is recorded for one that is disabled")
		got, err := b.services[1].Get(sub.ID)
		assert.That(t, err == nil && !got.Enabled && got.Disabled != "", "%+v, %v", got, err)
	})
}

func TestWhatZooKeeperDoesNotTakeIsWrittenLater(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		sub := b.subscribe(t, 0, "")
		b.took = time.Second
		b.end(t, 0, "l1", "a")
		b.with(func() { b.down = true })
		time.Sleep(time.Minute)
		b.services[0].Record(&End{Entry: ForeignEntry(0x1f), Events: []Event{{Type: Removed, NS: "default", Lock: "b", Detail: "foreign"}}})
		time.Sleep(time.Minute)
		assert.Slices(t, b.left(), []string{"l1"}, "outbox")
		b.with(func() { b.down = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.That(t, slices.Equal(b.delivered(sub.ID), []string{"l1", "foreign"}) && len(b.left()) == 0,
			"delivered %q, outbox %q", b.delivered(sub.ID), b.left())
	})
}

func TestChangesWhoseAnswersAreLost(t *testing.T) {
	for _, persisted := range []bool{true, false} {
		withFleet(t, 1, func(t *testing.T, b *bench) {
			s := b.services[0]
			once := func() {
				first := true
				b.with(func() {
					b.commit = func([]zk.Op) (bool, *zk.Result) {
						if !first {
							return true, nil
						}
						first = false
						return persisted, &zk.Result{Outcome: zk.Unknown, Culprit: -1}
					}
				})
			}
			once()
			sub := b.subscribe(t, 0, "")
			list := s.List()
			assert.Must(t, len(list) == 1 && list[0].ID == sub.ID, "persisted %v: %+v", persisted, list)
			once()
			_, err := s.Update(t.Context(), sub.ID, -1, func(s *Subscription) error { s.Description += "x"; return nil })
			assert.That(t, errors.Is(err, ErrUnknown), "persisted %v: an update whose answer was lost: %v", persisted, err)
			once()
			if err := s.Delete(t.Context(), sub.ID, -1, anySubscription); err != nil || len(s.List()) != 0 {
				t.Errorf("persisted %v: a removal whose answer was lost: %v, %d left", persisted, err, len(s.List()))
			}
		})
	}
}

func TestThereIsABoundOnSubscriptions(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		b.full()
		_, err := b.services[0].Create(t.Context(), &Subscription{URL: "https://example.com"})
		assert.That(t, errors.Is(err, ErrTooMany), "%v", err)
		e := b.end(t, 0, "l1", "a")
		assert.That(t, e != nil && len(e.Data()) <= 16<<10, "the entry of an end with many subscriptions")
	})
}

func TestEntriesAreNamedByWhatEnded(t *testing.T) {
	if LeaseOf(EntryOf("x")) != "x" || LeaseOf(GrantEntry("x")) != "x" || LeaseOf(ForeignEntry(31)) != "" || ForeignEntry(31) != "f-1f" {
		t.Error(fmt.Sprint(GrantEntry("x"), ForeignEntry(31)))
	}
}

// Ends by other hands that cannot be written wait for that, up to a bound. What finds its place taken is counted, too.
func TestEndsThatCannotBeWrittenAreDeliveredOrCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		b := newFleetOf(t, 1, func(o *Options) { o.Dropped = func(id string, n int, _ string) { told += n } })
		sub, s, n := b.subscribe(t, 0, ""), b.services[0], 0
		record := func(ends int) {
			for range ends {
				n++
				s.Record(&End{Entry: ForeignEntry(int64(n)), Events: []Event{{Type: Removed, NS: "default", Lock: fmt.Sprint("lock", n), Detail: fmt.Sprint(n)}}})
			}
		}
		b.with(func() { b.commit = func([]zk.Op) (bool, *zk.Result) { return false, nil } })
		record(1)
		synctest.Wait()
		record(maxUnrecorded - 100) // the writer rests, and takes them together
		b.with(func() {
			more := true
			b.commit = func([]zk.Op) (bool, *zk.Result) {
				if more { // they come while the first are being written
					more = false
					record(maxUnrecorded)
				}
				return false, nil
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		b.with(func() { b.commit = nil })
		time.Sleep(2 * reportDropsEvery)
		synctest.Wait()
		delivered, dropped := len(b.delivered(sub.ID)), s.Outbox().Dropped
		assert.That(t, delivered == maxUnrecorded && delivered+dropped == n, "of %d ends %d were delivered, %d are counted", n, delivered, dropped)
		assert.That(t, told == dropped && s.Statuses()[sub.ID].Dropped == dropped, "told of %d, %+v", told, s.Statuses()[sub.ID])
	})
}
