package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The gateway on its own embedded ZooKeeper, beside the same gateway on Debian's.
const (
	ownTurn   = 2 * time.Second
	ownLeases = 100_000
)

// ownLine is one line of the comparison.
type ownLine struct {
	clients   int
	contended bool
}

var ownLines = []ownLine{{1, false}, {16, false}, {64, false}, {16, true}}

// ownStore is what the gateway without --zk gives.
type ownStore struct {
	embedded, debian [][]sample // by line, of each round
	leases           int
	filled           time.Duration // taking all the leases
	resident         float64       // bytes of the process with them
	answered         time.Duration // from starting it again after kill -9 until a heartbeat was answered
	after            float64       // bytes of the process then
	store            int64         // bytes of the store's file
}

// ownStore measures a gateway that has a store of its own, in turns with the one on Debian's ZooKeeper; then how much memory
// many held leases take, and how soon a heartbeat is answered when it was killed and started again.
func (r *rig) ownStore(ctx context.Context, d time.Duration, rounds, leases int) (*ownStore, error) {
	own := &rig{binary: r.binary}
	defer func() { own.close() }()
	data := filepath.Join(r.dir, "own-store")
	if err := own.startGateway(ctx, "--data-dir", data); err != nil {
		return nil, fmt.Errorf("gateway without --zk: %w", err)
	}
	o := &ownStore{leases: leases, embedded: make([][]sample, len(ownLines)), debian: make([][]sample, len(ownLines))}
	for round := range rounds + 1 { // the first one warms up
		for i, line := range ownLines {
			sides := []*rig{own, r}
			if round%2 == 1 {
				slices.Reverse(sides)
			}
			for _, side := range sides {
				if err := side.forgetLog(); err != nil {
					return nil, err
				}
				s, err := line.run(ctx, side.http, d)
				if err != nil {
					return nil, fmt.Errorf("own store, %d clients: %w\nthe end of the gateway's log:\n%s", line.clients, err, side.logTail())
				}
				switch {
				case round == 0:
				case side == own:
					o.embedded[i] = append(o.embedded[i], s)
				default:
					o.debian[i] = append(o.debian[i], s)
				}
			}
		}
	}
	own.gateway.Stop(stopWithin)
	own.close()
	if err := os.RemoveAll(data); err != nil {
		return nil, err
	}
	own = &rig{binary: r.binary}
	return o, o.holdMany(ctx, own, data)
}

func (l ownLine) run(ctx context.Context, h *httpClients, d time.Duration) (sample, error) {
	lockers := make([]locker, l.clients)
	for i := range lockers {
		lockers[i] = h.locker(l.lock(i))
	}
	return cycle(ctx, lockers, d, 0, l.contended)
}

// lock is the one of client i.
func (l ownLine) lock(i int) string {
	if l.contended {
		return "hot"
	}
	return fmt.Sprintf("own-%d", i)
}

// name is for people.
func (l ownLine) name() string {
	if l.contended {
		return "all clients one lock"
	}
	return "each client its own lock"
}

// holdMany takes many leases at a new gateway, kills it, and starts it again.
func (o *ownStore) holdMany(ctx context.Context, own *rig, data string) error {
	if err := own.startGateway(ctx, "--data-dir", data); err != nil {
		return fmt.Errorf("gateway without --zk: %w", err)
	}
	begun := time.Now()
	if err := own.http.fill(ctx, o.leases); err != nil {
		return fmt.Errorf("taking %d leases: %w\nthe end of the gateway's log:\n%s", o.leases, err, own.logTail())
	}
	o.filled = time.Since(begun)
	one := own.http.locker("the-one-that-is-asked-for")
	if err := one.Lock(ctx); err != nil {
		return err
	}
	var err error
	if o.resident, err = residentOf(own.gateway.PID()); err != nil {
		return err
	}
	own.gateway.Signal(syscall.SIGKILL)
	_ = own.gateway.Wait() // killed
	own.http.close()
	_ = own.log.Close()
	file, err := os.Stat(filepath.Join(data, "lockkeeper.db"))
	if err != nil {
		return err
	}
	o.store = file.Size()

	begun = time.Now()
	if err := own.startGateway(ctx, "--data-dir", data); err != nil {
		return fmt.Errorf("starting again: %w", err)
	}
	one.clients = own.http
	for one.heartbeat(ctx) != nil {
		if time.Since(begun) > readyWithin {
			return fmt.Errorf("no heartbeat is answered %v after the restart\nthe end of the gateway's log:\n%s", readyWithin, own.logTail())
		}
		time.Sleep(5 * time.Millisecond)
	}
	o.answered = time.Since(begun)
	// Adopted leases are read in the background; the overview counts them, and asking for it shows the memory at work.
	if err := own.http.do(ctx, http.MethodGet, own.http.base+"/v1/locks?limit=1000", "", http.StatusOK, nil); err != nil {
		return err
	}
	o.after, err = residentOf(own.gateway.PID())
	return err
}

// render writes the table.
func (o *ownStore) render(b *strings.Builder) {
	b.WriteString("\n### Without `--zk`: the gateway's own ZooKeeper, every write on the disk, beside Debian's\n\n" +
		"| lock cycles per second | clients | own, embedded | Debian's ZooKeeper | own ÷ Debian's |\n|---|---|---|---|---|\n")
	for i, line := range ownLines {
		ours, theirs := rates(o.embedded[i]), rates(o.debian[i])
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s |\n", line.name(), line.clients, counts(ours), counts(theirs), times(ratios(ours, theirs)))
	}
	fmt.Fprintf(b, "\nWith %s held leases, taken in %.1f s (%s a second), the process used %.0f MB and its store %.0f MB. Killed with -9 and started "+
		"again, it answered a heartbeat %.2f s after its start, and used %.0f MB.\n",
		thousands(float64(o.leases)), o.filled.Seconds(), thousands(float64(o.leases)/o.filled.Seconds()), o.resident/1e6, float64(o.store)/1e6,
		o.answered.Seconds(), o.after/1e6)
}

func rates(samples []sample) []float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, s.perSecond())
	}
	return all
}
