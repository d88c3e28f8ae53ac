// Command godriver runs guarded work with the Go client as internal/test/clientsuite tells it on standard input, and tells on
// standard output what becomes of it. The package of the suite describes the protocol.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lockkeeper/client"
)

// command is one line of standard input.
type command struct {
	ID int    `json:"id"`
	Do string `json:"do"`

	URL       string `json:"url"`
	Token     string `json:"token"`
	TokenFile string `json:"token_file"`

	Locks []struct {
		Lock, NS, Mode string
		Permits, Limit int
	} `json:"locks"`
	TTL       int64  `json:"ttl_ms"`
	Wait      *int64 `json:"wait_ms"`
	Margin    *int64 `json:"margin_ms"`
	LockDelay *int64 `json:"lock_delay_ms"`
	Owner     string `json:"owner"`
	Metadata  string `json:"metadata"`
	Reason    string `json:"reason"`
	AtLeast   *int64 `json:"at_least_ms"`
	OncePer   *int64 `json:"once_per_ms"`
	Period    string `json:"period"`
	DoneOn    string `json:"done_on"`
	Work      struct {
		Log  string `json:"log"`
		Step int64  `json:"step_ms"`
		For  *int64 `json:"for_ms"`
	} `json:"work"`
}

// run is one call of Do.
type run struct {
	command
	cancel context.CancelFunc
	finish chan error     // receives what the work returns
	done   map[string]any // what the client says of work that is done already
}

var out struct {
	sync.Mutex
	encoder *json.Encoder
}

func say(id int, event string, more map[string]any) {
	line := map[string]any{"id": id, "event": event}
	for k, v := range more {
		line[k] = v
	}
	out.Lock()
	defer out.Unlock()
	_ = out.encoder.Encode(line) // without a reader the line is of no use
}

func main() {
	out.encoder = json.NewEncoder(os.Stdout)
	fromEnv := sync.OnceValues(client.FromEnv)
	runs := map[int]*run{}
	var running sync.WaitGroup
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		r := runs[c.ID]
		switch {
		case c.Do == "lock":
			ctx, cancel := context.WithCancel(context.Background())
			r = &run{command: c, cancel: cancel, finish: make(chan error, 1)}
			runs[c.ID] = r
			running.Go(func() { r.lock(ctx, fromEnv) })
		case r == nil:
		case c.Do == "cancel":
			r.cancel()
		case c.Do == "finish":
			r.end(nil)
		case c.Do == "fail":
			r.end(errWork)
		}
	}
	for _, r := range runs {
		r.cancel()
	}
	running.Wait()
}

var errWork = errors.New("boom")

func (r *run) end(err error) {
	select {
	case r.finish <- err:
	default:
	}
}

func (r *run) lock(ctx context.Context, fromEnv func() (*client.Client, error)) {
	c, err := fromEnv, error(nil)
	if r.URL != "" {
		c = func() (*client.Client, error) {
			return client.New(client.Config{URLs: strings.Split(r.URL, ","), Token: r.Token, TokenFile: r.TokenFile})
		}
	}
	if k, wrong := c(); wrong != nil {
		r.failed("Invalid", map[string]any{"detail": wrong.Error()})
		return
	} else if first := r.Locks[0]; len(r.Locks) == 1 {
		err = k.Do(ctx, first.Lock, r.work, append(r.options(), one(first.NS, first.Mode, first.Permits, first.Limit)...)...)
	} else {
		var locks []client.Lock
		for _, l := range r.Locks {
			locks = append(locks, client.Lock{Name: l.Lock, Namespace: l.NS, Shared: l.Mode == "shared", Permits: l.Permits, Limit: l.Limit})
		}
		err = k.DoAll(ctx, locks, r.work, r.options()...)
	}
	r.ended(ctx, err)
}

func one(ns, mode string, permits, limit int) (opts []client.Option) {
	if ns != "" {
		opts = append(opts, client.Namespace(ns))
	}
	switch mode {
	case "shared":
		opts = append(opts, client.Shared())
	case "semaphore":
		opts = append(opts, client.Permits(permits, limit))
	}
	return opts
}

