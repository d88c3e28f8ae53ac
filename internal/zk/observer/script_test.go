package observer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

func TestWatchesAreSetBeforeTheTreeIsReadOnEveryConnection(t *testing.T) {
	play(t, func(s *stage) {
		s.roots = append(s.roots, zk.WatchRoot{Path: "/gateways", Depth: 1})
		s.zk.tree["/gateways"] = []string{"g"}
		s.cfg.Chroot = "/c"
		s.zk.tree = map[string][]string{"/c/locks": {"a"}, "/c/locks/a": {"x"}, "/c/gateways": {"g"}}
	}, func(s *stage) {
		s.zk.conn(0).nc.Close()
		s.pass(time.Second)
		assert.Must(t, s.zk.sessions() == 2, "%d connections", s.zk.sessions())
		for i := range 2 {
			want := []string{"106 /c/gateways", "106 /c/locks", "12 /c/gateways", "12 /c/locks", "12 /c/locks/a"}
			got := s.zk.conn(i).requests()
			slices.Sort(got[:2]) // which root comes first does not matter
			slices.Sort(got[2:4])
			diff := cmp.Diff(want, got)
			assert.That(t, diff == "", "connection %d: -want +got\n%s", i, diff)
		}
		assert.Equal(t, s.m.tree(), "/gateways: g\n/locks/a: x\n", "tree")
	})
}

func TestEventsAndRepliesTakeEffectInTheOrderOfTheStream(t *testing.T) {
	play(t, func(s *stage) {
		s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
			switch r.String() {
			case "12 /locks":
				// Between the watch and the listing: y comes and x goes.
				c.write(event(wire.EventCreated, "/locks/a/y"))
				c.write(event(wire.EventDeleted, "/locks/a/x"))
				c.write(c.answer(r))
				return true
			case "12 /locks/a":
				// z is in the listing, its event came before; and right after the listing y goes.
				frames := event(wire.EventCreated, "/locks/a/z")
				frames = append(frames, reply(r.xid, 105, wire.OK, children(1, "w", "y", "z"))...)
				frames = append(frames, event(wire.EventDeleted, "/locks/a/y")...)
				c.write(frames)
				return true
			}
			return false
		}
	}, func(s *stage) {
		s.expectTail("DirAdded* /locks/a", "NodeAdded /locks/a y", "NodeRemoved /locks/a x",
			"NodeAdded /locks/a z", "NodeAdded* /locks/a w", "DirListed* /locks/a", "NodeRemoved /locks/a y", "Synced")
		assert.Equal(t, s.m.tree(), "/locks/a: w z\n", "tree")
	})
}

func TestWhatWasMissedBetweenConnectionsIsToldWithTheReplysZxid(t *testing.T) {
	play(t, func(s *stage) {
		s.zk.setTree(100, map[string][]string{"a": {"x", "y"}, "gone": {"z"}})
	}, func(s *stage) {
		s.zk.setTree(200, map[string][]string{"a": {"y", "new"}, "fresh": {"f"}})
		var zxids []int64
		s.m.mu.Lock()
		s.m.onApply = func(changes []zk.Change) {
			for _, c := range changes {
				if c.Listed {
					zxids = append(zxids, c.Zxid)
				}
			}
		}
		s.m.mu.Unlock()
		s.zk.conn(0).nc.Close()
		s.pass(time.Second)
		s.expectTail("Lost",
			"DirAdded* /locks/fresh", "NodeRemoved* /locks/gone z", "DirRemoved* /locks/gone",
			"NodeAdded* /locks/a new", "NodeRemoved* /locks/a x", "DirListed* /locks/a",
			"NodeAdded* /locks/fresh f", "DirListed* /locks/fresh", "Synced")
		assert.That(t, len(zxids) == 8 && slices.Min(zxids) == 200 && slices.Max(zxids) == 200,
			"zxids of what was listed: %v, want 200 each", zxids)
	})
}

func TestTheHighestZxidOfBothSessionsIsShownToTheServer(t *testing.T) {
	writer := int64(50)
	play(t, func(s *stage) {
		s.writer = func() int64 { return writer }
		s.zk.zxid = 70
	}, func(s *stage) {
		s.zk.conn(0).nc.Close()
		s.pass(time.Second)
		writer = 90
		s.zk.set(func() { s.zk.zxid = 90 })
		s.zk.conn(1).nc.Close()
		s.pass(time.Second)
		var seen []int64
		for _, h := range s.zk.hellos {
			seen = append(seen, h.LastZxidSeen)
			assert.That(t, h.SessionID == 0 && h.HasReadOnly && !h.ReadOnly && h.TimeoutMs == 9000, "connect request %+v", h)
		}
		diff := cmp.Diff([]int64{50, 70, 90}, seen)
		assert.That(t, diff == "", "lastZxidSeen: -want +got\n%s", diff)
	})
}

