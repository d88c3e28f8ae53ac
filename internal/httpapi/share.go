package httpapi

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/backoff"
)

const (
	// streamShare is the part of the processors that sending to streams may take while other requests come in.
	streamShare = 0.05
	// sendAlone is how long a send keeps others waiting. A longer one waits for its client, not for a processor.
	sendAlone = time.Millisecond
	// maxCharge is the most that one send counts for: what it takes beyond, it waits, or another program has the processor.
	maxCharge = 200 * time.Microsecond
	// shareSpan is how much of the share may be spent at once.
	shareSpan = 5 * time.Millisecond
	// quietSpan without a request means that nothing competes with the streams.
	quietSpan = 100 * time.Millisecond
)

// share lets streams send one after the other, and bounds the processor time that they take: a thousand clients that watch
// everything would leave none for the requests about locks. Streams that want more than their share fall behind, each by as
// much as the others; those that fall behind by the hub's whole ring get Resync.
type share struct {
	requests *atomic.Uint64 // that have come in
	rate     float64        // processors
	places   chan struct{}  // one for each send that may be under way

	mu    sync.Mutex
	spent time.Duration // and not yet waited for
	at    time.Time     // when spent was right
	seen  uint64        // requests
	quiet time.Time     // no request has come in since
}

func newShare(requests *atomic.Uint64) *share {
	n := runtime.GOMAXPROCS(0)
	return &share{requests: requests, rate: streamShare * float64(n), places: make(chan struct{}, max(n/2, 1))}
}

// take runs send when it is its turn. Its error is send's, or the cause of ctx's end before that.
func (s *share) take(ctx context.Context, send func() error) error {
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.await(ctx); err != nil {
		<-s.places
		return err
	}
	leave := time.AfterFunc(sendAlone, func() { <-s.places })
	began := time.Now()
	err := send()
	s.charge(time.Since(began))
	if leave.Stop() {
		<-s.places
	}
	return err
}

// await waits until the streams have not spent more than their share, or nothing competes with them.
func (s *share) await(ctx context.Context) error {
	for {
		s.mu.Lock()
		now := time.Now()
		s.spent = max(s.spent-time.Duration(float64(now.Sub(s.at))*s.rate), 0)
		s.at = now
		if n := s.requests.Load(); n != s.seen {
			s.seen, s.quiet = n, now
		}
		over := time.Duration(float64(s.spent-shareSpan) / s.rate)
		alone := now.Sub(s.quiet) >= quietSpan
		s.mu.Unlock()
		if over <= 0 || alone {
			return nil
		}
		if backoff.Sleep(ctx, min(over+time.Millisecond, quietSpan)) != nil {
			return context.Cause(ctx)
		}
	}
}

func (s *share) charge(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent += min(took, maxCharge)
}
