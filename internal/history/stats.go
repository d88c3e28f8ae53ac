package history

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
)

const (
	// topLength is how many locks a list of the first ones has.
	topLength = 10
	// seriesLength is in how many steps a window is cut.
	seriesLength = 60
	// statsWithin is how long counting may take.
	statsWithin = 4 * time.Second
	// An answer over all locks is given again for costFactor times as long as it took, atLeast at least, but no longer than for
	// the part cachedFor of its window; maxCached are kept.
	costFactor = 25
	atLeast    = 2 * time.Second
	cachedFor  = 360
	maxCached  = 64
)

// StatsQuery asks for figures of one lock, or of all that the rules let read.
type StatsQuery struct {
	Rules    *access.Rules
	NS, Lock string // Lock "": all
	Window   time.Duration
}

// Spans are the percentiles of spans of time, of so many. They are exact to 3 %.
type Spans struct {
	Count              int
	P50, P95, P99, Max time.Duration
}

// Top is a lock in a list of the first ones.
type Top struct {
	NS, Lock string
	Count    int           // grants that waited for quickSpan at least, or expiries
	Span     time.Duration // waited by all together, or of the longest hold
}

// Stats are figures of a time.
type Stats struct {
	From, To time.Time
	Grants   int                  // that began in it
	Waits    int                  // contenders that left the queue without a grant
	Ends     map[locks.Reason]int // of holds, by reason
	// Wait is how long grants had waited, and Hold how long holds had lasted that have ended.
	Wait, Hold Spans
	// Contended are the locks for which contenders have waited longest together, Longest those of the longest holds, Expired
	// those with the most leases that expired. Not of one lock.
	Contended, Longest, Expired []Top
	Series                      []Step // the window in seriesLength steps, the oldest first
	Coverage

	from time.Time // how far the count came
}

// Step is what a part of the window had.
type Step struct {
	From   time.Time
	Grants int
	Wait   Spans // how long these grants had waited
}

type cachedStats struct {
	until time.Time
	stats *Stats
}

