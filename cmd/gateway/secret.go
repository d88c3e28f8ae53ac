package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"lockkeeper/internal/offline"
	"lockkeeper/internal/secret"
	"lockkeeper/internal/sweep"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// secretCommand is the command line of gateway secret.
type secretCommand struct {
	Rotate rotateCommand       `cmd:"" help:"Replace the fleet's secret by a new one, while gateways run."`
	Status secretStatusCommand `cmd:"" help:"Show how far a rotation of the secret is, and what it waits for."`
	Drop   dropCommand         `cmd:"" help:"Refuse the old key of a rotation at once."`
}

// run does what one of the commands says.
func (s *secretCommand) run(ctx context.Context, command string, c *config, stdout, stderr io.Writer) error {
	switch command {
	case "secret rotate":
		return s.Rotate.run(ctx, c, stderr)
	case "secret status":
		return s.Status.run(ctx, c, stdout, stderr)
	}
	return s.Drop.run(ctx, c, stderr)
}

// rotateCommand is the command line of gateway secret rotate.
type rotateCommand struct {
	DropAfter string        `name:"drop-after" default:"24h" env:"-" placeholder:"24h" help:"How long the old key stays accepted once no lease needs it: 0s to 30d."`
	Wait      time.Duration `name:"wait" default:"30s" env:"-" placeholder:"30s" help:"How long the command waits for all gateways to sign with the new key. The rotation goes on without it."`
	Offline   bool          `name:"offline" env:"-" help:"Replace the secret at once, with the loss of all lease tokens. All gateways must be stopped."`
}

const whereTheSecretIs = `
Without --zk the command asks the gateway that runs on --data-dir over its admin.sock, as the same user, or opens the store itself when
none runs. With --zk it needs the fleet's --zk-auth-file.`

// Help is what gateway secret rotate --help adds.
func (rotateCommand) Help() string {
	return `The secret authenticates lease tokens and the requests between gateways.

  gateway secret rotate --zk zk1:2181,zk2:2181,zk3:2181/apps --zk-auth-file FILE
  gateway secret rotate --data-dir ./lockkeeper-data

The new key is first accepted by every gateway, then every gateway signs with it, and the old key is dropped when no lease from before
is left and --drop-after has passed. No lease and no request is lost. Exit code 75 when gateways have not followed within --wait, with
their names: the rotation goes on by itself once they do, or are gone.

When others have read the secret, do not wait for the leases: gateway secret drop --now.

With --offline the old keys go at once. Refused with exit code 75 while a gateway is registered, and when one registers meanwhile. The
fleet id stays, and so do leases and queues. But:

  - Lease tokens from before are refused (403). Their leases cannot be renewed or released, and end at their TTLs. An acquire
    that is repeated with its Idempotency-Key is answered with the lease's new token.
  - The secrets that sign deliveries to notify_url change, also for leases that were given one before.

The signing secrets of webhooks are no part of it. Where ZooKeeper was open to others they were, too: rotate each with
POST /v1/webhooks/{id}/rotate. No key is ever printed.
` + whereTheSecretIs
}

// run replaces the secret in the ZooKeeper or the data directory that the configuration names.
func (r *rotateCommand) run(ctx context.Context, c *config, stderr io.Writer) error {
	if r.Offline {
		return r.offline(ctx, c, stderr)
	}
	dropAfter, err := parseDays(r.DropAfter)
	if err != nil {
		return usage("for example --drop-after 24h", "--drop-after %q must be a span of time with a unit (s, m, h, d)", r.DropAfter)
	}
	if err := checkDropAfter(dropAfter); err != nil {
		return err
	}
	return c.secrets(ctx, stderr, readByAll, func(ctx context.Context, k secretKeeper) error {
		if err := k.rotate(ctx, dropAfter); err != nil {
			return err
		}
		return r.follow(ctx, k, stderr)
	})
}

// followEvery is how often the command looks how far the rotation is.
const followEvery = 100 * time.Millisecond

