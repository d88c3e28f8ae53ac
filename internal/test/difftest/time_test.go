package difftest

import (
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/wire"
)

// TestWhatHappensByItself is about what servers do without being asked. It takes the seconds that it takes; ticks of half a
// second, and looking for what is over five times a second, keep them few.
func TestWhatHappensByItself(t *testing.T) {
	a := zkreal.StartT(t, zkreal.WithoutFsync(), zkreal.WithLogLevel("off"),
		zkreal.WithJVMFlag("-Dznode.container.checkIntervalMs=200"))
	b := embeddedtest.RunT(t, embeddedtest.With(func(c *embedded.Config) { c.ReapInterval = 200 * time.Millisecond }))
	pair := &Pair{A: Target{"ZooKeeper", a.Addr()}, B: Target{"embedded", b.Addr()}}
	for _, s := range timeScripts() {
		t.Run(s.Name, func(t *testing.T) {
			d := assert.Value(pair.Compare(s))(t)
			if d != nil {
				t.Error(d) // shrinking it would take minutes
			}
		})
	}
}

func timeScripts() []Scenario {
	a, b, d := c(0), c(1), c(2)
	expire := func(session int) Step { return Step{0, Expire{session}} }
	byItself := func(after ...Request) Step { return Step{0, Await{After: after, Transactions: 1}} }
	return []Scenario{
		script("a session without a connection expires with its ephemerals", a.opens(), b.asksFor(1500),
			b.does(create("/e", "", ephemeral), create("/s-", "", both), create("/p", "", plain)),
			a.does(addWatch("/", recursive), childrenW("/"), existsW("/e")), b.drops(), expire(1),
			a.does(children("/"), exists("/")), b.attaches(1), b.opens(), b.does(children("/"))),
		script("a session that falls silent loses its connection", a.opens(), d.asksFor(1500),
			d.does(create("/e", "", ephemeral)), a.does(existsW("/e")), expire(1), a.does(exists("/e")),
			d.attaches(1)),
		script("coming back begins the timeout anew", a.opens(), b.asksFor(1500),
			b.does(create("/e", "", ephemeral)), b.drops(), b.attaches(1), b.does(ephemerals("/")),
			Step{1, Attach{Session: 1, TimeoutMs: 1000}}, b.drops(), a.does(existsW("/e")), expire(1), b.attaches(1),
			a.does(children("/"))),
		script("containers that are empty again and nodes whose time is over go", a.opens(), b.opens(),
			b.does(addWatch("/", recursive), childrenW("/")),
			a.does(container("/never"), container("/k"), create("/k/x", "", plain), create("/k/y", "", plain)),
			a.does(del("/k/x")), byItself(del("/k/y")),
			a.does(exists("/k"), exists("/")), byItself(ttl("/t", 100, wire.FlagPersistentTTL)),
			a.does(exists("/t")), a.does(ttl("/u", 100, wire.FlagPersistentTTL), create("/u/x", "", plain)),
			byItself(ttl("/v", 300, wire.FlagPersistentTTL)), a.does(exists("/u")), byItself(del("/u/x")),
			a.does(children("/"), exists("/"))),
	}
}
