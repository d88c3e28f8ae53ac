package manager

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (g *gate) downgrade(l locks.Lease) (locks.Lease, error) {
	return g.m.Downgrade(g.t.Context(), locks.Anonymous, l.ID, l.Token)
}

// Attacks 4 and 11: a writer that waits gets in neither in between nor afterwards, at whatever gateway, readers behind
// the holder do, and the token stays below those that come later.
func TestADowngradeLetsReadersInAndNoWriter(t *testing.T) {
	for _, group := range [][]locks.Want{{{Lock: "a"}}, {{Lock: "a"}, {Lock: "b"}, {Lock: "c", Mode: locks.Shared}}} {
		t.Run(fmt.Sprint(len(group)), in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
			l := one.mustHold(locks.AcquireRequest{TTL: time.Minute, Group: group, Owner: "me", Metadata: "m"})
			read := locks.AcquireRequest{Lock: "a", Mode: locks.Shared, TTL: time.Minute, Wait: locks.WaitForever}
			write := locks.AcquireRequest{Lock: "a", TTL: time.Minute, Wait: locks.WaitForever}
			reader := two.begin(read)
			reader.passed()
			writers := []*pending{one.begin(write), two.begin(write)}
			assert.Must(t, !writers[0].passed() && !reader.passed(), "granted beside an exclusive lease")
			for range 2 { // repeated: the lease as it is
				v := assert.Value(one.downgrade(l))(t)
				assert.That(t, v.FencingToken == l.FencingToken && v.State == locks.Held && v.Owner == "me" && v.Metadata == "m",
					"%+v", v)
				mode := v.Mode
				assert.That(t, len(group) != 1 || mode == locks.Shared, "mode %s", mode)
				for _, k := range v.Locks {
					assert.That(t, k.Mode == locks.Shared, "%+v", k)
				}
			}
			assert.Must(t, reader.passed() && reader.err == nil, "the reader was not let in: %v", reader.err)
			assert.That(t, reader.lease.FencingToken > l.FencingToken, "tokens fall")
			assert.Must(t, !writers[0].passed() && !writers[1].passed(), "a writer beside readers")
			checkAll(t, s, one, two)
			assert.Value(one.heartbeat(l))(t)
			two.mustRelease(reader.lease)
			assert.Must(t, !writers[0].passed() && !writers[1].passed(), "a writer beside the downgraded lease")
			one.mustRelease(l)
			for i := 0; !writers[0].passed() || !writers[1].passed(); i++ {
				for _, p := range writers {
					if p.passed() && p.err == nil {
						g := map[bool]*gate{true: one, false: two}[p == writers[0]]
						_ = g.release(p.lease)
					}
				}
				assert.Must(t, i <= 5, "the writers were not let in")
			}
			for _, g := range []*gate{one, two} {
				var told []string
				for _, e := range g.told() {
					if e.LeaseID == l.ID && e.Lock == "a" {
						told = append(told, e.Type.String()+" "+e.Mode)
					}
				}
				end := "lease.released shared"
				if g == two {
					end = "lease.removed shared"
				}
				want := fmt.Sprint([]string{"lease.queued exclusive", "lease.granted exclusive", "lease.updated shared", end})
				assert.That(t, fmt.Sprint(told) == want, "told %v, want %v", told, want)
			}
		}))
	}
}

func TestADowngradeOutlivesItsGateway(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		writer := two.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: locks.WaitForever})
		writer.passed()
		assert.Value(one.downgrade(l))(t)
		one.crash()
		time.Sleep(11 * time.Second)
		assert.Value(two.heartbeat(l))(t)
		v := two.look(l)
		assert.That(t, v.Mode == locks.Shared && v.FencingToken == l.FencingToken, "%+v", v)
		assert.Must(t, !writer.passed(), "a writer beside it")
		checkAll(t, s, two)
		two.mustRelease(l)
		assert.Must(t, writer.passed() && writer.err == nil && writer.lease.FencingToken > l.FencingToken,
			"%v %+v", writer.err, writer.lease)
	})
}

// A downgrade in pairs: failed, and failed but persisted; while it is not known the lease may be let go.
func TestADowngradeWhoseAnswerIsLost(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		for _, let := range []bool{false, true} {
			t.Run(fmt.Sprint("persisted ", persisted, " released ", let), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
				l := g.mustHold(both(0))
				s.set(func() { s.vague, s.drop = writeTo("/read-v1"), !persisted })
				done := make(chan error, 1)
				go func() {
					_, err := g.downgrade(l)
					done <- err
				}()
				time.Sleep(20 * time.Millisecond)
				s.set(func() { s.vague = nil })
				if let {
					for i := 0; ; i++ {
						err := g.release(l)
						if err == nil {
							break
						}
						assert.Must(t, i != 10, "%v", err)
						time.Sleep(time.Second)
					}
					<-done
					time.Sleep(5 * time.Second)
					assert.Equal(t, s.waiting("a", "b"), 0, "contenders are left")
					checkAll(t, s, g)
					return
				}
				<-done
				time.Sleep(5 * time.Second)
				assert.Value(g.downgrade(l))(t)
				assert.Value(g.heartbeat(l))(t)
				g.mustHold(locks.AcquireRequest{Lock: "a", Mode: locks.Shared})
				checkAll(t, s, g)
				g.mustRelease(l)
				assert.Equal(t, s.waiting("a", "b"), 1, "contenders")
			}))
		}
	}
}

