package conformance

import (
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// The plain ZooKeeper recipe.
var plain = []script{
	{"an ephemeral lease is one like any other, and says what it is", func(a *actor) {
		name := a.lock("ephemeral")
		l := a.hold(locks.AcquireRequest{Lock: name, Ephemeral: true})
		assert.That(a, l.Ephemeral && !l.FailoverSafe, "%+v", l)
		waits := a.queue(locks.AcquireRequest{Lock: name, Ephemeral: true})
		if q := a.sees(name, 1, 1); !q.Holders[0].Ephemeral || !q.Waiters[0].Ephemeral {
			a.Errorf("%+v", q)
		}
		a.beat(l)
		if f := a.current(name, l.FencingToken); !f.Current {
			a.Errorf("%+v", f)
		}
		a.letGo(l)
		a.becomes(waits, locks.Held)
		a.letGo(waits)
		a.sees(name, 0, 0)
	}},
}
