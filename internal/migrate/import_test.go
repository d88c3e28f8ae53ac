package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/offlinetest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// queues is every queue of an archive's locks at a root, and outside of it.
func queues(t testing.TB, cfg zk.Config, a *Archive) map[string][]string {
	t.Helper()
	o := offlinetest.Open(t, cfg)
	c := assert.Value(a.understand(o.Root()))(t)
	all := map[string][]string{}
	for i := range c.contenders {
		dir := c.contenders[i].dir
		if all[dir] == nil {
			all[dir] = queue(t, o, c.fleet, dir)
		}
	}
	return all
}

func sameQueues(t testing.TB, got, want map[string][]string) {
	t.Helper()
	assert.That(t, len(got) == len(want) && len(want) != 0, "%d queues, want %d", len(got), len(want))
	for dir, q := range want {
		assert.That(t, slices.Equal(got[dir], q),
			"the queue of %s is\n%s\nwant\n%s", dir, strings.Join(got[dir], "\n"), strings.Join(q, "\n"))
	}
}

// noGatewayStarts checks that a gateway with its default settings refuses the root.
func noGatewayStarts(t testing.TB, cfg zk.Config) {
	t.Helper()
	cfg.CreateRoot = true
	_, err := layout.Open(offlinetest.Context(t), cfg)
	var fatal *zk.FatalError
	assert.That(t, errors.As(err, &fatal) && fatal.Kind == zk.KindImportUnfinished, "a gateway that starts there gets %v", err)
}

// Each transaction of an import is lost, on its way there and on its way back. What is left is no root; the repeated
// import makes the same of it as one that nothing disturbed.
func TestAnImportThatDiesAnywhereLeavesNothingThatAGatewayStartsOn(t *testing.T) {
	from := server(t)
	from.Root = zk.DefaultRoot
	_, outside := busy(t, from)
	a := throughFile(t, export(t, from))
	whole := server(t)
	whole.Root = zk.DefaultRoot
	importInto(t, whole, a)
	want := queues(t, whole, a)

	for fault, strike := range map[string]func(p *netfault.Proxy, n int) *netfault.Trigger{
		"failed": func(p *netfault.Proxy, n int) *netfault.Trigger {
			return p.FailRequest(n, netfault.IsOp(netfault.OpMulti))
		},
		"failed but persisted": func(p *netfault.Proxy, n int) *netfault.Trigger {
			return p.FailReply(n, netfault.IsOp(netfault.OpMulti))
		},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			direct := server(t)
			died := 0
			for n := 1; ; n++ {
				cfg := direct
				cfg.Root = fmt.Sprintf("/root-%d", n)
				p := netfault.NewT(t, direct.Servers[0], netfault.Framed())
				through := cfg
				through.Servers = []string{p.Addr()}
				hit := strike(p, n)
				_, err := Import(offlinetest.Context(t), through, a, ImportOptions{})
				select {
				case <-hit.Fired():
				default: // all of them got through
					assert.That(t, err == nil && n >= 8, "%d transactions, %v", n-1, err)
					assert.That(t, died >= 6, "died only %d times", died)
					return
				}
				if err != nil {
					died++
					again(t, cfg, a, err, n, fault)
				}
				sameQueues(t, queues(t, cfg, a), moved(want, cfg.Root))
				cfg.CreateRoot = false
				_, err = layout.Open(offlinetest.Context(t), cfg)
				assert.Nil(t, err, "transaction %d: no gateway starts in the end", n)
				// The next root shares the lock root outside of it.
				o := offlinetest.Open(t, cfg)
				for path := range tree(t, o, outside) {
					if strings.Count(path, "/") > strings.Count(outside, "/")+1 {
						assert.Value(o.Commit(offlinetest.Context(t), []zk.Op{{Kind: zk.OpDelete, Path: path, Version: -1}}))(t)
					}
				}
			}
		})
	}
}

// again looks at what an import has left that died at its n-th transaction, and repeats it.
func again(t *testing.T, cfg zk.Config, a *Archive, err error, n int, fault string) {
	t.Helper()
	if n == 1 {
		// Creating the root itself: it is empty then, or not there.
		assert.That(t, len(tree(t, offlinetest.Open(t, cfg), cfg.Root)) <= 1, "more than the root was written")
	} else if names := tree(t, offlinetest.Open(t, cfg), cfg.Root); len(names) > 1 {
		offlinetest.WantKind(t, err, KindUnknown, "--replace-partial")
		noGatewayStarts(t, cfg)
		_, err = Import(offlinetest.Context(t), cfg, a, ImportOptions{})
		offlinetest.WantKind(t, err, KindPartial, "--replace-partial")
	}
	assert.Value(Import(offlinetest.Context(t), cfg, a, ImportOptions{ReplacePartial: true}))(t, "%s, transaction %d: repeated", fault, n)
}

