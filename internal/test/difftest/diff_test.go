package difftest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/wire"
)

const (
	seeds     = 150
	fullSeeds = 5_000
	enough    = 5 // failures; then the rest is not worth the time
)

// TestRandomScenarios is the heart of it: the same random clients on both servers. LOCKKEEPER_SEED=n plays one seed,
// LOCKKEEPER_FULL=1 thousands.
func TestRandomScenarios(t *testing.T) {
	pair := serversT(t)
	from, to := uint64(1), uint64(seeds)
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		to = fullSeeds
	}
	if seed := os.Getenv("LOCKKEEPER_SEED"); seed != "" {
		n := assert.Value(strconv.ParseUint(seed, 10, 64))(t)
		from, to = n, n
	}
	steps, differ, began := 0, 0, time.Now()
	for seed := from; seed <= to && differ < enough; seed++ {
		s := Generate(seed)
		steps += len(s.Steps)
		if !pair.CheckT(t, s) {
			differ++
		}
	}
	t.Logf("seeds %d to %d, %d steps, %v", from, to, steps, time.Since(began).Round(time.Millisecond))
}

// CheckT fails the test with a difference, made as short as possible.
func (p *Pair) CheckT(t *testing.T, s Scenario) bool {
	t.Helper()
	d, err := p.Compare(s)
	switch {
	case err != nil:
		t.Errorf("%s: %v", s.Name, err)
	case d != nil:
		t.Errorf("%s\n%v", s.Name, p.Shrink(d, 200))
	}
	return err == nil && d == nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, stop := range twins.stop {
		stop()
	}
	if code == 0 {
		if err := testkit.Leaks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// twins are the two servers that are compared, for the whole test binary: a real one takes seconds to start. Both see the same
// from their first request on, because scenarios leave nodes behind.
var twins struct {
	sync.Once
	pair *Pair
	stop []func()
	err  error
}

const (
	tick       = 2 * time.Second
	minSession = 4 * time.Second
	maxSession = 40 * time.Second
	never      = 24 * time.Hour
)

// serversT are the twins. With LOCKKEEPER_DIFF=real both are real: where they differ ZooKeeper decides by chance, and the
// comparison must not ask for it.
func serversT(t *testing.T) *Pair {
	t.Helper()
	testkit.NotShort(t, "a real ZooKeeper takes seconds")
	twins.Do(func() {
		var a, b Target
		if a, twins.err = startReal("ZooKeeper"); twins.err != nil {
			return
		}
		if os.Getenv("LOCKKEEPER_DIFF") == "real" {
			b, twins.err = startReal("another ZooKeeper")
		} else {
			b, twins.err = startEmbedded()
		}
		twins.pair = &Pair{A: a, B: b}
	})
	assert.NoError(t, twins.err)
	return twins.pair
}

func startReal(name string) (Target, error) {
	s, err := zkreal.Start(
		zkreal.WithoutFsync(), zkreal.WithLogLevel("off"), zkreal.WithConfig("tickTime", fmt.Sprint(tick.Milliseconds())),
		zkreal.WithSessionBounds(minSession, maxSession),
		// Nothing may happen by itself: containers and nodes with a time to live stay.
		zkreal.WithJVMFlag(fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", never.Milliseconds())))
	if err != nil {
		return Target{}, err
	}
	twins.stop = append(twins.stop, s.Close)
	return Target{name, s.Addr()}, nil
}

func startEmbedded() (Target, error) {
	s, err := embeddedtest.Start(quiet)
	if err != nil {
		return Target{}, err
	}
	twins.stop = append(twins.stop, s.Close)
	return Target{"embedded", s.Addr()}, nil
}

// embeddedT is an embedded server of the test's own.
func embeddedT(t *testing.T) Target {
	t.Helper()
	return Target{"embedded", embeddedtest.RunT(t, quiet).Addr()}
}

var quiet = embeddedtest.With(func(c *embedded.Config) {
	c.TickTime, c.MinSessionTimeout, c.MaxSessionTimeout, c.ReapInterval = tick, minSession, maxSession, never
})

// cliCommands use each way in which zkCli watches, and the commands that its watches see. What zkCli does without watches is
// compared in internal/test/clients.
var cliCommands = []string{
	"version", "create /cli one", "get -w /cli", "set /cli two", "set /cli three", "stat -w /cli", "ls -w /cli",
	"create -s -e /cli/s- x", "ls -s /cli", "create -c /cli/k",
	"create -t 600000 /cli/t", "addWatch -m PERSISTENT /cli", "addWatch /cli/k", "addWatch -m WRONG /cli",
	"create /cli/k/x", "create /cli/k/x/y", "set /cli/k/x/y z", "get -s -w /cli/k/x",
	"removewatches /cli/k/x", "removewatches /cli/k", "set /cli/k/x z", "delete /cli/k/x", "deleteall /cli/k",
	"getEphemerals /cli", "getAllChildrenNumber /cli", "sync /cli",
	"addauth digest u:p", "create /cli/a x auth::cdrwa", "getAcl /cli/a", "setAcl -s /cli/a world:anyone:r,auth::w",
	"getAcl -s /cli/a", "stat -w /cli/none", "create /cli/none", "ls -R -w /cli", "get -w /cli/missing",
	"config -s", "set /cli four",
	"delete /cli/t", "delete /cli/a", "delete /cli/none", // deleteall takes them in the order of a list
	"deleteall /cli", "stat /cli", "sync /", // zkCli's exit status is that of the last command
}

var (
	cliOwn   = regexp.MustCompile(`0x[0-9a-f]+|[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d [A-Z]+ \d{4}`)
	cliTrace = regexp.MustCompile(`^\d{4}-\d\d-\d\d |^\d+ \[`) // log lines of zkCli itself
)

// TestZkCliSeesTheSameEvents compares what zkCli prints. Events come from a thread of their own: they are compared in their own
// order, apart from the answers.
func TestZkCliSeesTheSameEvents(t *testing.T) {
	pair := serversT(t)
	var answers, events [2][]string
	var wg sync.WaitGroup
	for i, target := range []Target{pair.A, pair.B} {
		wg.Go(func() {
			out, err := zkreal.CLI(target.Addr, cliCommands...)
			assert.Nil(t, err, "%s", target.Name)
			for line := range strings.Lines(out) {
				line = cliOwn.ReplaceAllString(strings.TrimSpace(line), "*")
				switch {
				case cliTrace.MatchString(line):
				case strings.Contains(line, "WatchedEvent "):
					events[i] = append(events[i], line)
				default:
					answers[i] = append(answers[i], line)
				}
			}
		})
	}
	wg.Wait()
	assert.That(t, len(answers[0]) >= len(cliCommands) && len(events[0]) >= 12,
		"zkCli said little: %d lines, %d events", len(answers[0]), len(events[0]))
	for what, got := range map[string][2][]string{"answers": answers, "events": events} {
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s differ\n%s:\n%s\n%s:\n%s", what, pair.A.Name, strings.Join(got[0], "\n"), pair.B.Name,
				strings.Join(got[1], "\n"))
		}
	}
}

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
