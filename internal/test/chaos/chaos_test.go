package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/chaos/check"
)

var (
	seed     = flag.Uint64("chaos.seed", 774, "what the plan is drawn from; unless given, one that has much in two minutes")
	duration = flag.Duration("chaos.duration", 0, "how long the plan is; 0 is two minutes, or ten with LOCKKEEPER_FULL")
	clients  = flag.Int("chaos.clients", 0, "how many clients there are; 0 is 14, or 40 when a duration is given")
	again    = flag.String("chaos.again", "", "look at the history that was kept in this directory again")
	keep     = flag.String("chaos.keep", "", "where the history is kept; unless given, that of a run that broke a promise in a new directory")
)

func TestNoFaultBreaksAPromise(t *testing.T) {
	t.Parallel()
	length, many := *duration, *clients
	if many == 0 {
		if many = 14; length != 0 {
			many = 40
		}
	}
	if length == 0 {
		if length = 115 * time.Second; os.Getenv("LOCKKEEPER_FULL") != "" {
			length = 10 * time.Minute
		}
	}
	dir := t.TempDir()
	w := newWorld(t, newEnsemble(t), dir, "")
	plan := Plan(*seed, length)
	for _, f := range plan {
		t.Log(f)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)

	stop := make(chan struct{}) // closed when clients are to come to their end
	var living, watching sync.WaitGroup
	locks := []string{}
	for i := range exclusiveLocks {
		locks = append(locks, fmt.Sprint("exclusive-", i))
	}
	for i := range sharedLocks {
		locks = append(locks, fmt.Sprint("shared-", i))
	}
	for i := range permitLocks {
		locks = append(locks, fmt.Sprint("permits-", i))
	}
	bulk := max(many/14, 1)
	for i := range many {
		c := newClient(w, i, *seed)
		switch {
		case i == 0:
			living.Go(func() { c.probe(ctx, stop) })
		case i <= bulk:
			for n := range bulkLeases {
				locks = append(locks, fmt.Sprintf("bulk-%d-%d", i, n))
			}
			living.Go(func() { c.liveInBulk(ctx, stop) })
		default:
			living.Go(func() { c.live(ctx, stop) })
		}
	}
	listing, unlist := context.WithCancel(ctx)
	watching.Go(func() { w.lister(listing, locks, *seed) })
	watching.Go(func() { w.watchClock(listing) })

	err := w.Run(ctx, plan)
	sleep(ctx, length-calm-w.now())
	close(stop)
	living.Wait()
	sleep(ctx, calm-2*time.Second)
	unlist()
	watching.Wait()
	assert.Nil(t, errors.Join(err, context.Cause(ctx)), "the fleet did not recover")
	// What is left now is left for good.
	last := newCaller(w.ways, newClient(w, many, *seed).rng)
	defer last.close()
	for _, lock := range locks {
		for !w.look(ctx, last, lock) && w.now() < length+30*time.Second {
			sleep(ctx, 200*time.Millisecond)
		}
	}

	h := w.sofar()
	found := check.Check(&h, check.Times{Session: sessionTimeout, Window: promiseWindow})
	figures := figuresOf(h, w.count)
	t.Logf("seed %d, %v, %d clients, %d violations\n%v", *seed, length, many, len(found), figures)
	for i, v := range found {
		if i == 30 {
			t.Errorf("and %d more", len(found)-i)
			break
		}
		t.Errorf("%s: %s at %v: %s", v.Rule, v.Lock, v.At, v.Detail)
	}
	assert.That(t, figures.Held >= 50 && figures.HandOvers >= 20, "hardly anything happened: this shows nothing")
	if t.Failed() || *keep != "" {
		t.Logf("kept: %s", save(t, dir, h, found))
	}
}

const stoodStill = "machine stood still"

// watchClock notes when the machine stood still: an answer that is late then is late for that reason.
func (w *World) watchClock(ctx context.Context) {
	for last := w.now(); sleep(ctx, 100*time.Millisecond); {
		now := w.now()
		if now-last > 600*time.Millisecond {
			w.mended(check.Span{Kind: stoodStill, From: last, To: now})
		}
		last = now
	}
}

func TestAPlanIsAFunctionOfItsSeedAndLeavesNothingOut(t *testing.T) {
	for seed := range uint64(20) {
		plan := Plan(seed, 10*time.Minute)
		assert.Must(t, fmt.Sprint(plan) == fmt.Sprint(Plan(seed, 10*time.Minute)), "seed %d has two plans", seed)
		all := fmt.Sprint(plan)
		for _, k := range kinds {
			assert.That(t, strings.Contains(all, k.name), "seed %d: %s does not come in ten minutes", seed, k.name)
		}
		for _, f := range plan {
			assert.That(t, f.At >= firstCalm && f.At <= 10*time.Minute-calm, "seed %d: %v comes when it is to be calm", seed, f)
		}
	}
	assert.That(t, fmt.Sprint(Plan(1, time.Hour)) != fmt.Sprint(Plan(2, time.Hour)), "two seeds have one plan")
	n := len(Plan(1, 115*time.Second))
	assert.That(t, n >= 5, "two minutes have %d faults", n)
}
