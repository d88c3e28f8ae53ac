package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"lockkeeper/client"
	"lockkeeper/internal/supervise"
)

// electCommand is lockctl elect.
type electCommand struct {
	Name string `arg:"" completion:"lockctl complete-locks --timeout 1s" help:"The lock: its holder is the leader."`

	Serve string `name:"serve" placeholder:"ADDRESS" help:"Answer GET / and GET /leader there, for example at 127.0.0.1:4040."`
	Once  bool   `name:"once" help:"End with the command's exit code when the command has ended, instead of being a candidate again."`
	leaseFlags
}

// Help is what --help adds.
func (*electCommand) Help() string {
	return `Takes part in an election, until a signal comes: lockctl elect NAME [flags] [-- COMMAND [ARGUMENT]...]

  lockctl elect billing --serve 127.0.0.1:4040
  lockctl elect billing -- ./billing-worker

The leader is the holder of the lock, and the candidates wait in its queue. --owner is the name of this one, its host's name
unless given.

With --serve, GET / answers {"name": "<the leader's name>"}, as the Kubernetes leader elector did, and "" while there is none
or no gateway tells. GET /leader answers 200 while this candidate leads, and 503 otherwise: at the latest --margin before another
one can lead. Its JSON has the fencing token. Both are for programs on this machine or in this pod: ask before each step.

With a command, it runs while this candidate leads, and is stopped as lockctl run stops it (lockctl run --help), with the same
environment. When it ends, the candidate goes to the end of the queue, after a pause that grows from 1s to 30s while
commands end within a minute.

A candidate that is asked to release the lock resigns (--on-revoke ignore: it does not), or sends its command the signal.

Exit codes: 128+n ended by signal n, 77 refused by the gateway, 64 usage; with a command and a signal the command's own.`
}

func (e *electCommand) Run(a *app) error {
	if e.Owner == "" {
		e.Owner = hostname()
	}
	if err := e.settle(30 * time.Second); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(e.Serve); e.Serve != "" && err != nil {
		return usagef("for example --serve 127.0.0.1:4040", "--serve %q must be HOST:PORT", e.Serve)
	}
	if len(a.argv) > 0 {
		program, err := lookPath(a.argv[0])
		if err != nil {
			return err
		}
		return supervised(func(k *supervise.Keeper) error {
			ctx, interrupts := interruptible(k)
			return e.stand(ctx, a, &office{leaseFlags: &e.leaseFlags, program: program, keeper: k, interrupts: interrupts})
		})
	}
	if e.Once {
		return usagef("", "--once is for a command after --")
	}
	if e.Serve == "" {
		return usagef("for example --serve 127.0.0.1:4040", "there must be --serve, or a command after --")
	}
	e.killAfter = 0 // there is nothing to kill
	return e.stand(a.interruptible(), a, &office{leaseFlags: &e.leaseFlags})
}

// office is what a leader does.
type office struct {
	*leaseFlags
	program    string // the command's file; empty without a command
	keeper     *supervise.Keeper
	interrupts *interrupts
}

// stand is a candidate again and again, until ctx is over.
func (e *electCommand) stand(ctx context.Context, a *app, o *office) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	leader := newLeader(e.Owner)
	if e.Serve != "" {
		listener, err := net.Listen("tcp", e.Serve)
		if err != nil {
			return &failure{code: exitFailure, err: fmt.Errorf("--serve: %w", err), hint: "for example --serve 127.0.0.1:4040"}
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		go leader.follow(ctx, c, e.Name, e.NS, e.TTL)
		defer serveLeader(listener, leader)()
	}
	for pause := time.Duration(0); ; {
		if sleep(ctx, pause) != nil {
			return context.Cause(ctx)
		}
		begun, err := e.term(ctx, a, c, leader, o)
		if err != nil {
			return err
		}
		if pause = min(max(time.Second, 2*pause), 30*time.Second); o.program == "" || time.Since(begun) > time.Minute {
			pause = time.Second
		}
	}
}

// term waits for the office, and holds it until it is lost, or the command has ended. Any error ends the candidacy.
func (e *electCommand) term(ctx context.Context, a *app, c *client.Client, leader *leader, o *office) (begun time.Time, err error) {
	term, resign := context.WithCancel(ctx)
	defer resign()
	opts := append(e.options(e.Owner), client.OnRevoke(func(asked client.Revocation) {
		switch {
		case o.program != "":
			o.interrupts.revoked(a.stderr, asked, e.onRevoke)
		case e.onRevoke != 0:
			e.say(a.stderr, "asked to resign from %s", e.Name)
			resign()
		}
	}))
	if e.NS != "" {
		opts = append(opts, client.Namespace(e.NS))
	}
	line := newWaitLine(a, c, []string{e.Name}, e.NS, e.Quiet)
	lease, err := c.Acquire(ctx, e.Name, append(opts, client.OnQueued(line.queued))...)
	line.close()
	if err != nil {
		return time.Time{}, err
	}
	begun = time.Now()
	e.say(a.stderr, "%s leads %s, fencing token %d", e.Owner, e.Name, lease.Fence())
	leader.elected(lease)
	defer leader.elected(nil)
	if o.program == "" {
		select {
		case <-lease.Context().Done():
		case <-term.Done():
		}
		leader.elected(nil)
		return begun, e.ended(a.stderr, lease.Release(ctx))
	}
	g := &guarded{leaseFlags: &e.leaseFlags, client: c, lock: e.Name, keeper: o.keeper, interrupts: o.interrupts, stderr: a.stderr}
	status, err := g.run(ctx, lease, supervise.Command{
		Path: o.program, Args: a.argv, Env: e.environ(a, lease, []client.Lock{{Name: e.Name, Namespace: e.NS}}),
	})
	switch lost := new(client.LeaseLost); {
	case err != nil && !errors.As(err, &lost):
		return begun, err
	case e.Once && err != nil:
		return begun, err
	case e.Once || o.interrupts.ending() != 0:
		return begun, exitCode(status.ExitCode())
	case err == nil:
		e.say(a.stderr, "the command %v: a candidate for %s again", status, e.Name)
	}
	return begun, e.ended(a.stderr, err)
}

// ended says how a term has ended, if it was not by choice.
func (e *electCommand) ended(stderr io.Writer, err error) error {
	var lost *client.LeaseLost
	if errors.As(err, &lost) {
		e.say(stderr, "no longer leads %s: %s", e.Name, plain(err))
		return nil
	}
	if err != nil {
		fmt.Fprintf(stderr, "warning: %s\n", plain(err))
	}
	return nil
}

func (f *leaseFlags) say(stderr io.Writer, format string, args ...any) {
	if !f.Quiet {
		fmt.Fprintln(stderr, "lockctl: "+visible(strings.TrimSpace(fmt.Sprintf(format, args...))))
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
