package conformance

import (
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// Leases of any mode.
var leases = []script{
	{"a release can be repeated, and ends the lease", func(a *actor) {
		l := a.hold(locks.AcquireRequest{Lock: a.lock("l")})
		a.letGo(l)
		a.letGo(l)
		a.fine(a.Release(a.Context(), locks.Anonymous, "", l.Token), "by token alone")
		a.ended(l, locks.ReasonReleased)
		_, err := a.Heartbeat(a.Context(), locks.Anonymous, l.ID, l.Token, 0)
		assert.Equal(a, a.refused(err, locks.CodeEnded).Reason, locks.ReasonReleased)
	}},
	{"a token opens its own lease and no other", func(a *actor) {
		one, two := a.hold(locks.AcquireRequest{Lock: a.lock("one")}), a.hold(locks.AcquireRequest{Lock: a.lock("two")})
		forged := one.Token[:len(one.Token)-4] + "AAAA"
		for _, token := range []string{two.Token, forged} {
			_, err := a.Heartbeat(a.Context(), locks.Anonymous, one.ID, token, 0)
			a.refused(err, locks.CodeTokenWrong)
			a.refused(a.Release(a.Context(), locks.Anonymous, one.ID, token), locks.CodeTokenWrong)
			_, err = a.Update(a.Context(), locks.UpdateRequest{ID: one.ID, Token: token, Owner: new("me")})
			a.refused(err, locks.CodeTokenWrong)
			_, err = a.Downgrade(a.Context(), locks.Anonymous, one.ID, token)
			a.refused(err, locks.CodeTokenWrong)
			_, err = a.Lease(a.Context(), locks.LeaseRequest{ID: one.ID, Token: token})
			a.refused(err, locks.CodeTokenWrong)
		}
		if l := a.look(one); l.State != locks.Held || l.Token != "" {
			a.Errorf("%+v", l)
		}
		_, err := a.Lease(a.Context(), locks.LeaseRequest{ID: "lkabc"})
		a.refused(err, locks.CodeNotFound)
		_, err = a.Postmortem(a.Context(), locks.Anonymous, "lkabc")
		a.refused(err, locks.CodeNotFound)
	}},
	{"an acquire with a key queues once", func(a *actor) {
		name := a.lock("key")
		req := locks.AcquireRequest{Lock: name, Owner: "me", IdempotencyKey: a.lock("a-key-of-its-own")}
		l := a.hold(req)
		again := func(req locks.AcquireRequest) {
			a.Helper()
			res, err := a.acquire(req)
			a.fine(err, "the same again")
			if !res.Replayed || res.Lease.ID != l.ID || res.Lease.Token != l.Token || res.Lease.FencingToken != l.FencingToken || res.Lease.State != locks.Held {
				a.Errorf("%+v", res)
			}
		}
		again(req)
		req.Wait = time.Second // how long it waits is not part of what it asks for
		again(req)
		a.sees(name, 1, 0)
		other := req
		other.Owner = "you"
		_, err := a.acquire(other)
		a.refused(err, locks.CodeKeyReused)
		a.letGo(l)
		_, err = a.acquire(req)
		assert.Equal(a, a.refused(err, locks.CodeEnded).Reason, locks.ReasonReleased)
		a.sees(name, 0, 0)
	}},
	{"a ticket with a key keeps its place when it is asked for again", func(a *actor) {
		name := a.lock("key")
		holder := a.hold(locks.AcquireRequest{Lock: name})
		req := locks.AcquireRequest{Lock: name, Async: true, IdempotencyKey: a.lock("a-key-of-its-own")}
		ticket := a.queue(req)
		a.queue(locks.AcquireRequest{Lock: name})
		res, err := a.acquire(req)
		if a.fine(err, "again"); !res.Replayed || res.Lease.ID != ticket.ID || res.Lease.Position != 1 {
			a.Errorf("%+v", res)
		}
		a.sees(name, 1, 2)
		a.letGo(holder)
		a.becomes(ticket, locks.Held)
	}},
	{"what a lease says of itself can be changed", func(a *actor) {
		name := a.lock("update")
		l := a.hold(locks.AcquireRequest{Lock: name, Owner: "me", Metadata: "at the start"})
		rev := a.look(l).Rev
		now, err := a.Update(a.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Metadata: new("half way")})
		a.fine(err, "update")
		if now.Metadata != "half way" || now.Owner != "me" || now.FencingToken != l.FencingToken || now.TTL != time.Minute || now.Rev == rev || now.Token != "" {
			a.Errorf("%+v", now)
		}
		if q := a.sees(name, 1, 0); q.Holders[0].Metadata != "half way" || q.Holders[0].Owner != "me" {
			a.Errorf("its lock shows %+v", q.Holders[0])
		}
		now, err = a.Update(a.Context(), locks.UpdateRequest{Token: l.Token, Owner: new("you"), Metadata: new(""), TTL: time.Hour})
		a.fine(err, "update")
		assert.That(a, now.Metadata == "" && now.Owner == "you" && now.TTL == time.Hour && now.ExpiresIn > 59*time.Minute, "%+v", now)
		_, err = a.acquire(locks.AcquireRequest{Lock: name})
		assert.Equal(a, a.refused(err, locks.CodeHeldByOther).Holders[0].Owner, "you", "the refused client is told")
		ticket := a.queue(locks.AcquireRequest{Lock: name})
		if now, err = a.Update(a.Context(), locks.UpdateRequest{Token: ticket.Token, Metadata: new("two\n\tlines\r\n")}); err != nil || now.State != locks.Waiting || now.Metadata != "two\n\tlines\r\n" {
			a.Errorf("a ticket: %+v, %v", now, err)
		}
		_, err = a.Update(a.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, TTL: time.Millisecond})
		a.refusedField(err, "ttl")
		_, err = a.Update(a.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Metadata: new(strings.Repeat("x", locks.MaxMetadata+1))})
		a.refusedField(err, "metadata")
		a.letGo(l)
		_, err = a.Update(a.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Owner: new("late")})
		a.refused(err, locks.CodeEnded)
	}},
	{"whether a lease is held is asked of ZooKeeper", func(a *actor) {
		name := a.lock("verify")
		verify := func(l locks.Lease) locks.Lease {
			a.Helper()
			now, err := a.Lease(a.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token, Verify: true})
			a.fine(err, "verify")
			return now
		}
		l := a.hold(locks.AcquireRequest{Lock: name})
		ticket := a.queue(locks.AcquireRequest{Lock: name})
		if now := verify(l); now.State != locks.Held || now.FencingToken != l.FencingToken {
			a.Errorf("%+v", now)
		}
		assert.Equal(a, verify(ticket).State, locks.Waiting)
		a.letGo(l)
		if now := verify(l); now.State != locks.Ended || now.Reason != locks.ReasonReleased {
			a.Errorf("%+v", now)
		}
	}},
	{"a fencing token is current exactly while its lease holds", func(a *actor) {
		name := a.lock("fence")
		l := a.hold(locks.AcquireRequest{Lock: name})
		if f := a.current(name, l.FencingToken); !f.Current || f.Highest != l.FencingToken {
			a.Errorf("its holder: %+v", f)
		}
		if f := a.current(name, l.FencingToken-1); f.Current {
			a.Errorf("no lease's: %+v", f)
		}
		if f := a.current(a.lock("another"), l.FencingToken); f.Current {
			a.Errorf("another lock: %+v", f)
		}
		a.letGo(l)
		if f := a.current(name, l.FencingToken); f.Current || f.Reason != "ended" {
			a.Errorf("after the release: %+v", f)
		}
		next := a.hold(locks.AcquireRequest{Lock: name})
		if f := a.current(name, l.FencingToken); f.Current || f.Reason != "superseded" || f.Highest != next.FencingToken {
			a.Errorf("after the next one came: %+v", f)
		}
	}},
	{"many leases are renewed in one request", func(a *actor) {
		held := a.hold(locks.AcquireRequest{Lock: a.lock("one")})
		ticket := a.queue(locks.AcquireRequest{Lock: a.lock("one")})
		ended := a.hold(locks.AcquireRequest{Lock: a.lock("two")})
		a.letGo(ended)
		got := a.Heartbeats(a.Context(), locks.Anonymous, []string{held.Token, ended.Token, "lk1.unknown.k1.x", ticket.Token})
		if len(got) != 4 || got[0].Err != nil || got[0].Heartbeat.State != locks.Held || got[0].Heartbeat.Waiters != 1 ||
			got[1].Err == nil || got[1].Err.Code != locks.CodeEnded || got[1].Err.Reason != locks.ReasonReleased || got[1].LeaseID != ended.ID ||
			got[2].Err == nil || got[3].Err != nil || got[3].Heartbeat.Position != 1 {
			a.Errorf("%+v", got)
		}
	}},
	{"leases and locks are listed", func(a *actor) {
		owner := a.lock("me")
		held := a.hold(locks.AcquireRequest{Lock: a.lock("b"), Owner: owner})
		ticket := a.queue(locks.AcquireRequest{Lock: a.lock("b"), Owner: owner})
		a.hold(locks.AcquireRequest{Lock: a.lock("a"), Owner: a.lock("another")})
		for state, want := range map[locks.State]string{locks.Held: held.ID, locks.Waiting: ticket.ID} {
			page, err := a.Leases(a.Context(), locks.LeaseFilter{Owner: owner, State: state})
			if a.fine(err, "leases"); len(page.Items) != 1 || page.Items[0].ID != want || page.Items[0].Token != "" {
				a.Errorf("%s: %+v", state, page)
			}
		}
		for of, want := range map[string]string{owner: a.lock("b"), a.lock("another"): a.lock("a"), a.lock("none"): ""} {
			page, err := a.Locks(a.Context(), locks.LockFilter{Prefix: a.lock(""), Owner: of})
			if a.fine(err, "locks of an owner"); want == "" && len(page.Items) > 0 || want != "" && (len(page.Items) != 1 || page.Items[0].Name != want) {
				a.Errorf("of %s: %+v", of, page)
			}
		}
		named := a.lock("c")
		a.hold(locks.AcquireRequest{Lock: named, Owner: "job@" + named, Mode: locks.Shared})
		for _, f := range []locks.LockFilter{{Host: named}, {Mode: locks.Shared}, {Host: named, Sort: locks.SortHeld}, {Owner: "job@" + named, Sort: locks.SortWaiters}, {Mode: locks.Shared, Sort: locks.SortWait}} {
			f.Prefix = a.lock("")
			page, err := a.Locks(a.Context(), f)
			if a.fine(err, "locks"); len(page.Items) != 1 || page.Items[0].Name != named {
				a.Errorf("%+v: %+v", f, page)
			}
		}
		for _, sort := range []locks.LockSort{locks.SortWaiters, locks.SortHeld, locks.SortWait} { // b was held first, and it has a waiter
			f := locks.LockFilter{Prefix: a.lock(""), Sort: sort, Limit: 1}
			var names []string
			for len(names) < 4 {
				page, err := a.Locks(a.Context(), f)
				a.fine(err, "sorted locks")
				for i := range page.Items {
					names = append(names, page.Items[i].Name)
				}
				if f.Cursor = page.NextCursor; f.Cursor == "" {
					break
				}
			}
			if !slices.Equal(names, []string{a.lock("b"), a.lock("a"), named}) {
				a.Errorf("sorted by %s: %v", sort, names)
			}
		}
		page, err := a.Locks(a.Context(), locks.LockFilter{Prefix: a.lock(""), Limit: 1})
		if a.fine(err, "locks"); len(page.Items) != 1 || page.Items[0].Name != a.lock("a") || page.NextCursor == "" {
			a.Errorf("%+v", page)
		}
		page, err = a.Locks(a.Context(), locks.LockFilter{Prefix: a.lock(""), Limit: 1, Cursor: page.NextCursor})
		if a.fine(err, "locks"); len(page.Items) != 1 || page.Items[0].Name != a.lock("b") || page.Items[0].QueueLength != 1 || len(page.Items[0].Holders) != 1 || page.NextCursor == "" {
			a.Errorf("%+v", page)
		}
	}},
	{"a dry run tells what would happen, and does nothing", func(a *actor) {
		name := a.lock("dry")
		ask := func(req locks.AcquireRequest) *locks.DryRun {
			a.Helper()
			req.DryRun = true
			res, err := a.acquire(req)
			if a.fine(err, "dry run"); res.DryRun == nil || res.Lease.ID != "" {
				a.Fatalf("%+v", res)
			}
			return res.DryRun
		}
		if d := ask(locks.AcquireRequest{Lock: name}); d.State != locks.Held || d.QueueLength != 0 || len(d.Holders) != 0 {
			a.Errorf("free: %+v", d)
		}
		l := a.hold(locks.AcquireRequest{Lock: name, Mode: locks.Shared})
		if d := ask(locks.AcquireRequest{Lock: name}); d.State != locks.Waiting || len(d.Holders) != 1 || d.Holders[0].LeaseID != l.ID {
			a.Errorf("held: %+v", d)
		}
		assert.Equal(a, ask(locks.AcquireRequest{Lock: name, Mode: locks.Shared}).State, locks.Held, "a second reader")
		if d := ask(locks.AcquireRequest{Group: []locks.Want{{Lock: a.lock("free")}, {Lock: name}}}); d.State != locks.Waiting || len(d.Holders) != 1 {
			a.Errorf("with a free lock: %+v", d)
		}
		_, err := a.acquire(locks.AcquireRequest{Lock: name, Mode: locks.Semaphore, DryRun: true})
		a.refusedField(err, "limit")
		a.sees(name, 1, 0)
		a.sees(a.lock("free"), 0, 0)
	}},
	{"what cannot be is refused by the name of its field", func(a *actor) {
		name := a.lock("wrong")
		for field, req := range map[string]locks.AcquireRequest{
			"ttl":             {Lock: name, TTL: time.Millisecond},
			"wait":            {Lock: name, Async: true, Wait: time.Second},
			"owner":           {Lock: name, Owner: strings.Repeat("x", locks.MaxOwner+1)},
			"metadata":        {Lock: name, Metadata: "a bell\a"},
			"limit":           {Lock: name, Limit: 3},
			"permits":         {Lock: name, Mode: locks.Semaphore, Limit: 3, Permits: 4},
			"Idempotency-Key": {Lock: name, IdempotencyKey: "short"},
			"hold":            {Lock: name, Hold: "a b"},
			"locks[1].mode":   {Group: []locks.Want{{Lock: name}, {Lock: a.lock("other"), Mode: "upside-down"}}},
		} {
			_, err := a.acquire(req)
			a.refusedField(err, field)
		}
		_, err := a.acquire(locks.AcquireRequest{Lock: name, NS: "nowhere"})
		a.refused(err, locks.CodeNamespaceUnknown)
		a.sees(name, 0, 0)
	}},
}
