package manager

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// schedule is a random sequence of what clients, other programs, gateways and the weather do to a few locks.
type schedule struct {
	t       *testing.T
	s       *fakeStore
	rng     *rand.Rand
	gates   []*gate
	leases  []locks.Lease
	pending []*pending
	started int
	promises
}

var (
	firstSeed = flag.Int("first-seed", 0, "of the random schedules")
	seeds     = flag.Int("seeds", 100, "how many random schedules of each kind")
)

const (
	scheduleSteps = 60
	scheduleGates = 3 // at a time
)

func (d *schedule) gate() *gate { return d.gates[d.rng.IntN(len(d.gates))] }

func (d *schedule) lock() string { return []string{"a", "b"}[d.rng.IntN(2)] }

func (d *schedule) start() {
	d.gates = append(d.gates, d.s.gateway(d.t))
	d.started++
}

func (d *schedule) request() locks.AcquireRequest {
	req := locks.AcquireRequest{Lock: d.lock(), TTL: time.Duration(1+d.rng.IntN(20)) * time.Second, Owner: fmt.Sprint("owner-", d.rng.IntN(3))}
	if d.rng.IntN(4) == 0 {
		req.LockDelay = time.Duration(1+d.rng.IntN(20)) * time.Second
		req.LockDelayOn = []locks.DelayOn{locks.DelayOnExpiry, locks.DelayAlways}[d.rng.IntN(2)]
	}
	if d.rng.IntN(4) == 0 {
		req.IdempotencyKey = fmt.Sprint("abcdefghijklmnop", d.rng.IntN(4))
	}
	req.Ephemeral = d.rng.IntN(6) == 0
	return req
}

func (d *schedule) locked(f func()) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	f()
}

// begin runs an acquire and keeps its lease.
func (d *schedule) begin(req locks.AcquireRequest) {
	g := d.gate()
	p, sent := g.begin(req), time.Now()
	d.pending = append(d.pending, p)
	go func() {
		<-p.done
		if p.err == nil && p.lease.State == locks.Held && !p.lease.Ephemeral && g.m.StillValid(p.lease.Term) {
			d.promise(p.lease.Znode, sent.Add(p.lease.TTL))
		}
	}()
}

func (d *schedule) collect() {
	var open []*pending
	for _, p := range d.pending {
		switch {
		case !p.finished():
			open = append(open, p)
		case p.err == nil:
			d.leases = append(d.leases, p.lease)
		}
	}
	d.pending = open
}

// contenders are the paths of all contenders in ZooKeeper.
func (d *schedule) contenders() []string {
	var paths []string
	for _, lock := range []string{"a", "b"} {
		dir := "/lockkeeper/locks/" + lock
		for _, name := range d.s.names(dir) {
			paths = append(paths, dir+"/"+name)
		}
	}
	return paths
}

// remove deletes nodes as another program does.
func (d *schedule) remove(paths ...string) {
	for _, p := range paths {
		d.excuse(p)
	}
	d.locked(func() {
		for _, p := range paths {
			d.s.tx([]zk.Op{{Kind: zk.OpDelete, Path: p, Version: -1}})
		}
	})
}

// live is one step of clients, other programs and gateways.
func (d *schedule) live() {
	switch d.rng.IntN(16) {
	case 0, 1, 2:
		req := d.request()
		req.Wait = locks.WaitForever
		d.begin(req)
	case 3:
		req := d.request()
		req.Wait = time.Duration(d.rng.IntN(int(time.Second)))
		d.begin(req)
	case 4:
		d.begin(d.request())
	case 5:
		req := d.request()
		req.Async = true
		d.begin(req)
	case 6, 7, 8:
		if n := len(d.leases); n > 0 {
			l, g := d.leases[d.rng.IntN(n)], d.gate()
			d.excuse(l.Znode)
			go func() { _ = g.release(l) }()
		}
	case 9:
		if n := len(d.leases); n > 0 {
			l, g := d.leases[d.rng.IntN(n)], d.gate()
			heartbeat := g.heartbeat
			if d.rng.IntN(2) == 0 {
				heartbeat = g.beatFor
			}
			go func() {
				sent := time.Now()
				h, err := heartbeat(l)
				var refused *locks.Error
				switch {
				case l.Ephemeral: // no promise
				case err == nil && h.State == locks.Held && g.m.StillValid(h.Term):
					d.promise(l.Znode, sent.Add(h.TTL))
				case errors.As(err, &refused) && refused.Code == locks.CodeEnded && d.s.node(l.Znode).stat.Czxid != 0 && d.s.recordOf(l).Closed == nil:
					d.t.Errorf("%s: its client is told that it has ended (%s), and it is there", l.Znode, refused.Reason)
				}
			}()
		}
	case 10:
		if n := len(d.pending); n > 0 {
			d.pending[d.rng.IntN(n)].stop()
		}
	case 11:
		dir := "/lockkeeper/locks/" + d.lock()
		name := []string{"_c_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-lock-", "read-", "0123456789abcdef0123456789abcdef__lock__"}[d.rng.IntN(3)]
		d.locked(func() {
			if d.s.nodes[dir] != nil {
				d.s.tx([]zk.Op{{Kind: zk.OpCreate, Path: dir + "/" + name, Sequential: true}})
			}
		})
	case 12:
		var foreign []string
		for _, p := range d.contenders() {
			if !strings.Contains(p, "v1.") || d.rng.IntN(4) == 0 {
				foreign = append(foreign, p)
			}
		}
		if len(foreign) > 0 {
			d.remove(foreign[d.rng.IntN(len(foreign))])
		}
	case 13:
		if d.rng.IntN(4) == 0 {
			d.remove(append(d.contenders(), "/lockkeeper/locks/a", "/lockkeeper/locks/b")...)
		}
	case 14:
		if d.started < 6 && len(d.gates) < scheduleGates {
			d.start()
		}
	case 15:
		time.Sleep([]time.Duration{time.Second, 5 * time.Second, 30 * time.Second}[d.rng.IntN(3)])
	}
}