// What another gateway wrote into the contender meanwhile is not lost with it.
func TestADowngradeKeepsWhatWasWrittenMeanwhile(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		g.w.hold()
		r, _ := record.Parse(s.node(l.Znode).data)
		data := fmt.Appendf(nil, `{"v":1,"ttl_ms":%d,"owner":"other"}`, r.TTL*2)
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: l.Znode, Data: data, Version: 0})
		done := make(chan error, 1)
		go func() {
			_, err := g.downgrade(l)
			done <- err
		}()
		time.Sleep(20 * time.Millisecond)
		g.w.release()
		assert.NoError(t, <-done)
		v := g.look(l)
		assert.That(t, v.Owner == "other" && v.Mode == locks.Shared, "%+v", v)
	})
}

func TestWhatCannotBeDowngraded(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(deploy())
		waits := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true})
		time.Sleep(20 * time.Millisecond)
		_, err := g.downgrade(waits)
		wantCode(t, err, locks.CodeNotHeld)
		l := g.mustHold(alone_("a"))
		_, err = g.m.Downgrade(t.Context(), locks.Anonymous, l.ID, "lk1.x")
		wantCode(t, err, locks.CodeTokenWrong)
		g.mustRelease(l)
		_, err = g.downgrade(l)
		wantCode(t, err, locks.CodeEnded)
	})
}

// The name to delete is not certain while a downgrade is under way.
func TestALeaseThatIsReleasedWhileItIsDowngradedLeavesNothing(t *testing.T) {
	for _, held := range []bool{false, true} { // the stream stands still meanwhile
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(both(0))
			if held {
				g.w.hold()
			}
			done := make(chan error, 2)
			go func() {
				_, err := g.downgrade(l)
				done <- err
			}()
			synctest.Wait()
			go func() { done <- g.release(l) }()
			time.Sleep(20 * time.Millisecond)
			if held {
				g.w.release()
			}
			<-done
			<-done
			time.Sleep(time.Second)
			assert.Equal(t, s.waiting("a", "b"), 0, "contenders are left")
			g.wantState(l, locks.Ended, locks.ReasonReleased)
		})
	}
}

// Attack 12 during a downgrade: what is left of the lease goes.
func TestALeaseThatLosesAContenderWhileItIsDowngradedEndsWhole(t *testing.T) {
	over := func(t *testing.T, s *fakeStore, g *gate) {
		t.Helper()
		time.Sleep(time.Minute)
		assert.Equal(t, s.waiting("a", "b"), 0, "contenders are left")
		checkAll(t, s, g)
	}
	for _, lock := range []string{"a", "b"} {
		t.Run("its replacement, in a gap of the stream, "+lock, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(both(0))
			go func() { _, _ = g.downgrade(l) }()
			synctest.Wait()
			g.w.disconnect()
			time.Sleep(20 * time.Millisecond)
			dir := "/lockkeeper/locks/" + lock
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: dir + "/" + s.names(dir)[0], Version: -1})
			g.w.reconnect()
			over(t, s, g)
		}))
	}
	for _, let := range []bool{false, true} {
		t.Run(fmt.Sprint("before its session ends, released ", let), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(both(0))
			s.mu.Lock()
			s.loseReply = writeTo("/read-v1")
			s.refuse = refusing(writeTo("/read-v1"), 0, zk.ErrNoNode)
			s.mu.Unlock()
			go func() { _, _ = g.downgrade(l) }()
			time.Sleep(5 * time.Millisecond)
			if let {
				go func() { _ = g.release(l) }()
			}
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Locks[1].Znode, Version: -1})
			time.Sleep(5 * time.Millisecond)
			g.expireSession()
			over(t, s, g)
		}))
	}
}

// Attack 12 in the moment in which a session follows another one, and a downgrade of the former is not settled: the end of what is left
// waits for the adoption.
func TestALeaseThatIsDowngradedWhenItsSessionEndsLosesAContender(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(both(0))
		s.set(func() { s.vague, s.drop = writeTo("/read-v1"), true })
		other := g.mustHold(locks.AcquireRequest{Lock: "c"})
		g.w.hold()
		go func() { _ = g.release(other) }() // the replica is behind the writer from here on, and cannot tell what became of the downgrade
		time.Sleep(20 * time.Millisecond)
		go func() { _, _ = g.downgrade(l) }()
		time.Sleep(20 * time.Millisecond)
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/a/" + s.names("/lockkeeper/locks/a")[0], Version: -1})
		s.set(func() { s.vague = nil })
		g.expireSession()
		time.Sleep(time.Second) // the next one is open
		g.w.release()
		synctest.Wait()
		checkAll(t, s, g)
		time.Sleep(time.Minute)
		assert.Equal(t, s.waiting("a", "b"), 0, "contenders are left")
		checkAll(t, s, g)
	})
}