func TestAServerThatLagsBehindIsPassedOver(t *testing.T) {
	play(t, func(s *stage) {
		s.cfg.Servers = []string{"one:1", "two:1", "three:1"}
		s.zk.admit = func(server string, hello wire.ConnectRequest) bool {
			return server == "two:1" || hello.LastZxidSeen == 0
		}
		s.writer = func() int64 { return 60 }
	}, func(s *stage) {
		s.pass(time.Minute)
		got := s.o.State()
		assert.That(t, got.Server == "two:1" && got.Synced, "state %+v", got)
		assert.Equal(t, s.zk.sessions(), 1, "sessions")
	})
}

func TestAReplyFromThePastEndsTheConnection(t *testing.T) {
	play(t, func(s *stage) {
		s.writer = func() int64 { return 80 }
	}, func(s *stage) {
		s.zk.set(func() { s.zk.zxid = 79 })
		s.pass(3 * time.Second) // a ping
		assert.That(t, !s.o.State().Synced && s.zk.sessions() >= 2,
			"state %+v after %d sessions: a server that went back in time is believed", s.o.State(), s.zk.sessions())
	})
}

func TestABurstIsOneApply(t *testing.T) {
	play(t, nil, func(s *stage) {
		before := len(s.m.slices)
		var frames []byte
		for _, n := range []string{"b", "c", "d"} {
			frames = append(frames, event(wire.EventCreated, "/locks/"+n)...)
			frames = append(frames, event(wire.EventCreated, "/locks/"+n+"/x")...)
		}
		s.zk.conn(0).write(frames)
		synctest.Wait()
		got := s.m.slices[before:]
		assert.That(t, len(got) == 1 && len(got[0]) == 6, "six events were applied as %v", got)
	})
}

func TestAuthenticationComesFirst(t *testing.T) {
	play(t, func(s *stage) {
		s.cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "secret"}
	}, func(s *stage) {
		want := []string{"100 digest fleet:secret", "106 /locks", "12 /locks", "12 /locks/a"}
		diff := cmp.Diff(want, s.zk.conn(0).requests())
		assert.That(t, diff == "", "-want +got\n%s", diff)
		assert.That(t, s.o.State().Synced, "not synced: the reply to the authentication, with zxid 0, must not disturb")
	})
}

func TestFatalAnswersEndRun(t *testing.T) {
	for _, c := range []struct {
		op   wire.Op
		err  wire.ErrCode
		kind zk.FatalKind
	}{
		{wire.OpAuth, wire.ErrAuthFailed, zk.KindAuth},
		{wire.OpAddWatch, wire.ErrUnimplemented, zk.KindServerTooOld},
	} {
		play(t, func(s *stage) {
			s.cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "secret"}
			s.zk.intercept = func(conn *fakeConn, r fakeRequest) bool {
				if r.op != c.op {
					return false
				}
				conn.write(reply(r.xid, 100, c.err))
				return true
			}
		}, func(s *stage) {
			s.over = true
			fatal, ok := errors.AsType[*zk.FatalError](<-s.ended)
			assert.That(t, ok && fatal.Kind == c.kind && fatal.Hint != "" && errors.Is(fatal, c.err),
				"Run: %v, want a fatal error of kind %s with a hint", fatal, c.kind)
			assert.ErrorIs(t, s.o.Reached(context.Background(), 1<<40), zk.ErrUnavailable, "Reached after the end")
			assert.ErrorIs(t, s.o.Get("/locks/a/x", nil), zk.ErrUnavailable, "Get after the end")
		})
	}
}

func TestAConfigurationThatMakesNoSenseEndsRun(t *testing.T) {
	for _, c := range []struct {
		cfg  zk.Config
		root zk.WatchRoot
	}{
		{zk.Config{}, locksRoot},
		{zk.Config{Servers: []string{"a:1"}}, zk.WatchRoot{Path: "/locks", Depth: 3}},
		{zk.Config{Servers: []string{"a:1"}}, zk.WatchRoot{Path: "locks", Depth: 2}},
	} {
		err := New(c.cfg, []zk.WatchRoot{c.root}, newMirror(), nil).Run(t.Context())
		fatal, ok := errors.AsType[*zk.FatalError](err)
		assert.That(t, ok && fatal.Kind == zk.KindConfig, "%+v %+v: %v", c.cfg, c.root, err)
	}
}

