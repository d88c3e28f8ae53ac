package interop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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
