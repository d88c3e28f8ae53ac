package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	"lockkeeper/client"
	"lockkeeper/internal/supervise"
)

// The exit codes of shells for a command that cannot be started.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// supervised runs f in a process of its own, which the present one watches (see internal/supervise).
func supervised(f func(*supervise.Keeper) error) error {
	if supervise.IsKeeper() {
		k, err := supervise.Keep()
		if err != nil {
			return err
		}
		defer k.Done()
		return f(k)
	}
	code, err := supervise.Watch()
	if err != nil {
		if errors.Is(err, supervise.ErrKeeperFailed) || errors.Is(err, supervise.ErrKeeperStood) {
			return &failure{code: exitLost, err: fmt.Errorf("%w; the command was killed", err), hint: "the lock passes on when the time of its lease is over"}
		}
		return err
	}
	return exitCode(code)
}

// interrupts take the signals that lockctl gets: to the command that runs, or, when none does, as the end of the context.
type interrupts struct {
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	process *supervise.Process
	got     syscall.Signal // the last one that asks lockctl to end
	asked   syscall.Signal // that the command is sent because its release is requested, while there was none
}

// errWatcherDied is the cause of the context when no process is left that waits for this one.
var errWatcherDied = errors.New("lockctl was killed")

func interruptible(k *supervise.Keeper) (context.Context, *interrupts) {
	ctx, cancel := context.WithCancelCause(context.Background())
	i := &interrupts{cancel: cancel}
	go func() {
		for s := range k.Signals() {
			i.take(s)
		}
		cancel(errWatcherDied)
	}()
	return ctx, i
}

func (i *interrupts) take(s syscall.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.process != nil {
		i.process.Signal(s)
	}
	switch s {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		if i.process == nil {
			i.cancel(signalled{s})
		}
		if i.process == nil || s != syscall.SIGHUP { // a command that runs reads its configuration again
			i.got = s
		}
	}
}

// started gives the signals to a command, with one that came before it.
func (i *interrupts) started(ctx context.Context, p *supervise.Process) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.process = p
	var s signalled
	switch {
	case p == nil:
		i.asked = 0
	case errors.As(context.Cause(ctx), &s):
		p.Signal(s.signal)
	case i.asked != 0:
		p.Signal(i.asked)
	}
}

// ending is the signal that asked lockctl to end, and 0 when none did.
func (i *interrupts) ending() syscall.Signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.got
}

// revoked tells the command that the release of its lock is requested.
func (i *interrupts) revoked(stderr io.Writer, asked client.Revocation, s syscall.Signal) {
	text := "lockctl: the lock is asked for"
	if asked.By != "" {
		text += " by " + asked.By
	}
	if asked.Reason != "" {
		text += ": " + asked.Reason
	}
	if asked.ForceIn > 0 {
		text += fmt.Sprintf("; the lease ends in %v", asked.ForceIn.Round(time.Second))
	}
	i.ask(s) // first: standard error may be a pipe that is full
	fmt.Fprintln(stderr, visible(text))
}

func (i *interrupts) ask(s syscall.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case s == 0:
	case i.process == nil:
		i.asked = s
	default:
		i.process.Signal(s)
	}
}

// guarded runs a command under a lease.
type guarded struct {
	*leaseFlags
	client     *client.Client
	lock       string // one of those that the lease holds
	keeper     *supervise.Keeper
	interrupts *interrupts
	stderr     io.Writer

	doneOnRelease bool // the release says whether the command has succeeded
}

// run starts the command, stops it with its descendants in time, and releases the lease when none is left. The error is a
// *client.LeaseLost when the lease was lost, however the command has ended.
func (g *guarded) run(ctx context.Context, lease *client.Lease, c supervise.Command) (supervise.Status, error) {
	p, err := g.start(ctx, lease, c)
	if err != nil {
		if lost := g.release(ctx, lease, false); errors.As(lost, new(*client.LeaseLost)) {
			err = lost
		}
		return supervise.Status{}, err
	}
	g.interrupts.started(ctx, p)
	left := g.attend(ctx, lease, p)
	g.interrupts.started(ctx, nil)
	g.keeper.NoKill()
	lost := lease.Err()
	if left != nil {
		// What is alive may still use what the lock protects: the lock is left to the time of its lease.
		return supervise.Status{}, &failure{code: exitLost, err: left, hint: "the lock is not released; it passes on when the time of its lease is over"}
	}
	status := p.Status()
	if err := g.release(ctx, lease, status.ExitCode() == 0); errors.As(err, new(*client.LeaseLost)) {
		lost = err
	} else if err != nil {
		fmt.Fprintf(g.stderr, "warning: %s\n", plain(err))
	}
	if lost != nil {
		return status, &failure{code: exitLost, err: fmt.Errorf("%w; the command %v", lost, status)}
	}
	return status, nil
}

func (g *guarded) release(ctx context.Context, lease *client.Lease, done bool) error {
	if g.doneOnRelease && !done {
		return lease.ReleaseUndone(ctx)
	}
	return lease.Release(ctx)
}