func TestRunMayBeCalledOnce(t *testing.T) {
	play(t, nil, func(s *stage) {
		assert.That(t, s.o.Run(context.Background()) != nil, "a second Run was accepted")
	})
}

func TestRunEndsTheSessionWhenItsContextEnds(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.finish()
		s.zk.set(func() { assert.That(t, s.zk.conns[0].closed, "the server was not told") })
		s.expectTail("Synced", "Lost")
		assert.That(t, !s.o.Freshness().Current(s.cfg.Clock.Now()), "still current")
	})
}

func TestRunEndsInEveryState(t *testing.T) {
	for name, setUp := range map[string]func(s *stage){
		"dialing": func(s *stage) { s.zk.refuse["one:1"] = true },
		"shaking hands": func(s *stage) {
			s.zk.admit = func(string, wire.ConnectRequest) bool { time.Sleep(time.Minute); return false }
		},
		"reading the tree": func(s *stage) {
			s.zk.intercept = func(_ *fakeConn, r fakeRequest) bool { return r.op == wire.OpGetChildren2 }
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, setUp, func(s *stage) {
				s.pass(500 * time.Millisecond)
				began := time.Now()
				s.finish()
				took := time.Since(began)
				assert.That(t, took <= time.Second, "Run ended %v after its context", took)
				s.pass(time.Minute) // for the server that shakes no hands
			})
		})
	}
}

func TestBadRepliesEndTheConnectionAndChangeNothing(t *testing.T) {
	for name, frames := range map[string][]byte{
		"out of turn":              reply(999, 200, wire.OK),
		"a ping that was not sent": slices.Concat(reply(wire.XidPing, 200, wire.OK), reply(wire.XidPing, 200, wire.OK), reply(wire.XidPing, 200, wire.OK)),
		"an event cut short":       event(wire.EventDeleted, "/locks/a/x")[:20],
		"a removed watch":          event(wire.EventPersistentWatchRemoved, "/locks"),
		"a frame above the limit":  wire.AppendInt(nil, maxObserved+1),
		"a frame without a header": {0, 0, 0, 2, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(s *stage) {
				if name == "an event cut short" {
					frames = slices.Concat([]byte{0, 0, 0, 16}, frames[4:20])
				}
				before := len(s.m.lines())
				go s.zk.conn(0).write(frames) // which may not be read to its end
				s.pass(time.Second)
				assert.Must(t, s.zk.sessions() == 2, "%d connections, want a second one", s.zk.sessions())
				want := []string{"Lost", "DirListed* /locks/a", "Synced"}
				diff := cmp.Diff(want, s.m.lines()[before:])
				assert.That(t, diff == "", "-want +told\n%s", diff)
			})
		})
	}
}

// TestWhatPrecedesABadFrameHasHappened: the events of a burst count although
// its end is garbage, but its zxids prove nothing.
func TestWhatPrecedesABadFrameHasHappened(t *testing.T) {
	play(t, func(s *stage) {
		s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
			if r.op != wire.OpGetChildren2 || r.path != "/locks/a" || s.o == nil || !s.o.State().Synced {
				return false
			}
			cut := reply(r.xid, 500, wire.OK, children(1, "x"))
			cut = cut[:len(cut)-1]
			cut[3]--
			c.write(append(event(wire.EventCreated, "/locks/a/y"), cut...))
			return true
		}
	}, func(s *stage) {
		reached := make(chan error, 1)
		s.o.List("/locks/a")
		synctest.Wait()
		assert.That(t, s.m.has("NodeAdded /locks/a y"), "the event before the bad reply was dropped")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		go func() { reached <- s.o.Reached(ctx, 500) }()
		s.zk.set(func() { s.zk.zxid = 400 })
		s.pass(20 * time.Second)
		testkit.Nothing(t, reached, "Reached believes a reply that could not be applied")
		cancel()
		<-reached
	})
}

func TestSilenceEndsTheConnection(t *testing.T) {
	play(t, func(s *stage) {
		s.cfg.PromiseWindow = 600 * time.Second // so that the session timeout counts: 6 s
	}, func(s *stage) {
		s.zk.set(func() { s.zk.conns[0].silent = true })
		s.pass(5 * time.Second)
		assert.That(t, s.zk.sessions() == 1, "given up too early")
		s.pass(6 * time.Second)
		assert.That(t, s.zk.sessions() == 2 && s.o.State().Synced, "%d connections, state %+v", s.zk.sessions(), s.o.State())
	})
}

