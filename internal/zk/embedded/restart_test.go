package embedded_test

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/wire"
)

func TestDataSessionsAndZxidsSurviveARestart(t *testing.T) {
	stopped, killed := (*embeddedtest.Server).Stop, (*embeddedtest.Server).Kill
	for name, how := range map[string]struct {
		stop func(*embeddedtest.Server)
		with []embeddedtest.Option
	}{
		"stopped":                {stop: stopped},
		"killed":                 {stop: killed},
		"stopped, with snapshot": {stopped, []embeddedtest.Option{embeddedtest.SnapshotsAlways()}},
		"killed, with snapshot":  {killed, []embeddedtest.Option{embeddedtest.SnapshotsAlways()}},
	} {
		stop := how.stop
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *embeddedtest.Server) {
				const timeout = 4 * time.Second
				owner, gone := openRaw(t, s, timeout), openRaw(t, s, timeout)
				owner.create("/mine", []byte("data"), wire.FlagEphemeral)
				owner.create("/kept", nil, 0)
				gone.create("/kept/lost", nil, wire.FlagEphemeral)
				gone.close()
				zxid := owner.must(wire.OpSync, &wire.PathRecord{Path: "/"}).Zxid
				time.Sleep(timeout - 100*time.Millisecond)
				stop(s)
				owner.ended("the server has stopped")
				if _, err := s.FourLetter("ruok"); err == nil {
					t.Error("still answers")
				}
				time.Sleep(time.Hour)
				s.RestartT(t)

				time.Sleep(timeout - 100*time.Millisecond) // the whole timeout counts from now on
				back, reply, err := owner.again(s, timeout)
				assert.Must(t, err == nil && reply.SessionID == owner.ID, "attached as %+v, %v", reply, err)
				g := back.must(wire.OpGetData, &wire.ReadRequest{Path: "/mine"})
				var data wire.DataReply
				data.Decode(wire.NewDecoder(g.Body))
				assert.That(t, string(data.Data) == "data" && data.Stat.EphemeralOwner == owner.ID,
					"data %q, owner 0x%x", data.Data, data.Stat.EphemeralOwner)
				assert.That(t, g.Zxid == zxid, "zxid %d, was %d", g.Zxid, zxid)
				assert.That(t, !back.exists("/kept/lost"), "a closed session's node is back")
				_, reply, err = gone.again(s, timeout)
				assert.That(t, err == nil && reply.SessionID == 0, "a closed session was answered with %+v, %v", reply, err)
				fresh := openRaw(t, s, timeout)
				assert.That(t, fresh.ID != owner.ID && fresh.ID != gone.ID, "the id 0x%x was given twice", fresh.ID)
				g = fresh.must(wire.OpSync, &wire.PathRecord{Path: "/"})
				assert.Equal(t, g.Zxid, zxid+1, "zxid")
			}, how.with...)
		})
	}
}

func TestASessionThatDoesNotComeBackAfterARestartIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		openRaw(t, s, 2*time.Second).create("/mine", nil, wire.FlagEphemeral)
		s.Kill()
		s.RestartT(t)
		c := openRaw(t, s, time.Minute)
		time.Sleep(2*time.Second - time.Millisecond)
		assert.That(t, c.exists("/mine"), "over before its time")
		time.Sleep(tick + 2*time.Millisecond)
		assert.That(t, !c.exists("/mine"), "lives on")
	})
}

func TestAFrozenServerAnswersNoClientAndExpiresNoSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		c := openRaw(t, s, time.Second)
		s.Freeze()
		time.Sleep(10 * time.Millisecond)
		since := time.Now()
		assert.NoError(t, c.Write(rawzk.Request(wire.XidPing, wire.OpPing, nil)))
		go func() {
			time.Sleep(20 * time.Second)
			s.Thaw()
		}()
		c.receive()
		assert.That(t, time.Since(since) == 20*time.Second, "answered after %v", time.Since(since))
		quiet := openRaw(t, s, time.Second)
		s.Freeze()
		time.Sleep(time.Minute)
		s.Thaw()
		time.Sleep(time.Millisecond)
		quiet.ping()
		s.Freeze()
		s.Kill()
		s.RestartT(t)
		_, reply, err := quiet.again(s, time.Second)
		assert.That(t, err == nil && reply.SessionID == quiet.ID, "after freezing and killing: %+v, %v", reply, err)
	})
}

func TestAServerThatStopsInGoodOrderAnswersWhatHasReachedIt(t *testing.T) {
	store := newSlowStore()
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		c, second := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
		release := store.hold()
		c.send(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
		synctest.Wait()
		second.send(wire.OpCreate, &wire.CreateRequest{Path: "/b", ACL: everyone}) // comes while the first is being stored
		synctest.Wait()
		go s.Stop()
		synctest.Wait()
		release()
		for _, c := range []*raw{c, second} {
			assert.Equal(t, c.receive().Err, wire.OK, "answered")
			c.ended("stopped")
		}
		assert.Nil(t, s.Err(), "ended with")
	}, embeddedtest.With(func(c *embedded.Config) { c.Storage = store }))
}

func TestAServerRunsOnce(t *testing.T) {
	s := assert.Value(embedded.New(embedded.Config{Storage: embedded.NewMemoryStorage()}))(t)
	s.Close()
	s.Close()
	assert.ErrorIs(t, s.Run(t.Context()), embedded.ErrClosed, "run after close")
}
