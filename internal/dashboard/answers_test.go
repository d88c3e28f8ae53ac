package dashboard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/test/assert"
)

func TestAShelfForgetsWhatIsOfUseForTheShortestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		s := shelf[string, time.Time]{3, func(until time.Time) time.Time { return until }, map[string]time.Time{}}
		s.put("in use", time.Time{})
		s.put("long", now.Add(time.Hour))
		s.put("short", now.Add(time.Minute))
		assert.That(t, !s.room(), "there is room for a fourth")
		s.put("another", now.Add(time.Second))
		_, there := s.of["short"]
		assert.That(t, len(s.of) == 3 && !there, "%v", s.of)
		s.put("long", now.Add(2*time.Second)) // it is there: nothing goes
		assert.Equal(t, len(s.of), 3)
		time.Sleep(2 * time.Second)
		assert.That(t, s.room() && len(s.of) == 1, "what is over stays: %v", s.of)
		for _, name := range []string{"a", "b", "c"} {
			s.put(name, time.Time{})
		}
		assert.Equal(t, len(s.of), 4, "what is in use stays beyond the bound")
	})
}

func TestAnAnswerIsGivenAgainWhileItIsGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnswers[string, int](2, 1)
		asked := 0
		failed := errors.New("no answer")
		ask := func(key string, good time.Duration, with error) (got, before int, err error) {
			got, err = a.recall(t.Context(), key, func(_ context.Context, last int) (int, time.Time, error) {
				asked, before = asked+1, last
				time.Sleep(time.Millisecond)
				if good == 0 {
					return asked, time.Time{}, with
				}
				return asked, time.Now().Add(good), with
			})
			return got, before, err
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { _, _, _ = ask("one", time.Second, nil) })
		}
		all.Wait()
		assert.Equal(t, asked, 1, "questions that were asked at the same time")
		time.Sleep(time.Second)
		got, before, err := ask("one", 0, failed)
		assert.That(t, got == 2 && before == 1 && errors.Is(err, failed), "%d after %d, %v", got, before, err)
		got, before, _ = ask("one", time.Second, failed)
		assert.That(t, got == 3 && before == 1, "what is not kept was kept: %d after %d", got, before)
		got, _, err = ask("one", time.Second, nil)
		assert.That(t, got == 3 && errors.Is(err, failed), "an error is an answer, too: %d, %v", got, err)

		_, _, _ = ask("two", time.Minute, nil)
		_, _, _ = ask("three", time.Minute, nil)
		a.mu.Lock()
		assert.Equal(t, len(a.known.of), 2, "answers that are kept")
		a.mu.Unlock()
		time.Sleep(time.Minute + 3*answersKept)
		a.mu.Lock()
		defer a.mu.Unlock()
		assert.That(t, len(a.known.of) == 0 && a.forget == nil, "%d answers that no page has asked for again", len(a.known.of))
	})
}

func TestAQuestionDoesNotOutlastItsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnswers[string, int](2, 1)
		hangs := make(chan struct{})
		go func() {
			_, _ = a.recall(t.Context(), "one", func(context.Context, int) (int, time.Time, error) {
				<-hangs
				return 1, time.Now().Add(time.Minute), nil
			})
		}()
		synctest.Wait()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := a.recall(ctx, "two", func(context.Context, int) (int, time.Time, error) { return 2, time.Time{}, nil })
		assert.That(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		close(hangs)
		synctest.Wait()
		got, err := a.recall(t.Context(), "one", nil)
		assert.That(t, got == 1 && err == nil, "%d, %v", got, err)
	})
}

func TestAnswersThatAreLargeTogetherAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnswers[string, int](100, 1)
		a.size, a.room = func(size int) int { return size }, 10
		keep := func(key string, size int, good time.Duration) {
			_, _ = a.recall(t.Context(), key, func(context.Context, int) (int, time.Time, error) { return size, time.Now().Add(good), nil })
		}
		keep("soon over", 4, time.Minute)
		keep("lasts", 4, time.Hour)
		keep("next", 6, time.Hour)
		a.mu.Lock()
		_, there := a.known.of["lasts"]
		assert.That(t, a.sizes() == 10 && there && a.known.of["next"].value == 6, "%v", a.known.of)
		a.mu.Unlock()
		keep("alone", 11, time.Hour)
		a.mu.Lock()
		assert.That(t, len(a.known.of) == 1 && a.known.of["alone"].value == 11, "one that is larger than all may be is kept alone: %v", a.known.of)
		a.mu.Unlock()
		time.Sleep(2 * time.Hour) // the timer that forgets ends
	})
}

func TestTheRowsThatAnswersOfTheHistoryKeepAreBounded(t *testing.T) {
	past := night()
	for len(past.answer.Items) < history.MaxLimit {
		past.answer.Items = append(past.answer.Items, past.answer.Items[0])
	}
	r := newRig(t, func(o *Options) { o.History = past })
	for n := range 3 * maxRows / history.MaxLimit {
		r.get(t, fmt.Sprintf("/locks/deploy?at=2026-11-22T03:00:00Z&hold=lk%d", n))
	}
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	assert.That(t, m.sizes() > maxRows/2 && m.sizes() <= maxRows, "%d rows", m.sizes())
}