// once makes a fault that happens to one write.
func (d *schedule) once() func(*zk.Write) bool {
	left := 1 + d.rng.IntN(2)
	return func(w *zk.Write) bool {
		if len(w.Ops) == 0 || !writeTo("/lockkeeper/locks/")(w) || left == 0 {
			return false
		}
		left--
		return true
	}
}

// storm is one step of the weather.
func (d *schedule) storm() {
	g := d.gate()
	switch d.rng.IntN(11) {
	case 0:
		if session := d.session(g); session != nil {
			session.expire()
		}
	case 1:
		g.w.disconnect()
	case 2:
		g.w.disconnect()
		g.w.reconnect()
	case 3:
		g.w.hold()
	case 4:
		g.w.release()
	case 5:
		d.locked(func() { d.s.away = !d.s.away })
	case 6:
		lost := d.once()
		d.locked(func() { d.s.loseReply = lost })
	case 7:
		vague, drop := d.once(), d.rng.IntN(2) == 0
		d.locked(func() { d.s.vague, d.s.drop = vague, drop })
	case 8:
		refused, err := d.once(), []error{zk.ErrBadVersion, zk.ErrNotApplied, zk.ErrNoAuth, zk.ErrQueueFull}[d.rng.IntN(4)]
		d.locked(func() {
			d.s.refuse = func(w *zk.Write) (int, error) {
				if refused(w) {
					return len(w.Ops) - 1, err
				}
				return 0, nil
			}
		})
	case 10:
		var written int64
		if session := d.session(g); session != nil {
			written = session.LastZxid()
		}
		g.w.disconnect()
		g.lagged = true
		g.w.reconnectToThePast(written, d.rng.IntN(4))
	case 9:
		if len(d.gates) > 1 && d.session(g) != nil {
			g.crash()
			for i := range d.gates {
				if d.gates[i] == g {
					d.gates = append(d.gates[:i], d.gates[i+1:]...)
					break
				}
			}
		}
	}
}

func (d *schedule) session(g *gate) *fakeSession {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	session, _ := g.m.port.Session().(*fakeSession)
	return session
}

// heal ends all weather.
func (d *schedule) heal() {
	d.locked(func() { d.s.away, d.s.loseReply, d.s.vague, d.s.refuse = false, nil, nil, nil })
	for _, g := range d.gates {
		g.w.release()
		g.w.disconnect()
		g.w.reconnect()
		if session := d.session(g); session != nil {
			session.expire() // what waits for a lost reply learns that it is unknown
		}
	}
	for _, p := range d.pending {
		p.stop()
	}
	time.Sleep(5 * time.Minute) // deadlines have been moved by every blind interval
	synctest.Wait()
}

