package observer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

func TestAGetIsAnsweredAtItsPlaceInTheStream(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.zk.set(func() {
			s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
				if r.op != wire.OpGetData {
					return false
				}
				c.write(slices.Concat(event(wire.EventCreated, "/locks/a/before"), c.answer(r), event(wire.EventCreated, "/locks/a/after")))
				return true
			}
		})
		var before, after bool
		s.o.Get("/locks/a/x", func([]byte, wire.Stat, int64, error) {
			before, after = s.m.has("NodeAdded /locks/a before"), s.m.has("NodeAdded /locks/a after")
		})
		synctest.Wait()
		assert.That(t, before && !after, "before the answer the sink was told what precedes it: %v, and what follows it: %v", before, after)
	})
}

// The connection ends with a reply that goes back in time, and each Get under way is answered.
func TestAGetWhoseReplyGoesBackInTimeIsAnswered(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.zk.set(func() {
			s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
				if r.op != wire.OpGetData || s.zk.sessions() > 1 {
					return false
				}
				c.write(reply(r.xid, 50, wire.OK, &wire.DataReply{Data: []byte("of long ago")}))
				return true
			}
		})
		var answers []error
		assert.NoError(t, s.o.Get("/locks/a/x", func(_ []byte, _ wire.Stat, _ int64, err error) { answers = append(answers, err) }))
		s.pass(5 * time.Second)
		assert.That(t, len(answers) == 1 && answers[0] != nil, "answers: %v", answers)
		assert.Equal(t, s.o.getCount, 0, "Gets under way")
		assert.Equal(t, s.zk.sessions(), 2, "connections")
	})
}

func TestPathsAreAllBelowTheChroot(t *testing.T) {
	play(t, func(s *stage) {
		s.cfg.Chroot = "/c"
		s.zk.tree = map[string][]string{"/c/locks": {"a"}, "/c/locks/a": {"x"}}
	}, func(s *stage) {
		s.o.List("/locks/a")
		synctest.Wait()
		s.o.Get("/locks/a/x", func(data []byte, _ wire.Stat, _ int64, _ error) {
			assert.That(t, string(data) == "data of /c/locks/a/x", "got the %s", data)
		})
		go s.o.Reached(context.Background(), 1000)
		synctest.Wait()
		got := s.zk.conn(0).requests()
		want := []string{"12 /c/locks/a", "4 /c/locks/a/x", "9 /c"}
		assert.That(t, len(got) >= 6 && slices.Equal(got[3:6], want), "requests %v, want %v at the end", got, want)
	})
}

func TestAReplyOutOfTurnEndsTheConnection(t *testing.T) {
	play(t, func(s *stage) {
		s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
			if r.path != "/locks/a" || s.zk.sessions() > 1 {
				return false
			}
			c.write(reply(r.xid+1, 100, wire.OK, children(1, "y")))
			return true
		}
	}, func(s *stage) {
		s.pass(time.Second)
		if s.zk.sessions() != 2 || s.m.has("NodeAdded* /locks/a y") {
			t.Errorf("%d sessions, told %v", s.zk.sessions(), s.m.lines())
		}
	})
}

func TestGetsAreAnsweredOnceEvenWhenTheConnectionIsLost(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.zk.set(func() {
			s.zk.intercept = func(_ *fakeConn, r fakeRequest) bool { return r.op == wire.OpGetData }
		})
		const asked = getWindow + 50 // some in flight, some waiting
		answered := make(map[int]int)
		for i := range asked {
			err := s.o.Get(fmt.Sprintf("/locks/a/%d", i), func(_ []byte, _ wire.Stat, _ int64, err error) {
				assert.That(t, errors.Is(err, zk.ErrUnavailable), "Get %d: %v", i, err)
				assert.That(t, s.m.has("Lost"), "a Get failed before the sink heard why")
				answered[i]++
			})
			assert.NoError(t, err)
		}
		synctest.Wait()
		assert.Equal(t, len(s.zk.conn(0).requests()), 3+getWindow, "requests were sent, want the tree read and %d Gets", getWindow)
		s.zk.set(func() { s.zk.intercept = nil })
		s.zk.conn(0).nc.Close()
		s.pass(time.Second)
		assert.That(t, len(answered) == asked, "%d of %d Gets were answered", len(answered), asked)
		for i, n := range answered {
			assert.That(t, n == 1, "Get %d was answered %d times", i, n)
		}
		ok := false
		s.o.Get("/locks/a/x", func(data []byte, _ wire.Stat, zxid int64, err error) {
			ok = string(data) == "data of /locks/a/x" && zxid == 100 && err == nil
		})
		synctest.Wait()
		assert.That(t, ok, "the next connection does not answer")
	})
}

