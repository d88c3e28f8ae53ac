package token

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Why a token is not accepted.
var (
	// ErrRefused does not tell whether there is such a token.
	ErrRefused = errors.New("the token is unknown, wrong, expired or revoked")
	// ErrNotReady: this gateway has not read the tokens yet.
	ErrNotReady = errors.New("the tokens have not been read from ZooKeeper yet")
)

const (
	readWithin = time.Minute
	retryEvery = time.Second // what could not be read is tried again
)

// Change is what a Store has observed of a token. Every gateway of a fleet observes the same.
type Change struct {
	Kind ChangeKind
	Record
}

// ChangeKind says what has happened.
type ChangeKind string

// The kinds of changes.
const (
	WasCreated ChangeKind = "created"
	WasRevoked ChangeKind = "revoked"
	WasRemoved ChangeKind = "removed" // its record is gone
)

// Options of a Store.
type Options struct {
	Tree Tree
	Log  *slog.Logger
	// Changed is told what has changed, one at a time; nil: nothing is. It must return at once.
	Changed func(Change)
}

// Store is the tokens that one gateway knows. It follows ZooKeeper while Run runs.
type Store struct {
	tree    Tree
	log     *slog.Logger
	changed func(Change)
	known   atomic.Pointer[index] // nil: not read yet

	mu    sync.Mutex
	all   bool            // all records are to be read,
	stale map[string]bool // or these
	wake  chan struct{}   // one place
}

// index is the records by their ids. It is never changed.
type index map[string]*entry

// entry is a record in memory, with the day of its last use here.
type entry struct {
	*Record
	used *atomic.Int64 // days since the Unix epoch; it outlives the record's versions
}

