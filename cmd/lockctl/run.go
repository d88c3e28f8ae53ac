package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"lockkeeper/client"
	"lockkeeper/internal/supervise"
)

// runCommand is lockctl run.
type runCommand struct {
	Names []string `arg:"" name:"name" completion:"lockctl complete-locks --timeout 1s" help:"Locks: all of them at once, or none."`

	Nonblock  bool     `name:"nonblock" short:"n" aliases:"nb" help:"Do not wait."`
	Wait      *seconds `name:"wait" short:"w" placeholder:"SECONDS" help:"Wait so long at most: seconds, or a time such as 5m."`
	Shared    bool     `name:"shared" short:"s" help:"Take the locks together with other readers."`
	Exclusive bool     `name:"exclusive" short:"x" help:"Take the locks alone (the default)."`
	Conflict  int      `name:"conflict-exit-code" short:"E" default:"75" placeholder:"75" help:"The exit code when the locks cannot be had."`
	Permits   int      `name:"permits" placeholder:"N" help:"Take N permits of a semaphore; 1 with --limit."`
	Limit     int      `name:"limit" placeholder:"N" help:"The number of permits that all clients together may have; the lock's own unless given."`
	onceFlags
	leaseFlags
}

// Help is what --help adds.
func (*runCommand) Help() string {
	return `Runs a command while it holds a lock: lockctl run NAME... [flags] -- COMMAND [ARGUMENT]...

  lockctl run nightly -- ./make-report
  lockctl run -n deploy -- make deploy
  lockctl run -w 5m --limit 3 licences -- ./build
  lockctl run --once-per 24h --done-on release report -- ./make-report

The command starts when the lock is held, without a shell. It has LOCKKEEPER_LOCK, LOCKKEEPER_LEASE_ID, LOCKKEEPER_URL and
LOCKKEEPER_FENCING_TOKEN in its environment (of several locks LOCKKEEPER_FENCING_TOKENS, with commas, in the order of
LOCKKEEPER_LOCK). The lock is released when the command and all that it has started have ended.

When the lease is about to be lost, because no gateway can be reached, the command and all its descendants get SIGTERM, and
SIGKILL --kill-after later: --margin before another one can get the lock. An administrator who breaks the lease passes the
lock on at once: then they get SIGTERM at once, and SIGKILL 250 ms later.

Descendants that daemonize are found, and killed too. When lockctl is killed (SIGKILL), its second process stops the command
and releases the lock. When that one is killed, the first one kills the command.

With --once-per the command runs once in each period. Where it has run, there is nothing to do: exit code 0, and a line on standard error
(-q: none). With --done-on release it has run when its exit code is 0; after another one, or a crash, it runs again.

Signals are passed on to the command. Ctrl-C while it waits leaves the queue; the command is not started. Ctrl-Z suspends the
command, and keeps the lock.

Exit codes: the command's own (128+n when signal n ended it), 75 the lock was not acquired (-E changes it), 76 the lease was
lost, 77 refused by the gateway, 64 usage, 69 no gateway, 126 the command cannot be executed, 127 there is no such command.

What it cannot do: A machine or container that stands still, or all of its processes stopped (SIGSTOP), stops nothing. It
sees that its time is over when it goes on, and one step of the command may come late. What must not happen even then has
to be refused by what the lock protects: give it LOCKKEEPER_FENCING_TOKEN. SIGKILL to both processes of lockctl in one
moment kills the command, and not what it has started. Processes that another program starts for the command (systemd-run,
a container's daemon) are not seen, those of another user (sudo) cannot be killed: run lockctl as that user.` + platformHelp
}

func (r *runCommand) Run(a *app) error {
	program, err := r.check(a.argv)
	if err != nil {
		return err
	}
	return supervised(func(k *supervise.Keeper) error { return r.keep(a, k, program) })
}

// check finds what is wrong before anything is sent, and the command's file.
func (r *runCommand) check(argv []string) (program string, err error) {
	hint := "lockctl run NAME -- COMMAND"
	switch {
	case len(argv) == 0:
		return "", usagef(hint, "there must be a command after --")
	case r.Shared && r.Exclusive:
		return "", usagef("", "--shared and --exclusive exclude each other")
	case r.Shared && (r.Permits != 0 || r.Limit != 0):
		return "", usagef("", "--shared and --permits, --limit exclude each other")
	case r.Exclusive && (r.Permits != 0 || r.Limit != 0):
		return "", usagef("", "--exclusive and --permits, --limit exclude each other")
	case r.Permits < 0 || r.Limit < 0:
		return "", usagef("", "--permits and --limit must not be negative")
	case r.Nonblock && r.Wait != nil:
		return "", usagef("", "--nonblock and --wait exclude each other")
	case r.Conflict < 0 || r.Conflict > 255:
		return "", usagef("", "--conflict-exit-code must be between 0 and 255")
	}
	if err := r.onceFlags.check(); err != nil {
		return "", err
	}
	if err := r.settle(time.Minute); err != nil {
		return "", err
	}
	return lookPath(argv[0])
}