func TestGetIsBounded(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.zk.set(func() {
			s.zk.intercept = func(_ *fakeConn, r fakeRequest) bool { return r.op == wire.OpGetData }
		})
		answers := 0
		reply := func([]byte, wire.Stat, int64, error) { answers++ }
		for range maxGets {
			assert.NoError(t, s.o.Get("/locks/a/x", reply))
		}
		assert.ErrorIs(t, s.o.Get("/locks/a/x", reply), zk.ErrQueueFull, "Get beyond the bound")
		s.zk.set(func() { s.zk.intercept = nil })
		s.zk.conn(0).nc.Close()
		s.pass(time.Second)
		assert.That(t, answers == maxGets, "%d answers to %d Gets", answers, maxGets)
		assert.Nil(t, s.o.Get("/locks/a/x", reply), "after the answers")
		synctest.Wait()
	})
}

func TestAGetWithoutConnectionFailsAtOnce(t *testing.T) {
	play(t, func(s *stage) { s.zk.refuse["one:1"] = true }, func(s *stage) {
		assert.ErrorIs(t, s.o.Get("/locks/a/x", nil), zk.ErrUnavailable, "Get")
	})
}

func TestListIsSentAfterTheCallAndOncePerDirectory(t *testing.T) {
	play(t, nil, func(s *stage) {
		var held []fakeRequest
		s.zk.set(func() {
			s.zk.intercept = func(_ *fakeConn, r fakeRequest) bool {
				if r.op == wire.OpGetChildren2 {
					held = append(held, r)
				}
				return r.op == wire.OpGetChildren2
			}
		})
		s.o.List("/locks/a")
		synctest.Wait()
		// One is under way; it may have been answered before this call.
		s.o.List("/locks/a")
		synctest.Wait()
		assert.Must(t, len(held) == 2, "%d listings sent for two calls, the second after the first was under way", len(held))
		c := s.zk.conn(0)
		c.write(reply(held[0].xid, 101, wire.OK, children(1, "x")))
		c.write(reply(held[1].xid, 102, wire.OK, children(1, "x", "hidden")))
		synctest.Wait()
		s.expectTail("DirListed* /locks/a", "NodeAdded* /locks/a hidden", "DirListed* /locks/a")
		// What is not watched, and what is no directory, is not listed.
		s.o.List("/elsewhere")
		s.o.List("/locks/a/x")
		synctest.Wait()
		if len(held) != 2 {
			t.Errorf("%v was sent", held[2:])
		}
	})
}

func TestListsThatCannotBeSentYetBecomeOne(t *testing.T) {
	play(t, nil, func(s *stage) {
		var held []fakeRequest
		s.zk.set(func() {
			s.zk.intercept = func(_ *fakeConn, r fakeRequest) bool {
				held = append(held, r)
				return r.op == wire.OpGetChildren2
			}
		})
		for i := range listWindow {
			s.o.List(fmt.Sprintf("/locks/%d", i))
		}
		synctest.Wait()
		for range 50 {
			s.o.List("/locks/a")
			synctest.Wait()
		}
		for i := 0; i < len(held); i++ {
			s.zk.conn(0).write(reply(held[i].xid, 100, wire.ErrNoNode))
			synctest.Wait()
		}
		n := len(held) - listWindow
		assert.That(t, n >= 1 && n <= 2, "%d listings for 50 calls while the window was full", n)
	})
}

