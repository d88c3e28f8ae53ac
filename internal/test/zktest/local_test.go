package zktest_test

import (
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/wire"
)

// connectReading opens a session as clients do that know of read-only servers: a local one, where there are any.
func connectReading(t *testing.T, e *zktest.Ensemble, name, server string, seen int64) (*raw, error) {
	t.Helper()
	c, reply, err := greet(t, e, name, server, &wire.ConnectRequest{TimeoutMs: 4000, Passwd: make([]byte, 16), HasReadOnly: true, LastZxidSeen: seen})
	assert.That(t, err != nil || reply.HasReadOnly && reply.TimeoutMs == 4000, "greeted with %+v", reply)
	return c, err
}

func mustConnectReading(t *testing.T, e *zktest.Ensemble, name, server string) *raw {
	t.Helper()
	c, err := connectReading(t, e, name, server, 0)
	assert.Must(t, err == nil && c.ID != 0, "%s cannot connect with %s: %+v, %v", name, server, c, err)
	return c
}

func TestALocalSessionReadsWhatIsOlderThanItself(t *testing.T) {
	for _, local := range []bool{true, false} {
		bubble(t, zktest.Config{Followers: 1, LocalSessions: local}, func(t *testing.T, e *zktest.Ensemble) {
			e.Follower(1).Lag(zktest.Delay{Min: 3 * time.Second, Max: 3 * time.Second})
			writer := mustConnect(t, e, "writer", zktest.LeaderName)
			seen := writer.create("/a", 0).Zxid
			asked := time.Now()
			c := mustConnectReading(t, e, "c", zktest.FollowerName(1))
			took := time.Since(asked)
			assert.Equal(t, !c.has("/a"), local, "local sessions: %v; it reads the past", local)
			assert.That(t, (took < time.Second) == local, "local sessions: %v; greeted after %v", local, took)
			again, err := connectReading(t, e, "d", zktest.FollowerName(1), seen+2)
			assert.That(t, err != nil, "a server that is behind what was seen begins a session: %+v", again)
		})
	}
}

func TestALocalSessionSeesWhatHappensAndAsksTheLeaderWhereItMust(t *testing.T) {
	bubble(t, zktest.Config{Followers: 1, LocalSessions: true}, func(t *testing.T, e *zktest.Ensemble) {
		c := mustConnectReading(t, e, "c", zktest.FollowerName(1))
		n := len(e.Network.Links(zktest.FollowerName(1), zktest.LeaderName))
		assert.That(t, n == 0, "the leader knows of it, by %d connections", n)
		c.must(wire.OpAddWatch, &wire.AddWatchRequest{Path: "/", Mode: 1})
		mustConnect(t, e, "writer", zktest.LeaderName).create("/a", 0)
		h, _, err := c.receive(time.Second)
		assert.That(t, err == nil && h.Xid == wire.XidWatcherEvent, "instead of an event came %+v, %v", h, err)
		e.Follower(1).Lag(zktest.Delay{Min: time.Second, Max: time.Second})
		c.must(wire.OpSync, &wire.PathRecord{Path: "/"})
		c.must(wire.OpGetEphemerals, &wire.PathRecord{Path: "/"})
		for _, flags := range []int32{wire.FlagEphemeral, wire.FlagEphemeralSequential} {
			create := &wire.CreateRequest{Path: "/mine", ACL: everyone, Flags: flags}
			for op, body := range map[wire.Op]wire.Record{wire.OpCreate: create, wire.OpMulti: &wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpCreate, Record: create}}}} {
				h, _, err := c.call(op, body)
				assert.That(t, err == nil && h.Err == wire.ErrEphemeralOnLocal, "operation %d with flags %d: %+v, %v", op, flags, h, err)
			}
		}
		c.send(wire.OpCreate, &wire.CreateRequest{Path: "/b", ACL: everyone})
		h, _, err = c.receive(10 * time.Second)
		assert.That(t, err == nil && h.Xid == wire.XidWatcherEvent, "first came %+v, %v, want the event", h, err)
		h, _, err = c.receive(10 * time.Second)
		assert.That(t, err == nil && h.Xid == c.xid && h.Err == wire.OK, "then came %+v, %v, want the reply", h, err)
		c.must(wire.OpCloseSession, nil)
		_, _, err = c.receive(time.Second)
		assert.That(t, err != nil, "its connection is open after its end")
	})
}

func TestALocalSessionEndsWithSilenceItsFollowersServiceOrTheLeader(t *testing.T) {
	bubble(t, zktest.Config{Followers: 1, LocalSessions: true, SyncLimit: 6 * time.Second}, func(t *testing.T, e *zktest.Ensemble) {
		ends := func(c *raw, least, most time.Duration, why string) {
			t.Helper()
			began := time.Now()
			if h, _, err := c.receive(most); err == nil || time.Since(began) < least || time.Since(began) >= most {
				t.Errorf("%s: %+v, %v after %v", why, h, err, time.Since(began))
			}
		}
		c := mustConnectReading(t, e, "c", zktest.FollowerName(1))
		for range 3 {
			time.Sleep(3 * time.Second)
			c.must(wire.OpPing, nil)
		}
		ends(c, 3*time.Second, 5*time.Second, "silent for a timeout")

		e.Follower(1).CutOff()
		c = mustConnectReading(t, e, "c", zktest.FollowerName(1)) // greeted all the same
		time.Sleep(3 * time.Second)
		c.must(wire.OpPing, nil)
		ends(c, 2*time.Second, 3500*time.Millisecond, "a sync limit after the cut")
		e.Follower(1).Heal()

		c = mustConnectReading(t, e, "c", zktest.FollowerName(1))
		e.KillLeader()
		ends(c, 0, time.Second, "no leader")
		_, err := connectReading(t, e, "c", zktest.FollowerName(1), 0)
		assert.That(t, err != nil, "without a leader a follower begins a session")
	})
}
