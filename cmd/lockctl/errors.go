package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"lockkeeper/client"
)

// Exit codes, those of sysexits.h where it has one.
const (
	exitFailure     = 1
	exitUsage       = 64
	exitUnavailable = 69
	exitNotAcquired = 75
	exitLost        = 76
	exitRefused     = 77
	exitPipe        = 128 + int(syscall.SIGPIPE)
)

// failure is an error with its exit code, and what to do about it.
type failure struct {
	code int
	err  error
	hint string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func usagef(hint, format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// exitCode ends the program with a code and no further word: what there was to say has been said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// signalled is the cause of the context after a signal.
type signalled struct{ signal syscall.Signal }

func (s signalled) Error() string { return "interrupted: " + s.signal.String() }

// report prints an error and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	var silent exitCode
	var signal signalled
	switch {
	case errors.As(err, &silent):
		return int(silent)
	case errors.As(err, &signal):
		return 128 + int(signal.signal)
	case errors.Is(err, syscall.EPIPE) && !errors.As(err, new(*url.Error)):
		return exitPipe // the output is read no more
	}
	code, hint := classify(err)
	fmt.Fprintf(w, "error: %s\n", plain(byFlag(err)))
	if hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
	return code
}

// byFlag writes what a gateway says about a field of a request in the words of the command line: each field has a flag.
func byFlag(err error) error {
	var p *client.Problem
	var known *failure
	if errors.As(err, &known) || !errors.As(err, &p) || p.Field == "" || p.Status != 422 && p.Status != 400 {
		return err
	}
	flag := "--" + strings.ReplaceAll(p.Field, "_", "-")
	switch p.Field {
	case "lock":
		flag = "the lock's name"
	case "lease_ids":
		flag = "--lease"
	case "headers":
		flag = "--header-file"
	case "ca":
		flag = "--receiver-ca-file"
	}
	if rest, ok := strings.CutPrefix(p.Detail, "lock name: "); ok {
		return errors.New("the lock's name " + rest)
	}
	if rest, ok := strings.CutPrefix(p.Detail, p.Field+" "); ok {
		return errors.New(flag + " " + rest)
	}
	return fmt.Errorf("%s: %s", flag, p.Detail)
}

// plain is an error in one line, without the name of the package, which is for programs.
func plain(err error) string {
	text := strings.ReplaceAll(err.Error(), "lockkeeper: ", "")
	return visible(strings.ReplaceAll(text, "\n", "; "))
}

func classify(err error) (code int, hint string) {
	var (
		known   *failure
		taken   *client.NotAcquired
		lost    *client.LeaseLost
		problem *client.Problem
		reach   *url.Error
	)
	switch {
	case errors.As(err, &known):
		return known.code, known.hint
	case errors.As(err, &lost):
		return exitLost, "stop what the lock protects; LOCKKEEPER_FENCING_TOKEN tells its storage which of two holders is late"
	case errors.As(err, &taken):
		return exitNotAcquired, hintTaken(taken)
	case errors.As(err, &problem):
		return ofProblem(problem)
	case errors.As(err, &reach):
		return exitUnavailable, unreachable(err)
	case errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable, "lockctl doctor says which gateway answers, and how"
	}
	return exitFailure, ""
}

func hintTaken(taken *client.NotAcquired) string {
	if taken.RetryAfter > 0 {
		return fmt.Sprintf("lockctl show %s has the queue; the answer can change in %v", taken.Lock, taken.RetryAfter.Round(time.Second))
	}
	return "lockctl show " + taken.Lock + " has the queue"
}

// ofProblem is the exit code of what a gateway refuses (docs/errors.md has the codes).
func ofProblem(p *client.Problem) (code int, hint string) {
	switch {
	case p.Code == "unexpected_answer" && p.Status < 500:
		return exitUnavailable, "something else than a gateway answered: is --url right?"
	case p.Status == 401:
		return exitRefused, "LOCKKEEPER_TOKEN or --token-file must have an API token of this fleet: lockctl doctor looks at it"
	case p.Code == "forbidden":
		return exitRefused, "lockctl token whoami says which roles you have; an operator gives more in --auth-file"
	case p.Code == "host_not_allowed":
		return exitRefused, "an operator allows the name with gateway --allowed-hosts"
	case p.Status == 403:
		return exitRefused, ""
	case p.Status == 429, p.Status >= 500:
		return exitUnavailable, "lockctl doctor says what is wrong"
	case p.Status == 400, p.Status == 413, p.Status == 422:
		return exitUsage, ""
	case p.Status == 409, p.Status == 412:
		return exitNotAcquired, ""
	}
	return exitFailure, ""
}

// unreachable says what to look at when no gateway answered.
func unreachable(err error) string {
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "the gateway's certificate must be good for the name in --url, and signed by an authority in --ca-file"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the gateway speaks no TLS there: use http:// in --url"
	case errors.As(err, new(*net.DNSError)):
		return "the name in --url is not known here"
	}
	return "is the gateway running, and is --url (LOCKKEEPER_URL) right? lockctl doctor asks each of them"
}

// helpFor is the command line whose help has what a command line lacks.
func helpFor(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		return parse.Context.Selected().FullPath() + " --help"
	}
	return "lockctl --help"
}
