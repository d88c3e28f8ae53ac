package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/zk"
)

const (
	attempts      = 5 // of a change or a snapshot that others disturb
	askWithin     = 5 * time.Second
	retryEvery    = time.Second // what ZooKeeper did not take is tried again
	countEvery    = 5 * time.Second
	adoptEvery    = 10 * time.Minute // a safety net: what the signals of Adopt missed
	keptAtOnce    = 64
	maxUnrecorded = 1000 // ends of others that wait to be written down
)

// What can go wrong besides a *FieldError.
var (
	ErrNotFound    = errors.New("there is no such webhook")
	ErrTooMany     = fmt.Errorf("there are %d webhooks already, which is all that a fleet may have: remove one", MaxSubscriptions)
	ErrConflict    = errors.New("the webhook was changed meanwhile: look at it again")
	ErrUnavailable = errors.New("ZooKeeper cannot be asked")
	ErrUnknown     = errors.New("it may have been done or not: look at the webhooks again")
)

// Store is ZooKeeper as the service needs it; paths are below the chroot.
type Store interface {
	// Commit puts the operations into one guarded transaction and tells what became
	// of it; when ctx ends first, that is unknown.
	Commit(ctx context.Context, ops []zk.Op) zk.Result
	// Barrier returns when what is read afterwards is at least what was true when it was called.
	Barrier(ctx context.Context) error
	Get(ctx context.Context, path string) ([]byte, zk.Stat, error)
	Children(ctx context.Context, path string) ([]string, zk.Stat, error)
	Exists(ctx context.Context, path string) (*zk.Stat, error)
}

// Options of a Service.
type Options struct {
	Store     Store
	Root      string // of the layout
	Addresses *Addresses
	Transport Transport // Sender
	// Mine says whether this gateway delivers the entry of that name, or may.
	Mine func(entry string) bool
	// MineFrom says so of an entry that is about no lease, with the gateway that has made it; nil: Mine is enough.
	MineFrom func(entry, gateway string) bool
	// Changed is called when another set of subscriptions is in force: ends that
	// waited for it are decided again.
	Changed func()
	// Dropped is called with how many ends a subscription was not told of since the last call, as more waits for it than its share of
	// the outbox; "": nobody was told of these, as the outbox is full. nil: it is not called.
	Dropped func(subscription string, n int)
	// MaxEntries is how many entries the outbox has at most; 0: the constant.
	MaxEntries int
	Secrets    func(*Entry) []Secret // see CourierOptions
	Metrics    ServiceMetrics        // nil: none
	Logger     *slog.Logger
	Random     func(n int64) int64
}

// ServiceMetrics is told what happens.
type ServiceMetrics interface {
	Metrics
	OutboxEntries(n int)
	WebhookDropped()
}

// Service ties subscriptions, the outbox and their delivery to ZooKeeper.
type Service struct {
	opt     Options
	log     *slog.Logger
	courier *Courier
	wake    chan struct{} // one place: a snapshot is to be taken
	adopt   chan struct{} // one place: the outbox is to be looked through
	keep    chan struct{} // one place: pending has something

	applying sync.Mutex // held while a snapshot is put into force: one after the other

	mu       sync.Mutex
	inForce  *snapshot           // nil while it is not known
	stale    bool                // inForce may not be the present one: a transaction failed that may have failed by it
	bound    bound               // of the outbox; see bound.go
	pending  map[string]*Entry   // to be deleted (nil) or written
	flushing map[string]*Entry   // the same, under way
	finished map[string]struct{} // entries that are over, noted while the outbox is looked through; else nil
	toRecord []*Entry            // ends by others' hands
	gone     map[string]farewell // subscriptions whose receiver answered 410
	givenUp  givenUp             // messages to notify_urls; see givenup.go
}

// farewell is that a receiver wants nothing more.
type farewell struct{ url, why string }

