package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/web/templates"
)

func TestAQueueIsAsLongAsContendersWaitedInAMinute(t *testing.T) {
	at := func(minute float64) time.Time { return noon.Add(time.Duration(minute * float64(time.Minute))) }
	items := []history.Item{
		{Kind: history.Hold, Begin: at(3.5), Waited: 90 * time.Second, WaitedKnown: true}, // from 2 to 3.5
		{Kind: history.Hold, Begin: at(3)},                                                // did not wait
		{Kind: history.Hold, Begin: at(3), Waited: 2 * time.Minute},                       // not known
		{Kind: history.Wait, Begin: at(-5), End: at(1)},                                   // from before the hour
		{Kind: history.Wait, Begin: at(-5)},                                               // has not ended: the queue knows it
	}
	now := &locks.Lock{QueueLength: 4, Waiters: []locks.Contender{{At: at(60), Age: 2 * time.Minute, AgeKnown: true}, {At: at(60), Age: 30 * time.Second, AgeKnown: true}}}
	got := queueLengths(append(waitsIn(items), waitsNow(now)...), noon)
	want := [trendSteps]float64{0: 1, 2: 1, 3: 0.5, 58: 1, 59: 2.5}
	assert.Equal(t, got, want)
	assert.Equal(t, trendLine(got, 0), templates.Trend{Points: "0,5 1,9 2,5 4,9 57,9 58,5 59,0", Most: 3})
	assert.Equal(t, trendLine(got, 58), templates.Trend{Points: "58,5 59,0", Most: 3})
	assert.Equal(t, trendLine(got, 59), templates.Trend{}, "one minute is no line")
	assert.Equal(t, trendLine([trendSteps]float64{}, 0), templates.Trend{}, "nothing has waited")
}

func TestALineOfAnHourHasSome300Bytes(t *testing.T) {
	var lengths [trendSteps]float64
	for n := range lengths {
		lengths[n] = float64(n * n % 7)
	}
	line := trendLine(lengths, 0)
	assert.That(t, len(line.Points) <= 320 && strings.Count(line.Points, ",") <= trendSteps, "%d bytes: %s", len(line.Points), line.Points)
}

// trendy is a history in which a lock is held for three minutes, and one contender waited for the last half hour but a minute.
func trendy() *fakeHistory {
	return &fakeHistory{
		stats: func(history.StatsQuery) (*history.Stats, error) {
			return &history.Stats{Hold: history.Spans{Count: enough, P50: 3 * time.Minute}}, nil
		},
		query: func(q history.Query) (history.Answer, error) {
			return history.Answer{Items: []history.Item{{Kind: history.Hold, Begin: q.To.Add(-time.Minute), Waited: 29 * time.Minute, WaitedKnown: true}}}, nil
		},
	}
}

func (f *fakeLocks) held(names ...string) {
	f.set(func() {
		f.lock = func(r locks.LockRequest) (locks.Lock, error) { return locks.Lock{NS: r.NS, Name: r.Lock}, nil }
		f.locks = func(locks.LockFilter) (page locks.LockPage, err error) {
			for _, name := range names {
				page.Items = append(page.Items, locks.Lock{NS: "default", Name: name, State: locks.LockHeld, HolderCount: 1,
					Holders: []locks.Contender{{LeaseID: "lk1", Owner: "ann", Mode: locks.Exclusive, At: time.Now(), HeldFor: time.Minute}}})
			}
			return page, nil
		}
	})
}

func TestARowSaysWhatIsUsualAndHowLongTheQueueWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := trendy()
		r := newRig(t, withHistory(h))
		r.fake.held("deploy")
		synctest.Wait()
		first := r.get(t, "/").Body.String()
		assert.That(t, !strings.Contains(first, "usually") && !strings.Contains(first, "<polyline"), "the first page waits for the history")
		synctest.Wait()
		body := r.get(t, "/").Body.String()
		assert.That(t, strings.Contains(body, "(usually 3 min)") && strings.Contains(body, `aria-label="the last hour: at most 1"`), "%s", body)
		asked := h.rows
		for range 300 {
			time.Sleep(200 * time.Millisecond)
			r.get(t, "/")
		}
		synctest.Wait()
		assert.That(t, h.rows > asked && h.rows <= asked+2, "the history was asked %d times in a minute", h.rows-asked)
	})
}

// Rows of the pinned locks are those of the list, and the cards of the wall say the same.
func TestPinnedLocksAndTheWallSayWhatIsUsual(t *testing.T) {
	for _, page := range []string{"/pinned?pin=default/deploy", "/wall?q=deploy"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, withHistory(trendy()))
			r.fake.held("deploy")
			r.fake.set(func() {
				r.fake.lock = func(q locks.LockRequest) (locks.Lock, error) {
					page, err := r.fake.locks(locks.LockFilter{})
					return page.Items[0], err
				}
			})
			synctest.Wait()
			r.get(t, page)
			synctest.Wait()
			body := r.get(t, page).Body.String()
			for _, want := range []string{"deploy", "(usually 3 min)", `aria-label="the last hour: at most 1"`} {
				assert.That(t, strings.Contains(body, want), "%s: %s is not in %s", page, want, body)
			}
			assert.Equal(t, strings.Contains(body, `id="pin/default/deploy" data-row`), strings.HasPrefix(page, "/pinned"), "%s", page)
			r.stop()
		})
	}
}

func TestARowIsThereWithoutAHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := trendy()
		h.stats = func(history.StatsQuery) (*history.Stats, error) { return nil, history.ErrOff }
		h.query = nil
		for _, change := range [][]func(*Options){nil, {withHistory(h)}} {
			r := newRig(t, change...)
			r.fake.held("deploy")
			synctest.Wait()
			r.get(t, "/")
			synctest.Wait()
			body := r.get(t, "/").Body.String()
			assert.That(t, strings.Contains(body, "deploy") && !strings.Contains(body, "usually") && !strings.Contains(body, "<polyline"), "%s", body)
			r.stop()
		}
	})
}

func TestTrendsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withHistory(trendy()))
		r.fake.held()
		synctest.Wait()
		var row templates.LockRow
		for n := range 2 * maxTrends {
			r.trends.show(&row, "default", fmt.Sprint("lock-", n))
		}
		synctest.Wait()
		assert.Equal(t, len(r.trends.known.of), maxTrends)
		time.Sleep(trendIdle + time.Second) // no page asks for them any more
		r.trends.show(&row, "default", "another")
		synctest.Wait()
		assert.Equal(t, len(r.trends.known.of), 1)
		r.trends.show(&row, "default", "another")
		assert.That(t, row.Trend.Points != "", "the one that came later has no line")
	})
}
