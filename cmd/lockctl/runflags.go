package main

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lockkeeper/client"
)

// leaseFlags are what run and elect have in common: the lease, and how a command under it is stopped.
type leaseFlags struct {
	NS          string         `name:"ns" placeholder:"NAMESPACE" help:"The namespace of the lock; default unless given."`
	Owner       string         `name:"owner" placeholder:"TEXT" help:"Shown to those who look at the lock; USER@HOST (run) or HOST (elect) unless given."`
	Metadata    string         `name:"metadata" placeholder:"TEXT" help:"A text that every client can read at the lock."`
	TTL         time.Duration  `name:"ttl" placeholder:"TIME" help:"How long others wait when this machine dies: 1m (run) or 30s (elect) unless given. From 30s on a gateway's crash does not cost the lease."`
	KillAfter   *time.Duration `name:"kill-after" placeholder:"10s" help:"The time between SIGTERM and SIGKILL: a quarter of the TTL, at most 10s, unless given."`
	Margin      time.Duration  `name:"margin" placeholder:"1s" help:"All is killed so long before the lease can pass to another one; 1s, or a tenth of a TTL below 10s, unless given."`
	LockDelay   time.Duration  `name:"lock-delay" placeholder:"30s" help:"Others get the lock so long after the lease was lost. After a forced revocation the command has this time, too."`
	LockDelayOn string         `name:"lock-delay-on" enum:"loss,always" default:"loss" placeholder:"WHEN" help:"Whether --lock-delay follows a release, too: loss or always."`
	OnRevoke    string         `name:"on-revoke" default:"TERM" placeholder:"SIGNAL" help:"What the command is sent when the release of the lock is requested: a signal, or ignore."`
	Leftovers   string         `name:"leftovers" enum:"kill,wait" default:"kill" placeholder:"HOW" help:"What the command leaves running is killed (kill), or keeps the lock until it ends (wait)."`
	PassToken   bool           `name:"pass-token" help:"Leave LOCKKEEPER_TOKEN and LOCKKEEPER_TOKEN_FILE in the command's environment."`
	Quiet       bool           `name:"quiet" short:"q" help:"Say nothing while it waits, and not that others have the lock: the exit code does."`

	killAfter time.Duration
	onRevoke  syscall.Signal // 0: none
}

const (
	leastTTL = time.Second
	mostTTL  = 24 * time.Hour

	mostDelay = 7 * 24 * time.Hour

	leastMargin = 50 * time.Millisecond // to kill takes time
)

// settle works out what was not given, and checks what was.
func (f *leaseFlags) settle(ttl time.Duration) error {
	f.TTL = cmp.Or(f.TTL, ttl)
	if f.TTL < leastTTL || f.TTL > mostTTL {
		return usagef("for example --ttl 1m", "--ttl must be between 1s and 24h")
	}
	f.killAfter = min(10*time.Second, f.TTL/4)
	if f.KillAfter != nil {
		f.killAfter = *f.KillAfter
	}
	f.Margin = cmp.Or(f.Margin, min(time.Second, f.TTL/10))
	switch {
	case f.killAfter < 0:
		return usagef("0 kills at once", "--kill-after must not be negative")
	case f.Margin < leastMargin:
		return usagef("for example --margin 1s", "--margin must be at least %v", leastMargin)
	case 2*(f.killAfter+f.Margin) >= f.TTL:
		return usagef(fmt.Sprintf("a longer --ttl: more than %v", 2*(f.killAfter+f.Margin)),
			"--kill-after and --margin (%v) must be less than half of --ttl (%v)", f.killAfter+f.Margin, f.TTL)
	}
	if f.LockDelay < 0 || f.LockDelay > mostDelay {
		return usagef("", "--lock-delay must be between 0 and 168h")
	}
	if f.OnRevoke != "ignore" {
		var ok bool
		if f.onRevoke, ok = signalNamed(f.OnRevoke); !ok {
			return usagef("for example --on-revoke INT, or --on-revoke ignore", "--on-revoke: %q is no signal", f.OnRevoke)
		}
	}
	return nil
}

// options are those of the client. Its margin begins with SIGTERM.
func (f *leaseFlags) options(owner string) []client.Option {
	opts := []client.Option{client.TTL(f.TTL), client.Margin(f.killAfter + f.Margin), client.Owner(cmp.Or(f.Owner, owner))}
	if f.Metadata != "" {
		opts = append(opts, client.Metadata(f.Metadata))
	}
	switch {
	case f.LockDelay == 0:
	case f.LockDelayOn == "always":
		opts = append(opts, client.LockDelayAlways(f.LockDelay))
	default:
		opts = append(opts, client.LockDelay(f.LockDelay))
	}
	return opts
}

// signalNamed reads a signal's name, with or without SIG, or its number.
func signalNamed(text string) (syscall.Signal, bool) {
	if n, err := strconv.ParseUint(text, 10, 8); err == nil {
		return syscall.Signal(n), unix.SignalName(syscall.Signal(n)) != ""
	}
	s := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG"))
	return s, s != 0
}

// seconds is a time as flock takes it: a number of seconds, or with a unit.
type seconds time.Duration

func (s *seconds) UnmarshalText(text []byte) error {
	if n, err := strconv.ParseFloat(string(text), 64); err == nil {
		if n < 0 || n > mostTTL.Seconds() {
			return fmt.Errorf("%s must be between 0 and 86400 seconds", text)
		}
		*s = seconds(n * float64(time.Second))
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d < 0 || d > mostTTL {
		return fmt.Errorf("%q must be seconds, or a time such as 5m, up to 24h", text)
	}
	*s = seconds(d)
	return nil
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// userAtHost is the owner of a run for people.
func userAtHost() string {
	if u, err := user.Current(); err == nil {
		return u.Username + "@" + hostname()
	}
	return hostname()
}
