package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"lockkeeper/client"
)

// leaseToken is how the commands for a lease are given its token. It is no argument: other users see those.
type leaseToken struct {
	File string `name:"lease-token-file" placeholder:"FILE" help:"File with the lease token, or - for standard input. Without it the variable LEASE_TOKEN."`
}

func (l *leaseToken) read(a *app) (string, error) {
	token := os.Getenv("LEASE_TOKEN")
	if l.File != "" {
		from := a.stdin
		if l.File != "-" {
			file, err := os.Open(l.File)
			if err != nil {
				return "", usagef("lockctl acquire --lease-token-file makes it", "--lease-token-file: %w", err)
			}
			defer file.Close()
			from = file
		}
		text, err := io.ReadAll(io.LimitReader(from, 4096))
		if err != nil {
			return "", fmt.Errorf("--lease-token-file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if token == "" {
		return "", usagef("--lease-token-file names its file; the variable LEASE_TOKEN has to be exported, or stand before the command", "a lease token must be given")
	}
	if !strings.HasPrefix(token, "lk1.") || strings.ContainsAny(token, " \n\t") {
		return "", usagef("it begins with lk1. and is one word", "the lease token must be what an acquire answered")
	}
	return token, nil
}

// ended makes a lease that is over an error of its own.
func ended(err error) error {
	var p *client.Problem
	if errors.As(err, &p) && p.Code == "lease_ended" {
		return &failure{code: exitLost, err: errors.New(p.Detail), hint: "acquire the lock again, and stop what it protects first"}
	}
	return err
}

type releaseCommand struct {
	leaseToken
	Name string `arg:"" optional:"" completion:"lockctl complete-locks --timeout 1s" help:"The lock of your reservation, in place of a token."`
	NS   string `name:"ns" placeholder:"NAMESPACE" help:"The namespace of that lock; default unless given."`
	Done bool   `name:"done" default:"true" negatable:"" help:"Whether the work is done, of a lease with --done-on release: --no-done if it has failed."`
}

// Help is what --help adds.
func (*releaseCommand) Help() string {
	return `Releasing a lease again is harmless. A lease that ended in another way is an error, with exit code 76.

  lockctl release --lease-token-file report.lease
  LEASE_TOKEN=$LEASE_TOKEN lockctl release

The file is removed, too. A reservation is released by the name of its lock:

  lockctl release staging`
}

func (r *releaseCommand) Run(ctx context.Context, a *app) error {
	token, err := r.token(a)
	if err != nil {
		return err
	}
	path := "/v1/leases/self"
	if !r.Done {
		path += "?done=false"
	}
	err = ended(a.call(ctx, client.Request{Method: "DELETE", Path: path, LeaseToken: token}, nil))
	var f *failure
	if r.File != "" && r.File != "-" && (err == nil || errors.As(err, &f) && f.code == exitLost) {
		_ = os.Remove(r.File) // it is of no use any more
	}
	return err
}

// token reads the token, or that of the reservation that is named.
func (r *releaseCommand) token(a *app) (string, error) {
	if r.Name == "" {
		return r.read(a)
	}
	if r.File != "" {
		return "", usagef("leave one of them out", "the name of a lock, or --lease-token-file, must say what is released, not both")
	}
	lock := lockArg{Name: r.Name, NS: r.NS}
	token, file, err := lock.reserved()
	if err == nil && token == "" {
		err = usagef("lockctl break "+r.Name+" ends what holds it", "you have no reservation of %s on this computer", r.Name)
	}
	r.File = file
	return token, err
}

type heartbeatCommand struct {
	leaseToken
	TTL time.Duration `name:"ttl" placeholder:"TIME" help:"A new time to live; as it was unless given."`
}

// Help is what --help adds.
func (*heartbeatCommand) Help() string {
	return `The lease's time begins anew with the heartbeat. One that has ended is an error, with exit code 76: stop what the lock protects.`
}

func (h *heartbeatCommand) Run(ctx context.Context, a *app) error {
	token, err := h.read(a)
	if err != nil {
		return err
	}
	r := client.Request{Method: "POST", Path: "/v1/leases/self/heartbeat", LeaseToken: token}
	if h.TTL != 0 {
		r.Body = map[string]string{"ttl": h.TTL.String()}
	}
	var answer json.RawMessage
	if err := ended(a.call(ctx, r, &answer)); err != nil {
		return err
	}
	if !a.tables() {
		return a.printJSON(answer)
	}
	var beat struct {
		leaseView
		Waiters         int `json:"waiters"`
		RevokeRequested *struct {
			Reason string `json:"reason"`
		} `json:"revoke_requested"`
	}
	if err := json.Unmarshal(answer, &beat); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	note := ""
	if beat.RevokeRequested != nil {
		note = "asked to release it: " + beat.RevokeRequested.Reason
	}
	return a.table([]string{"LEASE", "STATE", "TTL", "WAITING", "NOTES"}, [][]string{{beat.ID, beat.State, span(beat.TTL), fmt.Sprint(beat.Waiters), note}})
}

type keepCommand struct {
	leaseToken
	Release bool `name:"release" help:"Release the lease when the command is stopped by a signal."`
}

// Help is what --help adds.
func (*keepCommand) Help() string {
	return `Sends heartbeats until it is stopped by a signal (exit code 0), or the lease is lost (76), of which it learns within milliseconds. It
ends a second before the lease can pass when no gateway answers.

  lockctl keep --lease-token-file report.lease & keeper=$!
  lockctl run does this and stops the command in time: prefer it.`
}

func (k *keepCommand) Run(ctx context.Context, a *app) error {
	token, err := k.read(a)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	lease, err := c.Attach(ctx, token, client.OnRevoke(func(r client.Revocation) {
		by := ""
		if r.By != "" {
			by = " by " + visible(r.By)
		}
		fmt.Fprintf(a.stderr, "asked%s to release the lease: %s\n", by, visible(r.Reason))
	}))
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-lease.Context().Done():
		return lease.Err()
	}
	if k.Release {
		return lease.Release(ctx)
	}
	_, err = lease.Detach()
	return err
}
