package embedded_test

import (
	"errors"
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

// slowStore is a MemoryStorage that can be held up and made to fail, before or after it has stored.
type slowStore struct {
	*embedded.MemoryStorage

	mu         sync.Mutex
	held       chan struct{} // nil: not held
	permits    chan struct{} // nil, or Append takes one first
	failBefore error
	failAfter  error
	batches    []int // how many transactions each Append had
	pieces     []embedded.Piece
	due        bool // a snapshot
}

// SnapshotDue asks for one snapshot.
func (s *slowStore) SnapshotDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.due
	s.due = false
	return due
}

func newSlowStore() *slowStore { return &slowStore{MemoryStorage: embedded.NewMemoryStorage()} }

// hold makes Append wait until release is called.
func (s *slowStore) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = nil
		close(held)
	}
}

func (s *slowStore) fail(before, after error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failBefore, s.failAfter = before, after
}

func (s *slowStore) Append(b embedded.Batch) error {
	s.mu.Lock()
	held, permits := s.held, s.permits
	s.batches = append(s.batches, len(b.Txns))
	if b.Piece != nil {
		s.pieces = append(s.pieces, *b.Piece)
	}
	s.mu.Unlock()
	if held != nil {
		<-held
	}
	if permits != nil {
		<-permits
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failBefore != nil {
		return s.failBefore
	}
	if err := s.MemoryStorage.Append(b); err != nil {
		return err
	}
	return s.failAfter
}

func withStore(s embedded.Storage) embeddedtest.Option {
	return embeddedtest.With(func(c *embedded.Config) { c.Storage = s })
}

func TestNoClientGetsWhatIsNotStored(t *testing.T) {
	store := newSlowStore()
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		writer, reader, watcher := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
		watcher.call(wire.OpExists, &wire.ReadRequest{Path: "/a", Watch: true})

		told := make(chan string, 3)
		listen := func(name string, c *raw) {
			c.receive()
			told <- name
		}
		go listen("the writer", writer)
		go listen("the reader", reader)
		go listen("the watcher", watcher)
		release := store.hold()
		writer.send(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
		synctest.Wait()
		reader.send(wire.OpExists, &wire.ReadRequest{Path: "/a"})
		time.Sleep(10 * time.Second)
		select {
		case who := <-told:
			t.Errorf("%s was told before it was stored", who)
			told <- who
		default:
		}
		release()
		for range 3 {
			<-told
		}
	}, withStore(store))
}

func TestWritersShareOneAppend(t *testing.T) {
	store := newSlowStore()
	bubble(t, func(t *testing.T, s *embeddedtest.Server) {
		const writers = 20
		var all []*raw
		for range writers {
			all = append(all, openRaw(t, s, time.Minute))
		}
		release := store.hold()
		all[0].send(wire.OpCreate, &wire.CreateRequest{Path: "/a-", ACL: everyone, Flags: wire.FlagSequential})
		synctest.Wait()
		for _, w := range all[1:] {
			w.send(wire.OpCreate, &wire.CreateRequest{Path: "/a-", ACL: everyone, Flags: wire.FlagSequential})
		}
		synctest.Wait()
		release()
		for _, w := range all {
			w.receive()
		}
		if n := len(store.batches); store.batches[n-1] != writers-1 || store.batches[n-2] != 1 {
			t.Errorf("appended in batches of %v, want the last to be 1 and %d", store.batches, writers-1)
		}
	}, withStore(store))
}

func TestAFailingStoreEndsTheServerWithoutATraceOnTheWire(t *testing.T) {
	full := errors.New("no space left")
	for name, c := range map[string]struct {
		before, after error
		stored        bool
	}{
		"failed":               {before: full},
		"failed but persisted": {after: full, stored: true},
	} {
		t.Run(name, func(t *testing.T) {
			store := newSlowStore()
			bubble(t, func(t *testing.T, s *embeddedtest.Server) {
				writer, watcher := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
				watcher.call(wire.OpExists, &wire.ReadRequest{Path: "/a", Watch: true})
				store.fail(c.before, c.after)
				writer.send(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
				writer.ended("the store has failed")
				watcher.ended("the store has failed")
				assert.ErrorIs(t, s.Err(), full, "ended with")
				store.fail(nil, nil)
				s.RestartT(t)
				back, reply, err := writer.again(s, time.Minute)
				assert.Must(t, err == nil && reply.SessionID == writer.ID, "attached as %+v, %v", reply, err)
				assert.That(t, back.exists("/a") == c.stored, "the write is there: %v", !c.stored)
			}, withStore(store))
		})
	}
}

func TestAServerDoesNotStartWithLessThanItHad(t *testing.T) {
	damaged := errors.New("checksum")
	_, err := embedded.New(embedded.Config{Storage: brokenStore{newSlowStore(), damaged}})
	assert.That(t, errors.Is(err, damaged), "load failed, and New said %v", err)
	_, err = embedded.New(embedded.Config{})
	assert.That(t, err != nil, "started without a storage")
}

type brokenStore struct {
	*slowStore
	err error
}

func (b brokenStore) Load(embedded.Recovery) error { return b.err }

func TestEventsComeBeforeTheRepliesThatShowTheChange(t *testing.T) {
	s := embeddedtest.RunT(t)
	writer, watcher := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
	writer.create("/n", nil, 0)
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				writer.call(wire.OpSetData, &wire.SetDataRequest{Path: "/n", Version: -1})
			}
		}
	})
	defer writing.Wait()
	defer close(stop)
	for seen := 0; seen < 300; seen++ {
		// One read leaves a watch, the others follow it in one write. Until the event comes they all must show what the
		// first has shown.
		burst := rawzk.Request(1, wire.OpGetData, &wire.ReadRequest{Path: "/n", Watch: true})
		const reads = 20
		for i := range int32(reads) {
			burst = append(burst, rawzk.Request(2+i, wire.OpGetData, &wire.ReadRequest{Path: "/n"})...)
		}
		assert.NoError(t, watcher.Write(burst))
		var watched, events int
		version := int32(-1)
		for watched < 1+reads || events < 1 {
			g := watcher.receive()
			if g.Xid == wire.XidWatcherEvent {
				events++
				continue
			}
			watched++
			var reply wire.DataReply
			reply.Decode(wire.NewDecoder(g.Body))
			if version < 0 {
				version = reply.Stat.Version
			}
			assert.Must(t, events != 0 || reply.Stat.Version == version,
				"a reply shows version %d before the event of its change", reply.Stat.Version)
			assert.Must(t, events <= 0 || reply.Stat.Version != version,
				"a reply shows version %d after the event that it has changed", version)
		}
	}
}

func TestAMemoryStoreSaysWhereItIsDamaged(t *testing.T) {
	store := embedded.NewMemoryStorage()
	assert.NoError(t, store.Append(embedded.Batch{Txns: []*state.Txn{{Zxid: 7}}}))
	_, err := embedded.New(embedded.Config{Storage: store})
	assert.That(t, err != nil && strings.Contains(err.Error(), "transaction 0"), "a log that begins at 7: %v", err)
}
