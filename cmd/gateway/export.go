package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"lockkeeper/internal/migrate"
	"lockkeeper/internal/zk"
)

// exportCommand is the command line of gateway export.
type exportCommand struct {
	Output       string `name:"output" default:"-" placeholder:"FILE" help:"A file that does not exist yet; - is standard output, which must not be a terminal."`
	LeaveForeign bool   `name:"leave-foreign" help:"Go on although other programs are in the queues. They cannot be moved; leases that wait for them will hold on the new ZooKeeper."`
}

// Help is what gateway export --help adds.
func (exportCommand) Help() string {
	return `Stop all gateways first: everything below --root is read at rest.

  gateway export --data-dir ./lockkeeper-data --output lockkeeper.export
  gateway import --zk zk1:2181,zk2:2181,zk3:2181/apps --input lockkeeper.export

Leases, places in the queues, lease tokens and idempotency keys go on with the next gateway on the new ZooKeeper; fencing
tokens rise. API tokens stay good. The file holds the secret of the lease tokens: who can read it can end every lease. Nothing is changed where
it comes from. Keep gateways from starting there again: two ZooKeepers would grant the same locks.
--zk in place of --data-dir exports from there. docs/operate/moving-to-an-ensemble.md goes through it step by step.`
}

// run exports from the ZooKeeper or the data directory that the configuration names.
func (e *exportCommand) run(ctx context.Context, c *config, stdout, stderr io.Writer) error {
	if err := c.existing(); err != nil {
		return err
	}
	return c.offline(ctx, stderr, func(ctx context.Context, cfg zk.Config) error { return e.from(ctx, cfg, stdout, stderr) })
}

// from exports from a ZooKeeper, however it is reached.
func (e *exportCommand) from(ctx context.Context, cfg zk.Config, stdout, stderr io.Writer) error {
	out, err := e.open(stdout)
	if err != nil {
		return err
	}
	defer out.discard()
	lines := newProgress(stderr)
	archive, sum, err := migrate.Export(ctx, cfg, migrate.ExportOptions{LeaveForeign: e.LeaveForeign, Progress: lines.report})
	if err != nil {
		return offlineProblem(err, migrateCodes)
	}
	if err := migrate.Write(out, archive); err != nil {
		return outputProblem(err)
	}
	if err := out.commit(); err != nil {
		return outputProblem(err)
	}
	for _, path := range sum.Ephemeral {
		fmt.Fprintf(stderr, "left behind, because it is ephemeral and ends with its gateway: %s\n", path)
	}
	for _, path := range sum.Foreign {
		fmt.Fprintf(stderr, "left behind, because another program made it: %s\n", path)
	}
	if sum.TokensLeft > 0 {
		fmt.Fprintf(stderr, "left behind, because others than the fleet could have made them: %s\n", plural(sum.TokensLeft, "API token"))
	}
	fmt.Fprintf(stderr, "exported %s; all fencing tokens are below %d\n", counts(sum), archive.TokensBelow)
	if e.Output != "-" {
		fmt.Fprintf(stderr, "%s holds the secret of the lease tokens: keep it like a password, and delete it when it has been imported\n", e.Output)
	}
	return nil
}

func counts(s migrate.Summary) string {
	return fmt.Sprintf("%d held and %s in %s, %s, %s", s.Held, plural(s.Waiting, "waiting lease"), plural(s.Locks, "lock"), plural(s.Keys, "idempotency key"), plural(s.Tokens, "API token"))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// output is where an export goes. It becomes visible as a whole.
type output struct {
	io.Writer
	path string                // "" for standard output
	file *renameio.PendingFile // nil for standard output
}

func (e *exportCommand) open(stdout io.Writer) (*output, error) {
	if e.Output == "-" {
		if terminal(stdout) {
			return nil, usage("gateway export --output FILE", "the export holds secrets and does not go to a terminal")
		}
		return &output{Writer: stdout}, nil
	}
	if err := absent(e.Output); err != nil {
		return nil, err
	}
	file, err := renameio.NewPendingFile(e.Output, renameio.WithTempDir(filepath.Dir(e.Output)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return nil, usage("for example --output lockkeeper.export", "--output: %w", err)
	}
	return &output{Writer: file, path: e.Output, file: file}, nil
}

// commit gives the file its name, once it is on disk.
func (o *output) commit() error {
	if o.file == nil {
		return nil
	}
	if err := absent(o.path); err != nil { // for the second time: reading may have taken minutes
		return err
	}
	if err := o.file.CloseAtomicallyReplace(); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(o.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync() // the name, too, survives a loss of power
}

func (o *output) discard() {
	if o.file != nil {
		_ = o.file.Cleanup() // after commit there is nothing to clean up
	}
}

// absent refuses what exists: an export may be the only copy of a lock service.
func absent(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return usage("choose another name, or delete it if it is not needed", "--output %s exists", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return usage("for example --output lockkeeper.export", "--output: %w", err)
	}
	return nil
}

func outputProblem(err error) error {
	var problem *problemError
	if errors.As(err, &problem) {
		return err
	}
	return &problemError{code: exitIO, err: err, hint: "is there room on the disk, and may this user write there?"}
}

// terminal reports whether the output is shown on a terminal.
func terminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Mode()&os.ModeDevice != 0 && f.Name() != os.DevNull
}
