// Command lockctl is Lockkeeper's command line: it takes locks, runs commands under them, shows queues, and does what an
// administrator does.
//
// Exit codes:
//
//	  0  in good order
//	  1  anything else
//	 64  usage: the command line, or a value in it
//	 69  unavailable: no gateway answered, or none could
//	 75  not acquired: others hold the lock; or the lock is not as a command expects it
//	 76  lost: the lease ended before it was released
//	 77  refused: the gateway does not know the caller, or does not allow it
//	128+n  ended by the signal n
//
// Each error is one line "error: ..." with, where something can be done about it, a line "hint: ...".
//
// A command is a struct with a method Run, and a field of cli. Run(ctx, a) is given a context that ends with SIGINT, SIGTERM or
// SIGHUP. A command that handles signals itself has Run(a).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"lockkeeper/internal/supervise"
)

// cli is the command line.
type cli struct {
	globals
	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`

	Run       runCommand       `cmd:"" group:"locks" behind:"-- COMMAND [ARGUMENT]..." help:"Run a command while a lock is held."`
	Elect     electCommand     `cmd:"" group:"locks" behind:"[-- COMMAND [ARGUMENT]...]" help:"Take part in an election, and run a command or answer programs while leading."`
	Acquire   acquireCommand   `cmd:"" group:"locks" help:"Take a lock, and print its lease."`
	Release   releaseCommand   `cmd:"" group:"locks" help:"Release a lease, or your reservation of a lock."`
	Reserve   reserveCommand   `cmd:"" group:"locks" help:"Take a lock until a time, without heartbeats."`
	Extend    extendCommand    `cmd:"" group:"locks" help:"Move the end of your reservation."`
	Heartbeat heartbeatCommand `cmd:"" group:"locks" help:"Begin a lease's time anew."`
	Keep      keepCommand      `cmd:"" group:"locks" help:"Keep a lease until a signal comes."`

	List    listCommand    `cmd:"" name:"ls" group:"look" help:"List locks."`
	Show    showCommand    `cmd:"" group:"look" help:"Show a lock's queue."`
	Graph   graphCommand   `cmd:"" group:"look" help:"Show which contender waits for which, and deadlocks."`
	History historyCommand `cmd:"" group:"look" help:"Show who held a lock, and how that ended."`
	Watch   watchCommand   `cmd:"" group:"look" help:"Show a queue, or the list of locks, and how it changes."`
	Leader  leaderCommand  `cmd:"" group:"look" help:"Show who leads, wait for a leader, or follow it."`
	Events  eventsCommand  `cmd:"" group:"look" help:"Print what happens, as it happens."`

	Revoke revokeCommand `cmd:"" group:"admin" help:"Ask the holders of a lock to release it."`
	Break  breakCommand  `cmd:"" group:"admin" help:"End the holders of a lock."`
	Limit  limitCommand  `cmd:"" group:"admin" help:"Set how many permits a lock has."`

	Webhook webhookCommand `cmd:"" group:"admin" help:"About webhooks: list, add, change, test, replay."`
	Token   tokenCommand   `cmd:"" group:"admin" help:"About API tokens: who you are."`

	Doctor        doctorCommand        `cmd:"" group:"other" help:"Look at URL, TLS, token, clock, ZooKeeper and hazards, and say what to fix."`
	Completion    completionCommand    `cmd:"" group:"other" help:"Print the completion script of a shell."`
	Man           manCommand           `cmd:"" group:"other" help:"Print the manual page."`
	CompleteLocks completeLocksCommand `cmd:"" hidden:"" help:"Print names of locks, for completion."`
	Version       versionCommand       `cmd:"" group:"other" help:"Print the version."`
}

const description = `Locks of a Lockkeeper gateway, on the command line.

  lockctl run nightly -- ./make-report
  lockctl ls
  lockctl doctor

LOCKKEEPER_URL names the gateways, and LOCKKEEPER_TOKEN (or LOCKKEEPER_TOKEN_FILE) has the API token, if they want one.`

var groups = kong.ExplicitGroups([]kong.Group{
	{Key: "locks", Title: "Locks:"},
	{Key: "look", Title: "Look:"},
	{Key: "admin", Title: "Administer:"},
	{Key: "other", Title: "Other:"},
})

func main() {
	supervise.Main()
	// A reader that goes away is an error of a write then, and no death: acquire has a lease to give back.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main with its surroundings as parameters; it returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	args, argv := cutCommand(args)
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, argv: argv}
	var c cli
	exited := -1
	parser := newParser(&c, a, func(code int) { exited = code })
	parsed, err := parser.Parse(args)
	if exited >= 0 {
		return exited // --help, --version
	}
	if errors.Is(err, syscall.EPIPE) {
		return report(stderr, err) // of --help
	}
	if err != nil {
		return report(stderr, usagef(helpFor(err)+" has the flags", "%s", wrong(err)))
	}
	a.globals, a.command = &c.globals, parsed
	if err := c.check(parsed); err != nil {
		return report(stderr, err)
	}
	defer a.end()
	return report(stderr, parsed.Run(a))
}

// wrong says what must be in the words of all other errors. kong counts the default of a flag that may be left out, which is empty,
// among its values, and says of an argument that is missing what it had expected.
func wrong(err error) string {
	text := strings.Replace(err.Error(), ` must be one of "",`, " must be one of ", 1)
	if argument, ok := strings.CutPrefix(text, `expected "<`); ok {
		if name, _, ok := strings.Cut(argument, ">"); ok {
			return "<" + name + "> must be given"
		}
	}
	return text
}

// cutCommand splits a command line at the first --, behind which run and elect have the command that they run: kong would take it
// for names of locks.
func cutCommand(args []string) (before, command []string) {
	at := slices.Index(args, "--")
	if at < 0 || !slices.ContainsFunc(args[:at], func(s string) bool { return s == "run" || s == "elect" }) {
		return args, nil
	}
	return args[:at], args[at+1:]
}

func newParser(c *cli, a *app, exit func(int)) *kong.Kong {
	parser, err := kong.New(c, kong.Name("lockctl"), kong.Description(description), kong.Writers(a.stdout, a.stderr), groups,
		kong.Vars{"version": version()}, kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 110}), kong.Exit(exit),
		kong.BindSingletonProvider(func() (context.Context, error) { return a.interruptible(), nil }))
	if err != nil {
		panic("the command line's own definition: " + err.Error())
	}
	return parser
}

type versionCommand struct{}

func (*versionCommand) Run(a *app) error {
	_, err := fmt.Fprintln(a.stdout, version())
	return err
}

// version is that of the build: set with -ldflags "-X main.release=v1.2.3", else what the Go tool knows.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

var release string