// lookPath finds the command's file before the lock is asked for.
func lookPath(command string) (string, error) {
	program, err := exec.LookPath(command)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
		return program, nil
	case errors.Is(err, os.ErrPermission):
		return "", &failure{code: exitNotExecutable, err: fmt.Errorf("%s cannot be executed", command)}
	}
	return "", &failure{code: exitNotFound, err: fmt.Errorf("%s: there is no such command", command), hint: "the command is executed without a shell: sh -c '...' for one"}
}

func (r *runCommand) keep(a *app, k *supervise.Keeper, program string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	ctx, interrupts := interruptible(k)
	line := newWaitLine(a, c, r.Names, r.NS, r.Quiet)
	lease, err := r.acquire(ctx, a, c, line, interrupts)
	line.close()
	var taken *client.NotAcquired
	switch {
	case errors.As(err, new(*client.Done)):
		return r.ended(err, func(format string, args ...any) { r.say(a.stderr, format, args...) })
	case errors.As(err, &taken) && r.Quiet:
		return exitCode(r.Conflict) // cron sends each word by mail
	case taken != nil && r.Conflict != exitNotAcquired:
		return &failure{code: r.Conflict, err: err, hint: hintTaken(taken)}
	case err != nil:
		return err
	}
	g := &guarded{leaseFlags: &r.leaseFlags, doneOnRelease: r.doneOnRelease(), client: c, lock: r.Names[0], keeper: k, interrupts: interrupts, stderr: a.stderr}
	end, err := g.run(ctx, lease, supervise.Command{
		Path: program, Args: a.argv, Env: r.environ(a, lease, r.locks()),
	})
	if err != nil {
		return err
	}
	if code := end.ExitCode(); code != 0 {
		return exitCode(code)
	}
	return nil
}

func (r *runCommand) locks() []client.Lock {
	permits := r.Permits
	if permits == 0 && r.Limit > 0 {
		permits = 1
	}
	locks := make([]client.Lock, len(r.Names))
	for i, name := range r.Names {
		locks[i] = client.Lock{Name: name, Namespace: r.NS, Shared: r.Shared, Permits: permits, Limit: r.Limit}
	}
	return locks
}

func (r *runCommand) acquire(ctx context.Context, a *app, c *client.Client, line *waitLine, interrupts *interrupts) (*client.Lease, error) {
	opts := append(append(r.leaseFlags.options(userAtHost()), r.onceFlags.options()...), client.OnQueued(line.queued), client.OnRevoke(func(asked client.Revocation) {
		interrupts.revoked(a.stderr, asked, r.onRevoke)
	}))
	switch {
	case r.Nonblock:
		opts = append(opts, client.Wait(0))
	case r.Wait != nil:
		opts = append(opts, client.Wait(time.Duration(*r.Wait)))
	}
	locks := r.locks()
	if len(locks) > 1 {
		return c.AcquireAll(ctx, locks, opts...)
	}
	l := locks[0]
	if l.Namespace != "" {
		opts = append(opts, client.Namespace(l.Namespace))
	}
	if l.Shared {
		opts = append(opts, client.Shared())
	}
	if l.Permits > 0 {
		opts = append(opts, client.Permits(l.Permits, l.Limit))
	}
	return c.Acquire(ctx, l.Name, opts...)
}

// environ is the command's environment: what lockctl has, without the tokens, and what it may know about its lease.
func (f *leaseFlags) environ(a *app, lease *client.Lease, locks []client.Lock) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case client.EnvToken, client.EnvTokenFile:
			if !f.PassToken {
				continue
			}
		case client.EnvURL, envLock, envLease, envFence, envFences:
			continue
		}
		env = append(env, v)
	}
	names, fences := make([]string, len(locks)), make([]string, len(locks))
	for i, l := range locks {
		names[i] = l.Name
		fences[i] = fmt.Sprint(lease.FenceOf(cmp.Or(l.Namespace, "default"), l.Name))
	}
	env = append(env, client.EnvURL+"="+strings.Join(a.URL, ","), envLock+"="+strings.Join(names, ","),
		envLease+"="+lease.ID(), envFence+"="+fmt.Sprint(lease.Fence()))
	if len(locks) > 1 {
		env = append(env, envFences+"="+strings.Join(fences, ","))
	}
	return env
}

// What the command is told.
const (
	envLock   = "LOCKKEEPER_LOCK"
	envLease  = "LOCKKEEPER_LEASE_ID"
	envFence  = "LOCKKEEPER_FENCING_TOKEN"
	envFences = "LOCKKEEPER_FENCING_TOKENS"
)