// moved is what queues in the default root would be called below another.
func moved(all map[string][]string, root string) map[string][]string {
	out := map[string][]string{}
	for dir, q := range all {
		if rest, inside := strings.CutPrefix(dir, zk.DefaultRoot+"/"); inside {
			dir = root + "/" + rest
		}
		out[dir] = q
	}
	return out
}

// The third state of a lost transaction: it arrives when another import has begun.
// The one that it belongs to may itself have replaced one.
func TestALostTransactionThatArrivesLateIsNotMixedIntoTheNextImport(t *testing.T) {
	from := server(t)
	from.Root = zk.DefaultRoot
	busy(t, from)
	a := export(t, from)
	whole := server(t)
	whole.Root = zk.DefaultRoot
	importInto(t, whole, a)
	want := queues(t, whole, a)
	for name, replaces := range map[string]bool{"of a first import": false, "of one that has replaced another": true} {
		t.Run(name, func(t *testing.T) {
			cfg := server(t)
			cfg.Root = zk.DefaultRoot
			if replaces {
				dieHalfWay(t, cfg, a)
			}
			p := netfault.NewT(t, cfg.Servers[0], netfault.Framed())
			through := cfg
			through.Servers = []string{p.Addr()}
			held := p.HoldRequest(6, netfault.IsOp(netfault.OpMulti))
			ctx, cancel := context.WithCancel(offlinetest.Context(t))
			ended := make(chan error, 1)
			go func() {
				_, err := Import(ctx, through, a, ImportOptions{ReplacePartial: replaces})
				ended <- err
			}()
			testkit.Closed(t, offlinetest.Limit, held.Fired(), "the transaction is under way")
			cancel()
			offlinetest.WantKind(t, testkit.Receive(t, offlinetest.Limit, ended, "the import ends"), KindUnknown)
			noGatewayStarts(t, cfg)

			var once sync.Once
			_, err := Import(offlinetest.Context(t), cfg, a, ImportOptions{ReplacePartial: true, Progress: func(what string, done, total int) {
				if what == "writing leases" && done > 3 {
					once.Do(func() {
						p.Heal() // now it arrives
						testkit.Eventually(t, offlinetest.Limit, func() bool { return p.Held(netfault.Requests) == 0 }, "it is on its way")
					})
				}
			}})
			assert.NoError(t, err)
			testkit.Eventually(t, offlinetest.Limit, func() bool { return p.Connections() == 0 }, "nothing is under way any more")
			sameQueues(t, queues(t, cfg, a), want)
		})
	}
}

// dieHalfWay leaves an import that has written all leases and has not been completed.
func dieHalfWay(t *testing.T, cfg zk.Config, a *Archive) {
	t.Helper()
	ctx, cancel := context.WithCancel(offlinetest.Context(t))
	defer cancel()
	_, err := Import(ctx, cfg, a, ImportOptions{Progress: func(_ string, done, total int) {
		if done == total {
			cancel()
		}
	}})
	offlinetest.WantKind(t, err, KindUnknown)
	noGatewayStarts(t, cfg)
}

func TestOfImportsIntoOneRootAtOnceOneAloneCompletesIt(t *testing.T) {
	from := server(t)
	from.Root = zk.DefaultRoot
	busy(t, from)
	a := export(t, from)
	cfg := server(t)
	cfg.Root = zk.DefaultRoot
	const many = 6
	errs := make([]error, many)
	var running sync.WaitGroup
	for i := range many {
		running.Go(func() {
			_, errs[i] = Import(offlinetest.Context(t), cfg, a, ImportOptions{ReplacePartial: i%2 == 0})
		})
	}
	running.Wait()
	done := 0
	for _, err := range errs {
		var e *Error
		switch {
		case err == nil:
			done++
		case !errors.As(err, &e) || e.Kind != KindPartial && e.Kind != KindNotEmpty:
			t.Errorf("one ended with %v", err)
		}
	}
	assert.Must(t, done == 1, "%d imports completed", done)
	whole := server(t)
	whole.Root = zk.DefaultRoot
	importInto(t, whole, a)
	sameQueues(t, queues(t, cfg, a), queues(t, whole, a))
}

