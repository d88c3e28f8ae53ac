package chaos

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/chaos/check"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// binary is the gateway that all worlds run. TestMain alone writes it, before the first test.
var binary string

// World is a fleet on an ensemble, and two ways to it.
type World struct {
	*Recorder
	t        testing.TB
	ensemble *zkreal.Ensemble
	gateways []*gateway
	ways     []way

	mu     sync.Mutex
	taken  map[*gateway]bool // by a fault
	broken bool              // the ensemble, by a fault
	count  map[string]int    // faults that were survived, by kind
}

// way is an address under which clients find the fleet.
type way struct{ name, url string }

const gateways = 3

// newEnsemble starts three servers. A follower that has lost its peers goes on serving for eight seconds.
func newEnsemble(t testing.TB) *zkreal.Ensemble {
	return zkreal.StartEnsembleT(t, 3, zkreal.WithoutFsync(), zkreal.WithSyncLimit(16))
}

// newWorld starts a fleet below a chroot of an ensemble, and returns when it serves.
func newWorld(t testing.TB, e *zkreal.Ensemble, dir, chroot string) *World {
	t.Helper()
	testkit.BuiltFrom(t, "lockkeeper/cmd/gateway")
	w := &World{t: t, ensemble: e, Recorder: &Recorder{began: time.Now()}, taken: make(map[*gateway]bool), count: make(map[string]int)}
	if chroot != "" {
		assert.NoError(t, zkreal.Mkdir(e.Servers()[0].Addr(), chroot))
	}
	var servers, fronts []string
	for _, s := range e.Servers() {
		servers = append(servers, s.Addr())
	}
	for i := range gateways {
		g := newGateway(t, fmt.Sprintf("gateway-%d", i), dir, servers, chroot)
		w.gateways = append(w.gateways, g)
		fronts = append(fronts, g.front.Addr())
	}
	w.ways = []way{{"nginx", startNginx(t, fronts)}, {"balancer", startBalancer(t, fronts).url()}}
	for _, g := range w.gateways {
		assert.NoError(t, g.start())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, g := range w.gateways {
		assert.NoError(t, g.awaitReady(ctx))
	}
	w.began = time.Now()
	return w
}

// recovery is how long all of the fleet may take to be at work again after a fault is over.
const recovery = time.Minute

// Run carries out a plan, and returns when it is over or a fault was not recovered from.
func (w *World) Run(ctx context.Context, plan []Fault) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, f := range plan {
		if !sleep(ctx, f.At-w.now()) {
			break
		}
		running.Go(func() {
			if err := w.strike(ctx, f); err != nil {
				cancel(fmt.Errorf("%v: %w", f, err))
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// strike breaks something and mends it.
func (w *World) strike(ctx context.Context, f Fault) error {
	k, err := kindNamed(f.Kind)
	if err != nil {
		return err
	}
	target, leave, ok := w.claim(k, f.Target)
	for late := w.now() + recovery; !ok; target, leave, ok = w.claim(k, f.Target) {
		// What it would break is broken already. It comes later, unless that takes too long: one fault more or less.
		if !sleep(ctx, 50*time.Millisecond) || w.now() > late {
			return nil
		}
	}
	defer leave()
	span := check.Span{Kind: k.name, From: w.now()}
	w.breaking(span)
	mend, err := k.apply(w, target)
	w.t.Logf("%6.1fs %s %d", span.From.Seconds(), f.Kind, target)
	if mend == nil {
		return err
	}
	sleep(ctx, f.For)
	// After any faults: nothing is left broken, for others have to end, too.
	mending, cancel := context.WithTimeout(context.WithoutCancel(ctx), recovery)
	defer cancel()
	if mended := mend(mending); err == nil {
		err = mended
	}
	span.To = w.now()
	w.mended(span)
	w.t.Logf("%6.1fs %s mended: %v", span.To.Seconds(), f.Kind, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count[k.name]++
	return err
}

// claim keeps two faults from breaking one thing.
func (w *World) claim(k kind, target int) (claimed int, leave func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.ensemble {
		if w.broken {
			return 0, nil, false
		}
		w.broken = true
		return target, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.broken = false
		}, true
	}
	for i := range w.gateways {
		i = (target + i) % len(w.gateways)
		if g := w.gateways[i]; !w.taken[g] {
			w.taken[g] = true
			return i, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.taken[g] = false
			}, true
		}
	}
	return 0, nil, false
}

func (w *World) busy(g *gateway) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken[g]
}

// sleep is false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
