package history

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

func TestAWindowIsCutInStepsOfWhichEachHasItsGrantsAndTheirWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		r.granted("deploy", "l1", "anna", 10*time.Minute)
		r.granted("deploy", "l2", "ben", 20*time.Minute)
		first := time.Now()
		r.pass(30 * time.Minute)
		r.granted("deploy", "l3", "cron", 0)
		second := time.Now()
		r.pass(20 * time.Second)
		st := assert.Value(r.history.Stats(t.Context(), StatsQuery{Rules: access.Everything(), Window: time.Hour}))(t)
		assert.Must(t, len(st.Series) == seriesLength && st.Series[0].From.Equal(st.From), "%d steps from %v", len(st.Series), st.Series[0].From)
		grants := 0
		for i, step := range st.Series {
			grants += step.Grants
			end := st.To
			if i+1 < len(st.Series) {
				end = st.Series[i+1].From
			}
			in := func(at time.Time) bool { return !at.Before(step.From) && at.Before(end) }
			assert.That(t, step.Grants > 0 == (in(first) || in(second)), "step %d from %v has %d grants", i, step.From, step.Grants)
			if in(first) {
				assert.That(t, step.Grants == 2 && step.Wait.Max == 20*time.Minute, "%+v", step)
			}
		}
		assert.Equal(t, grants, st.Grants)
		none := assert.Value(r.history.Stats(t.Context(), StatsQuery{Rules: &access.Rules{}, Window: time.Hour}))(t)
		for _, step := range none.Series {
			assert.That(t, step.Grants == 0 && step.Wait.Count == 0, "it counts what the rules do not let read: %+v", step)
		}
	})
}

func TestACountThatAClientCutShortIsNoAnswerToOthers(t *testing.T) {
	const all = 50_000
	h, _ := filled(t, "", all)
	q := StatsQuery{Rules: access.Everything(), Window: 7 * 24 * time.Hour}
	for wait := time.Millisecond; wait < 32*time.Millisecond; wait *= 2 { // one of them is in the midst of the count
		ctx, gone := context.WithTimeout(t.Context(), wait)
		_, _ = h.Stats(ctx, q)
		gone()
		h.mu.Lock()
		for _, c := range h.cached {
			assert.That(t, c.stats.Grants > all*99/100, "%d grants of %d are kept for others", c.stats.Grants, all)
		}
		clear(h.cached)
		h.mu.Unlock()
	}
	_, _ = h.Stats(t.Context(), StatsQuery{Rules: q.Rules, NS: "default", Lock: "team-7:deploy", Window: time.Hour})
	assert.Equal(t, len(h.cached), 0, "answers for one lock, which are not given again")
}
