// Command gateway serves locks over HTTP, held on ZooKeeper: on that which
// --zk names, or without it on one of its own, in this process, which keeps
// everything in --data-dir.
//
// Exit codes:
//
//	 0  in good order
//	 1  anything else
//	64  usage
//	69  ZooKeeper was never reached, or was lost in the middle of a sweep
//	74  the store in --data-dir, or a file, is damaged or cannot be read or written
//	75  another process has the store, or a gateway is registered at what is to be swept: it may be free later
//	78  configuration: the store or the layout is of a newer release, the server too old, authentication refused,
//	    a namespace that contradicts the record, a layout that others made or that cannot be closed to them
//
// Each error is one line "error: ..." with, where something can be done
// about it, a line "hint: ...".
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"lockkeeper/internal/clidoc"
	"lockkeeper/internal/zk"
)

// Exit codes, those of sysexits.h.
const (
	exitFailure     = 1
	exitUsage       = 64
	exitUnavailable = 69
	exitIO          = 74
	exitInUse       = 75
	exitConfig      = 78
)

// cli is the command line.
type cli struct {
	config
	ShowVersion kong.VersionFlag `name:"version" env:"-" help:"Print the version."`
	ConfigFile  string           `name:"config" placeholder:"FILE" help:"YAML file with a key per flag, named like it: listen, zk and so on."`

	Serve       struct{}       `cmd:"" default:"1" help:"Serve (the default)."`
	Healthcheck struct{}       `cmd:"" help:"Ask the gateway that runs with the same --listen whether it is alive."`
	Export      exportCommand  `cmd:"" help:"Write everything below --root to a file, to move it to another ZooKeeper."`
	Import      importCommand  `cmd:"" help:"Make a --root of what gateway export has written."`
	Backup      backupCommand  `cmd:"" help:"Copy the store in --data-dir to a file, while the gateway runs or not."`
	Restore     restoreCommand `cmd:"" help:"Make a --data-dir of what gateway backup has written."`
	Sweep       sweepCommand   `cmd:"" help:"Clear what a fleet of gateways that is gone for good has left below --root and in the queues."`
	Secret      secretCommand  `cmd:"" help:"About the secret that authenticates lease tokens."`
	Token       tokenCommand   `cmd:"" help:"API tokens for --auth-file: create, list, revoke."`
	Rules       rulesCommand   `cmd:"" name:"auth" help:"About --auth-file."`
	Version     struct{}       `cmd:"" help:"Print the version."`
	Completion  struct {
		Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
	} `cmd:"" help:"Print what a shell needs to complete command lines."`
	Man    struct{} `cmd:"" help:"Print the manual page."`
	Config struct {
		Print struct{} `cmd:"" help:"Print the settings in force, as a configuration file."`
	} `cmd:"" help:"About the configuration."`
}

const description = `Locks over HTTP, held on ZooKeeper: its own in one process, durable on disk, or that which --zk names.

  gateway
  curl -sX POST 'localhost:8080/v1/locks/deploy/leases?ttl=10s&owner=me'

Each flag is also a variable LOCKKEEPER_... (LOCKKEEPER_SESSION_TIMEOUT for --session-timeout) and a key of the file
given with --config. A flag beats a variable, a variable beats the file.`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, relaxTimers))
}

// run is main with its surroundings as parameters; it returns the exit code. relax is called when a gateway is to serve that has no
// store of its own.
func run(args []string, stdout, stderr io.Writer, relax func()) int {
	var c cli
	exited := -1
	name := nameOf(os.Args[0])
	parser, err := kong.New(&c, kong.Name(name), kong.Description(description), kong.Writers(stdout, stderr),
		kong.DefaultEnvars("LOCKKEEPER"), kong.Vars{"version": version()}, kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.Exit(func(code int) { exited = code }))
	if err != nil {
		panic("the command line's own definition: " + err.Error())
	}
	rename(parser.Model.Node, name)
	file, err := configFile(args, os.Getenv)
	if err != nil {
		return report(stderr, err)
	}
	if file != nil {
		if err := kong.Resolvers(file).Apply(parser); err != nil {
			return report(stderr, err)
		}
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 {
		return exited // --help, --version
	}
	if err != nil {
		return report(stderr, usage("gateway --help lists the flags", "%w", err))
	}
	if zkFlag(parser).Set && c.ZK == "" {
		return report(stderr, usage("leave it out for a gateway that keeps everything itself", "--zk is empty: a gateway with a store of its own would grant locks that are held elsewhere"))
	}
	switch parsed.Command() {
	case "version":
		fmt.Fprintln(stdout, version())
		return 0
	case "completion <shell>":
		return report(stderr, clidoc.Completion(stdout, parser.Model, c.Completion.Shell))
	case "man":
		return report(stderr, manual(stdout, parser.Model))
	case "config print":
		return report(stderr, printConfig(stdout, parser, parsed))
	case "auth check":
		return report(stderr, c.Rules.Check.run(&c.config, stdout))
	case "healthcheck":
		return report(stderr, healthcheck(context.Background(), &c.config, healthcheckWithin))
	}
	if parsed.Command() == "serve" && c.ZK != "" && readsTwice(c.ConfigFile) {
		relax() // before a signal is caught: one that was would be lost
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	switch parsed.Command() {
	case "export":
		return report(stderr, c.Export.run(ctx, &c.config, stdout, stderr))
	case "backup":
		return report(stderr, c.Backup.run(ctx, &c.config, stderr))
	case "restore":
		return report(stderr, c.Restore.run(&c.config, stderr))
	case "sweep":
		return report(stderr, c.Sweep.run(ctx, &c.config, stdout, stderr))
	case "secret rotate", "secret status", "secret drop":
		return report(stderr, c.Secret.run(ctx, parsed.Command(), &c.config, stdout, stderr))
	case "token create", "token list", "token revoke <id-or-name>":
		return report(stderr, c.Token.run(ctx, parsed.Command(), &c.config, stdout, stderr))
	case "import":
		return report(stderr, c.Import.run(ctx, &c.config, stderr))
	}
	return serveAndReport(ctx, &c.config, stderr)
}

// readsTwice reports whether a configuration file may be read again: a pipe may not. There may be none.
func readsTwice(path string) bool {
	if path == "" {
		return true
	}
	is, err := os.Stat(path)
	return err == nil && is.Mode().IsRegular()
}

// report prints an error and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	code, hint := exitFailure, ""
	var problem *problemError
	var fatal *zk.FatalError
	switch {
	case errors.As(err, &problem):
		code, hint = problem.code, problem.hint
	case errors.As(err, &fatal):
		code, hint = exitConfig, fatal.Hint
	case errors.Is(err, zk.ErrUnavailable):
		code, hint = exitUnavailable, unreachable(err)
	}
	name := nameOf(os.Args[0])
	fmt.Fprintf(w, "error: %s\n", called(name, err.Error()))
	if hint != "" {
		fmt.Fprintf(w, "hint: %s\n", called(name, hint))
	}
	return code
}

// unreachable says what to look at when ZooKeeper was not reached.
func unreachable(err error) string {
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return "the certificate of each server must be good for the name in --zk, valid now, and signed by an authority in --zk-ca-file"
	}
	return "is ZooKeeper running, and is --zk right? A server's secureClientPort needs --zk-tls, and its other port refuses it"
}

// version is that of the build: set with -ldflags "-X main.release=v1.2.3",
// else what the Go tool knows.
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
