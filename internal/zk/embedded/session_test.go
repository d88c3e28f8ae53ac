package embedded_test

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/wire"
)

const tick = 500 * time.Millisecond // embeddedtest's

// bubble runs a test in virtual time with a server that listens on nothing.
func bubble(t *testing.T, f func(t *testing.T, s *embeddedtest.Server), opts ...embeddedtest.Option) {
	synctest.Test(t, func(t *testing.T) {
		f(t, embeddedtest.RunT(t, append(opts, embeddedtest.Pipes())...))
	})
}

func TestASessionLivesAsLongAsItIsHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		const timeout = 2 * time.Second
		watcher, owner := openRaw(t, s, time.Minute), openRaw(t, s, timeout)
		owner.create("/here", nil, wire.FlagEphemeral)
		for range 20 {
			time.Sleep(timeout - time.Millisecond)
			owner.ping()
		}
		watcher.must(wire.OpExists, &wire.ReadRequest{Path: "/here", Watch: true})
		since := time.Now()
		if e := watcher.receive().event(t); e.Type != wire.EventDeleted || e.Path != "/here" {
			t.Errorf("event %+v", e)
		}
		if silent := time.Since(since); silent < timeout || silent > timeout+tick {
			t.Errorf("over after %v of silence, want %v rounded up to a tick", silent, timeout)
		}
		owner.ended("the session is over")
		if _, reply, err := owner.again(s, timeout); err != nil || reply.SessionID != 0 || reply.TimeoutMs != 0 {
			t.Errorf("a session that is over was answered with %+v, %v", reply, err)
		}
	})
}

func TestEveryRequestKeepsTheSessionAlive(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		c := openRaw(t, s, time.Second)
		c.create("/a", nil, 0)
		for _, step := range []func(){
			func() { c.exists("/a") },
			func() { c.exists("/nope") },
			func() { c.must(wire.OpSetData, &wire.SetDataRequest{Path: "/a", Version: -1}) },
			func() { c.call(wire.OpDelete, &wire.VersionRequest{Path: "/nope", Version: -1}) },
			func() { c.must(wire.OpSync, &wire.PathRecord{Path: "/"}) },
			c.ping,
		} {
			time.Sleep(900 * time.Millisecond)
			step()
		}
	})
}

func TestASessionMovesToItsNewestConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		first := openRaw(t, s, 5*time.Second)
		first.create("/mine", nil, wire.FlagEphemeral)
		first.must(wire.OpExists, &wire.ReadRequest{Path: "/mine", Watch: true})

		second, reply, err := first.again(s, 8*time.Second)
		if err != nil || reply.SessionID != first.id || reply.TimeoutMs != 8000 {
			t.Fatalf("attached as %+v, %v", reply, err)
		}
		first.ended("the session has moved")
		if string(second.passwd) != string(first.passwd) {
			t.Error("another password")
		}
		if !second.exists("/mine") {
			t.Error("the ephemeral node is gone")
		}
		// The watch was the old connection's.
		if n := metric(t, s, "watch_count"); n != 0 {
			t.Errorf("%d watches are left of a connection that is gone", n)
		}
		second.must(wire.OpSetData, &wire.SetDataRequest{Path: "/mine", Version: -1})
		second.ping()

		// After a while without a connection it can be taken up again, and the new timeout counts.
		second.nc.Close()
		time.Sleep(7 * time.Second)
		third, reply, err := first.again(s, time.Second)
		if err != nil || reply.SessionID != first.id {
			t.Fatalf("attached as %+v, %v", reply, err)
		}
		time.Sleep(time.Second + tick)
		third.ended("the session is over by the newest timeout")
	})
}

func TestAWrongPasswordGetsNothingAndDisturbsNobody(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		owner := openRaw(t, s, 5*time.Second)
		for _, c := range []struct {
			id     int64
			passwd []byte
		}{
			{owner.id, make([]byte, 16)}, {owner.id, nil}, {owner.id, owner.passwd[:8]}, {owner.id + 1, owner.passwd}, {-1, nil},
		} {
			for _, form := range []bool{false, true} {
				thief := dialRaw(t, s)
				reply, err := thief.connect(&wire.ConnectRequest{SessionID: c.id, Passwd: c.passwd, TimeoutMs: 4000, HasReadOnly: form})
				if err != nil || reply.SessionID != 0 || reply.TimeoutMs != 0 || string(reply.Passwd) != string(make([]byte, 16)) {
					t.Errorf("0x%x, %x: %+v, %v", c.id, c.passwd, reply, err)
				}
				if reply.HasReadOnly != form {
					t.Error("answered in the other form")
				}
				thief.ended("refused")
			}
		}
		owner.ping()
	})
}

func TestAClientThatHasSeenTheFutureIsDisconnectedUnanswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		c := openRaw(t, s, 5*time.Second)
		zxid := c.must(wire.OpSync, &wire.PathRecord{Path: "/"}).header.Zxid
		for _, id := range []int64{0, c.id} {
			ahead := dialRaw(t, s)
			_, err := ahead.connect(&wire.ConnectRequest{LastZxidSeen: zxid + 1, SessionID: id, Passwd: c.passwd, TimeoutMs: 4000})
			if err == nil {
				t.Error("answered")
			}
		}
		c.ping()
		level := dialRaw(t, s)
		reply, err := level.connect(&wire.ConnectRequest{LastZxidSeen: zxid, SessionID: c.id, Passwd: c.passwd, TimeoutMs: 4000})
		if err != nil || reply.SessionID != c.id {
			t.Errorf("one that has seen the present: %+v, %v", reply, err)
		}
	})
}

func TestTimeoutsAreNegotiated(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		for asked, want := range map[int32]int32{-5: 4000, 0: 4000, 3999: 4000, 4001: 4001, 40_000: 40_000, 1 << 30: 40_000} {
			reply, err := dialRaw(t, s).connect(&wire.ConnectRequest{TimeoutMs: asked, Passwd: make([]byte, 16)})
			if err != nil || reply.TimeoutMs != want {
				t.Errorf("asked for %d: %+v, %v", asked, reply, err)
			}
		}
	}, embeddedtest.With(func(c *embedded.Config) {
		c.TickTime, c.MinSessionTimeout, c.MaxSessionTimeout = 0, 0, 0 // ZooKeeper's own
	}))
}

func TestClosingASessionEndsItAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		watcher, owner := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
		owner.create("/here", nil, wire.FlagEphemeral)
		watcher.must(wire.OpExists, &wire.ReadRequest{Path: "/here", Watch: true})
		owner.close()
		if e := watcher.receive().event(t); e.Type != wire.EventDeleted {
			t.Errorf("event %+v", e)
		}
		if _, reply, err := owner.again(s, time.Minute); err != nil || reply.SessionID != 0 {
			t.Errorf("answered with %+v, %v", reply, err)
		}
	})
}

func TestAConnectionThatDropsWithRequestsUnderWayHasThemCarriedOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		c, other := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
		burst := request(1, wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
		burst = append(burst, request(2, wire.OpCreate, &wire.CreateRequest{Path: "/a/b", ACL: everyone})...)
		if err := c.write(burst); err != nil {
			t.Fatal(err)
		}
		c.nc.Close()
		synctest.Wait()
		if !other.exists("/a/b") {
			t.Error("what had arrived was not carried out")
		}
	})
}