// follow waits until every gateway signs with the new key.
func (r *rotateCommand) follow(ctx context.Context, k secretKeeper, stderr io.Writer) error {
	until := time.Now().Add(r.Wait)
	for {
		s, err := k.advance(ctx)
		if err != nil {
			return err
		}
		course := s.Rotation
		if course == nil {
			fmt.Fprintf(stderr, "the fleet signs with the new key %s; the old one is dropped\n", s.Signing)
			return nil
		}
		if course.Phase == layout.Retiring || course.Phase == layout.Dropping {
			fmt.Fprintf(stderr, "the fleet signs with the new key %s; the old one is dropped when no lease from before is left, and %s have passed\n",
				s.Signing, time.Duration(course.DropAfter)*time.Millisecond)
			return nil
		}
		if !time.Now().Before(until) {
			return &problemError{code: exitInUse, hint: "it goes on by itself once they have followed, or are gone: gateway secret status",
				err: fmt.Errorf("the rotation to the key %s is %s and waits for %s", course.NewKey, course.Phase, gatewaysOf(course))}
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func gatewaysOf(c *secret.Course) string {
	list := make([]string, len(c.WaitsFor))
	for i, w := range c.WaitsFor {
		list[i] = w.String()
	}
	if len(list) == 0 {
		return "the next look of a gateway"
	}
	return offline.Few(list)
}

func (r *rotateCommand) offline(ctx context.Context, c *config, stderr io.Writer) error {
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
			fmt.Fprintln(stderr, readByAll)
		}
		return nil
	})
}

// What a command warns of where the fleet has no identity.
const (
	readByAll   = "warning: every client of ZooKeeper can read the new secret, too; give the fleet an identity with --zk-auth-file, and repeat this"
	isReadByAll = "warning: every client of ZooKeeper can read the secret; give the fleet an identity with --zk-auth-file, and rotate the secret then"
)

// secrets does work with the secret of the ZooKeeper or the data directory that the configuration names.
func (c *config) secrets(ctx context.Context, stderr io.Writer, warning string, work func(context.Context, secretKeeper) error) error {
	open := c.ZK != "" && !c.identified()
	if open {
		fmt.Fprintln(stderr, warning)
	}
	return c.administer(ctx, stderr, func(dir string) error { return work(ctx, secretOverSocket{dir}) }, func(ctx context.Context, o *layout.Offline, by string) error {
		return work(ctx, secretAtRest{tree: secret.Tree{Nodes: offline.Nodes{Offline: o}, Root: o.Root(), Open: open}, by: by})
	})
}

// secretStatusCommand is the command line of gateway secret status.
type secretStatusCommand struct {
	Output string `name:"output" short:"o" enum:"text,json" default:"text" env:"-" help:"text or json."`
}

// Help is what gateway secret status --help adds.
func (secretStatusCommand) Help() string {
	return `The phases of a rotation: accepting, until every gateway accepts the new key; signing, until every gateway signs with it; retiring, until
no lease from before is left; dropping, until the old key is dropped. Keys are shown by their ids, which are in lease tokens, too.
` + whereTheSecretIs
}

func (s *secretStatusCommand) run(ctx context.Context, c *config, stdout, stderr io.Writer) error {
	return c.secrets(ctx, stderr, isReadByAll, func(ctx context.Context, k secretKeeper) error {
		status, err := k.status(ctx)
		if err != nil {
			return err
		}
		if s.Output == "json" {
			e := json.NewEncoder(stdout)
			e.SetIndent("", "  ")
			return e.Encode(status)
		}
		printStatus(stdout, status)
		return nil
	})
}

