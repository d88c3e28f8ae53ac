package clientsuite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/test/clientsuite/check"
	"lockkeeper/internal/test/netfault"
)

// slot has workers for one run after the other. What a run has killed is started again; the rest goes on in the next run.
type slot struct {
	argv    []string
	tree    bool // the work is in processes that the driver has started: faults are for these
	workers []*worker
}

// worker is a process with the client, and its own way to each gateway.
type worker struct {
	argv   []string
	tree   bool
	env    []string
	fronts []*netfault.Proxy

	freezing sync.Mutex // one freeze ends before the next begins

	mu      sync.Mutex
	driver  *Driver
	working bool
}

const mostWorkers = 3

func newSlot(argv []string, tree bool, f *fleet) (s *slot, err error) {
	s = &slot{argv: argv, tree: tree}
	for range mostWorkers {
		w := &worker{argv: argv, tree: tree}
		s.workers = append(s.workers, w)
		urls := ""
		for _, g := range f.gateways {
			front, err := netfault.New(g.listen)
			if err != nil {
				return s, err
			}
			w.fronts = append(w.fronts, front)
			urls += ",http://" + front.Addr()
		}
		w.env = []string{"LOCKKEEPER_URL=" + urls[1:], "LOCKKEEPER_TOKEN=", "LOCKKEEPER_TOKEN_FILE="}
	}
	return s, nil
}

// close ends the workers in good order.
func (s *slot) close() (err error) {
	for _, w := range s.workers {
		if w.driver != nil {
			err = errors.Join(err, w.driver.close())
		}
		for _, p := range w.fronts {
			p.Close()
		}
	}
	return err
}

// current is the driver of the worker. It is started when there is none.
func (w *worker) current() (*Driver, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.driver != nil {
		return w.driver, nil
	}
	var err error
	w.driver, err = startDriver(w.argv, w.env...)
	return w.driver, err
}

func (w *worker) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.working = false
	if w.driver != nil {
		w.driver.kill()
		w.driver = nil
	}
}

// processes are those that faults are for: the driver, or its descendants, each after the one that it is a child of.
func (w *worker) processes() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.driver == nil:
		return nil
	case w.tree:
		return descendants(w.driver.proc.PID())
	}
	return []int{w.driver.proc.PID()}
}

func (w *worker) works(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.working = yes
}

func (w *worker) isWorking() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.working
}

// outcome is what came of a run.
type outcome struct {
	mu      sync.Mutex
	counts  map[string]int // of faults, and of calls by how they ended
	freezes []check.Freeze
	text    []byte // the lines of the works
	wrong   []string
}

func (o *outcome) count(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[what]++
}

func (o *outcome) violates(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wrong = append(o.wrong, fmt.Sprintf(format, args...))
}

// run plays the plan of one seed. The lines of the work are in dir.
func (s *slot) run(ctx context.Context, name, dir string, p plan) *outcome {
	o := &outcome{counts: make(map[string]int)}
	log := filepath.Join(dir, fmt.Sprintf("%s-%d.log", name, p.seed))
	lock := fmt.Sprintf("%s-%d", name, p.seed)
	ending, end := context.WithTimeout(ctx, runFor)
	defer end()
	var all sync.WaitGroup
	for i, w := range s.workers[:p.workers] {
		rng := rand.New(rand.NewPCG(p.seed, uint64(1000+i)))
		all.Go(func() {
			for ending.Err() == nil {
				w.call(ending, o, p.next(rng, lock, log), upTo(rng, 200*time.Millisecond))
			}
		})
	}
	began := time.Now()
	for _, f := range p.faults {
		if !sleep(ending, f.at-time.Since(began)) {
			break
		}
		all.Go(func() { s.strike(ending, o, f, s.target(f, p.workers)) })
	}
	all.Wait()
	text, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a run in which all gateways were away has no work
		o.violates("%v", err)
	}
	o.text = text
	lines, err := check.Parse(text)
	if err != nil {
		o.violates("%v", err)
	}
	o.counts["works"] = check.Works(lines)
	for _, v := range check.Check(lines, o.freezes) {
		o.violates("%v", v)
	}
	return o
}

