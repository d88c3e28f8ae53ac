package backoff

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

func TestDelaysDoubleUpToTheLastAndStartAgainAfterAReset(t *testing.T) {
	b := New(rand.NewPCG(1, 2), time.Second, 5*time.Second)
	for range 3 {
		for n, interval := range []time.Duration{1, 2, 4, 5, 5} {
			if delay := b.NextBackOff(); delay < 0 || delay > 2*interval*time.Second {
				t.Errorf("delay %d is %v, want at most %v", n, delay, 2*interval*time.Second)
			}
		}
		b.Reset()
	}
}

func TestTheSameSourceGivesTheSameDelays(t *testing.T) {
	a, b := New(rand.NewPCG(1, 2), time.Second, time.Minute), New(rand.NewPCG(1, 2), time.Second, time.Minute)
	for range 10 {
		one, two := a.NextBackOff(), b.NextBackOff()
		assert.That(t, one == two, "%v and %v", one, two)
	}
	assert.That(t, New(nil, time.Second, time.Second).NextBackOff() <= 2*time.Second, "the runtime's source exceeds the limit")
}

func TestASleepEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Sleep(t.Context(), time.Second)
		assert.That(t, err == nil && time.Since(began) == time.Second, "%v after %v", err, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
