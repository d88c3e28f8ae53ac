package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// atOnce is how many pairs contend at the same time: most of their time they wait for a process on one of two processors.
const atOnce = 12

// handovers is how often the lock of a pair has to change hands.
func handovers() int {
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		return 10_000
	}
	return 300
}

func within() time.Duration {
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		return 50 * time.Minute
	}
	return 5 * time.Minute
}

// each calls f for each pair in a subtest, atOnce of them at a time. (t.Parallel runs as many as there are processors, and
// these wait.)
func each(t *testing.T, pairs []pair, f func(t *testing.T, p pair)) {
	assert.Must(t, len(pairs) != 0, "no pairs")
	var running sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, p := range pairs {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			t.Run(p.String(), func(t *testing.T) { f(t, p) })
		})
	}
	running.Wait()
}

func TestPairsThatTheTableCallsSafeExcludeEachOther(t *testing.T) {
	w := newWorld(t)
	each(t, withWord(t, "excludes"), func(t *testing.T, p pair) {
		c := w.contest(t, p, 100*time.Microsecond)
		v, err := c.until(func(v verdict) bool { return v.handovers() >= handovers() || v.overlaps > 0 })
		if err == nil {
			err = v.unsafe(handovers())
		}
		assert.Nil(t, err, "%+v", v)
	})
}

// Otherwise the test above could not fail.
func TestPairsThatTheTableCallsUnsafeAreCaught(t *testing.T) {
	w := newWorld(t)
	each(t, []pair{{"native", "exclusive", "kazoo-lock", "no"}, {"kazoo", "exclusive", "curator-mutex", "no"}, {"native", "exclusive", "curator-write", "no"},
		{"native", "exclusive", "home-made-write", "no"}},
		func(t *testing.T, p pair) {
			c := w.contest(t, p, 2*time.Millisecond)
			v, err := c.until(func(v verdict) bool { return v.overlaps > 20 && v.lost > 0 })
			assert.That(t, err == nil && v.overlaps != 0 && v.lost > 0, "%+v: %v", v, err)
		})
}

// contest is a pair whose parties take a lock again and again.
type contest struct {
	w       *world
	p       pair
	program *program
	theirs  <-chan said
	job     string
	counter counter
	pause   time.Duration

	ctx  context.Context
	stop context.CancelFunc // ours ends after its section

	mu   sync.Mutex
	ours []interval
}

func (w *world) contest(t *testing.T, p pair, pause time.Duration) *contest {
	t.Helper()
	w.mkdir("/"+p.ns+"/"+p.lock(), nil)
	c := &contest{w: w, p: p, program: w.program(t, p.kind), pause: pause, job: p.ns + "-" + p.lock()}
	var err error
	c.counter = assert.Value(newCounter(filepath.Join(t.TempDir(), "counter")))(t)
	c.ctx, c.stop = context.WithCancel(t.Context())
	c.theirs, err = c.program.start("loop", c.job, p.kind, w.dir(p.ns, p.lock()), c.counter.path, fmt.Sprint(pause.Microseconds()))
	assert.NoError(t, err)
	return c
}

// party is our side.
func (c *contest) party(requests context.Context) error {
	for c.ctx.Err() == nil {
		lease, err := c.w.acquire(requests, c.p.ns, c.p.lock(), "wait=60s&ttl=60s&mode="+c.p.mode)
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		at := interval{begin: monotonic()}
		if err := c.counter.raise(c.pause); err != nil {
			return err
		}
		at.end = monotonic()
		c.mu.Lock()
		c.ours = append(c.ours, at)
		c.mu.Unlock()
		if err := c.w.release(requests, lease); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	return nil
}

// until lets the parties contend until enough says so, and judges.
func (c *contest) until(enough func(verdict) bool) (v verdict, err error) {
	requests, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), within())
	defer cancel()
	defer c.stop()
	ended := make(chan error, 1)
	go func() { ended <- c.party(requests) }()
	var (
		theirs []interval
		tick   = time.NewTicker(100 * time.Millisecond) // judging sorts
		done   bool
	)
	defer tick.Stop()
	for ours := (chan error)(ended); !done || ours != nil; {
		select {
		case s := <-c.theirs:
			switch s.verb {
			case "section":
				theirs = append(theirs, s.at)
			case "done":
				done = true
			case "fail":
				return v, errors.New(s.text)
			}
		case err := <-ours:
			if err != nil {
				return v, fmt.Errorf("our side: %w", err)
			}
			ours = nil
		case <-tick.C:
			if c.ctx.Err() == nil && enough(c.judge(theirs)) {
				c.stop()
				if err := c.program.stop(c.job); err != nil {
					return v, err
				}
			}
		case <-c.program.proc.Done():
			return v, errors.New("the program ended")
		case <-requests.Done():
			return c.judge(theirs), fmt.Errorf("not enough within %v", within())
		}
	}
	return c.judge(theirs), nil
}

