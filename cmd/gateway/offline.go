package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/certs"
	"lockkeeper/internal/migrate"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/sweep"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/embedded/disk"
)

// somewhere makes sure that the configuration names either a ZooKeeper or a data
// directory. Unlike a gateway that serves, a command that works offline has no default
// directory.
func (c *config) somewhere() error {
	switch {
	case c.ZK == "" && c.DataDir == "":
		return usage("give the ZooKeeper servers with --zk, or the directory of a gateway that keeps everything itself with --data-dir", "neither --zk nor --data-dir is given")
	case c.ZK != "" && c.DataDir != "":
		return usage("leave one of them out", "--data-dir and --zk exclude each other")
	}
	return nil
}

// offline does work on the ZooKeeper, or the store in a data directory, that the
// configuration names.
func (c *config) offline(ctx context.Context, stderr io.Writer, work func(context.Context, zk.Config) error) error {
	if err := c.somewhere(); err != nil {
		return err
	}
	quiet := *c
	if quiet.LogLevel == "info" {
		quiet.LogLevel = "warn" // these commands print their results themselves
	}
	logger := quiet.logger(stderr)
	cfg, err := c.zookeeper(logger.With("part", "zookeeper"), nil)
	if err == nil {
		var over *certs.Source
		over, err = c.zkCertificates(logger.With("part", "zookeeper"), nil)
		c.secure(&cfg, over)
	}
	if err != nil || c.ZK != "" {
		if err == nil {
			err = work(ctx, cfg)
		}
		return err
	}
	quiet.EmbeddedListen = "" // no other program may write meanwhile
	own, err := quiet.openStore(logger)
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	own.run(group, running)
	own.reach(&cfg)
	err = work(running, cfg)
	stopped := own.stop()
	if failed := group.Wait(); failed != nil {
		return failed // why the work could not be done
	}
	return errors.Join(err, stopped)
}

// The exit codes of the commands that work offline; exitFailure for the other kinds.
var (
	migrateCodes = map[offline.Kind]int{migrate.KindNoRoot: exitConfig, migrate.KindNotEmpty: exitConfig, migrate.KindTooNew: exitConfig, migrate.KindDamaged: exitIO}
	sweepCodes   = map[offline.Kind]int{sweep.KindNoRoot: exitConfig, sweep.KindCorrupt: exitConfig, sweep.KindInUse: exitInUse, sweep.KindUnknown: exitUnavailable}
)

// offlineProblem gives an error of such a command its exit code and hint.
func offlineProblem(err error, codes map[offline.Kind]int) error {
	var e *offline.Error
	if !errors.As(err, &e) {
		return err
	}
	return &problemError{code: cmp.Or(codes[e.Kind], exitFailure), err: err, hint: e.Hint}
}

// existing refuses a data directory without a store: to open it would make one.
func (c *config) existing() error {
	if c.DataDir == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(c.DataDir, disk.FileName)); errors.Is(err, fs.ErrNotExist) {
		return usage("give the directory that the gateway has logged as data_dir", "--data-dir %s has no store", c.DataDir)
	}
	return nil
}

// progressEvery is how often progress is printed.
const progressEvery = 2 * time.Second

// progress prints on standard error how far long work is.
type progress struct {
	w io.Writer

	mu   sync.Mutex
	next time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w: w, next: time.Now().Add(progressEvery)} }

func (p *progress) report(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(progressEvery)
		fmt.Fprintf(p.w, "%s: %d of %d\n", what, done, total)
	}
}
