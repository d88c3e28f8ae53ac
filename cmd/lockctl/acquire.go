package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"lockkeeper/client"
)

// acquireCommand is lockctl acquire.
type acquireCommand struct {
	Names          []string      `arg:"" name:"name" completion:"lockctl complete-locks --timeout 1s" help:"The lock; several are taken at once or not at all."`
	NS             string        `name:"ns" placeholder:"NAMESPACE" help:"The namespace; default unless given."`
	TTL            time.Duration `name:"ttl" default:"30s" placeholder:"30s" help:"How long the lease lives without heartbeats: 1s to 24h."`
	Wait           string        `name:"wait" short:"w" default:"0s" placeholder:"0s" help:"How long to wait in the queue, such as 10m, or forever. Without it the lock is taken if it is free."`
	Shared         bool          `name:"shared" short:"s" xor:"mode" help:"Take the lock together with other readers."`
	Permits        int           `name:"permits" xor:"mode" placeholder:"N" help:"Take N of the lock's permits."`
	Limit          int           `name:"limit" placeholder:"N" help:"How many permits the lock has, with --permits; its own unless given."`
	Owner          string        `name:"owner" placeholder:"TEXT" help:"A label for people who look at the lock."`
	Metadata       string        `name:"metadata" placeholder:"TEXT" help:"A text that every client can read at the lock."`
	LockDelay      time.Duration `name:"lock-delay" placeholder:"TIME" help:"Keep the lock free for so long after the lease has expired."`
	LeaseTokenFile string        `name:"lease-token-file" placeholder:"FILE" help:"Write the lease token to this file, which only you can read."`
	onceFlags
}

// Help is what --help adds.
func (*acquireCommand) Help() string {
	return `Nothing keeps the lease when the command is over: send heartbeats, or use lockctl run, which does all of it.

  lockctl acquire report --ttl 5m --lease-token-file report.lease || exit 75
  lockctl release --lease-token-file report.lease

The lease token is the key to the lease. It goes into the file; without one, JSON and -o env have it, and a table has not. With -o env
it is a variable of the shell, which other commands do not see:

  eval "$(lockctl acquire report --ttl 5m -o env || echo false)" || exit 75
  LEASE_TOKEN=$LEASE_TOKEN lockctl release

With --once-per there is no lease where the period is done: LEASE_STATE is done, and no token's file is made.`
}

func (*acquireCommand) printsEnv() {}

func (q *acquireCommand) Run(ctx context.Context, a *app) error {
	err := q.acquire(ctx, a)
	if done := (*client.Done)(nil); errors.As(err, &done) {
		return errors.Join(q.printDone(a, done), q.ended(err, nil))
	}
	if err != nil && a.Output == "env" {
		// The last lease's variables must not be taken for this one's.
		fmt.Fprint(a.stdout, "LEASE_ID=\nLEASE_TOKEN=\nFENCING_TOKEN=\nLEASE_STATE=\nLEASE_TTL_MS=\nfalse\n")
	}
	return err
}

func (q *acquireCommand) acquire(ctx context.Context, a *app) error {
	options, err := q.options(a)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	file, err := q.tokenFile()
	if err != nil {
		return err
	}
	asked := time.Now()
	lease, err := q.take(ctx, c, options)
	if err != nil {
		if file != nil {
			_ = file.Close()
			_ = os.Remove(q.LeaseTokenFile)
		}
		return err
	}
	waited := time.Since(asked)
	token, err := lease.Detach()
	if err != nil {
		return err
	}
	if err = q.print(ctx, a, c, token, file, waited); err != nil {
		// Without its token no process can keep or release the lease.
		_ = a.callWith(context.WithoutCancel(ctx), c, client.Request{Method: "DELETE", Path: "/v1/leases/self", LeaseToken: token}, nil)
	}
	return err
}

func (q *acquireCommand) options(a *app) ([]client.Option, error) {
	if err := q.onceFlags.check(); err != nil {
		return nil, err
	}
	options := append(q.onceFlags.options(), client.TTL(q.TTL))
	if q.Wait != "forever" {
		wait, err := time.ParseDuration(q.Wait)
		if err != nil || wait < 0 {
			return nil, usagef("for example --wait 10m, or --wait forever", "--wait must be a span of time, or forever, and is %q", q.Wait)
		}
		options = append(options, client.Wait(wait))
	}
	if q.Limit != 0 && q.Permits == 0 {
		return nil, usagef("for example --permits 1 --limit 3", "--limit must stand beside --permits")
	}
	if q.Permits < 0 || q.Limit < 0 {
		return nil, usagef("", "--permits and --limit must not be negative")
	}
	if q.Owner != "" {
		options = append(options, client.Owner(q.Owner))
	}
	if q.Metadata != "" {
		options = append(options, client.Metadata(q.Metadata))
	}
	if q.LockDelay != 0 {
		options = append(options, client.LockDelay(q.LockDelay))
	}
	if isTerminal(a.stderr) {
		options = append(options, client.OnQueued(func(position int) { fmt.Fprintf(a.stderr, "waiting, place %d in the queue\n", position) }))
	}
	return options, nil
}