// snapshot is the subscriptions as they were at one version of their parent.
type snapshot struct {
	version       int32   // of their parent
	mzxid         int64   // the same, and grows also when the parent is made anew
	check         []zk.Op // that they are still these; none when they are unchecked
	unchecked     bool    // they cannot be read at all: nobody is told, and nothing is checked
	subscriptions []*Subscription
	unread        []*Subscription // those whose records are damaged or a later release's: their id and version
}

// same reports whether two snapshots are of the same. Without the parent's version changing, a record can have been written, or have become
// readable, by hand.
func (s *snapshot) same(as *snapshot) bool {
	equal := func(a, b *Subscription) bool { return a.ID == b.ID && a.Version == b.Version }
	return s.mzxid == as.mzxid && s.unchecked == as.unchecked && slices.EqualFunc(s.subscriptions, as.subscriptions, equal) && slices.EqualFunc(s.unread, as.unread, equal)
}

// New makes a service. It does nothing before Run.
func New(o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{opt: o, log: o.Logger, pending: map[string]*Entry{}, gone: map[string]farewell{},
		wake: make(chan struct{}, 1), adopt: make(chan struct{}, 1), keep: make(chan struct{}, 1)}
	s.bound.limit = cmp.Or(o.MaxEntries, MaxEntries)
	courier := CourierOptions{Transport: o.Transport, Keeper: (*outboxKeeper)(s), Secrets: o.Secrets, Random: o.Random}
	if o.Metrics != nil {
		courier.Metrics = o.Metrics
	}
	s.courier = NewCourier(courier)
	return s
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Look is called when something below /webhooks has changed, or a session has begun.
func (s *Service) Look() { signal(s.wake) }

// Adopt is called when entries of others may have become this gateway's.
func (s *Service) Adopt() { signal(s.adopt) }

// Run serves until ctx ends. What is not delivered by then stays in the outbox.
func (s *Service) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { s.loop(ctx, s.wake, 0, s.lookAgain) })
	all.Go(func() { s.loop(ctx, s.adopt, adoptEvery, s.adoptAll) })
	all.Go(func() { s.loop(ctx, s.keep, 0, s.flush) })
	all.Go(func() { s.loop(ctx, nil, countEvery, s.count) })
	s.Look()
	s.Adopt()
	<-ctx.Done()
	s.courier.Close()
	all.Wait()
	s.tellDrops(true)
	return nil
}

// loop does something at each signal and, when every is not 0, that often; what
// failed is done again after retryEvery.
func (s *Service) loop(ctx context.Context, signal <-chan struct{}, every time.Duration, do func(context.Context) error) {
	timer := time.NewTimer(max(every, time.Hour))
	defer timer.Stop()
	if every > 0 {
		timer.Reset(every)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-signal:
		case <-timer.C:
		}
		within, cancel := context.WithTimeout(ctx, 12*askWithin)
		err := do(within)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.Debug("webhooks: not done, it is tried again", "err", err)
			timer.Reset(retryEvery)
		case every > 0:
			timer.Reset(every)
		default:
			timer.Reset(time.Hour)
		}
	}
}

func (s *Service) parent() string { return s.opt.Root + "/webhooks" }
func (s *Service) outbox() string { return s.opt.Root + "/outbox" }

// lookAgain brings the present subscriptions into force.
func (s *Service) lookAgain(ctx context.Context) error {
	s.mu.Lock()
	stale := s.stale
	s.mu.Unlock()
	if stale {
		if err := s.opt.Store.Barrier(ctx); err != nil { // else a server that lags would tell the same once more
			return err
		}
	}
	_, err := s.refresh(ctx)
	return err
}