func TestListComesBeforeTheTreeReadThatIsStillGoingOn(t *testing.T) {
	var blocked []fakeRequest
	play(t, func(s *stage) {
		dirs := map[string][]string{}
		for i := range 2 * listWindow {
			dirs[fmt.Sprintf("d%04d", i)] = nil
		}
		s.zk.setTree(100, dirs)
		s.zk.intercept = func(_ *fakeConn, r fakeRequest) bool {
			if r.op == wire.OpGetChildren2 && r.path != "/locks" {
				blocked = append(blocked, r)
				return true
			}
			return false
		}
	}, func(s *stage) {
		assert.Must(t, len(blocked) == listWindow, "%d listings in flight, want %d", len(blocked), listWindow)
		s.o.List("/locks/d0500")
		synctest.Wait()
		c := s.zk.conn(0)
		c.write(c.answer(blocked[0]))
		synctest.Wait()
		last := blocked[len(blocked)-1]
		assert.That(t, len(blocked) == listWindow+1 && last.path == "/locks/d0500", "the next of %d listings is %v", len(blocked), last)
	})
}

func TestTooManyListsBecomeATreeRead(t *testing.T) {
	play(t, nil, func(s *stage) {
		stuck := make(chan struct{})
		s.m.mu.Lock()
		s.m.onApply = func([]zk.Change) { <-stuck } // the observer does not get to its work
		s.m.mu.Unlock()
		s.zk.conn(0).write(event(wire.EventCreated, "/locks/a/y"))
		synctest.Wait()
		for i := range maxLists + 10 {
			s.o.List(fmt.Sprintf("/locks/%d", i))
		}
		s.o.mu.Lock()
		n := len(s.o.lists)
		s.o.mu.Unlock()
		assert.That(t, n <= maxLists, "%d directories are remembered", n)
		s.m.mu.Lock()
		s.m.onApply = nil
		s.m.mu.Unlock()
		s.zk.setTree(101, map[string][]string{"a": {"x", "y"}})
		close(stuck)
		synctest.Wait()
		got := s.zk.conn(0).requests()
		assert.That(t, len(got) == 5 && got[3] == "12 /locks" && got[4] == "12 /locks/a", "requests %v", got)
		s.expectTail("NodeAdded /locks/a y", "DirListed* /locks/a")
		assert.That(t, s.o.State().Synced, "no longer synced")
	})
}

func TestListingTheTopFindsDirectoriesWhoseEventsWereWithheld(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.zk.setTree(110, map[string][]string{"hidden": {"n"}})
		s.o.List("/locks")
		synctest.Wait()
		s.expectTail("DirAdded* /locks/hidden", "NodeRemoved* /locks/a x", "DirRemoved* /locks/a", "NodeAdded* /locks/hidden n", "DirListed* /locks/hidden")
	})
}

func TestReachedMakesTheServerCatchUp(t *testing.T) {
	play(t, nil, func(s *stage) {
		syncs := 0
		s.zk.set(func() {
			s.zk.intercept = func(_ *fakeConn, r fakeRequest) bool {
				if r.op == wire.OpSync {
					syncs++
					s.zk.set(func() { s.zk.zxid = 150 })
				}
				return false
			}
		})
		began := time.Now()
		for range 3 {
			assert.NoError(t, s.o.Reached(context.Background(), 150))
		}
		took := time.Since(began)
		assert.That(t, took == 0 && syncs == 1, "%v and %d syncs, want one at once", took, syncs)
		// A zxid that does not exist yet is asked for patiently.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.ErrorIs(t, s.o.Reached(ctx, 1000), context.DeadlineExceeded, "Reached")
		assert.That(t, syncs <= 700, "%d syncs in a minute", syncs)
		s.o.mu.Lock()
		defer s.o.mu.Unlock()
		assert.That(t, len(s.o.reachers) == 0, "a cancelled wait is remembered")
	})
}