func TestAnImportRefusesARootWithAnythingInIt(t *testing.T) {
	from := server(t)
	newSite(t, from)
	a := export(t, from)
	cfg := server(t)
	s := newSite(t, cfg)
	before := tree(t, s.Offline, s.Root())
	for _, replace := range []bool{false, true} {
		_, err := Import(offlinetest.Context(t), cfg, a, ImportOptions{ReplacePartial: replace})
		offlinetest.WantKind(t, err, KindNotEmpty, "a Lockkeeper", "--root", "deleteall "+s.Root())
	}
	s.Put("/mine", "")
	s.Put("/mine/own", "precious")
	cfg.Root = "/mine"
	for _, replace := range []bool{false, true} {
		_, err := Import(offlinetest.Context(t), cfg, a, ImportOptions{ReplacePartial: replace})
		offlinetest.WantKind(t, err, KindNotEmpty, "own")
	}
	assert.That(t, fmt.Sprint(tree(t, s.Offline, s.Root())) == fmt.Sprint(before), "something was changed")
	after := tree(t, s.Offline, "/mine")
	assert.That(t, len(after) == 2, "something was changed: %v", after)
	// One that is not there, and may not be created.
	cfg.Root, cfg.CreateRoot = "/nowhere", false
	_, err := Import(offlinetest.Context(t), cfg, a, ImportOptions{})
	var fatal *zk.FatalError
	assert.That(t, errors.As(err, &fatal) && fatal.Kind == zk.KindMissingRoot, "a missing root: %v", err)
	// An empty one is as good as none.
	s.Put("/empty", "")
	cfg.Root = "/empty"
	importInto(t, cfg, a)
}

// Lock roots that other programs share can be in use where they go to.
func TestAnImportRefusesALockThatOtherProgramsUseThere(t *testing.T) {
	from := server(t)
	from.Root = zk.DefaultRoot
	_, outside := busy(t, from)
	a := export(t, from)
	cfg := server(t)
	cfg.Root = zk.DefaultRoot
	o := offlinetest.Open(t, cfg)
	other := &site{Site: offlinetest.Site{Offline: o, T: t}, cfg: cfg}
	for _, path := range []string{"/kazoo", outside, outside + "/x", outside + "/x/1234__lock__0000000000", outside + "/z", outside + "/z/5678__lock__0000000000"} {
		other.Put(path, "")
	}
	_, err := Import(offlinetest.Context(t), cfg, a, ImportOptions{})
	offlinetest.WantKind(t, err, KindNotEmpty, outside+"/x", "in use")
	left := tree(t, o, cfg.Root)
	assert.That(t, len(left) <= 1, "left behind: %v", left)
	other.Apply(zk.Op{Kind: zk.OpDelete, Path: outside + "/x/1234__lock__0000000000", Version: -1})
	importInto(t, cfg, a)
	_, ok := tree(t, o, outside)[outside+"/z/5678__lock__0000000000"]
	assert.That(t, ok, "another program's contender is gone")
}

// An import that died is cleared up behind where it wrote, and nowhere else.
func TestClearingLeavesOtherProgramsContendersAlone(t *testing.T) {
	from := server(t)
	from.Root = zk.DefaultRoot
	s, outside := busy(t, from)
	a := export(t, from)
	cfg := server(t)
	cfg.Root = zk.DefaultRoot
	o := offlinetest.Open(t, cfg)
	dieHalfWay(t, cfg, a)
	other := &site{Site: offlinetest.Site{Offline: o, T: t}, cfg: cfg}
	other.Put(outside+"/x/1234__lock__0000000099", "")
	_, err := Import(offlinetest.Context(t), cfg, a, ImportOptions{ReplacePartial: true})
	offlinetest.WantKind(t, err, KindNotEmpty, outside+"/x")
	left := tree(t, o, outside+"/x")
	assert.That(t, len(left) == 2, "in the lock there is %v", left)
	other.Apply(zk.Op{Kind: zk.OpDelete, Path: outside + "/x/1234__lock__0000000099", Version: -1})
	assert.Value(Import(offlinetest.Context(t), cfg, a, ImportOptions{ReplacePartial: true}))(t)
	want, have := queue(t, s.Offline, s.fleet, outside+"/x"), queue(t, o, s.fleet, outside+"/x")
	assert.That(t, len(want) == 1 && slices.Equal(have, want), "outside there is %v, want %v", have, want)
}

// A downgraded lease keeps its place by its number; its first czxid is of another
// ZooKeeper, where it may be above all that is to come.
func TestADowngradedLeaseGetsATokenOfTheNewZooKeeper(t *testing.T) {
	a := small(t)
	c, _ := recipe.Parse(testFleet, a.Contenders[0].Name)
	c.Mode, c.FirstCzxid = recipe.Shared, 10
	a.Contenders[0].Name, a.Contenders[0].Czxid = c.Format(), 500
	cfg := server(t)
	importInto(t, cfg, throughFile(t, a))
	o := offlinetest.Open(t, cfg)
	all := queue(t, o, testFleet, zk.DefaultRoot+"/locks/lock")
	assert.That(t, len(all) == 3 && strings.HasPrefix(all[0], string(c.LeaseID)+" shared"), "the queue is %v", all)
	for path := range tree(t, o, zk.DefaultRoot+"/locks/lock") {
		assert.That(t, !strings.Contains(path, ".f10"), "%s has the old czxid", path)
	}
}
