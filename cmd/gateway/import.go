package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"lockkeeper/internal/migrate"
	"lockkeeper/internal/zk"
)

// importCommand is the command line of gateway import.
type importCommand struct {
	Input          string `name:"input" default:"-" placeholder:"FILE" help:"The file that gateway export has written; - is standard input."`
	ReplacePartial bool   `name:"replace-partial" help:"Clear what an import that died half way has left below --root, and begin again."`
}

// Help is what gateway import --help adds.
func (importCommand) Help() string {
	return `The root must not exist yet, or be empty; --root may be another one than that of the export.

  gateway import --zk zk1:2181,zk2:2181,zk3:2181/apps --input lockkeeper.export
  gateway        --zk zk1:2181,zk2:2181,zk3:2181/apps

The file is read and checked whole before anything is written. No gateway starts on a root that has not been imported to
its end. An import that was interrupted is repeated with --replace-partial.`
}

// run imports into the ZooKeeper that the configuration names.
func (i *importCommand) run(ctx context.Context, c *config, stderr io.Writer) error {
	return c.offline(stderr, func(cfg zk.Config) error { return i.into(ctx, cfg, stderr) })
}

// into imports into a ZooKeeper, however it is reached.
func (i *importCommand) into(ctx context.Context, cfg zk.Config, stderr io.Writer) error {
	in, err := i.open(stderr)
	if err != nil {
		return err
	}
	defer in.Close()
	archive, err := migrate.Read(in)
	if err != nil {
		return migrateProblem(err)
	}
	lines := newProgress(stderr)
	sum, err := migrate.Import(ctx, cfg, archive, migrate.ImportOptions{ReplacePartial: i.ReplacePartial, Progress: lines.tell})
	if err != nil {
		return migrateProblem(err)
	}
	fmt.Fprintf(stderr, "imported %s; fencing tokens go on above %d\n", counts(sum), archive.TokensBelow)
	return nil
}

func (i *importCommand) open(stderr io.Writer) (io.ReadCloser, error) {
	if i.Input == "-" {
		if terminal(os.Stdin) {
			return nil, usage("gateway import --input FILE", "there is nothing to import")
		}
		return io.NopCloser(os.Stdin), nil
	}
	f, err := os.Open(i.Input)
	if err != nil {
		return nil, usage("give the file that gateway export has written", "--input: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&0o077 != 0 {
		fmt.Fprintf(stderr, "warning: others can read %s (mode %04o), and end every lease with the secret in it\n", i.Input, info.Mode().Perm())
	}
	return f, nil
}

// offline does work on the ZooKeeper that the configuration names.
func (c *config) offline(stderr io.Writer, work func(zk.Config) error) error {
	if c.ZK == "" {
		return usage("give the ZooKeeper servers, for example --zk zk1:2181,zk2:2181,zk3:2181/apps", "--zk is missing")
	}
	cfg, err := c.zookeeper(c.logger(stderr).With("part", "zookeeper"), nil)
	if err != nil {
		return err
	}
	return work(cfg)
}

// migrateProblem gives an error of internal/migrate its exit code.
func migrateProblem(err error) error {
	var e *migrate.Error
	if !errors.As(err, &e) {
		return err
	}
	code := exitFailure
	switch e.Kind {
	case migrate.KindNoRoot, migrate.KindNotEmpty, migrate.KindTooNew:
		code = exitConfig
	}
	return &problemError{code: code, err: err, hint: e.Hint}
}

// progressEvery is how often a person is told how far it is.
const progressEvery = 2 * time.Second

// progress tells on standard error how far long work is.
type progress struct {
	w io.Writer

	mu   sync.Mutex
	next time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w: w, next: time.Now().Add(progressEvery)} }

func (p *progress) tell(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(progressEvery)
		fmt.Fprintf(p.w, "%s: %d of %d\n", what, done, total)
	}
}