// Stats counts. What takes too long ends with the figures of the latest part of the window, and is not complete.
func (h *History) Stats(ctx context.Context, q StatsQuery) (*Stats, error) {
	now := time.Now()
	id := fmt.Sprintf("%q %q %q %v", q.Rules.Key(), q.NS, q.Lock, q.Window)
	h.mu.Lock()
	c, ok := h.cached[id]
	h.mu.Unlock()
	if ok && now.Before(c.until) {
		return c.stats, nil
	}
	st := &Stats{From: now.Add(-q.Window).UTC(), To: now.UTC()}
	cut := time.Time{} // how far the count came; zero: to its end
	err := h.within(ctx, statsWithin, func(ctx context.Context, s *store) error {
		err := s.stats(ctx, &q, st)
		if err != nil && ctx.Err() != nil && !st.from.IsZero() {
			cut, err = st.from, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	st.Coverage = h.Coverage(st.From, st.To)
	if !cut.IsZero() {
		st.Complete, st.Since = false, latest(st.Since, cut)
	}
	if q.Lock != "" || ctx.Err() != nil { // the client's going away cut the count short: others get all of it
		return st, nil
	}
	h.mu.Lock()
	if len(h.cached) >= maxCached {
		clear(h.cached)
	}
	h.cached[id] = cachedStats{now.Add(min(q.Window/cachedFor, max(atLeast, costFactor*time.Since(now)))), st}
	h.mu.Unlock()
	return st, nil
}

// ofLock is what is counted of a lock.
type ofLock struct {
	readable  bool
	waited    time.Duration
	contended int
	longest   time.Duration
	expired   int
	ns, lock  string
}

// counting is a count that is under way.
type counting struct {
	st         *Stats
	to         time.Time
	rules      *access.Rules
	wait, hold quantiles
	locks      map[int64]*ofLock
	steps      [seriesLength]struct {
		grants int
		wait   quantiles
	}
}

// stepOf is the number of the step in which a row began.
func (c *counting) stepOf(id int64) int {
	window := c.st.To.Sub(c.st.From)
	return int(min(max(int64(time.UnixMicro(id).Sub(c.st.From))*seriesLength/max(int64(window), 1), 0), seriesLength-1))
}

// series are the steps as they are shown.
func (c *counting) series() []Step {
	window := c.st.To.Sub(c.st.From)
	list := make([]Step, seriesLength)
	for i := range list {
		list[i] = Step{From: c.st.From.Add(window * time.Duration(i) / seriesLength), Grants: c.steps[i].grants, Wait: c.steps[i].wait.spans()}
	}
	return list
}

// stats reads the rows of the window, the latest first.
func (s *store) stats(ctx context.Context, q *StatsQuery, st *Stats) error {
	st.Ends = map[locks.Reason]int{}
	c := &counting{st: st, to: st.To, rules: q.Rules, locks: map[int64]*ofLock{}}
	defer c.finish(q.Lock == "")
	where, args := "id >= ?", []any{st.From.UnixMicro()}
	if q.Lock != "" {
		id, err := nameID(ctx, s.read, lockNames, q.NS, q.Lock)
		if err != nil || id == 0 {
			return err
		}
		where, args = "place = ? AND "+where, append([]any{id}, args...)
	}
	names, err := lockNamesIn(ctx, s.read, q.NS)
	if err != nil {
		return err
	}
	return c.read(ctx, s, where, args, func(at int64) *ofLock {
		p, known := names[at]
		return &ofLock{ns: p.ns, lock: p.lock, readable: known && (q.NS == "" || p.ns == q.NS) && q.Rules.May(access.Read, p.ns, p.lock)}
	})
}

// countRow has what is counted of a row: few columns, because each costs. Spans are one more than they are, and 0 for none.
const countRow = "SELECT id, place * 256 + kind * 32 + ifnull(reason, 0), ifnull(waited + 1, 0), ifnull(span + 1, 0), n, mean FROM rows WHERE "

// read counts the rows, the latest first. It goes past database/sql, which takes twice as long for a row.
func (c *counting) read(ctx context.Context, s *store, where string, args []any, lockOf func(int64) *ofLock) error {
	conn, err := s.read.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(raw any) error {
		named := make([]driver.NamedValue, len(args))
		for i := range args {
			named[i] = driver.NamedValue{Ordinal: i + 1, Value: args[i]}
		}
		rows, err := raw.(driver.QueryerContext).QueryContext(ctx, countRow+where+" ORDER BY id DESC", named)
		if err != nil {
			return err
		}
		defer rows.Close()
		values := make([]driver.Value, 6)
		for n := 0; ; n++ {
			if err := rows.Next(values); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if n%1024 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			number := func(i int) int64 { v, _ := values[i].(int64); return v } // NULL is 0
			what := number(1)
			if n%1024 == 0 {
				c.st.from = time.UnixMicro(number(0)).UTC()
			}
			l := c.locks[what>>8]
			if l == nil {
				l = lockOf(what >> 8)
				c.locks[what>>8] = l
			}
			if l.readable {
				c.row(l, Kind(what>>5&7), number(0), number(2)-1, number(3)-1, what&31, int(max(number(4), 1)), number(5))
			}
		}
	})
}

// lockNamesIn are the locks of a namespace, "" for all, by their numbers.
func lockNamesIn(ctx context.Context, q querier, ns string) (map[int64]place, error) {
	rows, err := q.QueryContext(ctx, "SELECT id, a, b FROM names WHERE kind = 1 AND (?1 = '' OR a = ?1)", ns)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := map[int64]place{}
	for rows.Next() {
		var id int64
		var p place
		if err := rows.Scan(&id, &p.ns, &p.lock); err != nil {
			return nil, err
		}
		list[id] = p
	}
	return list, rows.Err()
}

// row counts a row. Spans are in milliseconds, -1 for none.
func (c *counting) row(l *ofLock, kind Kind, id, waited, span, reason int64, n int, mean int64) {
	ms := func(v int64) time.Duration { return time.Duration(v) * time.Millisecond }
	switch kind {
	case Wait:
		c.st.Waits += n
		l.waited += ms(max(waited, 0))
		return
	case Hold:
	case Many:
		span = mean
		waited = max(waited, 0)
	default:
		return
	}
	c.st.Grants += n
	step := &c.steps[c.stepOf(id)]
	step.grants += n
	if waited >= 0 {
		c.wait.add(ms(waited), n)
		step.wait.add(ms(waited), n)
		l.waited += ms(waited) * time.Duration(n)
		if ms(waited) >= quickSpan {
			l.contended += n
		}
	}
	lasted := ms(span)
	if span < 0 {
		lasted = c.to.Sub(time.UnixMicro(id))
	} else {
		c.hold.add(lasted, n)
		c.st.Ends[reasonOf(reason)] += n
		if reasonOf(reason) == locks.ReasonExpired {
			l.expired += n
		}
	}
	l.longest = max(l.longest, lasted)
}

// finish makes the percentiles and the lists.
func (c *counting) finish(lists bool) {
	c.st.Wait, c.st.Hold, c.st.Series = c.wait.spans(), c.hold.spans(), c.series()
	if !lists {
		return
	}
	first := func(of func(*ofLock) (int, time.Duration), less func(a, b Top) int) (list []Top) {
		for _, l := range c.locks {
			if n, span := of(l); l.readable && l.lock != "" && (n > 0 || span > 0) {
				list = append(list, Top{l.ns, l.lock, n, span})
			}
		}
		slices.SortFunc(list, func(a, b Top) int { return cmp.Or(less(a, b), cmp.Compare(a.NS, b.NS), cmp.Compare(a.Lock, b.Lock)) })
		return list[:min(len(list), topLength)]
	}
	bySpan := func(a, b Top) int { return cmp.Compare(b.Span, a.Span) }
	c.st.Contended = first(func(l *ofLock) (int, time.Duration) {
		if l.waited < quickSpan {
			return 0, 0
		}
		return l.contended, l.waited
	}, bySpan)
	c.st.Longest = first(func(l *ofLock) (int, time.Duration) { return 0, l.longest }, bySpan)
	c.st.Expired = first(func(l *ofLock) (int, time.Duration) { return l.expired, 0 }, func(a, b Top) int { return cmp.Compare(b.Count, a.Count) })
}

// quantiles counts spans by their size: sixteen sizes between two powers of two.
type quantiles struct {
	counts map[int]int
	n      int
	max    time.Duration
}

const sizesOfTwo = 16

func sizeOf(ms int64) int {
	if ms < sizesOfTwo {
		return int(max(ms, 0))
	}
	shift := 0
	for v := ms; v >= 2*sizesOfTwo; v >>= 1 {
		shift++
	}
	return (shift+1)*sizesOfTwo + int(ms>>shift) - sizesOfTwo
}

// middle is a span of that size, in milliseconds.
func middle(size int) int64 {
	if size < sizesOfTwo {
		return int64(size)
	}
	shift := size/sizesOfTwo - 1
	low := int64(sizesOfTwo+size%sizesOfTwo) << shift
	return low + (int64(1)<<shift)/2
}

func (q *quantiles) add(span time.Duration, n int) {
	if q.counts == nil {
		q.counts = map[int]int{}
	}
	q.counts[sizeOf(span.Milliseconds())] += n
	q.n += n
	q.max = max(q.max, span)
}

func (q *quantiles) spans() Spans {
	s := Spans{Count: q.n, Max: q.max}
	sizes := slices.Sorted(maps.Keys(q.counts))
	at := func(of float64) time.Duration {
		rank, seen := int(of*float64(q.n)+0.999999), 0
		for _, size := range sizes {
			if seen += q.counts[size]; seen >= max(rank, 1) {
				return min(time.Duration(middle(size))*time.Millisecond, q.max)
			}
		}
		return q.max
	}
	s.P50, s.P95, s.P99 = at(.5), at(.95), at(.99)
	return s
}
