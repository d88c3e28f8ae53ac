package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// What very many held leases take: on the embedded store, and a gateway whose store is another process.
const (
	someLeases  = 100_000
	manyLeases  = 1_000_000
	fillClients = 256
	// Fewer leases than wanted are measured where it takes longer.
	fillWithin    = 150 * time.Second
	millionWithin = 30 * time.Minute
	calmFor       = 5 * time.Second  // a gateway gives garbage back to the system when it is calm
	settledFor    = 35 * time.Second // a lease that waited for its grant is looked at once more when its wait could have been over
	idleFor       = 5 * time.Second
)

// held is what was measured with so many leases held.
type held struct {
	leases    int
	perSecond float64       // how many were taken, since the last of these
	resident  float64       // bytes of the process, more than without leases
	idle      float64       // cores
	store     int64         // bytes of the store's file
	answered  time.Duration // from starting it again after kill -9 until a heartbeat was answered
}

// size takes leases, and starts the gateway again with them.
func (b *bench) size(ctx context.Context) error { return b.sizeWithin(ctx, fillWithin) }

// million is size, however long a million leases take.
func (b *bench) million(ctx context.Context) error { return b.sizeWithin(ctx, millionWithin) }

func (b *bench) sizeWithin(ctx context.Context, within time.Duration) error {
	b.endOne()
	defer b.endOne()
	b.held = nil
	dir := filepath.Join(b.rig.dir, "size")
	if err := os.RemoveAll(dir); err != nil { // of a run that failed
		return fmt.Errorf("the store of the run before: %w", err)
	}
	some, many, settled := someLeases, manyLeases, settledFor
	if b.small {
		some, many, settled = 200, 2000, calmFor
	}
	s := &sized{b: b, within: within, calm: calmFor, arguments: append([]string{"--data-dir", dir}, roomForMany...)}
	if err := s.start(ctx); err != nil {
		return err
	}
	var embedded []held
	for _, leases := range []int{some, many} {
		h, err := s.hold(ctx, leases)
		if err == nil {
			err = s.restart(ctx, &h)
		}
		if err != nil {
			return s.failure(leases, err)
		}
		embedded = append(embedded, h)
	}
	b.endOne()
	store, err := b.rig.startStore(1)
	if err != nil {
		return err
	}
	other := &sized{b: b, within: within, calm: settled, arguments: append([]string{"--zk", store.addrs(), "--history", filepath.Join(dir, "elsewhere")}, roomForMany...)}
	if err := other.start(ctx); err != nil {
		return err
	}
	if b.heldElsewhere, err = other.hold(ctx, some); err != nil {
		return other.failure(some, err)
	}
	b.held = embedded // a part that fails leaves no half of its figures
	b.reportSize(s.empty)
	return nil
}

// roomForMany are the bounds of a gateway with so many leases.
var roomForMany = []string{"--max-leases", "1100000", "--max-locks", "2000000"}

// sized is the gateway that holds them.
type sized struct {
	b         *bench
	within    time.Duration // of a fill
	arguments []string
	calm      time.Duration // from the last lease to the measurement
	gateway   *gateway
	asked     *httpLocker // its lease is asked for after a start
	empty     float64     // bytes of the process without leases
	taken     int
}

// start starts the gateway, and measures it with one lease.
func (s *sized) start(ctx context.Context) (err error) {
	if s.gateway, err = s.b.rig.startGateway(ctx, s.arguments...); err != nil {
		return err
	}
	s.asked = s.gateway.http.locker("the-one-that-is-asked-for")
	s.asked.acquireURL = strings.Replace(s.asked.acquireURL, "ttl=30s", "ttl=24h", 1)
	if err := s.asked.Lock(ctx); err != nil {
		return err
	}
	if err := wait(ctx, calmFor); err != nil {
		return err
	}
	s.empty, err = residentOf(s.gateway.PID())
	return err
}

// failure is an error with what the gateway said last.
func (s *sized) failure(leases int, err error) error {
	return fmt.Errorf("%d leases: %w\nthe end of the gateway's log:\n%s", leases, err, s.gateway.logTail())
}

