package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"lockkeeper/client"
)

// Reservations: a person takes a lock until a time. The lease token stays in a file of the person's own, so that later commands
// name the lock alone.

// endArg says when a reservation ends.
type endArg struct {
	For   time.Duration `name:"for" xor:"end" placeholder:"TIME" help:"For so long, such as 2h; up to 744h (31 days)."`
	Until string        `name:"until" xor:"end" placeholder:"TIME" help:"Until 18:00, '2026-11-24 09:00' (both local), or 2026-11-23T18:00:00Z. A time of day that has passed is that of tomorrow."`
}

// into puts the end into a request.
func (e *endArg) into(body map[string]any, now time.Time) error {
	switch {
	case e.Until != "":
		until, err := parseUntil(e.Until, now)
		if err != nil {
			return err
		}
		body["until"] = until.Format(time.RFC3339)
	case e.For > 0:
		body["for"] = e.For.String()
	default:
		return usagef("for example --for 2h, or --until 18:00", "--for or --until must say when the reservation ends")
	}
	return nil
}

func parseUntil(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if at, err := time.ParseInLocation("2006-01-02 15:04", text, now.Location()); err == nil {
		return at, nil
	}
	at, err := time.ParseInLocation("15:04", text, now.Location())
	if err != nil {
		return at, usagef("for example --until 18:00, --until '2026-11-24 09:00', or --until 2026-11-23T18:00:00Z", "--until must be a time, and is %q", text)
	}
	at = time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), 0, 0, now.Location())
	if !at.After(now) {
		at = time.Date(now.Year(), now.Month(), now.Day()+1, at.Hour(), at.Minute(), 0, 0, now.Location())
	}
	return at, nil
}

// reservationFile is where the token of the user's reservation of a lock is.
func (l *lockArg) reservationFile() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", usagef("set XDG_STATE_HOME, or use lockctl acquire --lease-token-file", "there is no directory for the lease token: %w", err)
		}
		dir = filepath.Join(home, ".local", "state")
	}
	name := url.PathEscape(l.Name)
	if l.NS != "" && l.NS != "default" {
		name = url.PathEscape(l.NS) + "," + name // no namespace has a comma
	}
	return filepath.Join(dir, "lockctl", "reservations", name), nil
}

// reserved reads the token of the user's reservation; "" without one.
func (l *lockArg) reserved() (token, file string, err error) {
	if file, err = l.reservationFile(); err != nil {
		return "", "", err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", file, nil
	}
	return strings.TrimSpace(string(text)), file, err
}

type reserveCommand struct {
	lockArg
	endArg
	Reason string `name:"reason" placeholder:"TEXT" help:"What it is for. Everyone who looks at the lock sees it."`
	Owner  string `name:"owner" placeholder:"TEXT" help:"The name that others should ask; your user name unless given."`
	Queue  bool   `name:"queue" help:"Stand in the queue if the lock is not free. The place is kept without this command."`
}

// Help is what --help adds.
func (*reserveCommand) Help() string {
	return `No heartbeat is needed: the lock is yours until the time is over, whatever becomes of this computer.

  lockctl reserve staging --for 2h --reason 'load test'
  lockctl extend staging --until 18:00
  lockctl release staging

The lease token is kept in ~/.local/state/lockctl/reservations (or in XDG_STATE_HOME), where only you can read it. On another
computer an administrator can end the reservation: lockctl break.`
}

