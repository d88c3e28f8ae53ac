package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
)

// fleet measures what a cycle costs the gateways that it does not concern: two share a ZooKeeper, and one gets all requests. And what a
// heartbeat costs.
func (b *bench) fleet(ctx context.Context) error {
	if err := b.onOne(ctx); err != nil {
		return err
	}
	busyOne := b.single.gateway
	other, err := b.rig.startGateway(ctx, "--zk", b.single.store.addrs())
	if err != nil {
		return err
	}
	defer other.end()
	side := busyOne.side(gatewaySide)
	var own, others, idle []float64
	for round := range b.rounds + 1 {
		b.progress(round)
		quiet, err := microsOver(other.PID(), func() (int, error) { return int(b.d.Microseconds()), wait(ctx, b.d) })
		if err != nil {
			return err
		}
		var s sample
		theirs, err := microsOver(other.PID(), func() (int, error) {
			s, err = side.turn(ctx, work{clients: 64, d: 2 * b.d})
			return s.done, err
		})
		if err != nil {
			return err
		}
		if round > 0 {
			own, idle = append(own, serverMicros(s)), append(idle, quiet)
			others = append(others, max(theirs-quiet*float64(s.elapsed.Microseconds())/float64(max(s.done, 1)), 0))
		}
	}
	b.observed = &observed{cycle: over(own).median, elsewhere: over(others).median, idle: over(idle).median}
	b.section("What a cycle costs the other gateways", fmt.Sprintf("Two gateways share a ZooKeeper, and 64 clients with locks of their own use one of them. "+
		"A cycle costs that one %.0f µs of processor time, and the other one %.1f µs: it observes two changes. What the other one spends without any load, "+
		"%.2f %% of a core, is not in it.\n", b.observed.cycle, b.observed.elsewhere, 100*b.observed.idle))
	b.target("a cycle of another gateway ÷ one of its own, processor time", atMost, 0.15, ratios(others, own))
	return b.heartbeats(ctx, busyOne)
}

// observed is what the fleet part has measured, in µs of processor time.
type observed struct {
	cycle, elsewhere float64 // of a gateway's own cycle, and of one of another gateway
	idle             float64 // cores that a gateway without load keeps busy
	heartbeat        float64
	perSecond        float64 // heartbeats
}

// microsOver is the processor time of a process for each of what do has done.
func microsOver(pid int, do func() (int, error)) (float64, error) {
	before, err := cpuTimeOf(pid)
	if err != nil {
		return 0, err
	}
	n, err := do()
	if err != nil {
		return 0, err
	}
	after, err := cpuTimeOf(pid)
	return float64((after - before).Microseconds()) / float64(max(n, 1)), err
}

// heartbeats measures clients that only renew their leases.
func (b *bench) heartbeats(ctx context.Context, g *gateway) error {
	const clients = 64
	lockers := work{clients: clients}.lockers(func(_ int, lock string) locker { return &heart{g.http.locker(lock)} })
	for _, l := range lockers {
		if err := l.(*heart).httpLocker.Lock(ctx); err != nil {
			return err
		}
	}
	beats := side{name: "heartbeats", servers: []int{g.PID()}, store: b.single.store, clients: os.Getpid(), log: g.program,
		run: func(ctx context.Context, w work, begin func()) (sample, error) {
			return closedLoop(ctx, lockers, w, begin)
		}}
	t, err := b.compare(ctx, []line{{name: "64 clients", work: work{clients: clients}, sides: []side{beats}}}, b.d)
	if err != nil {
		return err
	}
	for _, l := range lockers {
		if err := l.(*heart).httpLocker.Unlock(ctx); err != nil {
			return err
		}
	}
	b.observed.heartbeat, b.observed.perSecond = over(t.rounds(0, "heartbeats", serverMicros)).median, over(t.rounds(0, "heartbeats", rate)).median
	b.section("Heartbeats", fmt.Sprintf("64 clients that only renew their leases get %s answers per second. A heartbeat costs the gateway %.0f µs of processor time, "+
		"and ZooKeeper %.2f transactions.\n", counts(t.rounds(0, "heartbeats", rate)), b.observed.heartbeat, over(t.rounds(0, "heartbeats", transactions)).median))
	return nil
}

// heart is a client that renews its lease where others acquire and release.
type heart struct{ *httpLocker }

// Lock implements locker.
func (h *heart) Lock(ctx context.Context) error {
	var beat struct {
		ExpiresInMs int64 `json:"expires_in_ms"`
	}
	if err := h.clients.do(ctx, http.MethodPost, h.clients.base+"/v1/leases/self/heartbeat", h.token, http.StatusOK, &beat); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}

// Unlock implements locker.
func (h *heart) Unlock(context.Context) error { return nil }
