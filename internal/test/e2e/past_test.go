package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// withPast is the flag for a history that has these rows already: the store of a gateway that ran before, as another gateway of its
// fleet would have filled it. It reaches back for a day.
func withPast(t testing.TB, rows ...[]history.Item) (flag string) {
	t.Helper()
	items := slices.Concat(rows...)
	slices.SortFunc(items, func(a, b history.Item) int {
		return cmp.Or(b.Begin.Compare(a.Begin), cmp.Compare(a.LeaseID, b.LeaseID))
	})
	known := history.Answer{Items: items, Coverage: history.Coverage{Since: time.Now().Add(-24 * time.Hour)}}
	source := history.Source{Gateway: "before", Ask: func(context.Context, history.Query) (history.Answer, error) { return known, nil }}
	dir := t.TempDir()
	hub := events.New(events.Options{})
	h := history.New(history.Options{Dir: dir, Hub: hub, Now: nothingHeld{}, Others: func() []history.Source { return []history.Source{source} }})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, hub.Run(ctx)) })
	running.Go(func() { assert.NoError(t, h.Run(ctx)) })
	eventually(t, patience, func() error {
		if is := h.Status(); is.Rows < int64(len(items)) || is.Since.After(known.Since) {
			return fmt.Errorf("it has %d of %d rows, since %v", is.Rows, len(items), is.Since)
		}
		return nil
	}, "the history is written")
	stop()
	running.Wait()
	return "--history=" + dir
}

// nothingHeld is a present without locks.
type nothingHeld struct{}

func (nothingHeld) Present(context.Context) ([]*history.Item, error)                 { return nil, nil }
func (nothingHeld) Holders(context.Context, string, string) ([]*history.Item, error) { return nil, nil }

// turns is the last hour, until some time ago, of a lock that went from one owner to the next, each of which held it for so long. queue is how many
// waited, at equal distances over the hour; the last of them then gave up.
func turns(lock string, ago, held time.Duration, owners []string, queue ...int) (list []history.Item) {
	end := time.Now().Add(-ago)
	first := end.Add(-time.Hour)
	row := func(kind history.Kind, begin, over time.Time, reason locks.Reason) history.Item {
		n := len(list)
		return history.Item{Kind: kind, NS: locks.DefaultNamespace, Lock: lock, LeaseID: fmt.Sprintf("lkpast%s%04d", lock, n), Owner: owners[n%len(owners)], Mode: locks.Exclusive,
			Begin: begin, End: over, Reason: reason, WaitedKnown: true}
	}
	for begin := first; begin.Before(end); begin = begin.Add(held) {
		over := begin.Add(held)
		if over.After(end) {
			over = end
		}
		hold := row(history.Hold, begin, over, locks.ReasonReleased)
		hold.FencingToken = int64(len(list) + 1)
		hold.Waited = time.Duration(queue[int(begin.Sub(first)*time.Duration(len(queue))/time.Hour)]) * held
		list = append(list, hold)
	}
	for n := range queue[len(queue)-1] {
		list = append(list, row(history.Wait, end.Add(-time.Duration(n+1)*held), end, locks.ReasonCancelled))
	}
	return list
}

// The line of a row is drawn from what the store of the history has on disk, not from what a fake says.
func TestARowDrawsTheLastHourOfItsQueueFromTheStore(t *testing.T) {
	t.Parallel()
	g := startStandalone(t, withPast(t, turns("deploy", 0, 2*time.Minute, []string{"anna", "ben"}, 0, 0, 0, 4, 4, 0, 0, 0)))
	g.hold("deploy", "ttl=5m&owner=carl")
	page := openPage(t, g, "/")
	page.says("#locks", "carl", "(usually 2 min)")
	page.until(`document.querySelector("#locks .spark")`, "the line is drawn")
	type line struct {
		Points, Label string
		Width, Height float64
	}
	got := eval[line](page, `((e) => ({points: e.firstElementChild.getAttribute("points"), label: e.getAttribute("aria-label"), width: e.firstElementChild.getBoundingClientRect().width, height: e.firstElementChild.getBoundingClientRect().height}))(document.querySelector("#locks .spark"))`)
	assert.That(t, got.Width > 60 && got.Height > 5, "it is %v by %v pixels", got.Width, got.Height)
	assert.That(t, got.Label == "the last hour: at most 4" || got.Label == "the last hour: at most 5", "%s", got.Label)
	var highest, last int // minutes
	empty := true
	for _, point := range strings.Fields(got.Points) {
		var minute, y int
		_, err := fmt.Sscanf(point, "%d,%d", &minute, &y)
		assert.NoError(t, err)
		if y == 0 {
			highest = minute
		}
		empty = empty && (minute > 5 && minute < 50 || y == 9)
		last = minute
	}
	assert.That(t, highest > 15 && highest < 40 && last == 59 && empty, "the queue was long in the middle of the hour alone: %s", got.Points)
	page.shot("row-of-the-last-hour")
	page.notReloaded()
}
