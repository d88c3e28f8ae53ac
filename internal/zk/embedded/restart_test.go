package embedded_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
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
				_, err := s.FourLetter("ruok")
				assert.That(t, err != nil, "still answers")
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

var tinyPieces = embeddedtest.With(func(c *embedded.Config) { c.SnapshotPiece = 1 })

// held is what a store would give to a new server.
func held(t testing.TB, s embedded.Storage) (pieces, txns int, size int) {
	t.Helper()
	err := s.Load(embedded.Recovery{
		Piece: func(data []byte) error {
			pieces++
			size += len(data)
			return nil
		},
		Txn: func(txn *state.Txn) error {
			txns++
			size += len(txn.AppendTo(nil))
			return nil
		},
	})
	assert.NoError(t, err)
	return pieces, txns, size
}

func TestASnapshotGoesOnWithoutRequests(t *testing.T) {
	store := newSlowStore()
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		c := openRaw(t, s, time.Minute)
		store.due = true
		c.create("/a", nil, 0)
		synctest.Wait()
		n := len(store.pieces)
		if n < 5 || !store.pieces[0].First || store.pieces[1].First || !store.pieces[n-1].Last || store.pieces[n-2].Last || store.pieces[0].Zxid != 2 {
			t.Errorf("pieces %+v", store.pieces)
		}
		pieces, txns, _ := held(t, store)
		assert.That(t, pieces == n && txns == 0, "%d pieces and %d transactions behind them", pieces, txns)
		c.exists("/a")
		assert.That(t, len(store.pieces) == n, "another one was begun, and nothing was written")
	}, withStore(store), tinyPieces)
}

// stepwise makes each Append wait for one call of permit, which returns when the server has gone on as far as it can.
func (s *slowStore) stepwise() (permit func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	permits := make(chan struct{})
	s.permits = permits
	return func() {
		permits <- struct{}{}
		synctest.Wait()
	}
}

// freely ends that. It may only be called while no Append waits.
func (s *slowStore) freely() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.permits = nil
}

func TestARequestWaitsForOnePieceAtMost(t *testing.T) {
	store := newSlowStore()
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		c := openRaw(t, s, time.Minute)
		for i := range 20 {
			c.create(fmt.Sprint("/", i), nil, 0)
		}
		store.due = true
		permit := store.stepwise()
		c.send(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
		permit()
		c.receive()
		synctest.Wait()
		for i := range 8 {
			pieces := len(store.pieces) // one is being stored
			c.send(wire.OpCreate, &wire.CreateRequest{Path: fmt.Sprint("/a/", i), ACL: everyone})
			synctest.Wait()
			permit() // the piece
			permit() // what was asked for
			c.receive()
			synctest.Wait()
			assert.MustEqual(t, len(store.pieces), pieces+2, "pieces, had %d: the snapshot does not go on with each batch", pieces)
		}
		for n := len(store.pieces); !store.pieces[n-1].Last; n = len(store.pieces) {
			permit()
		}
		permit()
		store.freely()
		assert.Equal(t, c.call(wire.OpExists, &wire.ReadRequest{Path: "/a/7"}).Err, wire.OK)
	}, withStore(store), tinyPieces)
}

func TestAStoreMayFailOnAnyPiece(t *testing.T) {
	full := errors.New("no space left")
	tried, last := 0, false
	for fails := 0; !last && !t.Failed(); fails++ {
		tried++
		for name, persisted := range map[string]bool{"failed": false, "failed but persisted": true} {
			t.Run(fmt.Sprint(name, " on piece ", fails), func(t *testing.T) {
				store := newSlowStore()
				bubble(t, func(t *testing.T, s *embeddedtest.Server) {
					c := openRaw(t, s, time.Minute)
					c.create("/a", []byte("data"), 0)
					c.create("/e", nil, wire.FlagEphemeral)
					store.due = true
					permit := store.stepwise()
					c.send(wire.OpCreate, &wire.CreateRequest{Path: "/b", ACL: everyone})
					permit()
					c.receive()
					for range fails {
						permit()
					}
					last = store.pieces[fails].Last
					if persisted {
						store.fail(nil, full)
					} else {
						store.fail(full, nil)
					}
					permit()
					c.ended("the store has failed")
					assert.ErrorIs(t, s.Err(), full, "ended with")
					store.freely()
					store.fail(nil, nil)
					s.RestartT(t)
					back, reply, err := c.again(s, time.Minute)
					assert.Must(t, err == nil && reply.SessionID == c.ID, "attached as %+v, %v", reply, err)
					for _, path := range []string{"/a", "/b", "/e"} {
						assert.That(t, back.exists(path), "%s is lost", path)
					}
					store.due = true // and a new snapshot begins from its beginning
					back.create("/c", nil, 0)
					synctest.Wait()
					assert.That(t, store.pieces[len(store.pieces)-1].Last, "no snapshot any more")
					_, txns, _ := held(t, store)
					assert.That(t, txns == 0, "%d transactions behind it", txns)
				}, withStore(store), tinyPieces)
			})
		}
	}
	assert.That(t, tried >= 8, "a snapshot of %d pieces", tried)
}

