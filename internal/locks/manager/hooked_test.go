package manager

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// hookedStore is the fake store with a hand on what its sessions are told.
type hookedStore struct {
	*fakeStore
	hooks atomic.Pointer[hooks]
}

type hooks struct {
	open   func() error                // an error refuses the session
	result func(*zk.Write, *zk.Result) // changes an outcome on its way to the manager
	get    func(path string) error     // fails a read on the observer's connection
	past   map[string]*fakeNode        // reads on the observer's connection show this state: its server is behind
	stale  bool                        // the replica is not current
	noAuth string                      // paths with it may not be read by a session
	read   func(path string)           // stands before each read of a session
	// late holds a write back on its way to the session until the channel is closed; nil: it goes at once.
	late func(*zk.Write) <-chan struct{}
	// barrier stands before each barrier of a session; an error fails it.
	barrier func(ctx context.Context) error
}

func (s *fakeStore) hooked() *hookedStore {
	h := &hookedStore{fakeStore: s}
	h.hooks.Store(&hooks{})
	return h
}

// failReads fails the observer's reads of the paths that contain part.
func (h *hookedStore) failReads(part string) {
	h.hooks.Store(&hooks{get: func(path string) error {
		if strings.Contains(path, part) {
			return zk.ErrUnavailable
		}
		return nil
	}})
}

func (h *hookedStore) Watch(roots []zk.WatchRoot, sink zk.Sink, writerZxid func() int64) term.Watcher {
	return &hookedWatcher{h.fakeStore.Watch(roots, sink, writerZxid).(*fakeWatcher), h}
}

type hookedWatcher struct {
	*fakeWatcher
	h *hookedStore
}

func (w *hookedWatcher) Get(path string, reply func([]byte, wire.Stat, int64, error)) {
	if get := w.h.hooks.Load().get; get != nil {
		if err := get(path); err != nil {
			reply(nil, wire.Stat{}, 0, err)
			return
		}
	}
	if past := w.h.hooks.Load().past; past != nil {
		w.h.mu.Lock()
		defer w.h.mu.Unlock()
		w.push(func() { reply(past[path].data, past[path].stat, 0, nil) })
		return
	}
	w.fakeWatcher.Get(path, reply)
}

func (h *hookedStore) Open(ctx context.Context, id string, registration []byte, onCommit func(zk.Instant, int64)) (term.Session, error) {
	if open := h.hooks.Load().open; open != nil {
		if err := open(); err != nil {
			return nil, err
		}
	}
	session, err := h.fakeStore.Open(ctx, id, registration, onCommit)
	if err != nil {
		return nil, err
	}
	return &hookedSession{session.(*fakeSession), h}, nil
}

type hookedSession struct {
	*fakeSession
	h *hookedStore
}

func (s *hookedSession) Submit(w *zk.Write) error {
	told := *w
	told.To, told.Done = nil, func(res zk.Result) {
		if change := s.h.hooks.Load().result; change != nil {
			change(w, &res)
		}
		w.Answer(res)
	}
	if late := s.h.hooks.Load().late; late != nil {
		if until := late(w); until != nil {
			go func() {
				<-until
				if err := s.fakeSession.Submit(&told); err != nil {
					told.Done(zk.Result{Outcome: zk.NotDone, Err: err, Culprit: -1})
				}
			}()
			return nil
		}
	}
	return s.fakeSession.Submit(&told)
}

func (s *hookedSession) Get(ctx context.Context, path string) ([]byte, zk.Stat, error) {
	if read := s.h.hooks.Load().read; read != nil {
		read(path)
	}
	if no := s.h.hooks.Load().noAuth; no != "" && strings.Contains(path, no) {
		return nil, zk.Stat{}, zk.ErrNoAuth
	}
	return s.fakeSession.Get(ctx, path)
}

func (s *hookedSession) Barrier(ctx context.Context) (int64, error) {
	if barrier := s.h.hooks.Load().barrier; barrier != nil {
		if err := barrier(ctx); err != nil {
			return 0, err
		}
	}
	return s.fakeSession.Barrier(ctx)
}

func (w *hookedWatcher) Current(now zk.Instant) bool {
	return !w.h.hooks.Load().stale && w.fakeWatcher.Current(now)
}

// withHooks is a scene with one gateway on a hooked store.
func withHooks(t *testing.T, f func(t *testing.T, s *fakeStore, h *hookedStore, g *gate)) {
	t.Helper()
	scene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		f(t, s, h, h.gateway(t))
	})
}

// gateway starts a manager on the hooked store.
func (h *hookedStore) gateway(t *testing.T) *gate {
	t.Helper()
	return h.gatewayOn(t, h)
}

// reads looks at what a refuse function, which runs under the lock, has noted.
func (s *fakeStore) reads(noted *bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *noted
}
