package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"
	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
	zklayout "lockkeeper/internal/zk/layout"
)

func TestAServerThatAcceptsAndSaysNothingIsLeftForTheNext(t *testing.T) {
	for name, say := range map[string][]byte{"nothing": nil, "half an answer": {0, 0, 0, 37, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			cfg := fixture.Config(t)
			layout := openLayout(t, cfg)
			silent := fixture.Script(t, func(conn net.Conn) {
				t.Cleanup(func() { _ = conn.Close() })
				_, _ = conn.Write(say)
			})
			cfg.Servers = []string{silent, cfg.Servers[0]}
			cfg.SessionTimeout = 3 * time.Second
			for n := range 4 { // the order is random: the silent one is first in some
				began := time.Now()
				openSession(t, cfg, layout, n)
				// The library alone would take 6.7 session timeouts.
				took := time.Since(began)
				assert.Must(t, took <= 15*time.Second, "it took %v", took)
			}
		})
	}
}

func TestConnectingGivesUpAfterABoundedNumberOfAttempts(t *testing.T) {
	attempts := make(chan struct{}, 100)
	addr := fixture.Script(t, func(conn net.Conn) {
		attempts <- struct{}{}
		_ = conn.Close()
	})
	_, err := zklayout.Open(fixture.Context(t), zk.Config{Servers: []string{addr}})
	assert.That(t, errors.Is(err, zk.ErrUnavailable) && strings.Contains(err.Error(), "attempts"),
		"the error is %v, want ErrUnavailable with the number of attempts", err)
	assert.Equal(t, len(attempts), conn.ConnectAttempts)
}

func TestConnectingEndsWithItsContext(t *testing.T) {
	addr := fixture.Script(t, func(conn net.Conn) { t.Cleanup(func() { _ = conn.Close() }) })
	ctx := fixture.Context(t)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := zklayout.Open(short, zk.Config{Servers: []string{addr}})
	assert.That(t, errors.Is(err, zk.ErrUnavailable), "the error is %v, want ErrUnavailable", err)
	took := time.Since(began)
	assert.That(t, took <= 15*time.Second, "it took %v", took)
}

func TestAServerThatFallsSilentWhileOpeningCannotBeReached(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	layout := openLayout(t, direct)
	for name, open := range map[string]func(context.Context) error{
		"layout": func(ctx context.Context) error {
			proxy.HoldRequest(1, netfault.IsOp(netfault.OpGetData))
			_, err := zklayout.Open(ctx, through)
			return err
		},
		"session": func(ctx context.Context) error {
			proxy.HoldRequest(1, fixture.About("/gateways/"))
			_, err := Open(ctx, through, layout, fixture.GatewayID(1), nil)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		assert.ErrorIs(t, open(ctx), zk.ErrUnavailable, "%s", name)
		cancel()
		proxy.Heal()
	}
}

func TestTheNegotiatedTimeoutIsKnown(t *testing.T) {
	server := zkreal.StartT(t, zkreal.WithoutFsync(), zkreal.WithSessionBounds(4*time.Second, 5*time.Second))
	cfg := zk.Config{Servers: []string{server.Addr()}, CreateRoot: true, SessionTimeout: time.Minute}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	assert.Equal(t, s.Timeout(), 5*time.Second, "timeout")
}

func TestCredentialsTravelWithEveryConnection(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	through.Auth = &zk.DigestAuth{User: "fleet", Password: "right"}
	layout := openLayout(t, through)
	s := openSession(t, through, layout, 1)
	secret := zk.DefaultRoot + zk.NodeSecret
	for range 3 {
		_, _, err := s.Get(fixture.Context(t), secret)
		assert.NoError(t, err, "reading the secret")
		proxy.Reset()
		fixture.Eventually(t, "the loss is noticed and mended", func() bool {
			_, _, err := s.Get(fixture.Context(t), secret)
			return err == nil
		})
	}
	private := mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/keys/k", Private: true}))
	other := fixture.NewProbe(t, direct)
	for _, path := range []string{secret, private.Paths[0]} {
		_, err := other.Get(path)
		assert.That(t, errors.Is(err, gozk.ErrNoAuth), "another client reads %s: %v, want ErrNoAuth", path, err)
	}
	assert.ErrorIs(t, other.TryCreate(zk.DefaultRoot+"/guards/x", "", gozk.WorldACL(gozk.PermAll)), gozk.ErrNoAuth,
		"another client creates a guard")
	other.Create(zk.DefaultRoot+"/locks/foreign", "")
}

func TestOtherClientsMayReadButNotWriteWhatIsTheFleetsAlone(t *testing.T) {
	cfg := fixture.Config(t)
	other := fixture.NewProbe(t, cfg)
	cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "right"}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	done := make(chan zk.Result, 1)
	s.Takeover(fixture.Context(t), fixture.GatewayID(9), nil, func(r zk.Result) { done <- r })
	succession := mustBeDone(t, fixture.Await(t, done)).Paths[0]
	settings := zk.DefaultRoot + "/settings/l"
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: settings}, zk.Op{Kind: zk.OpCreate, Path: settings + "/limit-2"}))
	for _, path := range []string{succession, settings, settings + "/limit-2", s.registration, s.guard} {
		_, err := other.Get(path)
		assert.Nil(t, err, "another client reads %s", path)
		assert.ErrorIs(t, other.TrySet(path, "mine"), gozk.ErrNoAuth, "another client writes %s", path)
	}
	dir := zk.DefaultRoot + "/locks/l"
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir}, zk.Op{Kind: zk.OpCreate, Path: dir + "/write-", Sequential: true}))
	other.Create(dir+"/foreign-0000000001", "") // queues are shared with other programs
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpDelete, Path: settings + "/limit-2"}, zk.Op{Kind: zk.OpDelete, Path: succession, Version: -1}))
}