func TestReachedWaitsOverALostConnectionAndUntilTheTreeIsRead(t *testing.T) {
	play(t, nil, func(s *stage) {
		var held []fakeRequest
		s.zk.set(func() {
			s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
				if r.op == wire.OpGetChildren2 {
					held = append(held, r)
					return true
				}
				return false
			}
			s.zk.zxid = 150
		})
		s.zk.conn(0).nc.Close()
		reached := make(chan error, 1)
		go func() { reached <- s.o.Reached(context.Background(), 150) }()
		s.pass(time.Second)
		testkit.Nothing(t, reached, "reached by the zxid of a reply, though the tree has not been read")
		for len(held) > 0 {
			r := held[0]
			held = held[1:]
			c := s.zk.conn(1)
			c.write(c.answer(r))
			synctest.Wait()
		}
		assert.Nil(t, <-reached)
	})
}

func TestReachedIsAnsweredWhenRunEnds(t *testing.T) {
	play(t, nil, func(s *stage) {
		reached := make(chan error, 1)
		go func() { reached <- s.o.Reached(context.Background(), 1<<40) }()
		synctest.Wait()
		s.finish()
		assert.ErrorIs(t, <-reached, zk.ErrUnavailable, "Reached")
	})
}

func TestARootAddedWithoutConnectionIsPartOfTheNextTreeRead(t *testing.T) {
	play(t, func(s *stage) {
		s.zk.refuse["one:1"] = true
		s.zk.tree["/gateways"] = []string{"g"}
	}, func(s *stage) {
		for range 2 * maxRoots {
			assert.NoError(t, s.o.AddRoot(zk.WatchRoot{Path: "/gateways", Depth: 1}))
		}
		s.o.mu.Lock()
		assert.Equal(t, len(s.o.newRoots), 2, "roots are remembered, want two")
		s.o.mu.Unlock()
		s.zk.set(func() { clear(s.zk.refuse) })
		s.pass(4 * lastRetry)
		got := s.m.tree()
		assert.That(t, got == "/gateways: g\n/locks/a: x\n" && s.m.count("Synced") == 1, "tree\n%s", got)
	})
}

func TestRootsAreBounded(t *testing.T) {
	o := New(zk.Config{Servers: []string{"a:1"}}, nil, newMirror(), nil)
	for i := range maxRoots {
		assert.NoError(t, o.AddRoot(zk.WatchRoot{Path: fmt.Sprintf("/r%d", i), Depth: 1}))
	}
	assert.ErrorIs(t, o.AddRoot(zk.WatchRoot{Path: "/more", Depth: 1}), zk.ErrQueueFull, "a root too many")
}

// TestCallsFromTheSinkDoNotBlock: the sink may ask for more from within Apply.
func TestCallsFromTheSinkDoNotBlock(t *testing.T) {
	play(t, nil, func(s *stage) {
		got := false
		s.m.mu.Lock()
		s.m.onApply = func(changes []zk.Change) {
			if changes[0].Kind != zk.NodeAdded {
				return
			}
			s.o.List("/locks/a")
			s.o.AddRoot(zk.WatchRoot{Path: "/more", Depth: 1})
			s.o.Get("/locks/a/y", func([]byte, wire.Stat, int64, error) {
				got = true
				s.o.List("/locks/a")
			})
		}
		s.m.mu.Unlock()
		s.zk.setTree(101, map[string][]string{"a": {"x", "y"}})
		s.zk.conn(0).write(event(wire.EventCreated, "/locks/a/y"))
		s.pass(time.Second)
		if !got || s.m.count("DirListed* /locks/a") != 3 || s.m.count("Synced /more") != 1 {
			t.Errorf("got %v, told %v", got, s.m.lines())
		}
	})
}

func TestAListingOfADirectoryTooLargeForOneReadIsOneSlice(t *testing.T) {
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("contender-with-a-rather-long-name-%010d", i))
	}
	play(t, func(s *stage) { s.zk.setTree(100, map[string][]string{"a": names}) }, func(s *stage) {
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		assert.Must(t, len(s.m.dirs["/locks/a"]) == len(names), "%d nodes", len(s.m.dirs["/locks/a"]))
		assert.That(t, slices.ContainsFunc(s.m.slices, func(kinds []zk.ChangeKind) bool { return len(kinds) > len(names) }),
			"the listing was told in pieces")
	})
}
