package events

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

// Its place moves on all the same: it may resume from there.
func TestASubscriberIsNotWokenByWhatItDoesNotWant(t *testing.T) {
	for _, f := range []Filter{{Lock: `qu\iet`}, {Lock: "qu*t"}, {Types: Types(GatewayJoined)}, {NS: "other"}} {
		synctest.Test(t, func(t *testing.T) {
			h, _ := running(t, Options{Ring: 8})
			f.Rules = seesAll
			s := subscribe(t, h, f, "")
			for range 100 {
				publish(h, 3)
				time.Sleep(WakePause)
			}
			assert.That(t, len(s.wake) == 0, "%+v: it was woken", f)
			expect(t, s.Position(), h.id(300))
			h.Publish(&Event{Type: GatewayJoined, NS: "other", Lock: "quiet"})
			expect(t, next(t, s), "quiet")
		})
	}
}

// It is told of what was published before it came, and has nothing to read then. The others do not wait for it.
func TestASubscriberThatComesWhileAnEventIsPendingHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{})
		s := subscribe(t, h, Filter{Rules: seesAll}, "")
		for round := range 3 {
			publish(h, 1)
			late := subscribe(t, h, Filter{Rules: seesAll}, "")
			go func() {
				for late.Await(t.Context()) == nil {
					late.Read()
				}
			}()
			_ = next(t, s)
			publish(h, 1)
			began := time.Now()
			_ = next(t, s)
			assert.That(t, time.Since(began) <= 2*WakePause, "round %d: an event came after %v", round, time.Since(began))
		}
	})
}

// Nothing is looked at for it any more, so what comes after may be for it.
func TestThePositionOfAClosedSubscriberStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{})
		s, other := subscribe(t, h, Filter{Rules: seesAll}, ""), subscribe(t, h, Filter{Rules: seesAll}, "")
		publish(h, 1)
		expect(t, next(t, s), "1")
		s.Close()
		expect(t, next(t, other), "1")
		publish(h, 1)
		expect(t, next(t, other), "2")
		expect(t, s.Position(), h.id(1))
	})
}