// The ordering law (internal/events, doc.go) over whatever clients, other
// programs, gateways and the weather do. checkLaw is applied when a gateway stops.
func TestTheLawOfEventsHoldsOnEverySchedule(t *testing.T) {
	first, seeds := *firstSeed, *seeds
	if testing.Short() {
		seeds = min(seeds, 20)
	}
	for _, weather := range []string{"fair", "foul"} {
		t.Run(weather, func(t *testing.T) {
			for seed := first; seed < first+seeds; seed++ {
				t.Run(fmt.Sprint("seed=", seed), in(scene, func(t *testing.T, s *fakeStore) {
					s.recording = weather == "foul"
					d := &schedule{t: t, s: s, rng: rand.New(rand.NewPCG(uint64(seed), 7))}
					d.watch(s)
					d.start()
					for range scheduleSteps {
						if weather == "foul" && d.rng.IntN(4) == 0 {
							d.storm()
						} else {
							d.live()
						}
						time.Sleep(time.Duration(d.rng.IntN(int(20 * time.Millisecond))))
						d.collect()
						d.checkExclusion()
						for _, g := range d.gates {
							g.checkCounts()
						}
					}
					d.heal()
					d.checkPromises(t)
					checkAll(t, s, d.gates...)
					for _, g := range d.gates {
						g.checkEnded()
					}
					if seed%10 == 0 {
						d.remove(d.contenders()...)
						time.Sleep(2*keyLife + 2*endedLife)
						for _, g := range d.gates {
							g.checkForgotten(len(d.gates))
						}
					}
				}))
			}
		})
	}
}

// checkForgotten verifies that nothing is kept of leases that ended long ago.
func (g *gate) checkForgotten(gates int) {
	g.t.Helper()
	m := g.m
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.replica.Kept()
	delete(kept, "indexed") // what is asked for is kept for a while
	maps.Copy(kept, map[string]int{
		"leases": m.leases.byID.Len(), "orphans": len(m.orphans),
		"keys": m.keys.Len(), "keys in line": m.keys.Ended(), "other keys": len(m.keys.Others), "former": m.members.Former(),
		"history": m.history.Size().Ends, "history's order": m.history.Size().Order,
		"delays":   len(m.delays.byID) + m.delays.line.Len(),
		"heirless": m.history.Size().Awaiting + m.observedEnds.Size().Awaiting, "observedEnds": m.observedEnds.Size().Ends,
		"deadlines": m.timers.deadlines.Len(), "in line": m.leases.counts.line.Len(), "reads": m.port.Reads(),
		"in flight": m.port.InFlight(), "expiring": m.timers.expiring, "acquiring": m.requests.acquiring,
		"locks": m.replica.Counts.Locks, "contenders": m.replica.Counts.Contenders,
	})
	for what, n := range kept {
		assert.That(g.t, n == 0, "%d %s are kept", n, what)
	}
	// Those of gateways that are gone wait for their turn to be swept.
	if known, registered := m.members.Len(), len(m.members.List(0)); known != gates || registered != gates {
		g.t.Errorf("%d gateways are known and %d registered, there are %d", known, registered, gates)
	}
}

// checkEnded verifies that nothing is left untold when everything has come to rest.
func (g *gate) checkEnded() {
	g.t.Helper()
	n := len(g.leases())
	assert.That(g.t, n <= 0, "%d leases are left", n)
	g.checkLaw()
}

// promises is what clients were told on a random schedule, and what became of it.
type promises struct {
	mu      sync.Mutex
	until   map[string]time.Time // by contender: it was said to be held until then
	deleted map[string]time.Time // by contender
	excused map[string]bool      // a client let it go, or another program deleted it
}

// watch notes when contenders are deleted.
func (p *promises) watch(s *fakeStore) {
	p.until, p.deleted, p.excused = map[string]time.Time{}, map[string]time.Time{}, map[string]bool{}
	s.deleted = func(path string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.deleted[path] = time.Now()
	}
}

func (p *promises) promise(contender string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.until[contender]) {
		p.until[contender] = until
	}
}

func (p *promises) excuse(contender string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.excused[contender] = true
}

// checkPromises verifies that no held lease was shortened.
func (p *promises) checkPromises(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for contender, until := range p.until {
		if at, gone := p.deleted[contender]; gone && at.Before(until) && !p.excused[contender] {
			t.Errorf("%s was promised for %v more when it was ended", contender, until.Sub(at))
		}
	}
}

// checkExclusion verifies that a lease that holds for its gateway, and is in ZooKeeper, is the first in ZooKeeper's queue.
func (d *schedule) checkExclusion() {
	d.t.Helper()
	for _, g := range d.gates {
		var held []string
		g.m.mu.Lock()
		for l := range g.m.leases.byID.All() {
			if l.Phase() == held_ {
				held = append(held, l.path())
			}
		}
		g.m.mu.Unlock()
		for _, holder := range held {
			if d.s.node(holder).stat.Czxid == 0 {
				continue // deleted; the gateway has not heard of it
			}
			for _, name := range d.s.names(path.Dir(holder)) {
				c, ok := g.naming(holder).Parse(g.m.fleet.id, name)
				assert.That(d.t, !ok || !recipe.Less(c.Number, c.Name, mustNumber(d.t, holder), path.Base(holder)),
					"%s is held though %s stands before it", holder, name)
			}
		}
	}
}