func (r *run) options() []client.Option {
	opts := []client.Option{
		client.TTL(ms(r.TTL)), client.Owner(r.Owner),
		client.OnQueued(func(p int) { say(r.ID, "queued", map[string]any{"position": p}) }),
		client.OnRevoke(func(asked client.Revocation) {
			say(r.ID, "revoke", map[string]any{"reason": asked.Reason, "by": asked.By})
		}),
	}
	if r.Metadata != "" {
		opts = append(opts, client.Metadata(r.Metadata))
	}
	if r.Wait != nil {
		opts = append(opts, client.Wait(ms(*r.Wait)))
	}
	if r.Margin != nil {
		opts = append(opts, client.Margin(ms(*r.Margin)))
	}
	if r.LockDelay != nil {
		opts = append(opts, client.LockDelay(ms(*r.LockDelay)))
	}
	if r.Reason != "" {
		opts = append(opts, client.Reason(r.Reason))
	}
	if r.AtLeast != nil {
		opts = append(opts, client.AtLeast(ms(*r.AtLeast)))
	}
	if r.OncePer != nil {
		opts = append(opts, client.OncePer(ms(*r.OncePer)), client.OnDone(func(d client.Done) {
			r.done = map[string]any{"already": true, "period": d.Period, "by": d.By, "done_at": d.At.Format(time.RFC3339Nano)}
		}))
	}
	if r.Period != "" {
		opts = append(opts, client.Period(r.Period))
	}
	if r.DoneOn != "" {
		opts = append(opts, client.DoneOnRelease())
	}
	return opts
}

// work writes its steps to a file until it is over, or its context is.
func (r *run) work(ctx context.Context, lease *client.Lease) error {
	write := func(string) {}
	if r.Work.Log != "" {
		file, err := os.OpenFile(r.Work.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		write = func(what string) {
			fmt.Fprintf(file, "%d %d %d %d %s\n", now(), os.Getpid(), r.ID, lease.Fence(), what)
		}
	}
	write("start")
	say(r.ID, "started", map[string]any{"fence": lease.Fence(), "lease_id": lease.ID(), "t": now()})
	defer func() {
		write("end")
		say(r.ID, "stopped", map[string]any{"t": now()})
	}()
	var over <-chan time.Time
	if r.Work.For != nil {
		over = time.After(ms(*r.Work.For))
	}
	step := time.NewTicker(ms(cmp.Or(r.Work.Step, 10)))
	defer step.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-r.finish:
			return err
		case <-over:
			return nil
		case <-step.C:
		}
		if !lease.Held() {
			return context.Cause(ctx)
		}
		write("step")
	}
}

func (r *run) failed(kind string, more map[string]any) {
	more["error"] = kind
	say(r.ID, "failed", more)
}

func (r *run) ended(ctx context.Context, err error) {
	var lost *client.LeaseLost
	var taken *client.NotAcquired
	var problem *client.Problem
	switch {
	case err == nil:
		say(r.ID, "done", r.done)
	case errors.As(err, &lost):
		r.failed("LeaseLost", map[string]any{"lease_id": lost.LeaseID, "reason": lost.Reason, "by": lost.By, "detail": lost.Detail})
	case errors.As(err, &taken):
		var holders []map[string]any
		for _, h := range taken.Holders {
			holders = append(holders, map[string]any{"owner": h.Owner, "lease_id": h.LeaseID, "fencing_token": h.FencingToken})
		}
		r.failed("NotAcquired", map[string]any{"lock": taken.Lock, "holders": holders, "queue_length": taken.QueueLength})
	case errors.Is(err, errWork):
		r.failed("Work", map[string]any{"detail": err.Error()})
	case ctx.Err() != nil:
		r.failed("Cancelled", map[string]any{})
	case errors.As(err, &problem):
		r.failed("Problem", map[string]any{"status": problem.Status, "code": problem.Code, "field": problem.Field, "detail": problem.Detail})
	case strings.Contains(err.Error(), "margin"):
		r.failed("Invalid", map[string]any{"detail": err.Error()})
	default:
		r.failed("Other", map[string]any{"detail": err.Error()})
	}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// now is the clock that the workers of all processes share.
func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // no error is documented for this clock
	return t.Nano()
}
