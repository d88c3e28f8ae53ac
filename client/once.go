package client

import (
	"context"
	"errors"
	"time"
)

// Done says that the work of a period was done by an earlier lease (see OncePer), so that this client did not take the lock. Acquire
// and its like return a *Done in place of a lease. Do and its like do not call the work, and return nil: see OnDone.
type Done struct {
	Lock   string
	Period string    // its name: as Period gave it, or as the gateway derives it from the time
	By     string    // the owner of the lease that did the work
	At     time.Time // when the period became done
}

func (d *Done) Error() string {
	text := "lockkeeper: " + d.Lock + " is done in this period"
	if d.By != "" {
		text += " by " + d.By
	}
	return text + " at " + d.At.Format(time.RFC3339)
}

// OncePer lets the lock be taken once in each period of this length, by all clients together: see Done. The grant makes the period
// done, so that work that fails does not run again; with DoneOnRelease success does.
func OncePer(d time.Duration) Option { return func(a *acquire) { a.body.OncePer = millis(d) } }

// Period names the period of OncePer, such as 2026-11-22 for the day that a job is about. Without it the gateway derives it from the
// time.
func Period(name string) Option { return func(a *acquire) { a.body.Period = name } }

// DoneOnRelease makes the period of OncePer done with the release of the lease, not with its grant: another client runs the work
// again when this one dies, or when its work fails. Do tells the gateway which it was; other code calls Release or ReleaseUndone.
func DoneOnRelease() Option { return func(a *acquire) { a.body.DoneOn = onRelease } }

const onRelease = "release"

// OnDone is called when the lock was not taken because the work of the period is done.
func OnDone(f func(Done)) Option { return func(a *acquire) { a.onDone = f } }

// AtLeast keeps the lock from others for so long from the grant, whatever becomes of its holder: up to 7 days.
func AtLeast(d time.Duration) Option { return func(a *acquire) { a.body.AtLeast = millis(d) } }

// unlessDone is the error of an acquire that did not run the work, unless that is done.
func unlessDone(err error) error {
	if errors.As(err, new(*Done)) {
		return nil
	}
	return err
}

// done is what an answer says that gives no lease because the work is done.
func (a *acquire) done(answer leaseAnswer) *Done {
	d := &Done{Lock: a.name, Period: answer.Period, By: answer.By, At: answer.At}
	if a.onDone != nil {
		a.onDone(*d)
	}
	return d
}

// ReleaseUndone is Release of a lease with DoneOnRelease whose work has failed: the period is not done.
func (l *Lease) ReleaseUndone(ctx context.Context) error { return l.release(ctx, false) }

// leaving is the request that gives a lease back, or a place in the queue.
func leaving(token string, done bool) request {
	r := request{method: "DELETE", path: "/v1/leases/self", lease: token, timeout: leaveWithin}
	if !done {
		r.path += "?done=false"
	}
	return r
}
