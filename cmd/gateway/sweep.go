package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"lockkeeper/internal/sweep"
	"lockkeeper/internal/zk"
)

// sweepCommand is the command line of gateway sweep.
type sweepCommand struct {
	DryRun bool `name:"dry-run" help:"List what would be deleted, and change nothing."`
}

// Help is what gateway sweep --help adds.
func (sweepCommand) Help() string {
	return `For a fleet that never comes back: leases outlive gateways, so they stay in the queues for ever, and other
programs wait behind them.

  gateway sweep --zk zk1:2181,zk2:2181,zk3:2181/apps --dry-run
  gateway sweep --zk zk1:2181,zk2:2181,zk3:2181/apps

Refused while a gateway is registered; and when one is started meanwhile, the sweep stops and takes nothing from it. Leases
in all recorded namespaces, idempotency keys, successions and the outbox go, each path is printed; settings, namespaces, webhooks
and API tokens stay, and so does every node of other programs and other fleets. It begins a promise window (10s unless set) after it was
started. Holders are not asked: a client may believe in its lease until the TTL is over.
--data-dir in place of --zk sweeps a gateway's own store, for other programs that use it through --embedded-listen.`
}

// run sweeps the ZooKeeper or the data directory that the configuration names.
func (s *sweepCommand) run(ctx context.Context, c *config, stdout, stderr io.Writer) error {
	if err := c.existing(); err != nil {
		return err
	}
	return c.offline(ctx, stderr, func(ctx context.Context, cfg zk.Config) error {
		return s.from(ctx, cfg, c.ZK == "", stdout, stderr)
	})
}

// from sweeps a ZooKeeper, however it is reached. In a data directory that was opened no
// gateway is left.
func (s *sweepCommand) from(ctx context.Context, cfg zk.Config, dead bool, stdout, stderr io.Writer) error {
	lines := newProgress(stderr)
	paths := bufio.NewWriter(stdout)
	did, verb := "deleted", "deleted"
	if s.DryRun {
		did, verb = "would delete", "would be deleted"
	}
	report, err := sweep.Sweep(ctx, cfg, sweep.Options{DryRun: s.DryRun, Dead: dead, Progress: lines.report,
		Waiting: func(d time.Duration) {
			fmt.Fprintf(stderr, "waiting %v: a gateway that is gone may still confirm its leases for so long\n", d)
		},
		Deleted: func(path string) { fmt.Fprintf(paths, "%s %s\n", did, path) }})
	if e := paths.Flush(); e != nil && err == nil {
		err = &problemError{code: exitIO, err: fmt.Errorf("printing what was deleted: %w", e)}
	}
	if err == nil || report.Transactions > 0 {
		fmt.Fprintf(stderr, "%s: %s\n", verb, swept(report))
	}
	for _, path := range report.Kept {
		fmt.Fprintf(stderr, "kept, because another program has put something below it: %s; what belongs to leases is kept with it\n", path)
	}
	if err != nil {
		return offlineProblem(err, sweepCodes)
	}
	if report.Foreign > 0 {
		fmt.Fprintf(stderr, "%s of other programs and other fleets stay\n", plural(report.Foreign, "contender"))
	}
	if report.LongestTTL > 0 {
		fmt.Fprintf(stderr, "the longest TTL is %v: a client may act as the holder for so long after its last heartbeat\n", report.LongestTTL)
	}
	return nil
}

func swept(r sweep.Report) string {
	parts := []string{fmt.Sprintf("%s (%s) in %s", plural(r.Leases, "lease"), plural(r.Contenders, "contender"), plural(r.Locks, "lock")), plural(r.Keys, "idempotency key"),
		plural(r.Successions, "succession"), plural(r.Outbox, "notice") + " in the outbox"}
	if r.Registrations > 0 {
		parts = append(parts, plural(r.Registrations, "node")+" of gateways without a session")
	}
	return strings.Join(parts, ", ")
}