func TestWrongCredentialsAreFatalWhereAnACLRefusesThem(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "right"}
	layout := openLayout(t, cfg)
	for name, auth := range map[string]*zk.DigestAuth{"another password": {User: "fleet", Password: "wrong"}, "none": nil} {
		wrong := cfg
		wrong.Auth = auth
		_, err := zklayout.Open(fixture.Context(t), wrong)
		fixture.MustBeFatal(t, name+" opening the layout", err, zk.KindAuth)
		_, err = Open(fixture.Context(t), wrong, layout, fixture.GatewayID(1), nil)
		fixture.MustBeFatal(t, name+" opening a session", err, zk.KindAuth)
	}
}

func TestAServerThatRefusesTheCredentialsIsFatal(t *testing.T) {
	addr := fixture.Script(t, func(conn net.Conn) {
		t.Cleanup(func() { _ = conn.Close() })
		if fixture.Handshake(conn) != nil {
			return
		}
		_, _ = conn.Write(fixture.AuthRefusal())
	})
	_, err := zklayout.Open(fixture.Context(t), zk.Config{Servers: []string{addr}, Auth: &zk.DigestAuth{User: "u", Password: "p"}})
	fixture.MustBeFatal(t, "opening the layout", err, zk.KindAuth)
}

func TestEveryPathIsBelowTheChroot(t *testing.T) {
	cfg := fixture.Config(t) // has one
	layout := openLayout(t, cfg)
	s := openSession(t, cfg, layout, 1)
	made := mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/locks/a"}))
	assert.That(t, made.Paths[0] == zk.DefaultRoot+"/locks/a", "the answer says %s", made.Paths[0])
	whole := cfg
	whole.Chroot = ""
	outside := fixture.NewProbe(t, whole)
	assert.That(t, outside.Stat(cfg.Chroot+zk.DefaultRoot+"/locks/a") != nil, "it is not below the chroot")
	assert.That(t, outside.Stat(zk.DefaultRoot) == nil, "something was made outside the chroot")
}

func TestAnotherServerTakesOverTheSession(t *testing.T) {
	direct := fixture.Config(t)
	layout := openLayout(t, direct)
	a := netfault.NewT(t, direct.Servers[0], netfault.Framed())
	b := netfault.NewT(t, direct.Servers[0], netfault.Framed())
	cfg := direct
	cfg.Servers = []string{a.Addr(), b.Addr()}
	s := openSession(t, cfg, layout, 1)
	used, other := a, b
	if b.Connections() > 0 {
		used, other = b, a
	}
	used.Cut()
	assert.Value(s.Barrier(fixture.Context(t)))(t)
	assert.That(t, other.Connections() == 1, "the session did not move")
}

