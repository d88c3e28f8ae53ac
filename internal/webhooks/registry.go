package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/zk"
)

// snapshot is the subscriptions as they were at one version of their parent.
type snapshot struct {
	version       int32   // of their parent
	mzxid         int64   // of their parent; unlike the version it also grows when the parent is created again
	check         []zk.Op // that they are still these; none when unchecked
	unchecked     bool    // the subscriptions cannot be read: no end gets an entry, and nothing is checked
	subscriptions []*Subscription
	unread        []*Subscription // whose records are damaged or a later release's: their id and version
}

// same reports whether two snapshots are alike. A record can be written, or become
// readable, by hand, which does not change the parent's version.
func (s *snapshot) same(as *snapshot) bool {
	equal := func(a, b *Subscription) bool { return a.ID == b.ID && a.Version == b.Version && sameStanding(a, b) }
	return s.mzxid == as.mzxid && s.unchecked == as.unchecked && slices.EqualFunc(s.subscriptions, as.subscriptions, equal) && slices.EqualFunc(s.unread, as.unread, equal)
}

// find is a subscription, also an unread one; nil when there is none.
func (s *snapshot) find(id string) *Subscription {
	for _, list := range [][]*Subscription{s.subscriptions, s.unread} {
		if i := slices.IndexFunc(list, func(sub *Subscription) bool { return sub.ID == id }); i >= 0 {
			return list[i]
		}
	}
	return nil
}

// registry is the subscriptions in ZooKeeper: it reads and changes them.
type registry struct {
	store     Store
	log       *slog.Logger
	parent    string // path of the node above them
	addresses *Addresses
	standing  func(name, kind, credential string, roles []string) (rules *access.Rules, paused string, known bool) // as Options has it
	apply     func(*snapshot)                                                                                      // called with another snapshot before that is in force
	changed   func()                                                                                               // called when another snapshot is in force, or a stale one is confirmed; may be nil
	wake      chan struct{}                                                                                        // one place: a snapshot is to be taken

	applying sync.Mutex // held while a snapshot is put into force

	mu      sync.Mutex
	inForce *snapshot // nil while it is not known
	stale   bool      // a transaction failed that may have failed because inForce is out of date
}

// reload brings the present subscriptions into force.
func (r *registry) reload(ctx context.Context) error {
	r.mu.Lock()
	stale := r.stale
	r.mu.Unlock()
	if stale {
		if err := r.store.Barrier(ctx); err != nil { // without it a server that lags could answer the same again
			return err
		}
	}
	_, err := r.refresh(ctx)
	return err
}

// refresh takes a snapshot and puts it into force, unless a later one is.
func (r *registry) refresh(ctx context.Context) (*snapshot, error) {
	taken, err := r.take(ctx)
	if err != nil {
		return nil, err
	}
	r.applying.Lock()
	defer r.applying.Unlock()
	r.mu.Lock()
	if r.inForce != nil && taken.mzxid < r.inForce.mzxid && !taken.unchecked {
		taken = r.inForce // this reader began earlier, or its server lags
	}
	before := r.inForce
	other := before == nil || !before.same(taken)
	r.mu.Unlock()
	if other {
		r.apply(taken)
		r.tellPaused(before, taken)
	}
	r.mu.Lock()
	changed := other || r.stale
	r.inForce, r.stale = taken, false
	r.mu.Unlock()
	if changed && r.changed != nil {
		r.changed()
	}
	return taken, nil
}

// current is the snapshot in force; nil while it is not known or may be out of date, which has it read.
func (r *registry) current() *snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inForce == nil || r.stale {
		signal(r.wake)
		return nil
	}
	return r.inForce
}

// outdated notes that the check of the subscriptions may have failed. Another check of the
// same transaction may have failed instead: then the same ones are read, and are in force again.
func (r *registry) outdated(ops []zk.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range ops {
		if ops[i].Kind == zk.OpCheck && ops[i].Path == r.parent && r.inForce != nil && r.inForce.version == ops[i].Version {
			r.stale = true
			signal(r.wake)
		}
	}
}

