package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/embedded/disk"
	"lockkeeper/internal/zk/standalone"
)

// backupCommand is the command line of gateway backup.
type backupCommand struct {
	Output string `name:"output" required:"" placeholder:"FILE" help:"A file that does not exist yet."`
}

// Help is what gateway backup --help adds.
func (backupCommand) Help() string {
	return `For a gateway without --zk, whether it runs or not; it goes on meanwhile. Run it as the same user, with the same --data-dir:

  gateway backup --data-dir ./lockkeeper-data --output lockkeeper.backup

The file is checked before it gets its name. It holds the secret of the lease tokens: who can read it can end every lease.
What a restore brings back, and what it cannot know: docs/operate/backup.md.`
}

// run makes a copy of the store, from the gateway that has it or, when none
// does, by itself.
func (b *backupCommand) run(ctx context.Context, c *config, stderr io.Writer) error {
	if c.ZK != "" {
		return usage("an ensemble has ways of its own; gateway export moves everything elsewhere", "--zk has no store of this gateway's")
	}
	dir, err := c.dataDir()
	if err != nil {
		return err
	}
	switch _, err := os.Stat(filepath.Join(dir, disk.FileName)); {
	case errors.Is(err, fs.ErrPermission):
		return &problemError{code: exitIO, err: fmt.Errorf("--data-dir: %w", err), hint: "run this as the user that the gateway runs as"}
	case err != nil:
		return usage("give the directory that the gateway has logged with \"listening\"", "there is no store in --data-dir: %w", err)
	}
	if err := absent(b.Output); err != nil {
		return err
	}
	file, err := renameio.NewPendingFile(b.Output, renameio.WithTempDir(filepath.Dir(b.Output)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return usage("for example --output lockkeeper.backup", "--output: %w", err)
	}
	out := &output{Writer: file, path: b.Output, file: file}
	defer out.discard()
	if err := copyStore(ctx, dir, file); err != nil {
		if at := (*fs.PathError)(nil); errors.As(err, &at) && at.Path == file.Name() {
			err = outputProblem(fmt.Errorf("copying the store: %w", at)) // not the store's trouble
		}
		return err
	}
	sum, err := disk.Verify(file.Name())
	if err != nil {
		return storeProblem(dir, fmt.Errorf("checking the copy: %w", err))
	}
	if err := out.commit(); err != nil {
		return outputProblem(err)
	}
	fmt.Fprintf(stderr, "%s: %d bytes, as of %s\n", b.Output, sum.Bytes, sum.Written.Format(time.RFC3339))
	fmt.Fprintln(stderr, "it holds the secret of the lease tokens: keep it like a password")
	return nil
}

// copyStore writes the store of a data directory to w.
func copyStore(ctx context.Context, dir string, w io.Writer) error {
	answer, err := askAdmin(ctx, dir, http.MethodGet, "/backup", nil)
	if errors.As(err, new(*net.OpError)) && ctx.Err() == nil {
		return copyAtRest(ctx, dir, w, err)
	}
	if err != nil {
		return fmt.Errorf("asking the gateway that runs there: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 4096)) // as far as it came
		return &problemError{code: exitIO, err: fmt.Errorf("the gateway that runs there refuses: %s", strings.TrimSpace(string(said))),
			hint: "its log says what is wrong with its store"}
	}
	if _, err := io.Copy(w, answer.Body); err != nil {
		return &problemError{code: exitIO, err: fmt.Errorf("the gateway that runs there broke off: %w", err), hint: "its log says why; repeat it"}
	}
	return nil
}

// copyAtRest copies a store that no gateway has open.
func copyAtRest(ctx context.Context, dir string, w io.Writer, unreachable error) error {
	store, err := disk.Open(disk.Config{Dir: dir, MustExist: true})
	if errors.Is(err, disk.ErrLocked) {
		return &problemError{code: exitInUse, err: fmt.Errorf("a process has the store, and cannot be asked: %w", unreachable),
			hint: "run this as the user that the gateway runs as; another backup of a stopped gateway may also be under way"}
	}
	if err != nil {
		return storeProblem(dir, err)
	}
	_, err = store.Backup(ctx, w)
	return storeProblem(dir, errors.Join(err, store.Close()))
}

// restoreCommand is the command line of gateway restore.
type restoreCommand struct {
	Input string `name:"input" required:"" placeholder:"FILE" help:"The file that gateway backup has made."`
}

// Help is what gateway restore --help adds.
func (restoreCommand) Help() string {
	return `The data directory must be empty or missing. Then start the gateway there:

  gateway restore --input lockkeeper.backup --data-dir ./lockkeeper-data
  gateway         --data-dir ./lockkeeper-data

Leases that the backup has go on with their tokens, also those that ended since; leases given since are unknown. Fencing
tokens begin above every one that may have been given, so what they protect stays safe. API tokens that were revoked since
the backup are good again: revoke them once more. Never start a gateway on the old
data again. docs/operate/backup.md says it step by step.`
}

// run makes a store of a backup.
func (r *restoreCommand) run(c *config, stderr io.Writer) error {
	if c.ZK != "" {
		return usage("leave --zk out; gateway import fills an ensemble", "a backup is restored into a data directory")
	}
	dir, err := c.dataDir()
	if err != nil {
		return err
	}
	if err := zk.CheckPath(c.Root); err != nil {
		return usage("for example --root /lockkeeper", "--root: %w", err)
	}
	info, err := os.Stat(r.Input)
	if err != nil {
		return usage("give the file that gateway backup has made", "--input: %w", err)
	}
	warnShared(stderr, r.Input, info)
	done, err := standalone.Restore(r.Input, dir, c.Root, time.Now())
	if err != nil {
		return r.problem(dir, err)
	}
	fmt.Fprintf(stderr, "restored into %s, as of %s\n", dir, done.Backup.Written.Format(time.RFC3339))
	fmt.Fprintf(stderr, "%d sessions of then are over; new fencing tokens are above %d\n", done.SessionsEnd, done.FenceBase)
	return nil
}

// problem says what to do about a restore that failed.
func (r *restoreCommand) problem(dir string, err error) error {
	var of *disk.Error
	switch {
	case errors.Is(err, standalone.ErrNotEmpty):
		return usage("give another directory, or move that one away", "--data-dir: %w", err)
	case errors.Is(err, standalone.ErrUnderWay):
		return &problemError{code: exitInUse, err: err, hint: "let it come to its end, or give another --data-dir"}
	case errors.Is(err, standalone.ErrNoRoot):
		return &problemError{code: exitConfig, err: err, hint: "give the --root that the gateway had"}
	case !errors.As(err, &of) || of.Path != r.Input:
		return storeProblem(dir, err)
	}
	// It is the backup that is no good. What its hint says is for a store.
	problem := &problemError{code: exitIO, err: &disk.Error{Kind: of.Kind, Path: of.Path, Err: of.Err}, hint: "nothing was restored; give a file that gateway backup has made"}
	switch {
	case errors.Is(err, disk.ErrNewer):
		problem.code, problem.hint = exitConfig, "nothing was restored; restore it with the release that made it, or a later one"
	case errors.Is(err, disk.ErrLocked):
		problem.code, problem.hint = exitInUse, "nothing was restored; it is the store of a gateway that runs: make a copy with gateway backup"
	}
	return problem
}
