package embedded_test

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/zk/wire"
)

const tick = 500 * time.Millisecond // embeddedtest's

// bubble runs a test in virtual time with a server that listens on nothing.
func bubble(t *testing.T, f func(t *testing.T, s *embeddedtest.Server), opts ...embeddedtest.Option) {
	synctest.Test(t, func(t *testing.T) { f(t, embeddedtest.RunT(t, append(opts, embeddedtest.Pipes())...)) })
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
		e := watcher.event()
		assert.That(t, e.Type == wire.EventDeleted && e.Path == "/here", "event %+v", e)
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

func TestAWrongPasswordGetsNothingAndDisturbsNoClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		owner := openRaw(t, s, 5*time.Second)
		for _, c := range []struct {
			id     int64
			passwd []byte
		}{
			{owner.ID, make([]byte, 16)}, {owner.ID, nil}, {owner.ID, owner.Passwd[:8]}, {owner.ID + 1, owner.Passwd}, {-1, nil},
		} {
			for _, form := range []bool{false, true} {
				thief := dialRaw(t, s)
				reply, err := thief.Connect(&wire.ConnectRequest{SessionID: c.id, Passwd: c.passwd, TimeoutMs: 4000, HasReadOnly: form})
				if err != nil || reply.SessionID != 0 || reply.TimeoutMs != 0 || string(reply.Passwd) != string(make([]byte, 16)) {
					t.Errorf("0x%x, %x: %+v, %v", c.id, c.passwd, reply, err)
				}
				assert.That(t, reply.HasReadOnly == form, "answered in the other form")
				thief.ended("refused")
			}
		}
		owner.ping()
	})
}

func TestAConnectionThatDropsWithRequestsUnderWayHasThemCarriedOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		c, other := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
		burst := rawzk.Request(1, wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
		burst = append(burst, rawzk.Request(2, wire.OpCreate, &wire.CreateRequest{Path: "/a/b", ACL: everyone})...)
		assert.NoError(t, c.Write(burst))
		c.Conn.Close()
		synctest.Wait()
		assert.That(t, other.exists("/a/b"), "what had arrived was not carried out")
	})
}