func (g *guarded) start(ctx context.Context, lease *client.Lease, c supervise.Command) (*supervise.Process, error) {
	if err := g.keeper.Resumed(ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !lease.Held() {
		return nil, lease.Err() // it was lost while the program was suspended
	}
	g.extend(lease)
	c.Until = supervise.Now() + lease.Left()
	p, err := g.keeper.Start(c)
	var path *os.PathError
	if errors.As(err, &path) && path.Path != c.Path {
		return nil, err // this program could not be started again: too many processes, or no memory
	}
	switch {
	case errors.Is(err, supervise.ErrLate):
		err = &client.LeaseLost{LeaseID: lease.ID(), Reason: client.ReasonDeadline, Detail: err.Error()}
	case errors.As(err, &path) && errors.Is(err, syscall.ENOENT):
		// The file was there: its interpreter is not.
		err = &failure{code: exitNotFound, err: fmt.Errorf("%s cannot be executed: the interpreter after its #! is missing", path.Path)}
	case errors.As(err, &path) && errors.Is(err, syscall.ENOEXEC):
		err = &failure{code: exitNotExecutable, err: fmt.Errorf("%s cannot be executed: %w", path.Path, path.Err), hint: "a script must begin with a line such as #!/bin/sh"}
	case errors.As(err, &path):
		err = &failure{code: exitNotExecutable, err: fmt.Errorf("%s cannot be executed: %w", path.Path, path.Err)}
	}
	return p, err
}

// extend tells the watcher by when everything must be gone: half a margin after this process kills it.
func (g *guarded) extend(lease *client.Lease) {
	g.keeper.KillBy(supervise.Now() + lease.Left() + g.killAfter + g.Margin/2)
}

// A lease that an administrator ends passes the lock on at once. The command then has so long between SIGTERM and SIGKILL, and a
// lock delay more.
const brokenKillAfter = 250 * time.Millisecond

// graceOf says how long from lostAt the command may go on after its lease was ended from outside: until the lock delay is nearly over, if one
// keeps others from the lock. The gateway says what is left of it: the end may be known late. A break leaves none.
func (g *guarded) graceOf(lease *client.Lease, lostAt time.Duration) time.Duration {
	ctx, stop := context.WithTimeout(context.Background(), brokenKillAfter)
	defer stop()
	path := "/v1/locks/" + url.PathEscape(g.lock)
	if g.NS != "" {
		path += "?ns=" + url.QueryEscape(g.NS)
	}
	var lock lockView
	asked := supervise.Now()
	if g.client.Call(ctx, client.Request{Path: path}, &lock) != nil {
		return 0
	}
	for _, h := range lock.Holders {
		if h.LeaseID == lease.ID() && h.Delayed && h.Expires != nil {
			return min(g.killAfter, asked-lostAt+time.Duration(*h.Expires)*time.Millisecond-g.Margin)
		}
	}
	return 0
}

// looksAt bounds the time between two looks at the clock.
const looksAt = 100 * time.Millisecond

// attend waits until the command and its descendants are gone, and sees to it that they are in time. The error names what could
// not be killed.
func (g *guarded) attend(ctx context.Context, lease *client.Lease, p *supervise.Process) error {
	const never = time.Duration(1<<63 - 1)
	killAt := never
	ended, lost, interrupted := p.Ended(), lease.Context().Done(), ctx.Done()
	var lostAt time.Duration
	grace := make(chan time.Duration, 1)
	terminate := func(within time.Duration) {
		p.Terminate()
		killAt = min(killAt, supervise.Now()+within)
	}
	ticker := time.NewTicker(looksAt)
	defer ticker.Stop()
	for {
		select {
		case <-p.Gone():
			return nil
		case <-ended:
			ended = nil
			if g.Leftovers == "kill" && !g.goneSoon(p) {
				terminate(g.killAfter)
			}
		case <-lost:
			lost = nil
			// What is left by the clock: --kill-after, and less when this process stood still.
			lostAt = supervise.Now()
			within := lease.Left() + g.killAfter
			var end *client.LeaseLost
			if errors.As(lease.Err(), &end) && end.Reason != client.ReasonDeadline {
				within = min(within, g.killAfter, brokenKillAfter)
				if g.LockDelay > g.Margin {
					at := lostAt
					go func() { grace <- g.graceOf(lease, at) }()
				}
			}
			terminate(within)
		case longer := <-grace:
			killAt = max(killAt, min(lostAt+longer, supervise.Now()+lease.Left()+g.killAfter))
		case <-interrupted:
			interrupted = nil
			if errors.Is(context.Cause(ctx), errWatcherDied) {
				terminate(g.killAfter)
			}
		case <-ticker.C:
			if lost != nil {
				g.extend(lease)
			}
		}
		if left := killAt - supervise.Now(); left <= 0 {
			return p.Kill()
		} else if killAt != never {
			ticker.Reset(min(left, looksAt))
		}
	}
}

// goneSoon gives descendants that are about to end a moment: those of a shell whose last process has just ended.
func (g *guarded) goneSoon(p *supervise.Process) bool {
	select {
	case <-p.Gone():
		return true
	case <-time.After(20 * time.Millisecond):
		return false
	}
}