// NewStore makes a store. It refuses every token with ErrNotReady until Run has read the records.
func NewStore(o Options) *Store {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{tree: o.Tree, log: o.Log, changed: o.Changed, stale: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// Look is called when a record has changed, or with "" when any may have. It returns at once.
func (s *Store) Look(id string) {
	s.mu.Lock()
	if id == "" {
		s.all = true
	} else if isID(id) {
		s.stale[id] = true
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// noRecord is compared with where there is no record, so that the work is the same.
var noRecord = &entry{Record: &Record{unreadable: true}, used: new(atomic.Int64)}

// Authenticate says whose token this is. The error is ErrRefused or ErrNotReady.
func (s *Store) Authenticate(text string) (*Record, error) {
	known := s.known.Load()
	if known == nil {
		return nil, ErrNotReady
	}
	id, of, ok := split(text)
	if !ok {
		return nil, ErrRefused
	}
	e := (*known)[id]
	if e == nil {
		e = noRecord
	}
	now := time.Now()
	if subtle.ConstantTimeCompare(of[:], e.hash[:]) != 1 || e.StateAt(now) != Active {
		return nil, ErrRefused
	}
	if today := dayOf(now); e.used.Load() < today {
		e.used.Store(today)
	}
	return e.Record, nil
}

// Lookup is the record of a token that lets clients in now. The error is ErrRefused or ErrNotReady.
func (s *Store) Lookup(id string) (*Record, error) {
	known := s.known.Load()
	if known == nil {
		return nil, ErrNotReady
	}
	if e := (*known)[id]; e != nil && e.StateAt(time.Now()) == Active {
		return e.Record, nil
	}
	return nil, ErrRefused
}

// List is all records, the oldest first.
func (s *Store) List() ([]*Record, error) {
	known := s.known.Load()
	if known == nil {
		return nil, ErrNotReady
	}
	list := make([]*Record, 0, len(*known))
	for _, e := range *known {
		list = append(list, e.Record)
	}
	slices.SortFunc(list, byAge)
	return list, nil
}

// Await returns when the store has read the records, or with ErrNotReady when ctx ends first.
func (s *Store) Await(ctx context.Context) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for s.known.Load() == nil {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ErrNotReady
		}
	}
	return nil
}

// Create makes a token. This gateway accepts it when Create returns, the others a moment later.
func (s *Store) Create(ctx context.Context, req Request) (text string, r *Record, err error) {
	known, err := s.List()
	if err != nil {
		return "", nil, err
	}
	text, r, err = s.tree.Create(ctx, req, known)
	if err == nil {
		s.Look(r.ID)
		s.await(ctx, r.ID, func(e *entry) bool { return e != nil })
	}
	return text, r, err
}

// Revoke ends a token. This gateway refuses it when Revoke returns, the others a moment later.
func (s *Store) Revoke(ctx context.Context, what, by string) (*Record, error) {
	known, err := s.List()
	if err != nil {
		return nil, err
	}
	r, err := s.tree.Revoke(ctx, what, by, known)
	if err == nil {
		s.Look(r.ID)
		s.await(ctx, r.ID, func(e *entry) bool { return e == nil || !e.RevokedAt.IsZero() })
	}
	return r, err
}

// await returns when the store knows of a change, or ctx ends: the change is made in any case.
func (s *Store) await(ctx context.Context, id string, is func(*entry) bool) {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for known := s.known.Load(); !is((*known)[id]); known = s.known.Load() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// Run follows ZooKeeper until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { s.maintain(ctx) })
	defer both.Wait()
	s.Look("")
	retry := time.NewTimer(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-retry.C:
		}
		if !s.refresh(ctx) {
			retry.Reset(retryEvery)
		}
	}
}

// refresh reads what is to be read, and reports false when that has failed and is to be tried again.
func (s *Store) refresh(ctx context.Context) bool {
	s.mu.Lock()
	all, stale := s.all || s.known.Load() == nil, s.stale
	s.all, s.stale = false, map[string]bool{}
	s.mu.Unlock()
	if !all && len(stale) == 0 {
		return true
	}
	within, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	found, err := s.read(within, all, stale)
	if err != nil {
		s.mu.Lock()
		s.all = s.all || all
		maps.Copy(s.stale, stale)
		s.mu.Unlock()
		if ctx.Err() == nil {
			s.log.Debug("the tokens could not be read, and are read again", "err", err)
		}
		return false
	}
	s.take(all, stale, found)
	return true
}

func (s *Store) read(ctx context.Context, all bool, stale map[string]bool) ([]*Record, error) {
	if all {
		return s.tree.List(ctx)
	}
	// The events came from another connection than the one that reads.
	if err := s.tree.Nodes.Barrier(ctx); err != nil {
		return nil, err
	}
	return s.tree.read(ctx, slices.Collect(maps.Keys(stale)))
}

// take puts what was read into force: all records, or those that were asked for.
func (s *Store) take(all bool, asked map[string]bool, found []*Record) {
	var old index
	if known := s.known.Load(); known != nil {
		old = *known
	}
	next := make(index, len(old)+len(found))
	if !all {
		maps.Copy(next, old)
		for id := range asked {
			delete(next, id)
		}
	}
	for _, r := range found {
		e := &entry{Record: r, used: new(atomic.Int64)}
		if before := old[r.ID]; before != nil {
			e.used = before.used
		}
		next[r.ID] = e
	}
	first := s.known.Swap(&next) == nil
	if !first {
		s.report(old, next)
	}
}

// report tells what has changed.
func (s *Store) report(old, next index) {
	for id, e := range next {
		switch before := old[id]; {
		case before == nil:
			s.tell(WasCreated, e.Record)
		case before.RevokedAt.IsZero() && !e.RevokedAt.IsZero():
			s.tell(WasRevoked, e.Record)
		case e.unreadable && !before.unreadable:
			s.log.Error("the record of a token is damaged or of a later release: the token is refused", "token_id", id)
		}
	}
	for id, e := range old {
		if next[id] == nil {
			s.tell(WasRemoved, e.Record)
		}
	}
}

func (s *Store) tell(kind ChangeKind, r *Record) {
	s.log.Info("token "+string(kind), "token_id", r.ID, "name", r.Name, "admin", r.Admin)
	if s.changed != nil {
		s.changed(Change{kind, *r})
	}
}
