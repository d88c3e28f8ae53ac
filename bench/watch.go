package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// What watching costs. Clients acquire and release while subscribers are connected to /v1/events/ws; the subscribers are
// in this program, so their work is on the same processors and counts as the load generator's.
const (
	watchers     = 1000
	watchClients = 16  // that acquire and release as fast as they can
	pacedCycles  = 100 // a second, of one paced client
	settle       = 300 * time.Millisecond
	watchTurn    = 5 * time.Second
	watchRounds  = 3
)

// crowd is one way of watching.
type crowd struct {
	name  string
	size  int
	query func(i int) string // of subscriber i
	paced bool
}

func crowds(size int) []crowd {
	many := thousands(float64(size)) + " watch "
	everything := func(int) string { return "" }
	return []crowd{
		{name: "no watcher", query: everything},
		{name: many + "one quiet lock each", size: size, query: func(i int) string { return "?lock=quiet-" + strconv.Itoa(i) }},
		{name: many + "everything", size: size, query: everything},
		{name: "no watcher", query: everything, paced: true},
		{name: many + "everything", size: size, query: everything, paced: true},
	}
}

// watched is what one turn of one crowd gave.
type watched struct {
	sample
	delivered float64 // events received by all subscribers together, each second
	dropped   float64 // subscribers that were told to resync
	resident  float64 // bytes of the gateway's memory at the end
}

// watching holds the turns of each crowd.
type watching struct {
	crowds []crowd
	turns  [][]watched
}

// watch measures each crowd for d, in rounds.
func (r *rig) watch(ctx context.Context, crowds []crowd, d time.Duration, rounds int) (*watching, error) {
	w := &watching{crowds: crowds}
	w.turns = make([][]watched, len(w.crowds))
	order := make([]int, len(w.crowds))
	for i := range order {
		order[i] = i
	}
	for range rounds {
		for _, i := range order {
			turn, err := r.watchedBy(ctx, w.crowds[i], d)
			if err != nil {
				return nil, fmt.Errorf("%s: %w\nthe end of the gateway's log:\n%s", w.crowds[i].name, err, r.logTail())
			}
			w.turns[i] = append(w.turns[i], turn)
		}
		slices.Reverse(order)
	}
	return w, nil
}

func (r *rig) watchedBy(ctx context.Context, c crowd, d time.Duration) (turn watched, err error) {
	if err := r.forgetLog(); err != nil {
		return turn, err
	}
	audience, err := gather(ctx, r.http.base, c)
	if err != nil {
		return turn, err
	}
	defer audience.leave()
	if err := wait(ctx, settle); err != nil { // what connecting has cost is over
		return turn, err
	}
	before, err := r.spent()
	if err != nil {
		return turn, err
	}
	received := audience.received.Load()
	if turn.sample, err = r.cyclesFor(ctx, c, d); err != nil {
		return turn, err
	}
	turn.delivered = float64(audience.received.Load()-received) / turn.elapsed.Seconds()
	turn.dropped = float64(audience.dropped.Load())
	after, err := r.spent()
	if err != nil {
		return turn, err
	}
	turn.cost = after.minus(before)
	turn.others = turn.cost.others(before.at)
	turn.resident, err = residentOf(r.gateway.PID())
	if err == nil {
		err = audience.failure()
	}
	return turn, err
}

// cyclesFor lets the clients of a turn acquire and release.
func (r *rig) cyclesFor(ctx context.Context, c crowd, d time.Duration) (sample, error) {
	n := watchClients
	if c.paced {
		n = 1
	}
	lockers := make([]locker, n)
	for i := range lockers {
		lockers[i] = r.http.locker(fmt.Sprintf("own-%d", i))
	}
	if c.paced {
		lockers[0] = &pacedLocker{locker: lockers[0], ticks: time.NewTicker(time.Second / pacedCycles)}
	}
	return cycle(ctx, lockers, d, 0, false)
}

// pacedLocker begins a cycle at each tick.
type pacedLocker struct {
	locker
	ticks *time.Ticker
}

