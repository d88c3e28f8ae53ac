package dashboard

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/backoff"
	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

const (
	// trendSteps is how many minutes of a queue's past a row draws, one point for each.
	trendSteps = 60
	// trendHeight is the y of an empty queue: one digit, so that 60 points have some 300 bytes.
	trendHeight = 9
	// maxTrends is how many locks have a trend. When they are all asked for, rows of further locks are shown without.
	maxTrends = 1024
	// trendIdle is how long after a page has asked for it last a trend may go.
	trendIdle = 2 * time.Minute
	// trendWaiters is how many present waiters of a lock are looked at. Those behind count from when the last of these was queued.
	trendWaiters = 200
	// trendRest stretches the pause after each lock to so many times what that took: the trends take at most a twentieth of a core.
	trendRest = 20
	// trendWithin bounds what one lock takes.
	trendWithin = 5 * time.Second
)

// trends has what the history says of the locks in rows: for how long each is usually held, and how long its queue was in the last hour. A row
// does not wait for it: the history is asked on a goroutine of the Dashboard, for one lock after the other, once a minute for those that pages show.
// What a trend says does not depend on who looks: it is shown in rows of locks that the viewer may read.
type trends struct {
	from   *Options
	memory *memory
	start  func(func(context.Context)) bool // a goroutine that Run waits for; false: none now

	mu      sync.Mutex
	known   shelf[trendOf, *trend]
	due     []trendOf // to be asked for; each is known
	running bool
}

type trendOf struct{ ns, lock string }

type trend struct {
	usual *templates.Usual
	line  templates.Trend
	asked time.Time // when a page asked for it last
	until time.Time // when it is due again
	queue bool      // it is in due
}

func newTrends(from *Options, m *memory, start func(func(context.Context)) bool) *trends {
	return &trends{from: from, memory: m, start: start, known: shelf[trendOf, *trend]{maxTrends, (*trend).useful, map[trendOf]*trend{}}}
}

// show fills in the row of a lock what is known of it.
func (t *trends) show(row *templates.LockRow, ns, lock string) {
	if t.from.History == nil {
		return
	}
	now, at := time.Now(), trendOf{ns, lock}
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.known.of[at]
	if k == nil {
		if !t.known.room() {
			return
		}
		k = &trend{}
		t.known.put(at, k)
	}
	k.asked = now
	if !k.queue && !now.Before(k.until) {
		k.queue = true
		t.due = append(t.due, at)
	}
	if len(t.due) > 0 && !t.running {
		t.running = t.start(t.run)
	}
	row.Usual, row.Trend = k.usual, k.line
}

// useful is until when a trend is of use: while pages ask for it.
func (k *trend) useful() time.Time {
	if k.queue {
		return time.Time{}
	}
	return k.asked.Add(trendIdle)
}

// run asks for what is due until nothing is.
func (t *trends) run(ctx context.Context) {
	for {
		t.mu.Lock()
		if len(t.due) == 0 || ctx.Err() != nil {
			t.running = false
			t.mu.Unlock()
			return
		}
		at := t.due[0]
		t.due = t.due[1:]
		t.mu.Unlock()
		began := time.Now()
		usual, line := t.ask(ctx, at, began)
		t.mu.Lock()
		k := t.known.of[at]
		k.usual, k.line, k.queue = usual, line, false
		k.until = began.Truncate(time.Minute).Add(time.Minute) // the minute after this one
		t.mu.Unlock()
		_ = backoff.Sleep(ctx, trendRest*time.Since(began)) // the next look at ctx ends it
	}
}