func (c *contest) judge(theirs []interval) verdict {
	n, err := c.counter.read()
	if err != nil {
		n = -1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return judge(c.ours, theirs, n)
}

func TestReadersOfBothSidesHoldTogether(t *testing.T) {
	w := newWorld(t)
	each(t, withWord(t, "shares"), func(t *testing.T, p pair) {
		w.mkdir("/"+p.ns+"/"+p.lock(), nil)
		w.together(t, p, func() error {
			lease, err := w.acquire(t.Context(), p.ns, p.lock(), "wait=30s&ttl=60s&mode=shared")
			if err != nil {
				return err
			}
			return w.release(t.Context(), lease)
		})
	})
}

// together takes the lock for ours, then for theirs, and while theirs holds it calls more.
func (w *world) together(t *testing.T, p pair, more func() error) {
	t.Helper()
	lease, err := w.acquire(t.Context(), p.ns, p.lock(), "ttl=60s&mode="+p.mode)
	assert.NoError(t, err)
	program, job := w.program(t, p.kind), "hold-"+p.ns+"-"+p.lock()
	lines := assert.Value(program.start("hold", job, p.kind, w.dir(p.ns, p.lock())))(t)
	_, err = await(program, lines, "held", patience)
	assert.Nil(t, err, "beside ours")
	assert.Nil(t, w.release(t.Context(), lease))
	assert.Nil(t, more(), "beside theirs")
	assert.Nil(t, program.stop(job))
	_, err = await(program, lines, "done", patience)
	assert.Nil(t, err)
}

// What the table does not promise is not merely untested. Ours waits for theirs all the same.
func TestPairsThatTheTableCallsUnsafeLetTheOtherProgramInBesideOurs(t *testing.T) {
	w := newWorld(t)
	each(t, withWord(t, "no"), func(t *testing.T, p pair) {
		w.mkdir("/"+p.ns+"/"+p.lock(), nil)
		w.together(t, p, func() error {
			_, err := w.acquire(t.Context(), p.ns, p.lock(), "ttl=60s&mode="+p.mode)
			if r := (*refusal)(nil); errors.As(err, &r) && r.status == http.StatusConflict && strings.Contains(r.body, "held_by_other") {
				return nil
			}
			return fmt.Errorf("ours does not wait: %v", err)
		})
	})
}

// tablePath is the page whose table these tests verify: each cell is a pair.
const tablePath = "../../../docs/operate/interop.md"

// pair is a namespace's dialect and a mode of ours, a kind of client, and what the table says of the two.
type pair struct {
	ns, mode string
	kind     string
	word     string // excludes, deadlocks, shares, no
}

func (p pair) String() string { return p.ns + "," + p.mode + " " + p.kind }

// lock is a name for the pair's lock.
func (p pair) lock() string { return p.mode + "-" + p.kind }

// readTable reads the pairs from the page: the table whose first column is "client". A column is a dialect,
// or a dialect and a mode: "all, shared".
func readTable(t testing.TB) (pairs []pair) {
	t.Helper()
	page := assert.Value(os.ReadFile(tablePath))(t)
	var columns []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`*")
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = nil
		case cells[0] == "client":
			columns = cells
		case columns == nil || strings.HasPrefix(cells[0], "---"):
		case len(cells) != len(columns):
			t.Fatalf("%d cells: %s", len(cells), line)
		default:
			for i := 2; i < len(cells); i++ { // the second column tells which recipe it is
				ns, mode, shared := strings.Cut(columns[i], ", ")
				if !shared {
					mode = "exclusive"
				}
				pairs = append(pairs, pair{ns, mode, cells[0], cells[i]})
			}
		}
	}
	return pairs
}

// withWord are the table's pairs of which it says the word.
func withWord(t testing.TB, word string) (pairs []pair) {
	t.Helper()
	for _, p := range readTable(t) {
		if p.word == word {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

func TestTheTableHasACellForEachDialectModeAndClient(t *testing.T) {
	kinds := []string{"curator-mutex", "curator-leader", "curator-latch", "curator-write", "curator-read", "kazoo-lock", "kazoo-election",
		"kazoo-lock-extra", "kazoo-lock-named", "kazoo-write", "kazoo-read", "go-zookeeper", "zookeeper-writelock", "hbase-write", "hbase-read"}
	got := make(map[string]string)
	for _, p := range readTable(t) {
		assert.That(t, slices.Contains([]string{"excludes", "deadlocks", "shares", "no"}, p.word), "%v: %q", p, p.word)
		got[p.String()] = p.word
	}
	columns := make(map[string][]string) // of each kind
	for _, kind := range kinds {
		columns[kind] = dialects
	}
	columns["home-made-write"], columns["home-made-read"] = []string{custom}, []string{custom}
	for kind, spaces := range columns {
		for _, ns := range spaces {
			for _, mode := range []string{"exclusive", "shared"} {
				p := pair{ns: ns, mode: mode, kind: kind}
				word := got[p.String()]
				assert.That(t, (strings.HasSuffix(kind, "-read") && mode == "shared") == (word == "shares") && word != "",
					"%v: %q", p, word)
				if (ns == "all" || ns == custom) && mode == "exclusive" && word != "excludes" && word != "deadlocks" && kind != "curator-latch" {
					t.Errorf("%v: %q; the dialect is for every program", p, word)
				}
				delete(got, p.String())
			}
		}
	}
	for p := range got {
		t.Errorf("no test expects %s", p)
	}
}

// interval is one section on CLOCK_MONOTONIC, in nanoseconds.
type interval struct{ begin, end int64 }

// verdict is what the sections of two parties and their counter show.
type verdict struct {
	toTheirs, toOurs int // hand-overs
	overlaps         int // sections that began before an earlier one had ended
	lost             int // sections that the counter does not know
}

// judge looks at all sections of both parties.
func judge(ours, theirs []interval, counted int) verdict {
	type section struct {
		interval
		ours bool
	}
	all := make([]section, 0, len(ours)+len(theirs))
	for _, i := range ours {
		all = append(all, section{i, true})
	}
	for _, i := range theirs {
		all = append(all, section{i, false})
	}
	slices.SortFunc(all, func(a, b section) int { return cmp.Compare(a.begin, b.begin) })
	v := verdict{lost: len(all) - counted}
	last := int64(0) // the latest end so far
	for i, s := range all {
		if i > 0 && s.begin < last {
			v.overlaps++
		}
		last = max(last, s.end)
		if i > 0 && s.ours != all[i-1].ours {
			if s.ours {
				v.toOurs++
			} else {
				v.toTheirs++
			}
		}
	}
	return v
}

func (v verdict) handovers() int { return v.toTheirs + v.toOurs }

// unsafe tells what excludes that the two parties excluded each other; nil when nothing does.
func (v verdict) unsafe(wanted int) error {
	var why []error
	if v.overlaps > 0 {
		why = append(why, fmt.Errorf("%d sections overlap", v.overlaps))
	}
	if v.lost != 0 {
		why = append(why, fmt.Errorf("%d counts are lost", v.lost))
	}
	if v.handovers() < wanted {
		why = append(why, fmt.Errorf("%d hand-overs, want %d", v.handovers(), wanted))
	}
	return errors.Join(why...)
}

func TestSectionsAreJudged(t *testing.T) {
	for what, c := range map[string]struct {
		ours, theirs []interval
		counted      int
		want         verdict
	}{
		"one after the other":     {[]interval{{1, 2}, {5, 6}}, []interval{{3, 4}, {7, 8}}, 4, verdict{toTheirs: 2, toOurs: 1}},
		"each in turn, then both": {[]interval{{1, 2}, {5, 8}}, []interval{{3, 4}, {7, 9}}, 3, verdict{toTheirs: 2, toOurs: 1, overlaps: 1, lost: 1}},
		"one within another":      {[]interval{{1, 9}, {5, 6}}, []interval{{2, 3}}, 3, verdict{toTheirs: 1, toOurs: 1, overlaps: 2}},
		"two of the same party":   {[]interval{{1, 4}, {3, 6}}, []interval{{7, 8}}, 3, verdict{toTheirs: 1, overlaps: 1}},
		"a count too many":        {[]interval{{1, 2}}, []interval{{3, 4}}, 3, verdict{toTheirs: 1, lost: -1}},
	} {
		assert.Equal(t, judge(c.ours, c.theirs, c.counted), c.want, "%s", what)
	}
	assert.Nil(t, (verdict{toTheirs: 2, toOurs: 1}).unsafe(3))
	for _, bad := range []verdict{{overlaps: 1, toOurs: 3}, {lost: 1, toOurs: 3}, {lost: -1, toOurs: 3}, {toOurs: 2}} {
		assert.That(t, bad.unsafe(3) != nil, "%+v passes", bad)
	}
}