// Lock implements locker.
func (p *pacedLocker) Lock(ctx context.Context) error {
	select {
	case <-p.ticks.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return p.locker.Lock(ctx)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// audience is a crowd that is there.
type audience struct {
	conns    []*websocket.Conn
	reading  sync.WaitGroup
	received atomic.Int64
	dropped  atomic.Int64
	leaving  atomic.Bool
	mu       sync.Mutex
	failed   error
}

// gather connects the crowd's subscribers, and returns once all are there.
func gather(ctx context.Context, base string, c crowd) (*audience, error) {
	a := &audience{}
	dialer := websocket.Dialer{HandshakeTimeout: readyWithin, ReadBufferSize: 16 << 10}
	for i := range c.size {
		url := "ws" + strings.TrimPrefix(base, "http") + "/v1/events/ws" + c.query(i)
		conn, resp, err := dialer.DialContext(ctx, url, nil)
		if err != nil {
			a.leave()
			return nil, fmt.Errorf("subscriber %d (%v): %w", i, answerOf(resp), err)
		}
		a.conns = append(a.conns, conn)
		a.reading.Go(func() { a.read(conn) })
	}
	return a, nil
}

func answerOf(resp *http.Response) string {
	if resp == nil {
		return "no answer"
	}
	return resp.Status
}

// read counts events until the connection ends. Their text is read and looked at no further: a reader that decoded JSON
// would measure itself.
func (a *audience) read(conn *websocket.Conn) {
	for {
		_, _, err := conn.ReadMessage()
		if err == nil {
			a.received.Add(1)
			continue
		}
		var closed *websocket.CloseError
		switch {
		case a.leaving.Load():
		case errors.As(err, &closed) && closed.Code == websocket.CloseTryAgainLater:
			a.dropped.Add(1)
		default:
			a.mu.Lock()
			a.failed = errors.Join(a.failed, fmt.Errorf("a subscriber: %w", err))
			a.mu.Unlock()
		}
		return
	}
}

func (a *audience) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// leave ends all connections and waits for their readers.
func (a *audience) leave() {
	a.leaving.Store(true)
	for _, conn := range a.conns {
		_ = conn.Close()
	}
	a.reading.Wait()
}

// residentOf is the memory of a process that is in RAM (proc(5), status, VmRSS).
func residentOf(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of the gateway: %w", err)
	}
	kib, err := strconv.ParseFloat(strings.TrimSuffix(field(string(status), "VmRSS:"), " kB"), 64)
	if err != nil {
		return 0, fmt.Errorf("memory of the gateway: %w", err)
	}
	return kib * 1024, nil
}

// render writes the table.
func (w *watching) render(b *strings.Builder) {
	b.WriteString("\n### Watching: WebSocket subscribers on `/v1/events/ws`\n\n" +
		"| who watches | who works | lock cycles per second | acquire p50 | events delivered per second | subscribers told to resync | processors busy: gateway | load generator | gateway's memory |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	for i, c := range w.crowds {
		work := fmt.Sprintf("%d clients, as fast as it goes", watchClients)
		if c.paced {
			work = fmt.Sprintf("one client, %d cycles per second", pacedCycles)
		}
		of := func(f func(watched) float64) []float64 {
			var rounds []float64
			for _, t := range w.turns[i] {
				rounds = append(rounds, f(t))
			}
			return rounds
		}
		cores := func(part func(cpuTime) time.Duration) string {
			return fmt.Sprintf("%.2f", over(of(func(t watched) float64 { return part(t.cost.cpu).Seconds() / t.elapsed.Seconds() })).median)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %.0f MB |\n", c.name, work,
			counts(of(func(t watched) float64 { return t.perSecond() })),
			waits(of(func(t watched) float64 { return percentileOf(acquiring, 50)(t.sample) })),
			counts(of(func(t watched) float64 { return t.delivered })),
			counts(of(func(t watched) float64 { return t.dropped })),
			cores(func(c cpuTime) time.Duration { return c.gateway }), cores(func(c cpuTime) time.Duration { return c.load }),
			over(of(func(t watched) float64 { return t.resident })).median/1e6)
	}
}