func (q *acquireCommand) take(ctx context.Context, c *client.Client, options []client.Option) (*client.Lease, error) {
	if len(q.Names) == 1 {
		if q.NS != "" {
			options = append(options, client.Namespace(q.NS))
		}
		if q.Shared {
			options = append(options, client.Shared())
		}
		if q.Permits > 0 {
			options = append(options, client.Permits(q.Permits, q.Limit))
		}
		return c.Acquire(ctx, q.Names[0], options...)
	}
	locks := make([]client.Lock, len(q.Names))
	for i, name := range q.Names {
		locks[i] = client.Lock{Name: name, Namespace: q.NS, Shared: q.Shared, Permits: q.Permits, Limit: q.Limit}
	}
	return c.AcquireAll(ctx, locks, options...)
}

// tokenFile opens the file before there is a lease that would be lost without it.
func (q *acquireCommand) tokenFile() (*os.File, error) {
	if q.LeaseTokenFile == "" {
		return nil, nil
	}
	file, err := os.OpenFile(q.LeaseTokenFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, usagef("lockctl release --lease-token-file "+q.LeaseTokenFile+" releases its lease; then remove it", "--lease-token-file must name a new file, and %s is there already", q.LeaseTokenFile)
	}
	if err != nil {
		return nil, usagef("", "--lease-token-file: %w", err)
	}
	return file, nil
}

func (q *acquireCommand) print(ctx context.Context, a *app, c *client.Client, token string, file *os.File, waited time.Duration) error {
	if file != nil {
		_, err := fmt.Fprintln(file, token)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("--lease-token-file: %w", err)
		}
	}
	var lease leaseView
	raw := map[string]json.RawMessage{}
	var text json.RawMessage
	if err := a.callWith(ctx, c, client.Request{Path: "/v1/leases/self", LeaseToken: token}, &text); err != nil {
		return err
	}
	if err := errors.Join(json.Unmarshal(text, &lease), json.Unmarshal(text, &raw)); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	if lease.Warning != "" && a.Output != "json" {
		fmt.Fprintf(a.stderr, "warning: %s\n", visible(lease.Warning))
	}
	switch {
	case a.Output == "env":
		if file != nil {
			token = ""
		}
		_, err := fmt.Fprintf(a.stdout, "LEASE_ID=%s\nLEASE_TOKEN=%s\nFENCING_TOKEN=%d\nLEASE_STATE=%s\nLEASE_TTL_MS=%d\n", lease.ID, token, lease.Fence, lease.State, lease.TTL)
		return err
	case !a.tables():
		if file == nil {
			raw["token"], _ = json.Marshal(token)
		}
		return a.printJSON(raw)
	}
	if err := a.table([]string{"LEASE", "FENCE", "TTL", "WAITED"}, [][]string{{lease.ID, strconv.FormatUint(lease.Fence, 10), span(lease.TTL), span(waited.Milliseconds())}}); err != nil {
		return err
	}
	if file == nil {
		fmt.Fprintf(a.stderr, "hint: the lease token was not shown: give -o env, -o json or --lease-token-file. The lease ends by itself in %s\n", span(lease.TTL))
	}
	return nil
}

// printDone prints what there is in place of a lease.
func (q *acquireCommand) printDone(a *app, done *client.Done) error {
	switch {
	case a.Output == "env":
		_, err := fmt.Fprintf(a.stdout, "LEASE_ID=\nLEASE_TOKEN=\nFENCING_TOKEN=\nLEASE_STATE=done\nLEASE_TTL_MS=\n")
		return err
	case a.tables():
		_, err := fmt.Fprintln(a.stdout, visible(doneText(done)))
		return err
	}
	return a.printJSON(map[string]any{"done": true, "lock": done.Lock, "period": done.Period, "by": done.By, "at": done.At})
}

// leaseView is what lockctl reads of a lease.
type leaseView struct {
	ID      string `json:"lease_id"`
	State   string `json:"state"`
	Fence   uint64 `json:"fencing_token"`
	TTL     int64  `json:"ttl_ms"`
	Warning string `json:"warning"`
}