// refresh takes a snapshot and puts it into force, unless a later one is.
func (s *Service) refresh(ctx context.Context) (*snapshot, error) {
	taken, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	if s.inForce != nil && taken.mzxid < s.inForce.mzxid && !taken.unchecked {
		taken = s.inForce // a reader that began earlier, or a server that lags
	}
	other := s.inForce == nil || !s.inForce.same(taken)
	s.mu.Unlock()
	// The courier comes first: what it is given for somebody whom it does not know it takes
	// for a removed one's, and forgets. When the subscriptions cannot be read at all, nobody has been removed.
	if other && !taken.unchecked {
		s.courier.Subscriptions(slices.Concat(taken.subscriptions, taken.unread))
		if sender, ok := s.opt.Transport.(*Sender); ok {
			sender.Keep(taken.subscriptions)
		}
	}
	s.mu.Lock()
	changed := other || s.stale
	s.inForce, s.stale = taken, false
	s.mu.Unlock()
	if changed && s.opt.Changed != nil {
		s.opt.Changed()
	}
	return taken, nil
}

// take reads all subscriptions as they are at one version of their parent: it is
// read before and after, and every change of them changes it.
func (s *Service) take(ctx context.Context) (*snapshot, error) {
	var err error
	for range attempts {
		var taken *snapshot
		if taken, err = s.read(ctx); err == nil {
			return taken, nil
		}
		switch {
		case errors.Is(err, errMoved):
			continue
		case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrNoNode):
			s.log.Error("webhooks: the subscriptions cannot be read: nobody is told of anything", "path", s.parent(), "err", err)
			return &snapshot{unchecked: true}, nil
		default:
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return nil, fmt.Errorf("%w: the subscriptions change all the time", ErrUnavailable)
}

var errMoved = errors.New("the subscriptions were changed while they were read")

func (s *Service) read(ctx context.Context) (*snapshot, error) {
	_, before, err := s.opt.Store.Get(ctx, s.parent())
	if err != nil {
		return nil, err
	}
	names, _, err := s.opt.Store.Children(ctx, s.parent())
	if err != nil {
		return nil, err
	}
	taken := &snapshot{version: before.Version, mzxid: before.Mzxid, check: []zk.Op{{Kind: zk.OpCheck, Path: s.parent(), Version: before.Version}}}
	names = slices.DeleteFunc(names, func(id string) bool { return !IsID(id) })
	found := make([]*Subscription, len(names))
	// All at once: ends wait for it, and who changes them again and again shall not come in between each time.
	reading, together := errgroup.WithContext(ctx)
	reading.SetLimit(keptAtOnce)
	for i, id := range names {
		reading.Go(func() (err error) {
			found[i], err = s.readOne(together, id)
			return err
		})
	}
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	for _, sub := range found {
		if sub.Unread {
			taken.unread = append(taken.unread, sub)
		} else {
			taken.subscriptions = append(taken.subscriptions, sub)
		}
	}
	_, after, err := s.opt.Store.Get(ctx, s.parent())
	switch {
	case err != nil:
		return nil, err
	case after.Mzxid != before.Mzxid:
		return nil, errMoved
	}
	for _, list := range [][]*Subscription{taken.subscriptions, taken.unread} {
		slices.SortFunc(list, func(a, b *Subscription) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		})
	}
	return taken, nil
}

// readOne reads a subscription. One that cannot be made use of is there all the same: what waits for it is kept.
func (s *Service) readOne(ctx context.Context, id string) (*Subscription, error) {
	data, stat, err := s.opt.Store.Get(ctx, s.parent()+"/"+id)
	unread := &Subscription{ID: id, Enabled: true, Version: -1, Unread: true}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, errMoved
	case errors.Is(err, zk.ErrNoAuth):
	case err != nil:
		return nil, err
	default:
		var sub *Subscription
		if sub, err = ParseRecord(id, data, stat.Version); err == nil {
			return sub, nil
		}
		unread.Version = stat.Version
	}
	s.log.Error("webhooks: a subscription cannot be used: what ends is not told for it, and what waits for it goes on waiting", "webhook", id, "err", err)
	return unread, nil
}