func TestAServerThatStopsDoesNotWaitForItsSnapshot(t *testing.T) {
	store := newSlowStore()
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		c := openRaw(t, s, time.Minute)
		for i := range 100 {
			c.create(fmt.Sprint("/", i), nil, 0)
		}
		store.due = true
		permit := store.stepwise()
		c.send(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
		permit()
		c.receive()
		go s.Stop()
		synctest.Wait()
		permit() // the piece that was being stored
		for range 10 {
			// The loop looks at what is ready in no order, so that it may go on for some more.
			select {
			case store.permits <- struct{}{}:
				synctest.Wait()
			default:
			}
		}
		assert.Nil(t, s.Err(), "ended with")
		n := len(store.pieces)
		assert.That(t, n <= 20, "stored %d pieces on its way out", n)
		store.freely()
		s.RestartT(t)
		back, _, err := c.again(s, time.Minute)
		assert.That(t, err == nil && back.exists("/99") && back.exists("/a"), "something is lost: %v", err)
	}, withStore(store), tinyPieces)
}

func TestAMemoryStoreDoesNotGrowWithEveryWrite(t *testing.T) {
	store := embedded.NewMemoryStorage()
	s := embeddedtest.RunT(t, withStore(store))
	const writers, writes, size = 4, 2500, 1000
	var writing sync.WaitGroup
	for i := range writers {
		c := openRaw(t, s, time.Minute)
		path := fmt.Sprint("/", i)
		c.create(path, nil, 0)
		writing.Go(func() {
			for range writes {
				c.call(wire.OpSetData, &wire.SetDataRequest{Path: path, Data: make([]byte, size), Version: -1})
			}
		})
	}
	writing.Wait()
	s.Stop()
	if _, txns, held := held(t, store); held > 2<<20 || txns > 3000 {
		t.Errorf("%d bytes, %d transactions are held of %d bytes that were written", held, txns, writers*writes*size)
	}
}

func TestAStateSurvivesKillsInTheMidstOfSnapshots(t *testing.T) {
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		c := openRaw(t, s, time.Minute)
		c.create("/d", nil, 0)
		n := 0
		for round := range 40 {
			for range round % 7 {
				c.create(fmt.Sprint("/d/", n), nil, int32(n%2)) // ephemeral or not
				n++
			}
			c.must(wire.OpSetData, &wire.SetDataRequest{Path: "/d", Data: []byte(strings.Repeat("x", round)), Version: int32(round)})
			s.Kill()
			s.RestartT(t)
			back, reply, err := c.again(s, time.Minute)
			assert.Must(t, err == nil && reply.SessionID == c.ID, "round %d: attached as %+v, %v", round, reply, err)
			c = back
			var stat wire.StatReply
			stat.Decode(wire.NewDecoder(c.must(wire.OpExists, &wire.ReadRequest{Path: "/d"}).Body))
			assert.Must(t, int(stat.Stat.NumChildren) == n && int(stat.Stat.Version) == round+1 && int(stat.Stat.DataLength) == round,
				"round %d: %d nodes, want %d; %+v", round, stat.Stat.NumChildren, n, stat.Stat)
		}
	}, embeddedtest.SnapshotsAlways())
}

func TestALoadThatIsOutOfOrderIsRefused(t *testing.T) {
	for name, store := range map[string]fakeStore{
		"a piece behind a transaction": {func(r embedded.Recovery) error {
			_ = r.Txn(&state.Txn{Zxid: 1})
			return r.Piece(wholeSnapshot())
		}},
		"a snapshot without its end": {func(r embedded.Recovery) error {
			first, _ := state.New(state.Config{}).BeginSnapshot().Next(nil, 1)
			return r.Piece(first)
		}},
		"a transaction that is in the snapshot": {func(r embedded.Recovery) error {
			_ = r.Piece(wholeSnapshot())
			return r.Txn(&state.Txn{})
		}},
		"a piece that is none": {func(r embedded.Recovery) error { return r.Piece(nil) }},
	} {
		_, err := embedded.New(embedded.Config{Storage: store})
		assert.That(t, err != nil, "%s: started", name)
	}
	whole := fakeStore{func(r embedded.Recovery) error { return r.Piece(wholeSnapshot()) }}
	_, err := embedded.New(embedded.Config{Storage: whole})
	assert.Nil(t, err)
}

func wholeSnapshot() []byte {
	piece, _ := state.New(state.Config{}).BeginSnapshot().Next(nil, 1<<20)
	return piece
}

// fakeStore is a store with a Load of its own.
type fakeStore struct {
	load func(embedded.Recovery) error
}

func (f fakeStore) Load(r embedded.Recovery) error { return f.load(r) }
func (fakeStore) Secret() []byte                   { return make([]byte, 16) }
func (fakeStore) Append(embedded.Batch) error      { return nil }
func (fakeStore) SnapshotDue() bool                { return false }

func TestASessionIdIsNotGivenTwiceThoughTheClockStandsStill(t *testing.T) {
	store := newSlowStore()
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		first := openRaw(t, s, time.Minute)
		store.due = true
		first.must(wire.OpCloseSession, nil)
		synctest.Wait()
		_, txns, _ := held(t, store)
		assert.Must(t, txns == 0, "%d transactions still tell of the session", txns)
		s.RestartT(t)
		second := openRaw(t, s, time.Minute)
		assert.That(t, second.ID > first.ID, "session 0x%x after 0x%x", second.ID, first.ID)
	}, withStore(store), embeddedtest.With(func(c *embedded.Config) { c.Clock = func() int64 { return 1_000_000 } }))
}
