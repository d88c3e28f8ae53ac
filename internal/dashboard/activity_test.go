package dashboard

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

// fakeHistory answers with given figures.
type fakeHistory struct {
	mu     sync.Mutex // of asked and rows
	asked  []history.StatsQuery
	query  func(history.Query) (history.Answer, error) // nil: there are no rows
	rows   int                                         // how often was asked for rows
	stats  func(history.StatsQuery) (*history.Stats, error)
	status history.Status
}

func (f *fakeHistory) Stats(_ context.Context, q history.StatsQuery) (*history.Stats, error) {
	f.mu.Lock()
	f.asked = append(f.asked, q)
	f.mu.Unlock()
	return f.stats(q)
}

func (f *fakeHistory) Query(_ context.Context, q history.Query) (history.Answer, error) {
	f.mu.Lock()
	f.rows++
	f.mu.Unlock()
	if f.query == nil {
		return history.Answer{}, history.ErrOff
	}
	return f.query(q)
}

func (f *fakeHistory) Status() history.Status { return f.status }

// figures are those of a busy day.
func figures(window time.Duration) *history.Stats {
	st := &history.Stats{From: noon.Add(-window), To: noon, Grants: 86400, Waits: 3, Ends: map[locks.Reason]int{locks.ReasonReleased: 990, locks.ReasonExpired: 10},
		Wait: history.Spans{Count: 86400, P50: 40 * time.Millisecond, P95: 3 * time.Second, P99: time.Minute, Max: time.Hour},
		Hold: history.Spans{Count: 1000, P50: 2 * time.Second, P95: time.Minute, P99: time.Hour, Max: 26 * time.Hour}, Coverage: history.Coverage{Since: noon.Add(-8 * 24 * time.Hour), Complete: true}}
	for i := range 60 {
		st.Series = append(st.Series, history.Step{From: st.From.Add(window / 60 * time.Duration(i))})
	}
	st.Series[30].Grants, st.Series[30].Wait = 86400, st.Wait
	return st
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func withHistory(f *fakeHistory) func(*Options) { return func(o *Options) { o.History = f } }

func TestActivityHasTheFiguresOfTheDayAndOfOtherTimes(t *testing.T) {
	f := &fakeHistory{stats: func(q history.StatsQuery) (*history.Stats, error) {
		st := figures(q.Window)
		st.Contended = []history.Top{{NS: "default", Lock: "db:migrate", Count: 3, Span: time.Hour}, {NS: "team", Lock: "x", Count: 1, Span: 15 * time.Minute}}
		return st, nil
	}}
	r := newRig(t, withHistory(f))
	body := r.get(t, "/activity").Body.String()
	for _, want := range []string{"<dd>86,400</dd>", "<dd>1</dd>", "At most 60 a second, 12 h ago.", "95 in 100 waited for 3 s at most. It was worst 12 h ago: 3 s.", "expired: no heartbeat", "99 %",
		"/locks/db:migrate", "waited 1 h in all", `width="25%"`, "26 h", "/locks/x?ns=team", "No lease expired in this time."} {
		assert.That(t, strings.Contains(body, want), "the page lacks %q:\n%s", want, body)
	}
	assert.That(t, !strings.Contains(body, "Of this time"), "all of it is known")
	for target, want := range map[string]time.Duration{"/activity": 24 * time.Hour, "/activity?window=1h": time.Hour, "/activity?window=7d": 7 * 24 * time.Hour} {
		f.asked = nil
		assert.Equal(t, r.get(t, target).Code, http.StatusOK)
		assert.That(t, len(f.asked) == 1 && f.asked[0].Window == want && f.asked[0].Lock == "" && f.asked[0].NS == "", "%s asks for %+v", target, f.asked)
	}
	w := r.get(t, "/activity?window=2h")
	assert.That(t, w.Code == http.StatusUnprocessableEntity && strings.Contains(w.Body.String(), "window is 1h, 24h or 7d"), "%d %s", w.Code, w.Body)
}

func TestActivitySaysHowFarItsFiguresReach(t *testing.T) {
	f := &fakeHistory{stats: func(q history.StatsQuery) (*history.Stats, error) {
		st := figures(q.Window)
		st.Since, st.Complete = noon.Add(-6*time.Hour), false
		st.Gaps = []history.Gap{{From: noon.Add(-2 * time.Hour), To: noon.Add(-time.Hour), Cause: history.CauseStopped}}
		return st, nil
	}}
	r := newRig(t, withHistory(f))
	body := r.get(t, "/activity").Body.String()
	for _, want := range []string{"2026-11-20 06:00 UTC", "Of this time it has only the last 6 h, and it has a gap.", `x="0%" y="20" width="75%"`, "<dd>4</dd>"} {
		assert.That(t, strings.Contains(body, want), "the page lacks %q:\n%s", want, body)
	}
}

func TestActivitySaysWhenThereIsNoHistory(t *testing.T) {
	assert.That(t, strings.Contains(newRig(t).get(t, "/activity").Body.String(), "keeps no history"), "it is off")
	f := &fakeHistory{stats: func(history.StatsQuery) (*history.Stats, error) { return nil, history.ErrOff }, status: history.Status{Problem: "the disk is full"}}
	w := newRig(t, withHistory(f)).get(t, "/activity")
	assert.That(t, w.Code == http.StatusOK && strings.Contains(w.Body.String(), "There are no figures: the disk is full."), "%d %s", w.Code, w.Body)
	f.stats = func(history.StatsQuery) (*history.Stats, error) { return nil, context.DeadlineExceeded }
	w = newRig(t, withHistory(f)).get(t, "/activity")
	assert.That(t, w.Code == http.StatusOK && strings.Contains(w.Body.String(), "did not answer in time"), "%d %s", w.Code, w.Body)
}

func TestActivityCountsWhatItsViewerMayRead(t *testing.T) {
	f := &fakeHistory{stats: func(q history.StatsQuery) (*history.Stats, error) {
		st := figures(q.Window)
		for _, lock := range []string{"shop:till", "bank:vault"} {
			if q.Rules.May(access.Read, "default", lock) {
				st.Longest = append(st.Longest, history.Top{NS: "default", Lock: lock, Span: time.Hour})
			}
		}
		return st, nil
	}}
	r := newRig(t, withHistory(f))
	r.fake.teams()
	for _, c := range [][3]string{{"shop:*", "shop:till", "bank"}, {"bank:*", "bank:vault", "shop"}} {
		who := member(t, "token:x", "default", c[0], access.Read)
		f.asked, r.fake.as = nil, nil
		for _, target := range []string{"/activity", "/ui/fragments?page=activity"} {
			body := r.as(t, who, target).Body.String()
			assert.That(t, strings.Contains(body, c[1]) && !strings.Contains(body, c[2]), "%s for %s: %s", target, c[0], body)
		}
		assert.Must(t, len(f.asked) == 2 && len(r.fake.as) > 0, "it asked %d times", len(f.asked))
		for _, q := range f.asked {
			assert.Equal(t, q.Rules.Key(), who.Rules.Key(), "the history is asked for another")
		}
		for _, p := range r.fake.as {
			assert.Equal(t, p.Rules.Key(), who.Rules.Key(), "the semaphores are asked for another")
		}
	}
}

func TestSemaphoresAreComparedThoseWithTheLongestQueuesFirst(t *testing.T) {
	r := newRig(t)
	semaphore := func(name string, limit, used, waiting, next int) locks.Lock {
		l := locks.Lock{NS: "default", Name: name, State: locks.LockHeld, Limit: limit, HeldPermits: used, QueueLength: waiting, HolderCount: 1,
			Holders: []locks.Contender{{Owner: "a", Mode: locks.Semaphore, Permits: used}}}
		if next > 0 {
			l.Waiters = []locks.Contender{{Owner: "b", Mode: locks.Semaphore, Permits: next, Position: 1}}
		}
		return l
	}
	r.fake.set(func() {
		r.fake.locks = func(f locks.LockFilter) (page locks.LockPage, err error) {
			if f.NS == "default" {
				page.Items = []locks.Lock{semaphore("idle", 5, 2, 0, 0), {NS: "default", Name: "mutex", State: locks.LockHeld}, semaphore("gpu", 16, 15, 3, 0)}
			}
			return page, nil
		}
		r.fake.lock = func(locks.LockRequest) (locks.Lock, error) { return semaphore("gpu", 16, 15, 3, 4), nil }
	})
	body := r.get(t, "/activity").Body.String()
	gpu, idle := strings.Index(body, "15 of 16 used, 1 free, the next one needs 4"), strings.Index(body, "2 of 5 used, 3 free")
	assert.That(t, gpu > 0 && idle > gpu && !strings.Contains(body, "mutex"), "%s", body)
	assert.That(t, strings.Contains(body, `class="bar-next" x="75%" y="1" width="25%"`), "what it needs hangs out at no edge: %s", body)
	assert.Equal(t, r.fake.count("lock"), 1, "locks are asked for although nothing waits")
}
