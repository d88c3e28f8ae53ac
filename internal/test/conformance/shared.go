package conformance

import (
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

var shared = []script{
	{"readers share a lock, and a writer has it alone", func(a *actor) {
		name := a.lock("book")
		reader := locks.AcquireRequest{Lock: name, Mode: locks.Shared}
		first, second := a.hold(reader), a.hold(reader)
		assert.That(a, first.Mode == locks.Shared && first.FencingToken != second.FencingToken, "%+v %+v", first, second)
		for _, l := range []locks.Lease{first, second} {
			if f := a.current(name, l.FencingToken); !f.Current {
				a.Errorf("a reader's fencing token: %+v", f)
			}
		}
		writer := a.queue(locks.AcquireRequest{Lock: name})
		late := a.queue(reader) // behind a writer a reader waits: no writer starves
		if _, err := a.acquire(reader); a.refused(err, locks.CodeHeldByOther) == nil {
			return
		}
		a.letGo(first)
		assert.Equal(a, a.look(writer).State, locks.Waiting, "a writer beside a reader")
		a.letGo(second)
		a.becomes(writer, locks.Held)
		if l := a.look(late); l.State != locks.Waiting || l.Position != 1 {
			a.Errorf("a reader beside a writer: %+v", l)
		}
		a.letGo(writer)
		a.becomes(late, locks.Held)
	}},
	{"a writer lets all readers behind it in, up to the next writer", func(a *actor) {
		name := a.lock("book")
		reader := locks.AcquireRequest{Lock: name, Mode: locks.Shared}
		writer := a.hold(locks.AcquireRequest{Lock: name})
		one, two := a.queue(reader), a.queue(reader)
		second := a.queue(locks.AcquireRequest{Lock: name})
		three := a.queue(reader)
		a.letGo(writer)
		a.becomes(one, locks.Held)
		a.becomes(two, locks.Held)
		a.sees(name, 2, 2)
		a.letGo(one)
		a.letGo(two)
		a.becomes(second, locks.Held)
		assert.Equal(a, a.look(three).State, locks.Waiting)
	}},
	{"a writer becomes a reader without letting a writer in between", func(a *actor) {
		name := a.lock("book")
		writer := a.hold(locks.AcquireRequest{Lock: name, Owner: "me", Metadata: "m"})
		reader := a.queue(locks.AcquireRequest{Lock: name, Mode: locks.Shared})
		next := a.queue(locks.AcquireRequest{Lock: name})
		behind := a.queue(locks.AcquireRequest{Lock: name, Mode: locks.Shared})
		for range 2 { // it can be repeated
			l, err := a.Downgrade(a.Context(), locks.Anonymous, writer.ID, writer.Token)
			a.fine(err, "downgrade")
			if l.Mode != locks.Shared || l.State != locks.Held || l.FencingToken != writer.FencingToken || l.Owner != "me" || l.Metadata != "m" {
				a.Errorf("%+v", l)
			}
		}
		a.becomes(reader, locks.Held)
		if f := a.current(name, writer.FencingToken); !f.Current {
			a.Errorf("its fencing token: %+v", f)
		}
		q := a.sees(name, 2, 2)
		assert.That(a, q.Waiters[0].LeaseID == next.ID && q.Waiters[1].LeaseID == behind.ID, "%+v", q.Waiters)
		a.letGo(writer)
		a.letGo(reader)
		a.becomes(next, locks.Held)
	}},
	{"only a held lease of whole locks is downgraded", func(a *actor) {
		name := a.lock("book")
		a.hold(locks.AcquireRequest{Lock: name})
		waits := a.queue(locks.AcquireRequest{Lock: name})
		_, err := a.Downgrade(a.Context(), locks.Anonymous, waits.ID, waits.Token)
		a.refused(err, locks.CodeNotHeld)
		permits := a.hold(locks.AcquireRequest{Lock: a.lock("pool"), Mode: locks.Semaphore, Limit: 2})
		_, err = a.Downgrade(a.Context(), locks.Anonymous, "", permits.Token)
		a.refused(err, locks.CodeNotExclusive)
	}},
}
