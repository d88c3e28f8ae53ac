package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

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

and back, into a gateway's own store:

  gateway import --data-dir ./lockkeeper-data --input lockkeeper.export

The file is read and checked whole before anything is written. No gateway starts on a root that has not been imported to
its end. An import that was interrupted is repeated with --replace-partial.`
}

// run imports into the ZooKeeper or the data directory that the configuration names.
func (i *importCommand) run(ctx context.Context, c *config, stderr io.Writer) error {
	if err := c.somewhere(); err != nil {
		return err
	}
	// Before the store is opened: to open one makes it, and a gateway that was started there would find an empty one.
	archive, err := i.read(stderr)
	if err != nil {
		return err
	}
	return c.offline(ctx, stderr, func(ctx context.Context, cfg zk.Config) error { return i.into(ctx, cfg, archive, stderr) })
}

// read reads and checks the whole file.
func (i *importCommand) read(stderr io.Writer) (*migrate.Archive, error) {
	in, err := i.open(stderr)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	archive, err := migrate.Read(in)
	if err != nil && !errors.As(err, new(*migrate.Error)) && !errors.As(err, new(*zk.FatalError)) {
		err = &problemError{code: exitIO, err: err, hint: "give the file that gateway export has written"} // the medium, not what is in it
	}
	return archive, offlineProblem(err, migrateCodes)
}

// into imports into a ZooKeeper, however it is reached.
func (i *importCommand) into(ctx context.Context, cfg zk.Config, archive *migrate.Archive, stderr io.Writer) error {
	lines := newProgress(stderr)
	sum, err := migrate.Import(ctx, cfg, archive, migrate.ImportOptions{ReplacePartial: i.ReplacePartial, Progress: lines.report})
	if err != nil {
		return offlineProblem(err, migrateCodes)
	}
	if sum.TokensLeft > 0 {
		fmt.Fprintf(stderr, "left behind, because every client of ZooKeeper could make more without --zk-auth-file: %s\n", plural(sum.TokensLeft, "API token"))
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
	if info, err := f.Stat(); err == nil {
		warnShared(stderr, i.Input, info)
	}
	return f, nil
}

// warnShared warns of a file with the secret of the lease tokens that other users can read.
func warnShared(stderr io.Writer, path string, info fs.FileInfo) {
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 {
		fmt.Fprintf(stderr, "warning: others can read %s (mode %04o), and end every lease with the secret in it\n", path, mode.Perm())
	}
}