func (r *reserveCommand) Run(ctx context.Context, a *app) error {
	body := map[string]any{"owner": r.Owner, "async": r.Queue}
	if r.Owner == "" {
		me, err := user.Current()
		if err != nil {
			return usagef("--owner NAME", "your user name is not known: %w", err)
		}
		body["owner"] = me.Username
	}
	if r.Reason != "" {
		body["reason"] = r.Reason
	}
	if err := r.into(body, time.Now()); err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	file, err := r.open(ctx, a, c)
	if err != nil {
		return err
	}
	request := client.Request{Method: http.MethodPost, Path: r.path("/leases"), Body: body, Header: http.Header{"Idempotency-Key": {rand.Text()}}}
	var answer json.RawMessage
	var lease reservationView
	if err = a.callWith(ctx, c, request, &answer); err == nil {
		err = json.Unmarshal(answer, &lease)
	} else if p := new(client.Problem); !errors.As(err, &p) || p.Status >= http.StatusInternalServerError {
		leaveUnheard(ctx, c, request)
	}
	if err == nil {
		_, err = fmt.Fprintln(file, lease.Token)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(file.Name())
		return err
	}
	return a.showReservation(r.Name, answer, &lease)
}

// leaveWithin is how long lockctl tries to end a lease whose token it was not told.
const leaveWithin = 2 * time.Second

// leaveUnheard ends what an acquire without an answer may have taken. A repeat with its key tells the token, which no other command
// knows: the lock would be taken until the reservation is over.
func leaveUnheard(ctx context.Context, c *client.Client, acquire client.Request) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer stop()
	var lease reservationView
	if c.Call(ctx, acquire, &lease) == nil && lease.Token != "" {
		_ = c.Call(ctx, client.Request{Method: http.MethodDelete, Path: "/v1/leases/self", LeaseToken: lease.Token}, nil)
	}
}

// open makes the file before there is a lease that would be lost without it.
func (r *reserveCommand) open(ctx context.Context, a *app, c *client.Client) (*os.File, error) {
	token, name, err := r.reserved()
	if err != nil {
		return nil, err
	}
	if token != "" {
		var p *client.Problem
		var known leaseView // that a lease has ended is shown for a while
		err := a.callWith(ctx, c, client.Request{Path: "/v1/leases/self", LeaseToken: token}, &known)
		if err == nil && known.State != "ended" {
			return nil, usagef("lockctl extend "+r.Name+" moves its end, and lockctl release "+r.Name+" ends it", "you have a reservation of %s already", r.Name)
		} else if err != nil && (!errors.As(err, &p) || p.Code != "lease_ended" && p.Code != "lease_not_found" && p.Code != "lease_token_wrong") {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// reservationView is what lockctl reads of a reservation.
type reservationView struct {
	leaseView
	Token    string `json:"token"`
	Position int    `json:"position"`
	Reason   string `json:"acquire_reason"`
}

// showReservation never prints the token: the file has it.
func (a *app) showReservation(lock string, answer json.RawMessage, lease *reservationView) error {
	if !a.tables() {
		raw := map[string]json.RawMessage{}
		if err := json.Unmarshal(answer, &raw); err != nil {
			return fmt.Errorf("the answer cannot be read: %w", err)
		}
		delete(raw, "token")
		return a.printJSON(raw)
	}
	state := lease.State
	if lease.Position > 0 {
		state = fmt.Sprintf("waiting, place %d", lease.Position)
	}
	return a.table([]string{"LOCK", "STATE", "FOR", "REASON"}, [][]string{{lock, state, span(lease.TTL), visible(lease.Reason)}})
}

type extendCommand struct {
	lockArg
	endArg
}

// Help is what --help adds.
func (*extendCommand) Help() string {
	return `The end moves to so long from now, or to that time: also to an earlier one.

  lockctl extend staging --for 1h`
}

func (e *extendCommand) Run(ctx context.Context, a *app) error {
	body := map[string]any{}
	if err := e.into(body, time.Now()); err != nil {
		return err
	}
	token, _, err := e.reserved()
	if err != nil {
		return err
	}
	if token == "" {
		return usagef("lockctl reserve "+e.Name+" makes one", "you have no reservation of %s on this computer", e.Name)
	}
	var answer json.RawMessage
	if err := ended(a.call(ctx, client.Request{Method: http.MethodPatch, Path: "/v1/leases/self", LeaseToken: token, Body: body}, &answer)); err != nil {
		return err
	}
	var lease reservationView
	if err := json.Unmarshal(answer, &lease); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	return a.showReservation(e.Name, answer, &lease)
}