func TestAPatternThatMatchesOneNameIsThatName(t *testing.T) {
	for pattern, want := range map[string]string{"deploy": "deploy", `a\*b`: "a*b", `\\`: `\`, "a]": "a]", "": "", "a*": "", "[a]": "", "?": "", `\a?`: ""} {
		name, ok := literalOf(pattern)
		assert.That(t, name == want && ok == (want != ""), "%q: %q, %v", pattern, name, ok)
	}
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune(`ab*?[]\^-`)))
		pattern, other := text.Draw(r, "pattern"), text.Draw(r, "other")
		if name, ok := literalOf(Literal(other)); other != "" && (!ok || name != other) {
			r.Fatalf("%q: %q, %v", Literal(other), name, ok)
		}
		name, ok := literalOf(pattern)
		if !ok {
			return
		}
		for _, s := range []string{name, other} {
			if matched, err := path.Match(pattern, s); err != nil || matched != (s == name) {
				r.Fatalf("%q is taken for %q; %q matches: %v, %v", pattern, name, s, matched, err)
			}
		}
	})
}

func TestABatchIsEncodedOnceForAllAtItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{})
		var encoded atomic.Int64
		encode := func(b []byte, batch []*Event) []byte {
			encoded.Add(1)
			return append(b, locks(batch)...)
		}
		var all []*Subscriber
		for range 10 {
			all = append(all, subscribe(t, h, Filter{Rules: seesAll}, ""))
		}
		alone := subscribe(t, h, Filter{Rules: seesAll, Lock: "[1-3]"}, "")
		for round, want := range []string{"1 2 3", "4 5 6"} {
			publish(h, 3)
			for _, s := range all {
				expect(t, next(t, s), want)
				expect(t, string(s.Encoded("text", encode)), want)
				expect(t, string(s.Encoded("other", encode)), want)
			}
			assert.Equal(t, encoded.Load(), int64(2*(round+1)), "encodings of two forms")
		}
		expect(t, next(t, alone), "1 2 3")
		expect(t, string(alone.Encoded("text", encode)), "1 2 3")
		assert.Equal(t, encoded.Load(), 5, "encodings, with one of its own")
		resync := subscribe(t, h, Filter{Rules: seesAll}, "junk")
		expect(t, next(t, resync), "resync:unknown_position")
		expect(t, string(resync.Encoded("text", encode)), "resync:unknown_position")
	})
}

// Subscribers that fell behind by different spans are at the same places again after one batch.
func TestThoseThatFellBehindShareBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{})
		publish(h, 4*maxBatch)
		subscribe(t, h, Filter{Rules: seesAll}, "") // with which they share
		encodings := 0
		encode := func(b []byte, batch []*Event) []byte { encodings++; return append(b, locks(batch)...) }
		for _, behind := range []uint64{0, 7, maxBatch - 1, 100} {
			s := subscribe(t, h, Filter{Rules: seesAll}, h.id(behind))
			var got []string
			for len(got) < 4*maxBatch-int(behind) {
				got = append(got, strings.Fields(next(t, s))...)
				s.Encoded("text", encode)
			}
			for i, lock := range got {
				assert.Must(t, lock == fmt.Sprint(int(behind)+i+1), "behind %d: %s at %d", behind, lock, i)
			}
			s.Close()
		}
		assert.That(t, encodings == 5+1+0+1, "%d batches were made", encodings)
	})
}

// Those that take turns get the same batches: the next one comes when all have had the last.
func TestTheNextWakeUpWaitsForThoseThatHaveNotReadYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{})
		quick, slow := subscribe(t, h, Filter{Rules: seesAll}, ""), subscribe(t, h, Filter{Rules: seesAll}, "")
		slowly := make(chan struct{})
		go func() {
			defer close(slowly)
			for range 2 {
				assert.NoError(t, slow.Await(t.Context()))
				time.Sleep(5 * WakePause)
				slow.Read()
			}
		}()
		synctest.Wait()
		publish(h, 1)
		expect(t, next(t, quick), "1")
		begin := time.Now()
		for range 3 {
			publish(h, 1)
			time.Sleep(WakePause)
		}
		expect(t, next(t, quick), "2 3 4")
		took := time.Since(begin)
		assert.That(t, took >= 5*WakePause && took <= 5*WakePause+findPause, "the batch came after %v", took)
		publish(h, 1)
		<-slowly
		expect(t, next(t, quick), "5")
	})
}

// A subscriber that was told and never reads holds up others for a second each time; one that no longer waits does not.
func TestASubscriberThatWasToldAndDoesNotReadDelaysOthersForABoundedTime(t *testing.T) {
	for what, leave := range map[string]func(*Subscriber, context.Context) time.Duration{
		"told, and reads never": func(s *Subscriber, ctx context.Context) time.Duration {
			_ = s.Await(ctx)
			return latestPause
		},
		"its wait was over before": func(s *Subscriber, ctx context.Context) time.Duration {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			_ = s.Await(ctx)
			return WakePause
		},
		"closed": func(s *Subscriber, ctx context.Context) time.Duration {
			time.AfterFunc(time.Hour+time.Millisecond, s.Close)
			_ = s.Await(ctx)
			return WakePause
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, _ := running(t, Options{})
			other, s := subscribe(t, h, Filter{Rules: seesAll}, ""), subscribe(t, h, Filter{Rules: seesAll}, "")
			most := make(chan time.Duration, 1)
			go func() { most <- leave(s, t.Context()) }()
			time.Sleep(time.Hour)
			publish(h, 1)
			expect(t, next(t, other), "1")
			begin := time.Now()
			publish(h, 1)
			expect(t, next(t, other), "2")
			took := time.Since(begin)
			assert.That(t, took <= <-most+findPause, "%s: the second event came after %v", what, took)
		})
	}
}
