package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// fakeSession is a writer that sends one transaction per write, each a millisecond.
type fakeSession struct {
	s         *fakeStore
	id        string
	onCommit  func(zk.Instant, int64)
	done      chan struct{}
	err       error
	last      zk.Instant // send time of the last commit
	answered  zk.Instant
	pending   map[*zk.Write]struct{} // committed or not, not answered
	zxid      int64
	crashed   bool
	deaf      bool     // it pings, and nothing that it writes is answered or done
	abandoned bool     // see Abandon
	forgotten []string // see ForgetEphemeral
}

// depose does what another gateway does to one that it takes for dead.
func (f *fakeSession) depose() {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.s.tx([]zk.Op{{Kind: zk.OpDelete, Path: "/lockkeeper/guards/" + f.id, Version: -1},
		{Kind: zk.OpDelete, Path: "/lockkeeper/gateways/" + f.id, Version: -1}})
}

// deposed reports whether its nodes are gone, which it notices when it writes; s.mu is held.
func (f *fakeSession) deposed() bool { return f.s.nodes["/lockkeeper/gateways/"+f.id] == nil }

func (s *fakeStore) Open(ctx context.Context, id string, registration []byte, onCommit func(zk.Instant, int64)) (term.Session, error) {
	fs := &fakeSession{s: s, id: id, onCommit: onCommit, done: make(chan struct{}), pending: map[*zk.Write]struct{}{}}
	for {
		s.mu.Lock()
		if !s.away {
			break
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	defer s.mu.Unlock()
	if _, _, _, _, err := s.tx([]zk.Op{
		{Kind: zk.OpCreate, Path: "/lockkeeper/gateways/" + id, Data: registration},
		{Kind: zk.OpCreate, Path: "/lockkeeper/guards/" + id},
	}); err != nil {
		return nil, err
	}
	s.sessions[id] = fs
	fs.commit(s.clock.Now())
	go fs.beat()
	return fs, nil
}

// beat is the bare guard write of an idle writer.
func (f *fakeSession) beat() {
	for {
		select {
		case <-f.done:
			return
		case <-time.After(fakeWindow / 3):
			f.s.mu.Lock()
			if !f.s.away && f.err == nil && !f.deposed() && !f.deaf {
				f.s.zxid++
				f.commit(f.s.clock.Now())
			}
			f.s.mu.Unlock()
		}
	}
}

func (f *fakeSession) commit(sent zk.Instant) {
	f.last, f.answered, f.zxid = sent, f.s.clock.Now(), f.s.zxid
	if guard := f.s.nodes["/lockkeeper/guards/"+f.id]; guard != nil {
		guard.stat.Version++
		guard.stat.Mzxid, guard.stat.Mtime = f.s.zxid, time.Now().Add(f.s.skew).UnixMilli()
	}
	zxid := f.s.zxid
	go f.onCommit(sent, zxid)
	for _, w := range f.s.watchers {
		if w.connected {
			w.push(func() { w.note(func() { w.observed, w.proven = max(w.observed, zxid), sent }) })
		}
	}
}

// expire ends the session as ZooKeeper does: its ephemeral nodes go, and what was not answered stays unknown.
func (f *fakeSession) expire() {
	f.s.mu.Lock()
	if f.err != nil {
		f.s.mu.Unlock()
		return
	}
	f.s.closeSession(f.id)
	f.end(zk.ErrSessionGone)
}

// end answers everything; s.mu is held and released.
func (f *fakeSession) end(err error) {
	if f.err != nil {
		f.s.mu.Unlock()
		return
	}
	f.err = err
	pending := slices.Collect(maps.Keys(f.pending))
	clear(f.pending)
	delete(f.s.sessions, f.id)
	f.s.mu.Unlock()
	for _, w := range pending {
		w.Answer(zk.Result{Outcome: zk.Unknown, Err: err, Culprit: -1})
	}
	close(f.done)
}

// closeSession deletes the nodes that go with a session, in no particular order:
// its contenders before or after its registration. s.mu is held.
func (s *fakeStore) closeSession(id string) {
	paths := []string{"/lockkeeper/guards/" + id, "/lockkeeper/gateways/" + id}
	for _, p := range slices.Sorted(maps.Keys(s.nodes)) {
		if s.nodes[p].owner == id {
			paths = append(paths, p)
		}
	}
	if s.zxid%2 == 0 {
		slices.Reverse(paths)
	}
	var ops []zk.Op
	for _, p := range paths {
		if s.nodes[p] != nil {
			ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: p, Version: -1})
		}
	}
	s.tx(ops)
}

func (f *fakeSession) ForgetEphemeral(path string) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.forgotten = append(f.forgotten, path)
}

func (f *fakeSession) Submit(w *zk.Write) error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	size := 0
	for i := range w.Ops {
		size += len(w.Ops[i].Path) + len(w.Ops[i].Data)
	}
	if size > 250<<10 {
		return fmt.Errorf("%d bytes: %w", size, zk.ErrTooLarge)
	}
	f.pending[w] = struct{}{}
	go f.run(w)
	return nil
}

