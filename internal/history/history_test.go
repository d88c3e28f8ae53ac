package history

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

// bench is a hub with a history that follows it, in virtual time.
type rig struct {
	t       *testing.T
	hub     *events.Hub
	history *History
	present atomic.Pointer[[]*Item]
	stop    func()
}

// start starts a history; what set changes holds for it.
func start(t *testing.T, set func(*Options)) *rig { return startFor(t, set, 5*time.Second) }

// startFor lets so much time pass after the start.
func startFor(t *testing.T, set func(*Options), first time.Duration) *rig {
	r := &rig{t: t, hub: events.New(events.Options{})}
	r.present.Store(&[]*Item{})
	o := Options{Hub: r.hub, Now: r}
	if set != nil {
		set(&o)
	}
	r.history = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	go func() { _ = r.hub.Run(ctx); done <- struct{}{} }()
	go func() { assert.NoError(t, r.history.Run(ctx)); done <- struct{}{} }()
	r.stop = func() {
		if cancel != nil {
			cancel()
			cancel = nil
			<-done
			<-done
		}
	}
	t.Cleanup(r.stop)
	r.pass(first)
	return r
}

// Present implements Now.
func (r *rig) Present(context.Context) ([]*Item, error) { return *r.present.Load(), nil }

// Holders implements Now.
func (r *rig) Holders(context.Context, string, string) ([]*Item, error) {
	return *r.present.Load(), nil
}

// holding are the present holders.
type holding []*Item

func (h holding) Present(context.Context) ([]*Item, error)                 { return h, nil }
func (h holding) Holders(context.Context, string, string) ([]*Item, error) { return h, nil }

// pass lets time pass, so that the store has what was published before.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// granted publishes a grant, and ended an end.
func (r *rig) granted(lock, lease, owner string, waited time.Duration) {
	r.hub.Publish(&events.Event{Type: events.LeaseGranted, NS: "default", Lock: lock, LeaseID: lease, Owner: owner, Mode: "exclusive", FencingToken: 7, Gateway: "gw1",
		Principal: "token:ci", Purpose: "release 5", Here: true, Queued: time.Now().Add(-waited).UnixMilli()})
}

func (r *rig) ended(lock, lease string, of events.Type, reason locks.Reason) {
	e := &events.Event{Type: of, NS: "default", Lock: lock, LeaseID: lease, Mode: "exclusive", FencingToken: 7, Reason: string(reason), Purpose: "release 5", Gateway: "gw1"}
	if of == events.LeaseRevoked {
		e.By, e.Detail = "token:ops", "prod is down"
	}
	r.hub.Publish(e)
}

// held is a hold from its grant to its release.
func (r *rig) held(lock, lease, owner string, d time.Duration) {
	r.granted(lock, lease, owner, 0)
	time.Sleep(d)
	r.ended(lock, lease, events.LeaseReleased, locks.ReasonReleased)
}

func (r *rig) ask(q Query) Answer {
	r.t.Helper()
	if q.Rules == nil {
		q.Rules = access.Everything()
	}
	return assert.Value(r.history.Query(r.t.Context(), q))(r.t)
}

// owners are the owners of an answer, in its order.
func (a Answer) owners() (s string) {
	for _, i := range a.Items {
		s += i.Owner + " "
	}
	return s
}

func TestAHoldIsOneRowWithAllThatIsKnownOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		began := time.Now().UTC().Truncate(time.Microsecond)
		r.granted("deploy", "l1", "ci@build-1", 3*time.Second)
		r.pass(10 * time.Second)
		open := r.ask(Query{NS: "default", Lock: "deploy"})
		assert.Must(t, len(open.Items) == 1 && open.Items[0].End.IsZero(), "while it holds: %+v", open.Items)
		r.ended("deploy", "l1", events.LeaseRevoked, locks.ReasonRevoked)
		r.pass(5 * time.Second)
		got := r.ask(Query{NS: "default", Lock: "deploy"})
		assert.Must(t, len(got.Items) == 1, "%+v", got.Items)
		want := Item{Kind: Hold, NS: "default", Lock: "deploy", LeaseID: "l1", Owner: "ci@build-1", Principal: "token:ci", Gateway: "gw1", Purpose: "release 5", Mode: locks.Exclusive,
			FencingToken: 7, Begin: began, End: began.Add(10 * time.Second), Waited: 3 * time.Second, WaitedKnown: true, Reason: locks.ReasonRevoked, By: "token:ops", Detail: "prod is down"}
		assert.Equal(t, fmt.Sprintf("%+v", got.Items[0]), fmt.Sprintf("%+v", want))
	})
}

func TestWhoHeldItAtThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		first := time.Now()
		r.held("deploy", "l1", "anna", 10*time.Minute)
		r.held("deploy", "l2", "ben", 20*time.Second)
		r.held("other", "l3", "other", 2*time.Minute)
		r.granted("deploy", "l4", "cron", time.Minute)
		r.pass(time.Hour)
		at := func(d time.Duration) Query {
			return Query{NS: "default", Lock: "deploy", From: first.Add(d), To: first.Add(d)}
		}
		assert.Equal(t, r.ask(at(5*time.Minute)).owners(), "anna ")
		assert.Equal(t, r.ask(at(10*time.Minute+10*time.Second)).owners(), "ben ")
		assert.Equal(t, r.ask(at(11*time.Minute)).owners(), "", "nothing held it then")
		assert.Equal(t, r.ask(at(50*time.Minute)).owners(), "cron ")
		assert.Equal(t, r.ask(Query{From: first, To: first.Add(time.Hour)}).owners(), "cron other ben anna ", "the latest begin first")
		assert.Equal(t, r.ask(Query{Owner: "ben"}).owners(), "ben ")
		page := r.ask(Query{Limit: 3})
		assert.Equal(t, page.owners(), "cron other ben ")
		assert.Equal(t, r.ask(Query{Limit: 3, Cursor: page.Next}).owners(), "anna ")
		assert.That(t, r.ask(at(5*time.Minute)).Complete, "nothing is missing")
		assert.That(t, !r.ask(at(-time.Hour)).Complete, "before the store began nothing is known")
	})
}

func TestARestartForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "history")
		onDisk := func(o *Options) { o.Dir = dir }
		r := start(t, onDisk)
		r.granted("deploy", "l1", "stays", 0)
		r.granted("deploy2", "l2", "goes", 0)
		r.pass(10 * time.Minute)
		stopped := time.Now()
		r.stop()
		time.Sleep(time.Hour)
		r = start(t, func(o *Options) {
			onDisk(o)
			stays := &Item{Kind: Hold, NS: "default", Lock: "deploy", LeaseID: "l1", Begin: time.Now(), Early: 2 * time.Hour}
			came := &Item{Kind: Hold, NS: "default", Lock: "deploy3", LeaseID: "l3", Owner: "came", Begin: time.Now(), Early: 2 * time.Hour}
			o.Now = holding{stays, came}
		})
		r.pass(10 * time.Second)
		got := r.ask(Query{})
		assert.Equal(t, got.owners(), "came goes stays ")
		assert.That(t, got.Items[2].End.IsZero() && got.Items[2].Early == 0, "its begin was seen: %+v", got.Items[2])
		assert.That(t, got.Items[1].Reason == locks.ReasonUnknown && got.Items[1].Late >= time.Hour && got.Items[1].Late < time.Hour+time.Minute, "its end was not seen, the gap bounds it: %+v", got.Items[1])
		assert.That(t, got.Items[0].Early >= time.Hour && got.Items[0].Early < time.Hour+time.Minute, "before the gap it did not hold: %+v", got.Items[0])
		assert.Must(t, len(got.Gaps) == 1, "%+v", got.Gaps)
		assert.That(t, got.Gaps[0].Cause == CauseStopped && got.Gaps[0].From.Sub(stopped).Abs() < aliveEvery+flushes && !got.Complete, "%+v", got.Gaps[0])
	})
}