// List is the subscriptions by creation, with their secrets: whoever shows them leaves those out.
func (s *Service) List() []*Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inForce == nil {
		return nil
	}
	return slices.Clone(s.inForce.subscriptions)
}

// Known is nil when List and Get tell the truth: until a first snapshot is in force nothing is known.
func (s *Service) Known() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inForce == nil || s.inForce.unchecked {
		return ErrUnavailable
	}
	return nil
}

// Get is one of them.
func (s *Service) Get(id string) (*Subscription, error) {
	if err := s.Known(); err != nil {
		return nil, err
	}
	for _, sub := range s.List() {
		if sub.ID == id {
			return sub, nil
		}
	}
	return nil, ErrNotFound
}

// Create subscribes. The id, the secret and the time are set here.
func (s *Service) Create(ctx context.Context, sub *Subscription) (*Subscription, error) {
	made := *sub
	made.ID, made.Created, made.Version = NewID(), time.Now().UTC().Truncate(time.Millisecond), 0
	made.Secrets = []Secret{NewSecret()}
	if err := made.Normalize(s.opt.Addresses); err != nil {
		return nil, err
	}
	err := s.change(ctx, made.ID, func(now *snapshot, old *Subscription, _ bool) (*zk.Op, error) {
		switch {
		case old != nil:
			return nil, nil // an earlier attempt was done
		case len(now.subscriptions)+len(now.unread) >= MaxSubscriptions:
			return nil, ErrTooMany
		}
		return &zk.Op{Kind: zk.OpCreate, Path: s.parent() + "/" + made.ID, Data: made.Record(), Private: true}, nil
	})
	if err != nil {
		return nil, err
	}
	return &made, nil
}

// Update changes a subscription; change gets a copy. version is the one that was
// looked at; -1: whatever it is.
func (s *Service) Update(ctx context.Context, id string, version int32, change func(*Subscription) error) (*Subscription, error) {
	var changed Subscription
	err := s.change(ctx, id, func(_ *snapshot, old *Subscription, lost bool) (*zk.Op, error) {
		switch {
		case lost:
			return nil, ErrUnknown // it may be there already
		case old == nil || old.Unread:
			return nil, ErrNotFound
		case version >= 0 && old.Version != version:
			return nil, ErrConflict
		}
		changed = *old
		if err := change(&changed); err != nil {
			return nil, err
		}
		if err := changed.Normalize(s.opt.Addresses); err != nil {
			return nil, err
		}
		changed.Version = old.Version + 1
		return &zk.Op{Kind: zk.OpSetData, Path: s.parent() + "/" + id, Data: changed.Record(), Version: old.Version}, nil
	})
	if err != nil {
		return nil, err
	}
	return &changed, nil
}

// Rotate gives a subscription a new secret; the old one signs beside it for overlap.
func (s *Service) Rotate(ctx context.Context, id string, overlap time.Duration) (*Subscription, Secret, error) {
	var fresh Secret
	sub, err := s.Update(ctx, id, -1, func(sub *Subscription) error {
		sub.Secrets = slices.Clone(sub.Secrets)
		fresh = sub.Rotate(time.Now(), overlap)
		return nil
	})
	return sub, fresh, err
}

// Delete removes a subscription, also one whose record cannot be read, and what waits for it. version is the one that was looked at; -1: whatever
// it is. Repeated: ErrNotFound.
func (s *Service) Delete(ctx context.Context, id string, version int32) error {
	return s.change(ctx, id, func(_ *snapshot, old *Subscription, lost bool) (*zk.Op, error) {
		switch {
		case old == nil && lost:
			return nil, nil
		case old == nil:
			return nil, ErrNotFound
		case version >= 0 && old.Version != version:
			return nil, ErrConflict
		}
		return &zk.Op{Kind: zk.OpDelete, Path: s.parent() + "/" + id, Version: old.Version}, nil
	})
}