func TestALongReplyThatIsStillArrivingIsNoSilence(t *testing.T) {
	play(t, func(s *stage) {
		s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
			if r.String() == "12 /locks/a" {
				go func() { // three times the silence that ends a connection
					for frame := c.answer(r); len(frame) > 0; frame = frame[1:] {
						c.nc.Write(frame[:1])
						time.Sleep(9 * time.Second / time.Duration(len(c.answer(r))))
					}
				}()
				return true
			}
			// Nothing can be answered in the middle of a frame.
			return r.op == wire.OpPing
		}
	}, func(s *stage) {
		s.pass(10 * time.Second)
		assert.That(t, s.zk.sessions() == 1 && s.o.State().Synced, "%d connections, state %+v", s.zk.sessions(), s.o.State())
	})
}

func TestASinkThatTookLongIsNoSilenceOfTheServer(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.m.mu.Lock()
		slow := true
		s.m.onApply = func([]zk.Change) {
			if slow {
				slow = false
				time.Sleep(10 * time.Second) // the machine was busy
			}
		}
		s.m.mu.Unlock()
		conn := s.zk.conn(0)
		conn.write(event(wire.EventCreated, "/locks/a/y"))
		go func() {
			conn.write(event(wire.EventCreated, "/locks/a/z"))
			conn.write(event(wire.EventCreated, "/locks/a/last"))
		}()
		s.pass(15 * time.Second)
		if s.zk.sessions() != 1 || !s.m.has("NodeAdded /locks/a last") {
			t.Errorf("%d connections, state %+v", s.zk.sessions(), s.o.State())
		}
	})
}

func TestRunEndsAtOnceWhileNothingArrives(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.pass(1500 * time.Millisecond) // the next ping is due in half a second
		asked := time.Now()
		s.finish()
		assert.That(t, time.Since(asked) <= closeLimit, "Run ended after %v", time.Since(asked))
	})
}

// The end of ctx interrupts a read, and there is none while the sink is told something.
func TestRunEndsAtOnceWhenTheSinkWasBusyMeanwhile(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.pass(1500 * time.Millisecond) // the next ping is due in half a second
		s.m.mu.Lock()
		s.m.onApply = func([]zk.Change) {
			s.cancel()
			time.Sleep(time.Millisecond)
		}
		s.m.mu.Unlock()
		asked := time.Now()
		s.zk.conn(0).write(event(wire.EventCreated, "/locks/a/y"))
		s.finish()
		assert.That(t, time.Since(asked) <= 2*closeLimit, "Run ended after %v", time.Since(asked))
	})
}

func TestAPingWithoutAnswerForHalfTheWindowEndsTheConnection(t *testing.T) {
	play(t, nil, func(s *stage) { // window 6 s, session 9 s
		s.zk.set(func() { s.zk.conns[0].silent = true })
		s.pass(2 * time.Second)
		assert.That(t, s.zk.sessions() == 1, "given up too early")
		s.pass(3 * time.Second)
		assert.That(t, s.zk.sessions() == 2, "half the window has passed without a sign of life")
	})
}

func TestAQuietConnectionIsKeptAliveByPings(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.pass(time.Minute)
		c := s.zk.conn(0)
		if s.zk.sessions() != 1 || c.pings < 55 || c.pings > 85 { // window/6 = 1 s
			t.Errorf("%d connections, %d pings in a minute", s.zk.sessions(), c.pings)
		}
	})
}

func TestAttemptsArePacedAndGoRoundTheServers(t *testing.T) {
	play(t, func(s *stage) {
		s.cfg.Servers = []string{"one:1", "two:1", "three:1"}
		for _, name := range s.cfg.Servers {
			s.zk.refuse[name] = true
		}
	}, func(s *stage) {
		s.pass(time.Minute)
		s.zk.set(func() {
			n := len(s.zk.dials)
			assert.That(t, n >= 30 && n <= 150, "%d attempts in a minute", n)
			for i := 3; i < n; i++ {
				if s.zk.dials[i] != s.zk.dials[i-3] {
					t.Fatalf("the servers do not take turns: %s", strings.Join(s.zk.dials[:10], " "))
				}
			}
			clear(s.zk.refuse)
		})
		s.pass(2 * lastRetry)
		assert.That(t, s.o.State().Synced, "not back after the longest pause")
	})
}

func TestAConnectionThatNeverLastsIsNotRetriedWithoutPause(t *testing.T) {
	play(t, func(s *stage) {
		s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
			if r.op == wire.OpGetChildren2 && r.path == "/locks/a" {
				c.write(c.answer(r))
				c.nc.Close()
				return true
			}
			return false
		}
	}, func(s *stage) {
		s.pass(time.Minute)
		n := s.zk.sessions()
		assert.That(t, n <= 150, "the tree was read %d times in a minute", n)
	})
}
