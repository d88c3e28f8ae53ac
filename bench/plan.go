package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// maxClients is the most that any scenario has.
const maxClients = 64

// The sides of a comparison.
const (
	gatewaySide = "gateway"
	sharedSide  = "zk.Lock, one connection"
	ownSide     = "zk.Lock, own connections"
	healthSide  = "healthz"
)

// scenario is one line of the comparison: the same work, done by each side in turn.
type scenario struct {
	kind    string
	clients int
	sides   []side
}

const (
	ownLocks    = "own lock"       // each client has a lock of its own: none waits
	hotLock     = "one lock"       // all clients want one lock and give it back at once
	heldHotLock = "one lock, held" // the same, but each holder keeps it for holdFor
	heartbeats  = "heartbeats"     // each client renews its lease
	holdFor     = 5 * time.Millisecond
)

// side does the scenario's work for d.
type side struct {
	name string
	run  func(ctx context.Context, r *rig, d time.Duration) (sample, error)
}

// plan is everything that is measured, in its order.
func plan() []scenario {
	var all []scenario
	for _, clients := range []int{1, 16, 64} {
		all = append(all, cycles(ownLocks, clients))
	}
	all = append(all, cycles(heldHotLock, 2))
	for _, clients := range []int{16, 64} {
		all = append(all, cycles(hotLock, clients))
	}
	for _, clients := range []int{1, 64} {
		all = append(all, scenario{heartbeats, clients, []side{
			{gatewaySide, func(ctx context.Context, r *rig, d time.Duration) (sample, error) {
				return beat(ctx, r.http, clients, d)
			}},
			{healthSide, func(ctx context.Context, r *rig, d time.Duration) (sample, error) {
				return ask(ctx, clients, d, func(ctx context.Context, _ int) error { return r.http.alive(ctx) })
			}},
		}})
	}
	return all
}

// cycles compares acquiring and releasing.
func cycles(kind string, clients int) scenario {
	s := scenario{kind: kind, clients: clients}
	contended, hold := kind != ownLocks, time.Duration(0)
	if kind == heldHotLock {
		hold = holdFor
	}
	add := func(name string, lockerOf func(r *rig, i int, lock string) locker) {
		s.sides = append(s.sides, side{name, func(ctx context.Context, r *rig, d time.Duration) (sample, error) {
			lockers := make([]locker, clients)
			for i := range lockers {
				lock := "hot"
				if !contended {
					lock = fmt.Sprintf("own-%d", i)
				}
				lockers[i] = lockerOf(r, i, lock)
			}
			return cycle(ctx, lockers, d, hold, contended)
		}})
	}
	add(gatewaySide, func(r *rig, _ int, lock string) locker { return r.http.locker(lock) })
	add(sharedSide, func(r *rig, _ int, lock string) locker { return newDirectLocker(r.direct.shared, lock) })
	if clients > 1 { // one client alone has its own connection anyway
		add(ownSide, func(r *rig, i int, lock string) locker { return newDirectLocker(r.direct.own[i], lock) })
	}
	return s
}

// beat lets each client hold a lock and renew it for d.
func beat(ctx context.Context, h *httpClients, clients int, d time.Duration) (s sample, err error) {
	held := make([]*httpLocker, 0, clients)
	defer func() {
		for _, l := range held {
			if failed := l.Unlock(context.WithoutCancel(ctx)); err == nil {
				err = failed
			}
		}
	}()
	for i := range clients {
		l := h.locker(fmt.Sprintf("own-%d", i))
		if err := l.Lock(ctx); err != nil {
			return sample{}, err
		}
		held = append(held, l)
	}
	return ask(ctx, clients, d, func(ctx context.Context, i int) error { return held[i].heartbeat(ctx) })
}

// results holds the samples of each side of each scenario, by round.
type results struct {
	scenarios []scenario
	slice     time.Duration
	samples   map[slot][]sample
}

type slot struct {
	scenario int
	side     string
}

const (
	closingTakes  = 3 * time.Second       // stopping everything
	betweenSlices = 60 * time.Millisecond // counters, and clients that still wait for their turn
	warmUp        = 0.5                   // of a slice, for each side
	leastSlice    = 100 * time.Millisecond
	hangsAfter    = 30 * time.Second
)

// measure runs the plan: a warm-up that counts for nothing (the JVM compiles while it runs), then the rounds. Every other
// round runs backwards.
func (r *rig) measure(ctx context.Context, scenarios []scenario, until time.Time, rounds int) (*results, error) {
	type turn struct {
		slot slot
		side side
	}
	var turns []turn
	for i, s := range scenarios {
		for _, side := range s.sides {
			turns = append(turns, turn{slot{i, side.name}, side})
		}
	}
	n := time.Duration(len(turns))
	left := time.Until(until) - closingTakes - n*time.Duration(rounds+1)*betweenSlices
	slice := time.Duration(float64(left) / (float64(n) * (float64(rounds) + warmUp)))
	if slice < leastSlice {
		return nil, fmt.Errorf("%v are left for %d rounds: too few; give -duration more or -rounds less", left.Round(time.Second), rounds)
	}
	res := &results{scenarios: scenarios, slice: slice, samples: map[slot][]sample{}}
	for round := range rounds + 1 {
		for _, t := range turns {
			d := slice
			if round == 0 {
				d = time.Duration(warmUp * float64(slice))
			}
			s, err := r.turn(ctx, t.side, d)
			if err != nil {
				what := scenarios[t.slot.scenario]
				return nil, fmt.Errorf("%s, %d clients, %s: %w\nthe end of the gateway's log:\n%s", what.kind, what.clients, t.side.name, err, r.logTail())
			}
			if round > 0 {
				res.samples[t.slot] = append(res.samples[t.slot], s)
			}
		}
		slices.Reverse(turns)
	}
	return res, nil
}

// turn runs one side for d, with what it cost. zk.Lock cannot be cancelled: one that hangs is left behind, and the run
// has failed.
func (r *rig) turn(ctx context.Context, s side, d time.Duration) (sample, error) {
	if err := r.forgetLog(); err != nil {
		return sample{}, err
	}
	before, err := r.spent()
	if err != nil {
		return sample{}, err
	}
	type outcome struct {
		sample sample
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		got, err := s.run(ctx, r, d)
		ended <- outcome{got, err}
	}()
	patience := time.NewTimer(d + hangsAfter)
	defer patience.Stop()
	select {
	case o := <-ended:
		if o.err != nil {
			return sample{}, o.err
		}
		after, err := r.spent()
		o.sample.cost = after.minus(before)
		o.sample.others = o.sample.cost.others(before.at)
		return o.sample, err
	case <-patience.C:
		return sample{}, fmt.Errorf("hangs: not over %v after its time", hangsAfter)
	case <-r.gateway.Done():
		return sample{}, fmt.Errorf("the gateway ended: %v", r.gateway.Wait())
	case <-ctx.Done():
		return sample{}, ctx.Err()
	}
}