// change makes one change in a transaction that also changes the parent's version,
// and returns when it is in force here. decide says what is to be done in view of what
// there is; nil: nothing. lost: an attempt before this one may have been done.
func (s *Service) change(ctx context.Context, id string, decide func(now *snapshot, old *Subscription, lost bool) (*zk.Op, error)) error {
	lost := false
	for range attempts {
		now, err := s.refresh(ctx)
		if err != nil {
			if lost {
				return ErrUnknown
			}
			return err
		}
		if now.unchecked {
			return ErrUnavailable
		}
		var old *Subscription
		is := func(sub *Subscription) bool { return sub.ID == id }
		if i := slices.IndexFunc(now.subscriptions, is); i >= 0 {
			old = now.subscriptions[i]
		} else if i := slices.IndexFunc(now.unread, is); i >= 0 {
			old = now.unread[i]
		}
		op, err := decide(now, old, lost)
		switch {
		case err != nil:
			return err
		case op == nil:
			return nil
		}
		ask, cancel := context.WithTimeout(ctx, askWithin)
		res := s.opt.Store.Commit(ask, []zk.Op{{Kind: zk.OpSetData, Path: s.parent(), Data: []byte{}, Version: now.version}, *op})
		cancel()
		switch {
		case res.Outcome == zk.Done:
			_, err := s.refresh(ctx)
			if err != nil {
				s.Look() // done all the same; in force soon
			}
			return nil
		case res.Outcome == zk.Unknown:
			lost = true
		case res.Outcome == zk.Redecide, errors.Is(res.Err, zk.ErrBadVersion), errors.Is(res.Err, zk.ErrNoNode), errors.Is(res.Err, zk.ErrNodeExists):
		default:
			return fmt.Errorf("%w: %w", ErrUnavailable, res.Err)
		}
		if err := s.opt.Store.Barrier(ctx); err != nil && !lost {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if lost {
		return ErrUnknown
	}
	return fmt.Errorf("%w: others change the webhooks all the time", ErrUnavailable)
}

// Test sends a message to a subscription, at once and outside of all order.
func (s *Service) Test(ctx context.Context, id string) (Attempt, error) {
	sub, err := s.Get(id)
	if err != nil {
		return Attempt{}, err
	}
	return s.courier.Test(ctx, sub, &Event{Type: Test, Time: time.Now().UTC().Truncate(time.Millisecond), NS: "default", Lock: "test"}), nil
}

// Attempts are the last ones that this gateway made, the newest first.
func (s *Service) Attempts(id string) []Attempt { return s.courier.Attempts(id) }

// DeadLetters are those that this gateway keeps, the oldest first.
func (s *Service) DeadLetters(id string, limit int) []DeadLetter {
	return s.courier.DeadLetters(id, limit)
}

// Replay sends dead letters that this gateway keeps once more: one of them, or with "" all. It tells how many.
func (s *Service) Replay(_ context.Context, id, message string) (int, error) {
	sub, err := s.Get(id)
	switch {
	case err != nil:
		return 0, err
	case !sub.Enabled:
		return 0, wrong("enabled", "the webhook is disabled: enable it first")
	}
	return s.courier.Replay(id, message), nil
}

// CheckURL says what is wrong with a notify_url; nil when nothing is. It does not quote it.
func (s *Service) CheckURL(raw string) error {
	err := checkURL(raw, s.opt.Addresses)
	wrong, ok := errors.AsType[*FieldError](err)
	if !ok {
		return err
	}
	if u, err := url.Parse(raw); err == nil && u.User != nil {
		return errors.New("it has a user or a password: leave them out, and verify the messages by their signature")
	}
	return errors.New(wrong.Detail)
}

// Load is the number of entries in the outbox, and of messages of this gateway that wait and that are dead.
func (s *Service) Load() (entries, waiting, dead int) {
	waiting, dead = s.courier.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bound.entries, waiting, dead
}