// hold takes leases until there are so many, and measures.
func (s *sized) hold(ctx context.Context, leases int) (h held, err error) {
	fmt.Fprintf(os.Stderr, "%5s %s: %d leases\n", time.Since(s.b.begun).Round(time.Second), s.b.part, leases)
	begun, before := time.Now(), s.taken
	if err := s.fill(ctx, leases); err != nil {
		return h, err
	}
	h.leases, h.perSecond = s.taken, float64(s.taken-before)/time.Since(begun).Seconds()
	if err := wait(ctx, s.calm); err != nil {
		return h, err
	}
	spent, err := microsOver(s.gateway.PID(), func() (int, error) { return 1, wait(ctx, idleFor) })
	if err != nil {
		return h, err
	}
	h.idle = spent / float64(idleFor.Microseconds())
	resident, err := residentOf(s.gateway.PID())
	h.resident = resident - s.empty
	return h, err
}

// fill takes leases of locks that no client has used, through many clients, until there are so many or s.within is over.
func (s *sized) fill(ctx context.Context, until int) error {
	if err := s.gateway.forgetLog(); err != nil {
		return err
	}
	var next atomic.Int64
	next.Store(int64(s.taken))
	begun := time.Now()
	_, err := together(ctx, fillClients, func(ctx context.Context, _ int, _ *client) error {
		for {
			if time.Since(begun) > s.within {
				return nil
			}
			i := next.Add(1)
			if i > int64(until) {
				return nil
			}
			url := fmt.Sprintf("%s/v1/locks/many-%07d/leases?ttl=24h&owner=bench", s.gateway.http.base, i)
			if err := s.gateway.http.do(ctx, http.MethodPost, url, "", http.StatusCreated, nil); err != nil {
				return err
			}
		}
	})
	s.taken = min(int(next.Load()), until)
	return err
}

// restart kills the gateway and starts it again.
func (s *sized) restart(ctx context.Context, h *held) error {
	s.gateway.Signal(syscall.SIGKILL)
	_ = s.gateway.Wait() // killed
	s.gateway.end()
	file, err := os.Stat(filepath.Join(s.arguments[1], "lockkeeper.db"))
	if err != nil {
		return err
	}
	h.store = file.Size()
	begun := time.Now()
	if s.gateway, err = s.b.rig.startGateway(ctx, s.arguments...); err != nil {
		return err
	}
	s.asked.clients = s.gateway.http
	err = s.gateway.await(ctx, func() error { return (&heart{s.asked}).Lock(ctx) })
	h.answered = time.Since(begun)
	return err
}

func (b *bench) reportSize(empty float64) {
	var text strings.Builder
	fmt.Fprintf(&text, "The embedded gateway without leases takes %.0f MB.\n\n| held leases | taken per second | memory, more than without | of it for each lease | "+
		"cores when idle | the store's file | a heartbeat is answered after kill -9 and a start |\n|---|---|---|---|---|---|---|\n", empty/1e6)
	for _, h := range b.held {
		fmt.Fprintf(&text, "| %s | %s | %.0f MB | %.0f bytes | %.3f | %.0f MB | %.2f s |\n", thousands(float64(h.leases)), thousands(h.perSecond),
			h.resident/1e6, h.resident/float64(h.leases), h.idle, float64(h.store)/1e6, h.answered.Seconds())
	}
	gateway := b.heldElsewhere
	fmt.Fprintf(&text, "\nThe embedded store is in the gateway's process, and a part of its memory. A gateway on Debian's ZooKeeper, with its history in a directory, takes %.0f MB more with %s held leases "+
		"than without, %.0f bytes for each, and keeps %.3f cores busy when idle.\n", gateway.resident/1e6, thousands(float64(gateway.leases)),
		gateway.resident/float64(gateway.leases), gateway.idle)
	b.section("Very many held leases", text.String())
	some := b.held[0]
	b.target("100,000 held leases, on ZooKeeper: the gateway's MB more than without", atMost, 100, []float64{gateway.resident / 1e6})
	b.target("100,000 held leases, embedded: MB more than without, the store's included", atMost, 100, []float64{some.resident / 1e6})
	b.target("100,000 held leases: cores when idle", atMost, 0.01, []float64{some.idle})
	b.target("100,000 held leases: seconds until a heartbeat is answered after kill -9", atMost, 1, []float64{some.answered.Seconds()})
}