// ask is the trend of a lock. What an error leaves out is not there.
func (t *trends) ask(ctx context.Context, at trendOf, now time.Time) (usual *templates.Usual, line templates.Trend) {
	var err error
	defer survive(&err) // a row is no reason to end the process
	ctx, cancel := context.WithTimeout(ctx, trendWithin)
	defer cancel()
	all := locks.Principal{Rules: access.Everything()}
	usual = usualHold(ctx, t.memory, all, at.ns, at.lock)
	to := now.Truncate(time.Minute)
	from := to.Add(-trendSteps * time.Minute)
	answer, err := t.memory.history.Query(ctx, history.Query{Rules: all.Rules, NS: at.ns, Lock: at.lock, From: from, To: now, Kinds: history.Of(history.Hold, history.Wait), Limit: history.MaxLimit})
	if err != nil {
		return usual, line
	}
	l, err := t.from.Locks.Lock(ctx, locks.LockRequest{Principal: all, NS: at.ns, Lock: at.lock, Limit: trendWaiters})
	if err != nil {
		return usual, line
	}
	lengths := queueLengths(append(waitsIn(answer.Items), waitsNow(&l)...), from)
	since := answer.Since
	if answer.Next != "" { // what began before these rows is not known
		since = later(since, answer.Items[len(answer.Items)-1].Begin)
	}
	first := 0
	if since.After(from) {
		first = int((since.Sub(from) + time.Minute - 1) / time.Minute)
	}
	return usual, trendLine(lengths, first)
}

// waiting is a number of contenders that were queued for a time. An end of zero: they still are.
type waiting struct {
	from, to time.Time
	n        int
}

// waitsIn are the waits of rows of the history that are over.
func waitsIn(items []history.Item) (list []waiting) {
	for n := range items {
		switch i := &items[n]; {
		case i.Kind == history.Hold && i.WaitedKnown && i.Waited > 0:
			list = append(list, waiting{i.Begin.Add(-i.Waited), i.Begin, 1})
		case i.Kind == history.Wait && !i.End.IsZero():
			list = append(list, waiting{i.Begin, i.End, 1})
		}
	}
	return list
}

// waitsNow are the waits that are not over, which the history does not know.
func waitsNow(l *locks.Lock) (list []waiting) {
	for n := range l.Waiters {
		if w := &l.Waiters[n]; w.AgeKnown {
			list = append(list, waiting{from: w.At.Add(-w.Age), n: 1})
		}
	}
	if rest := l.QueueLength - len(l.Waiters); rest > 0 && len(list) > 0 {
		list = append(list, waiting{from: list[len(list)-1].from, n: rest})
	}
	return list
}

// queueLengths are the mean lengths of a queue in each minute from a time on.
func queueLengths(list []waiting, from time.Time) (lengths [trendSteps]float64) {
	to := from.Add(trendSteps * time.Minute)
	for _, w := range list {
		if w.to.IsZero() || w.to.After(to) {
			w.to = to
		}
		if w.from.Before(from) {
			w.from = from
		}
		for begin := w.from; begin.Before(w.to); {
			step := int(begin.Sub(from) / time.Minute)
			end := from.Add(time.Duration(step+1) * time.Minute)
			if w.to.Before(end) {
				end = w.to
			}
			lengths[step] += float64(w.n) * float64(end.Sub(begin)) / float64(time.Minute)
			begin = end
		}
	}
	return lengths
}

// trendLine draws the minutes from first on; nothing when there are fewer than two, or nothing waited in them to speak of. Points on a straight line
// between others are left out.
func trendLine(lengths [trendSteps]float64, first int) templates.Trend {
	most := 0.0
	for n := first; n < trendSteps; n++ {
		most = max(most, lengths[n])
	}
	if first > trendSteps-2 || most < 0.05 {
		return templates.Trend{}
	}
	at := func(n int) int { return trendHeight - int(math.Round(trendHeight*lengths[n]/most)) }
	var b strings.Builder
	for n := first; n < trendSteps; n++ {
		if n > first && n < trendSteps-1 && at(n)-at(n-1) == at(n+1)-at(n) {
			continue
		}
		if n > first {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d,%d", n, at(n))
	}
	return templates.Trend{Points: b.String(), Most: int(math.Ceil(most))}
}
