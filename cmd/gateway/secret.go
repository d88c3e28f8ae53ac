package main

import (
	"context"
	"fmt"
	"io"

	"lockkeeper/internal/sweep"
	"lockkeeper/internal/zk"
)

// secretCommand is the command line of gateway secret.
type secretCommand struct {
	Rotate rotateCommand `cmd:"" help:"Replace the fleet's secret by a new one, while all gateways are stopped."`
}

// rotateCommand is the command line of gateway secret rotate.
type rotateCommand struct {
	Offline bool `name:"offline" help:"Say that all gateways are stopped. Required: a running gateway would go on with the old secret."`
}

// Help is what gateway secret rotate --help adds.
func (rotateCommand) Help() string {
	return `The secret authenticates lease tokens and the requests between gateways. Replace it when others could read it: a gateway
that knows so says at each start that the secret is compromised, and its metric lockkeeper_secret_exposed is 1.

Stop all gateways, run one of these, and start the gateways again:

  gateway secret rotate --offline --zk zk1:2181,zk2:2181,zk3:2181/apps --zk-auth-file FILE
  gateway secret rotate --offline --data-dir ./lockkeeper-data

Refused with exit code 75 while a gateway is registered, and when one registers meanwhile. The fleet id stays, and so do
leases and queues. The old keys are dropped, so:

  - Lease tokens from before are refused (403). Their leases cannot be renewed or released, and end at their TTLs. An acquire
    that is repeated with its Idempotency-Key is answered with the lease's new token.
  - The secrets that sign deliveries to notify_url change, also for leases that were given one before.

The signing secrets of webhooks are no part of it. Where ZooKeeper was open to others they were, too: rotate each with
POST /v1/webhooks/{id}/rotate. No key is ever printed.`
}

// run replaces the secret in the ZooKeeper or the data directory that the configuration names.
func (r *rotateCommand) run(ctx context.Context, c *config, stderr io.Writer) error {
	if !r.Offline {
		return usage("stop all gateways, then add --offline", "the secret is replaced only while no gateway runs")
	}
	if err := c.existing(); err != nil {
		return err
	}
	return c.offline(ctx, stderr, func(ctx context.Context, cfg zk.Config) error {
		done, err := sweep.RotateSecret(ctx, cfg)
		if err != nil {
			return offlineProblem(err, sweepCodes)
		}
		fmt.Fprintf(stderr, "the secret of fleet %s has the new key %s; %s dropped\n", done.FleetID, done.KeyID, plural(done.Dropped, "old key"))
		fmt.Fprintln(stderr, "lease tokens from before are refused from now on: their leases end at their TTLs")
		if done.Open {
			fmt.Fprintln(stderr, "warning: every client of ZooKeeper can read the new secret, too; give the fleet an identity with --zk-auth-file, and repeat this")
		}
		return nil
	})
}