// target is the worker that a fault is for.
func (s *slot) target(f fault, workers int) *worker {
	if i := slices.IndexFunc(s.workers[:workers], (*worker).isWorking); f.atWork && i >= 0 {
		return s.workers[i]
	}
	return s.workers[f.worker]
}

// call has a worker do one work, and waits until it is over. The end of ctx cancels it.
func (w *worker) call(ctx context.Context, o *outcome, l Lock, pause time.Duration) {
	d, err := w.current()
	if err != nil {
		o.violates("%v", err)
		sleep(ctx, runFor)
		return
	}
	c, began, last := d.lock(l), time.Now(), Event{}
	over, late := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case e, ok := <-c.Events:
			if !ok {
				w.ended(o, d)
				return
			}
			last = e
			w.works(e.Event == "started" || e.Event == "queued" && w.isWorking())
			if !e.last() {
				continue
			}
			o.count(e.outcome())
			if e.unexpected() {
				o.violates("a call ended with %v", e)
			}
			if e.Event == "failed" {
				sleep(ctx, pause) // a try that failed at once is not repeated at once
			}
			return
		case <-over:
			c.cancel()
			over, late = nil, time.After(endWithin)
		case <-late:
			d.proc.Signal(syscall.SIGQUIT) // Go and Java tell what their threads do
			sleep(context.WithoutCancel(ctx), time.Second)
			o.violates("a call had not ended %v after it was cancelled, %v after it began; its last event: %v\n%s", endWithin, time.Since(began), last, d.stderr)
			w.kill()
			return
		}
	}
}

// ended looks whether the driver was killed by a fault, as its call has ended without an event.
func (w *worker) ended(o *outcome, d *Driver) {
	w.works(false)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.driver == d {
		o.violates("the driver ended by itself: %v", d.close())
		w.driver = nil
	}
}

// outcome names how a call ended.
func (e Event) outcome() string {
	switch {
	case e.Event == "done":
		return "done"
	case e.Error == "LeaseLost":
		return "lost: " + e.Reason
	case e.Error == "Problem":
		return fmt.Sprintf("problem %d", e.Status)
	}
	return e.Error
}

// unexpected says that the call ended with an error that no fault explains.
func (e Event) unexpected() bool {
	if e.Event == "done" || slices.Contains([]string{"LeaseLost", "NotAcquired", "Cancelled", "Other"}, e.Error) {
		return false
	}
	return e.Error != "Problem" || e.Status < 500
}

// strike does something to a worker, and undoes it.
func (s *slot) strike(ctx context.Context, o *outcome, f fault, w *worker) {
	o.count(f.kind)
	each := func(change func(*netfault.Proxy)) {
		for _, p := range w.fronts {
			change(p)
		}
	}
	defer each((*netfault.Proxy).Heal)
	switch f.kind {
	case killed:
		if !s.tree {
			w.kill()
		} else if pids := w.processes(); len(pids) > 0 {
			_ = syscall.Kill(pids[int(f.delay)%min(2, len(pids))], syscall.SIGKILL) // the watcher or the keeper; it may have ended
		}
		return
	case frozen:
		w.freezing.Lock()
		defer w.freezing.Unlock()
		pids := w.processes()
		if s.tree && f.delay%3 > 0 {
			pids = pids[min(int(f.delay)%2, len(pids)):min(int(f.delay)%2+1, len(pids))] // the watcher or the keeper alone
		}
		freezes := freeze(ctx, pids, f.length)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.freezes = append(o.freezes, freezes...)
		return
	case cut:
		each((*netfault.Proxy).Cut)
	case cutHalf:
		w.fronts[f.worker%len(w.fronts)].Cut()
	case silent:
		each((*netfault.Proxy).Stall)
	case unheard:
		each((*netfault.Proxy).DropRequests)
	case unseen:
		each((*netfault.Proxy).DropReplies)
	case slow:
		delay := func(d time.Duration) func(*netfault.Proxy) {
			return func(p *netfault.Proxy) {
				p.SetDelay(netfault.Requests, d)
				p.SetDelay(netfault.Replies, d)
			}
		}
		each(delay(f.delay))
		defer each(delay(0))
	}
	sleep(ctx, f.length)
}

// now is the clock of the works' lines.
func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // no error is documented for this clock
	return t.Nano()
}