func queuedWrite(names ...string) *item {
	return &item{write: &zk.Write{Queues: names, Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/x"}}}}
}

func TestAWriteOfSeveralQueuesWaitsUntilItIsTheFirstInEach(t *testing.T) {
	var q queue
	firstA, firstB, secondB := queuedWrite("a"), queuedWrite("b"), queuedWrite("b")
	both, behindA, other := queuedWrite("a", "b"), queuedWrite("a"), queuedWrite("c")
	for _, it := range []*item{firstA, firstB, secondB, both, behindA, other} {
		q.push(it)
	}
	for i, want := range [][]*item{{firstA, firstB, other}, {secondB}, {both}, {behindA}} {
		got := q.take(maxBatchOps, conn.MaxTransaction)
		assert.That(t, slices.Equal(got, want), "transaction %d has %d writes, want %d others", i, len(got), len(want))
	}
	assert.That(t, q.empty() && len(q.waiting) == 0, "%d are left in line, %d queues", len(q.line), len(q.waiting))
}

// A write of one queue is what nearly all are.
func TestAWriteOfOneQueueTakesNoMoreMemory(t *testing.T) {
	var q queue
	it := queuedWrite("a")
	q.push(queuedWrite("a"))
	q.take(1, 1)
	if n := testing.AllocsPerRun(100, func() {
		q.push(it)
		q.pop()
		q.advance("a")
	}); n != 0 {
		t.Errorf("it takes %v allocations to go through the queue", n)
	}
}

// The rules of Write.Queues, for any Writes: one Write of a queue in a transaction, in the order of their coming, all
// go in the end, and no Write is overtaken in a queue by one who came later.
func TestWritesOfSeveralQueuesAllGoInTheOrderOfEachQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var pushed []*item              // that wait, in the order of their coming
		inQueue := map[string][]*item{} // the same by queue
		take := func(t *rapid.T) {
			if q.empty() {
				assert.Must(t, len(pushed) <= 0, "%d wait for each other", len(pushed))
				return
			}
			oldest := pushed[0]
			batch := q.take(rapid.IntRange(1, 5).Draw(t, "ops"), conn.MaxTransaction)
			assert.Must(t, len(batch) != 0, "a transaction without a write")
			seen := map[string]bool{}
			for _, it := range batch {
				assert.Must(t, it.behind == 0, "one goes that stands behind %d others", it.behind)
				for _, name := range it.write.Queues {
					assert.Must(t, !seen[name], "two of queue %s are in one transaction", name)
					seen[name] = true
					assert.Must(t, inQueue[name][0] == it, "one of queue %s overtakes another", name)
					inQueue[name] = inQueue[name][1:]
				}
				if i := slices.Index(pushed, it); i >= 0 {
					pushed = slices.Delete(pushed, i, i+1)
				} else {
					t.Fatalf("one goes twice")
				}
			}
			assert.Must(t, !slices.Contains(pushed, oldest) || slices.Contains(q.line[q.head:], oldest), "the oldest waits for others")
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				n := rapid.IntRange(0, 4).Draw(t, "queues")
				names := rapid.SliceOfNDistinct(rapid.StringMatching("[a-f]"), n, n, rapid.ID).Draw(t, "names")
				it := queuedWrite(names...)
				it.write.Alone = rapid.IntRange(0, 9).Draw(t, "alone") == 0
				q.push(it)
				pushed = append(pushed, it)
				for _, name := range names {
					inQueue[name] = append(inQueue[name], it)
				}
			},
			"take": take,
		})
		if rapid.Bool().Draw(t, "drained") {
			left := q.drain()
			assert.Must(t, len(left) == len(pushed), "%d are drained of %d", len(left), len(pushed))
			for _, it := range pushed {
				assert.Must(t, slices.Contains(left, it), "one is lost")
			}
			return
		}
		for len(pushed) > 0 {
			take(t)
		}
		assert.Must(t, len(q.waiting) == 0, "%d queues are remembered without a Write", len(q.waiting))
	})
}