// take reads all subscriptions as they are at one version of their parent: it is
// read before and after, and every change of them changes it.
func (r *registry) take(ctx context.Context) (*snapshot, error) {
	for range attempts {
		taken, err := r.read(ctx)
		switch {
		case err == nil:
			return taken, nil
		case errors.Is(err, errMoved):
			continue
		case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrNoNode):
			r.log.Error("webhooks: the subscriptions cannot be read: no events are delivered", "path", r.parent, "err", err)
			return &snapshot{unchecked: true}, nil
		default:
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return nil, fmt.Errorf("%w: the subscriptions keep changing", ErrUnavailable)
}

var errMoved = errors.New("the subscriptions were changed while they were read")

func (r *registry) read(ctx context.Context) (*snapshot, error) {
	_, before, err := r.store.Get(ctx, r.parent)
	if err != nil {
		return nil, err
	}
	names, _, err := r.store.Children(ctx, r.parent)
	if err != nil {
		return nil, err
	}
	taken := &snapshot{version: before.Version, mzxid: before.Mzxid, check: []zk.Op{{Kind: zk.OpCheck, Path: r.parent, Version: before.Version}}}
	names = slices.DeleteFunc(names, func(id string) bool { return !IsID(id) })
	found := make([]*Subscription, len(names))
	// All at once: ends of leases wait for it, and frequent changes must not come in between each time.
	reading, together := errgroup.WithContext(ctx)
	reading.SetLimit(requestsAtOnce)
	for i, id := range names {
		reading.Go(func() (err error) {
			found[i], err = r.readOne(together, id)
			return err
		})
	}
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	_, after, err := r.store.Get(ctx, r.parent)
	switch {
	case err != nil:
		return nil, err
	case after.Mzxid != before.Mzxid:
		return nil, errMoved
	}
	slices.SortFunc(found, func(a, b *Subscription) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	for _, sub := range found {
		if sub.Unread {
			taken.unread = append(taken.unread, sub)
		} else {
			taken.subscriptions = append(taken.subscriptions, r.decided(sub))
		}
	}
	return taken, nil
}

// readOne reads a subscription. One that cannot be used is there all the same: what waits for it is kept.
func (r *registry) readOne(ctx context.Context, id string) (*Subscription, error) {
	data, stat, err := r.store.Get(ctx, r.parent+"/"+id)
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
	r.log.Error("webhooks: a subscription cannot be used: new ends get no entry for it, and waiting entries go on waiting", "webhook", id, "err", err)
	return unread, nil
}

// known reports whether there is a subscription of that id, or may be.
func (r *registry) known(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inForce == nil || r.inForce.unchecked || r.inForce.find(id) != nil
}

// List is the subscriptions by creation, with their secrets.
func (r *registry) List() []*Subscription {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inForce == nil {
		return nil
	}
	return slices.Clone(r.inForce.subscriptions)
}

// Known is nil once a first snapshot is in force: before, List and Get know no subscription.
func (r *registry) Known() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inForce == nil || r.inForce.unchecked {
		return ErrUnavailable
	}
	return nil
}

// Get is one of them.
func (r *registry) Get(id string) (*Subscription, error) {
	if err := r.Known(); err != nil {
		return nil, err
	}
	for _, sub := range r.List() {
		if sub.ID == id {
			return sub, nil
		}
	}
	return nil, ErrNotFound
}

// Create subscribes. The id, the secret and the time are set here.
func (r *registry) Create(ctx context.Context, sub *Subscription) (*Subscription, error) {
	made := *sub
	made.ID, made.Created, made.Version = NewID(), time.Now().UTC().Truncate(time.Millisecond), 0
	made.Secrets = []Secret{NewSecret()}
	if err := made.Normalize(r.addresses); err != nil {
		return nil, err
	}
	err := r.change(ctx, made.ID, func(now *snapshot, old *Subscription, _ bool) (*zk.Op, error) {
		switch {
		case old != nil:
			return nil, nil // an earlier attempt was done
		case len(now.subscriptions)+len(now.unread) >= MaxSubscriptions:
			return nil, ErrTooMany
		case made.Maker != nil && now.madeBy(made.Maker.Name) >= MaxOfMaker:
			return nil, ErrTooManyOfMaker
		}
		return &zk.Op{Kind: zk.OpCreate, Path: r.parent + "/" + made.ID, Data: made.Record(), Private: true}, nil
	})
	if err != nil {
		return nil, err
	}
	return &made, nil
}

// Update changes a subscription; change gets a copy. version is the one that the caller has seen; -1: any.
func (r *registry) Update(ctx context.Context, id string, version int32, change func(*Subscription) error) (*Subscription, error) {
	var changed Subscription
	err := r.change(ctx, id, func(_ *snapshot, old *Subscription, lost bool) (*zk.Op, error) {
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
		if err := changed.Normalize(r.addresses, old.Events...); err != nil {
			return nil, err
		}
		changed = *r.decided(&changed)
		changed.Version = old.Version + 1
		return &zk.Op{Kind: zk.OpSetData, Path: r.parent + "/" + id, Data: changed.Record(), Version: old.Version}, nil
	})
	if err != nil {
		return nil, err
	}
	return &changed, nil
}

// Rotate gives a subscription a new secret; the old one signs beside it for overlap. One that may does not let through is not there.
func (r *registry) Rotate(ctx context.Context, id string, overlap time.Duration, may func(*Subscription) bool) (*Subscription, Secret, error) {
	var fresh Secret
	sub, err := r.Update(ctx, id, -1, func(sub *Subscription) error {
		if !may(sub) {
			return ErrNotFound
		}
		sub.Secrets = slices.Clone(sub.Secrets)
		fresh = sub.Rotate(time.Now(), overlap)
		return nil
	})
	return sub, fresh, err
}

// Delete removes a subscription, also one whose record cannot be read, and what waits for it. version is the one that
// the caller has seen; -1: any. Repeated: ErrNotFound. One that may does not let through is not there.
func (r *registry) Delete(ctx context.Context, id string, version int32, may func(*Subscription) bool) error {
	return r.change(ctx, id, func(_ *snapshot, old *Subscription, lost bool) (*zk.Op, error) {
		switch {
		case old == nil && lost:
			return nil, nil
		case old == nil || !may(old):
			return nil, ErrNotFound
		case version >= 0 && old.Version != version:
			return nil, ErrConflict
		}
		return &zk.Op{Kind: zk.OpDelete, Path: r.parent + "/" + id, Version: old.Version}, nil
	})
}

// change makes one change in a transaction that also changes the parent's version,
// and returns when it is in force here. decide returns the operation, nil for none. lost: an attempt before this one may have been done.
func (r *registry) change(ctx context.Context, id string, decide func(now *snapshot, old *Subscription, lost bool) (*zk.Op, error)) error {
	lost := false
	for range attempts {
		now, err := r.refresh(ctx)
		switch {
		case err != nil && lost:
			return ErrUnknown
		case err != nil:
			return err
		case now.unchecked:
			return ErrUnavailable
		}
		op, err := decide(now, now.find(id), lost)
		if err != nil || op == nil {
			return err
		}
		ask, cancel := context.WithTimeout(ctx, requestTimeout)
		res := r.store.Commit(ask, []zk.Op{{Kind: zk.OpSetData, Path: r.parent, Data: []byte{}, Version: now.version}, *op})
		cancel()
		switch {
		case res.Outcome == zk.Done:
			if _, err := r.refresh(ctx); err != nil {
				signal(r.wake) // done all the same; in force soon
			}
			return nil
		case res.Outcome == zk.Unknown:
			lost = true
		case res.Outcome == zk.Conflict, errors.Is(res.Err, zk.ErrBadVersion), errors.Is(res.Err, zk.ErrNoNode), errors.Is(res.Err, zk.ErrNodeExists):
		default:
			return fmt.Errorf("%w: %w", ErrUnavailable, res.Err)
		}
		if err := r.store.Barrier(ctx); err != nil && !lost {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if lost {
		return ErrUnknown
	}
	return fmt.Errorf("%w: the webhooks keep changing", ErrUnavailable)
}