func printStatus(w io.Writer, s secret.Status) {
	fmt.Fprintf(w, "signing key    %s\n", s.Signing)
	if len(s.Accepted) > 0 {
		fmt.Fprintf(w, "also accepted  %s\n", strings.Join(s.Accepted, ", "))
	}
	if s.Exposed {
		fmt.Fprintln(w, "others than the fleet could read a key that is accepted: rotate the secret, and drop the old key with gateway secret drop --now")
	}
	c := s.Rotation
	if c == nil {
		fmt.Fprintln(w, "no rotation is under way")
		return
	}
	fmt.Fprintf(w, "rotation       to %s, begun %s by %s\n", c.NewKey, c.Begun.Format(time.RFC3339), orDash(c.By))
	fmt.Fprintf(w, "phase          %s\n", c.Phase)
	if c.DropAt != nil {
		fmt.Fprintf(w, "dropped at     %s\n", c.DropAt.Format(time.RFC3339))
	}
	for _, g := range c.WaitsFor {
		fmt.Fprintf(w, "waits for      %s\n", g)
	}
	if len(c.Some) > 0 {
		fmt.Fprintf(w, "old leases     %d, such as %s\n", c.Leases, offline.Few(c.Some))
	}
	if c.Gateways == 0 {
		fmt.Fprintln(w, "no gateway is registered: it goes on when one runs")
	}
}

// dropCommand is the command line of gateway secret drop.
type dropCommand struct {
	Now bool `name:"now" env:"-" help:"Say that what is lost may be lost. Required."`
}

// Help is what gateway secret drop --help adds.
func (dropCommand) Help() string {
	return `A rotation drops its old key by itself, and loses nothing. When others have read the old key, drop it at once, as soon as every gateway
signs with the new one:

  gateway secret rotate --zk zk1:2181,zk2:2181,zk3:2181/apps --zk-auth-file FILE
  gateway secret drop --now --zk zk1:2181,zk2:2181,zk3:2181/apps --zk-auth-file FILE

What is lost: the tokens of leases from before the rotation are refused (403), so those leases cannot be renewed or released, and end at
their TTLs. An acquire that is repeated with its Idempotency-Key is answered with the lease's new token. Messages to the notify_url of
such a lease are signed with another secret than its client was given. Dashboard sessions from before end.

While the rotation is still accepting or signing, gateways that it waits for go on with the old key until they have read the drop:
requests between them and the others fail, and so do the tokens that they give out.
` + whereTheSecretIs
}

func (d *dropCommand) run(ctx context.Context, c *config, stderr io.Writer) error {
	if !d.Now {
		return usage("gateway secret status shows when the old key is dropped; to drop it before, with a loss, add --now", "an old key is dropped by itself")
	}
	return c.secrets(ctx, stderr, readByAll, func(ctx context.Context, k secretKeeper) error {
		before, err := k.status(ctx)
		if err != nil {
			return err
		}
		if err := k.drop(ctx); err != nil {
			return err
		}
		fmt.Fprintf(stderr, "old keys are refused: %s\n", strings.Join(oldKeys(before), ", "))
		if r := before.Rotation; r != nil && r.Phase != layout.Dropping {
			fmt.Fprintf(stderr, "lost: the tokens of leases from before the rotation%s; the leases end at their TTLs\n", counted(r))
			if r.Phase != layout.Retiring && len(r.WaitsFor) > 0 {
				fmt.Fprintf(stderr, "not every gateway has followed the rotation: %s\n", gatewaysOf(r))
			}
		}
		return nil
	})
}

// counted is how many leases need the old key, where gateways have counted them.
func counted(r *secret.Course) string {
	if r.Phase != layout.Retiring || len(r.Some) == 0 {
		return ""
	}
	return " (" + plural(r.Leases, "lease") + ", such as " + offline.Few(r.Some) + ")"
}

// oldKeys are the ids of all keys but the one that a rotation leads to.
func oldKeys(s secret.Status) (ids []string) {
	for _, id := range append([]string{s.Signing}, s.Accepted...) {
		if s.Rotation == nil || id != s.Rotation.NewKey {
			ids = append(ids, id)
		}
	}
	return ids
}