// Leases over several locks have one order in all queues; so have their ends.
func TestQueuesAreDeletedFromTheirTailsOnAlsoWithLeasesInSeveral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next := map[string]int{}
		var leases []*item
		for range rapid.IntRange(2, 12).Draw(t, "leases") {
			dirs := rapid.SliceOfNDistinct(rapid.StringMatching("/locks/[a-d]"), 1, 3, rapid.ID).Draw(t, "locks")
			it := &item{write: &zk.Write{}, onlyDeletes: true}
			for _, dir := range dirs {
				next[dir]++
				it.write.Ops = append(it.write.Ops, zk.Op{Kind: zk.OpDelete, Path: fmt.Sprintf("%s/write-%010d", dir, next[dir])})
			}
			if rapid.Bool().Draw(t, "with its key") { // which is in no order with anything
				it.write.Ops = append(it.write.Ops, zk.Op{Kind: zk.OpDelete, Path: fmt.Sprintf("/keys/%d", len(leases))})
			}
			leases = append(leases, it)
		}
		create := &item{write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/locks/a/write-", Sequential: true}}}}
		batch := rapid.Permutation(append(leases, create)).Draw(t, "batch")
		batch = batch[:rapid.IntRange(1, len(batch)).Draw(t, "length")]
		want := slices.Clone(batch)
		deletesLast(batch)
		last := map[string]string{}
		for i, it := range batch {
			if it == create {
				assert.Must(t, i <= 0, "a create stands behind %d deletes", i)
				want = slices.DeleteFunc(want, func(o *item) bool { return o == it })
				continue
			}
			for _, op := range it.write.Ops {
				dir, number := place(op.Path)
				before, ok := last[dir]
				assert.Must(t, !ok || number <= before || dir == "/keys", "in %s number %s is deleted behind %s", dir, number, before)
				last[dir] = number
			}
			want = slices.DeleteFunc(want, func(o *item) bool { return o == it })
		}
		assert.Must(t, len(want) <= 0, "%d are lost", len(want))
	})
}

// What cannot be ordered (nodes made by hand) is still all there.
func TestDeletesWithoutAnOrderAreAllCarriedOut(t *testing.T) {
	both := func(a, b int) *item {
		return &item{onlyDeletes: true, write: &zk.Write{Ops: []zk.Op{
			{Kind: zk.OpDelete, Path: fmt.Sprintf("/locks/a/x-%010d", a)}, {Kind: zk.OpDelete, Path: fmt.Sprintf("/locks/b/x-%010d", b)}}}}
	}
	batch := []*item{both(1, 2), both(2, 1), both(3, 3)}
	all := slices.Clone(batch)
	deletesLast(batch)
	for _, it := range all {
		assert.That(t, slices.Contains(batch, it), "one is lost")
	}
}

// A lease over the most locks that one may have, each of them new and with the longest name.
func TestALeaseOverManyLocksFitsUnlessItsDataDoesNot(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.Auth = &zk.DigestAuth{User: "fleet", Password: strings.Repeat("p", 40)}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	group := func(data int) *zk.Write {
		w := &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/keys/" + strings.Repeat("k", 40)}}}
		for i := range 64 {
			dir := fmt.Sprintf("%s/locks/%03d%s", zk.DefaultRoot, i, strings.Repeat("x", 197))
			w.Queues = append(w.Queues, dir)
			w.Ops = append(w.Ops, zk.Op{Kind: zk.OpCreate, Path: dir},
				zk.Op{Kind: zk.OpCreate, Path: dir + "/" + strings.Repeat("n", 100), Sequential: true, Data: make([]byte, data)})
		}
		return w
	}
	refused := group(4 << 10)
	refused.Done = func(zk.Result) { t.Error("Done was called for a write that was refused") }
	assert.ErrorIs(t, s.Submit(refused), zk.ErrTooLarge, "with 4 KiB each")
	made := mustBeDone(t, fixture.Await(t, submit(t, s, group(2<<10))))
	end := &zk.Write{}
	for i, path := range made.Paths {
		if i > 0 && i%2 == 0 {
			end.Ops = append(end.Ops, zk.Op{Kind: zk.OpDelete, Path: path})
		}
	}
	mustBeDone(t, fixture.Await(t, submit(t, s, end)))
}

// 64 locks of one lease and, in each of them, others before and behind.
func TestALargeGroupInTheMiddleOfManyQueues(t *testing.T) {
	var q queue
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprint("/locks/", i))
		q.push(queuedWrite(names[i]))
	}
	group := queuedWrite(names...)
	q.push(group)
	for _, name := range names {
		q.push(queuedWrite(name))
	}
	var sizes []int
	for !q.empty() {
		batch := q.take(maxBatchOps, conn.MaxTransaction)
		sizes = append(sizes, len(batch))
		assert.That(t, !slices.Contains(batch, group) || len(batch) == 1, "the group shares a transaction with one of its queues")
	}
	assert.That(t, slices.Equal(sizes, []int{64, 1, 64}), "transactions of %d writes, want 64, 1, 64", sizes)
}
