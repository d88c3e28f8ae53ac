package httpapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// sends runs n streams that send as often as they may for d, each send taking as long as given, and counts their sends.
func sends(s *share, n int, d, each time.Duration) (sent int64) {
	var count atomic.Int64
	var running sync.WaitGroup
	end := time.Now().Add(d)
	for range n {
		running.Go(func() {
			for time.Now().Before(end) {
				_ = s.take(context.Background(), func() error { time.Sleep(each); return nil })
				count.Add(1)
			}
		})
	}
	running.Wait()
	return count.Load()
}

func TestStreamsTakeTheirShareWhileRequestsComeIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d, each, streams = 10 * time.Second, 50 * time.Microsecond, 100
		var requests atomic.Uint64
		s := newShare(&requests)
		coming, stop := context.WithCancel(t.Context())
		go func() {
			for coming.Err() == nil {
				requests.Add(1)
				time.Sleep(10 * time.Millisecond)
			}
		}()
		allowed := s.rate * float64(d) / float64(each)
		sent := float64(sends(s, streams, d, each))
		assert.That(t, sent > 0.8*allowed && sent < 1.1*allowed+streams, "%v sends, where the share allows %v", sent, allowed)
		stop()
		time.Sleep(2 * quietSpan)
		sent = float64(sends(s, streams, d, each))
		most := float64(cap(s.places)) * float64(d) / float64(each)
		assert.That(t, sent > 0.9*most, "%v sends of %v without a request", sent, most)
	})
}

// Each stuck client has its place for a moment; the time counts as if it were a long send.
func TestASendThatWaitsForItsClientKeepsNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Uint64
		s := newShare(&requests)
		const stuck = 100
		var waiting sync.WaitGroup
		for range stuck {
			waiting.Go(func() { _ = s.take(context.Background(), func() error { time.Sleep(10 * time.Second); return nil }) })
		}
		synctest.Wait()
		began := time.Now()
		_ = s.take(context.Background(), func() error { return nil })
		took := time.Since(began)
		assert.That(t, took <= stuck*sendAlone, "it waited for %v", took)
		waiting.Wait()
		assert.Equal(t, len(s.places), 0, "places are still taken")
	})
}

func TestAStreamThatWaitsForItsTurnHeedsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Uint64
		s := newShare(&requests)
		ended := errors.New("the stream has ended")
		wait := func() {
			ctx, end := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Millisecond, func() { end(ended) })
			began := time.Now()
			err := s.take(ctx, func() error { t.Error("it sent"); return nil })
			assert.That(t, errors.Is(err, ended) && time.Since(began) == time.Millisecond, "%v after %v", err, time.Since(began))
		}
		for range cap(s.places) {
			s.places <- struct{}{}
		}
		wait() // for a place
		for range cap(s.places) {
			<-s.places
		}
		requests.Add(1)
		s.spent, s.at = time.Hour, time.Now()
		wait() // for its share
		assert.Equal(t, len(s.places), 0, "places that were not given back")
	})
}