func (f *fakeSession) run(w *zk.Write) {
	sent := f.s.clock.Now()
	for {
		time.Sleep(time.Millisecond)
		f.s.mu.Lock()
		if f.err != nil {
			f.s.mu.Unlock()
			return // end answered it
		}
		if f.deposed() && !f.s.away && !f.deaf {
			f.end(zk.ErrDeposed) // releases mu, and answers
			return
		}
		if !f.s.away && !f.deaf {
			break
		}
		f.s.mu.Unlock()
	}
	res := zk.Result{Outcome: zk.Done, Culprit: -1, SentAt: sent}
	lose := f.s.loseReply != nil && f.s.loseReply(w)
	var err error
	culprit := -1
	if f.s.meanwhile != nil {
		f.s.meanwhile(w)
	}
	if f.s.refuse != nil {
		culprit, err = f.s.refuse(w)
	}
	if f.s.vague != nil && f.s.vague(w) {
		if !f.s.drop {
			f.s.by = f.id
			f.s.tx(w.Ops)
		}
		f.commit(sent) // the raise of the epoch
		delete(f.pending, w)
		f.s.mu.Unlock()
		w.Answer(zk.Result{Outcome: zk.Unknown, Culprit: -1, Err: zk.ErrUnavailable})
		return
	}
	if err == nil {
		f.s.by = f.id
		res.Zxid, res.Paths, res.Versions, culprit, err = f.s.tx(w.Ops)
	}
	if err != nil {
		res = zk.Result{Outcome: zk.NotDone, Err: err, Culprit: culprit}
		if culprit >= 0 && culprit < len(w.Ops) && w.Ops[culprit].Kind == zk.OpCheck && !errors.Is(err, zk.ErrNoAuth) {
			res.Outcome, res.Culprit = zk.Conflict, -1
		}
		f.answered = f.s.clock.Now()
	} else {
		f.s.writes = append(f.s.writes, w)
		f.commit(sent)
	}
	if lose {
		f.s.mu.Unlock()
		return // stays pending
	}
	delete(f.pending, w)
	f.s.mu.Unlock()
	w.Answer(res)
}

func (f *fakeSession) ID() string            { return f.id }
func (f *fakeSession) Done() <-chan struct{} { return f.done }
func (f *fakeSession) Err() error            { return f.err }
func (f *fakeSession) Connected() bool {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return !f.s.away && f.err == nil
}
func (f *fakeSession) LastZxid() int64 {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.zxid
}
func (f *fakeSession) LastAnswer() zk.Instant {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.answered
}
func (f *fakeSession) Trusted(now zk.Instant) bool { return f.TrustMargin(now) > 0 }
func (f *fakeSession) TrustMargin(now zk.Instant) time.Duration {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.abandoned {
		return 0
	}
	return fakeWindow - now.Since(f.last)
}

func (f *fakeSession) Barrier(ctx context.Context) (int64, error) {
	done := make(chan zk.Result, 1)
	if err := f.Submit(&zk.Write{Done: func(r zk.Result) { done <- r }}); err != nil {
		return 0, err
	}
	select {
	case r := <-done:
		return r.Zxid, r.Err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (f *fakeSession) Get(_ context.Context, p string) ([]byte, zk.Stat, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.away {
		return nil, zk.Stat{}, zk.ErrUnavailable
	}
	n := f.s.nodes[p]
	if n == nil {
		return nil, zk.Stat{}, zk.ErrNoNode
	}
	stat := n.stat
	for name := range f.s.nodes {
		if path.Dir(name) == p {
			stat.NumChildren++
		}
	}
	return n.data, stat, nil
}

func (f *fakeSession) Exists(_ context.Context, p string) (*zk.Stat, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.away {
		return nil, zk.ErrUnavailable
	}
	if n := f.s.nodes[p]; n != nil {
		stat := n.stat
		return &stat, nil
	}
	return nil, nil
}

func (f *fakeSession) Children(_ context.Context, p string) ([]string, zk.Stat, error) {
	names := f.s.names(p)
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.zxid = max(f.zxid, f.s.zxid) // replies to reads carry it too
	if f.s.nodes[p] == nil {
		return nil, zk.Stat{}, zk.ErrNoNode
	}
	return names, zk.Stat{}, nil
}

func (f *fakeSession) Guards(_ context.Context, ids []string) map[string]zk.Guard {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	found := map[string]zk.Guard{}
	if f.s.away {
		return found
	}
	for _, id := range ids {
		found[id] = zk.Guard{}
		if n := f.s.nodes["/lockkeeper/guards/"+id]; n != nil {
			found[id] = zk.Guard{There: true, Version: n.stat.Version, Czxid: n.stat.Czxid}
		}
	}
	return found
}

func (f *fakeSession) Abandon() {
	f.s.mu.Lock()
	f.abandoned = true
	f.end(zk.ErrDeposed) // releases mu
}

func (f *fakeSession) Takeover(_ context.Context, dead string, polled *zk.Guard, done func(zk.Result)) {
	f.s.mu.Lock()
	ops := []zk.Op{{Kind: zk.OpCreate, Path: "/lockkeeper/succession/" + dead, Data: []byte(f.id)}}
	for _, p := range []string{"/lockkeeper/guards/", "/lockkeeper/gateways/"} {
		there, version := f.s.nodes[p+dead] != nil, int32(-1)
		if polled != nil && p == "/lockkeeper/guards/" {
			there, version = polled.There, polled.Version
		}
		if !there {
			ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: p + dead})
			version = -1
		}
		ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: p + dead, Version: version})
	}
	f.s.mu.Unlock()
	if err := f.Submit(&zk.Write{Ops: ops, Alone: true, Done: done}); err != nil {
		done(zk.Result{Outcome: zk.NotDone, Err: err, Culprit: -1})
	}
}

func (f *fakeSession) Close(context.Context) error {
	f.s.mu.Lock()
	if f.crashed {
		f.end(zk.ErrSessionGone)
		return nil
	}
	f.s.mu.Unlock()
	f.expire()
	return nil
}
