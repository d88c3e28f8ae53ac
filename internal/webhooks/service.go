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

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/zk"
)

const (
	attempts       = 5 // of a change or a snapshot that other changes disturb
	requestTimeout = 5 * time.Second
	retryEvery     = time.Second // what ZooKeeper did not accept is tried again
	decideEvery    = time.Second // what makers may read is looked at again
	countEvery     = 5 * time.Second
	adoptEvery     = 10 * time.Minute // a safety net for missed signals of Adopt
	requestsAtOnce = 64
	maxUnrecorded  = 1000 // ends by other hands that wait to be written
)

// What can go wrong besides a *FieldError.
var (
	ErrNotFound = errors.New("there is no such webhook")
	ErrTooMany  = fmt.Errorf("there are %d webhooks already, the most that a fleet may have: remove one", MaxSubscriptions)
	// ErrTooManyOfMaker: the maker has MaxOfMaker.
	ErrTooManyOfMaker = fmt.Errorf("the caller has %d webhooks already, the most that a caller may have: remove one", MaxOfMaker)
	ErrConflict       = errors.New("the webhook was changed meanwhile: read it again")
	ErrUnavailable    = errors.New("ZooKeeper cannot be reached")
	ErrUnknown        = errors.New("the change may have been made or not: read the webhooks again")
)

// Store is ZooKeeper as the service needs it; paths are below the chroot.
type Store interface {
	// Commit puts the operations into one guarded transaction and returns its
	// outcome; unknown when ctx ends first.
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
	// Standing says what the maker with these members may read now, or why it is not let in. known is false while that cannot be
	// said. It must be quick. nil: no caller is authenticated, and subscriptions with a maker are paused.
	Standing func(name, kind, credential string, roles []string) (rules *access.Rules, paused string, known bool)
	// Changed is called when another set of subscriptions is in force: ends that
	// waited for it are decided again.
	Changed func()
	// Dropped is called with how many messages to a subscription ("": to all of them) found no room since the last call. detail says
	// which, and what to do. nil: it is not called.
	Dropped func(subscription string, n int, detail string)
	// Feed brings the events that are delivered as best effort; nil: there are none.
	Feed Feed
	// MaxEntries is how many entries the outbox has at most; 0: the constant.
	MaxEntries int
	Secrets    func(*Entry) []Secret // see CourierOptions
	Metrics    ServiceMetrics        // nil: none
	Logger     *slog.Logger
	Random     func(n int64) int64
}

// ServiceMetrics receives what happens.
type ServiceMetrics interface {
	Metrics
	OutboxEntries(n int)
	WebhookDropped()
}

// Feed is where best-effort events come from.
type Feed interface {
	// Want says whether any subscription wants such events. It returns at once.
	Want(bool)
	// Run gives events to the service, with Tell, until ctx ends.
	Run(ctx context.Context, s *Service)
}

// Service ties subscriptions, the outbox and their delivery to ZooKeeper.
type Service struct {
	*registry
	opt     Options
	courier *Courier
	bound   bound
	noRoom  noRoom
	writer  *writer
	adopt   chan struct{} // one place: the outbox is to be searched
}

// New makes a service. It does nothing before Run.
func New(o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{opt: o, adopt: make(chan struct{}, 1)}
	s.registry = &registry{store: o.Store, log: o.Logger, parent: o.Root + "/webhooks", addresses: o.Addresses, standing: o.Standing, apply: s.apply, changed: o.Changed, wake: make(chan struct{}, 1)}
	s.bound = bound{metrics: o.Metrics, now: Outbox{Limit: cmp.Or(o.MaxEntries, MaxEntries)}, by: map[string]*drops{}}
	s.writer = newWriter(s)
	courier := CourierOptions{Transport: o.Transport, Keeper: s.writer, Secrets: o.Secrets, Random: o.Random}
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

// Refresh is called when something below /webhooks has changed, or a session has begun.
func (s *Service) Refresh() { signal(s.wake) }

// Adopt is called when this gateway may have become the one that delivers entries of other gateways.
func (s *Service) Adopt() { signal(s.adopt) }

// Run serves until ctx ends. What is not delivered by then stays in the outbox.
func (s *Service) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { s.loop(ctx, s.wake, 0, s.reload) })
	all.Go(func() { s.loop(ctx, s.adopt, adoptEvery, s.adoptAll) })
	all.Go(func() { s.loop(ctx, s.writer.wake, 0, s.writer.flush) })
	all.Go(func() { s.loop(ctx, nil, countEvery, s.count) })
	all.Go(func() { s.loop(ctx, nil, decideEvery, s.redecide) })
	if s.opt.Feed != nil {
		all.Go(func() { s.opt.Feed.Run(ctx, s) })
	}
	s.Refresh()
	s.Adopt()
	<-ctx.Done()
	s.courier.Close()
	all.Wait()
	s.reportDrops(true)
	s.reportNoRoom(true)
	return nil
}

// loop runs do at each signal and, when every is not 0, that often; what
// failed is done again after retryEvery.
func (s *Service) loop(ctx context.Context, signal <-chan struct{}, every time.Duration, do func(context.Context) error) {
	rest := cmp.Or(every, time.Hour)
	timer := time.NewTimer(rest)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-signal:
		case <-timer.C:
		}
		within, cancel := context.WithTimeout(ctx, 12*requestTimeout)
		err := do(within)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.Debug("webhooks: an attempt failed and is repeated", "err", err)
			timer.Reset(retryEvery)
		default:
			timer.Reset(rest)
		}
	}
}

// apply hands another set of subscriptions to the courier. That comes before it is in force: an entry for a subscription that
// the courier does not know is taken for a removed one's, and forgotten. While the subscriptions cannot be read, none has been removed.
func (s *Service) apply(taken *snapshot) {
	if taken.unchecked {
		return
	}
	s.courier.Subscriptions(slices.Concat(taken.subscriptions, taken.unread))
	if sender, ok := s.opt.Transport.(*Sender); ok {
		sender.Keep(taken.subscriptions)
	}
	if s.opt.Feed != nil {
		s.opt.Feed.Want(slices.ContainsFunc(taken.subscriptions, (*Subscription).wantsBestEffort))
	}
}

// count reads how many entries there are, and reports those that found no room.
func (s *Service) count(ctx context.Context) error {
	s.reportDrops(false)
	s.reportNoRoom(false)
	s.courier.expire()
	s.writer.reportGivenUp()
	if stat, err := s.store.Exists(ctx, s.writer.path); err == nil && stat != nil {
		s.bound.count(func(int) int { return int(stat.NumChildren) })
	}
	return nil
}

// Outbox says how full it is.
func (s *Service) Outbox() Outbox { return s.bound.state() }

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

// DeadLetters are those that this gateway keeps and show lets through, the oldest first.
func (s *Service) DeadLetters(id string, limit int, show func(*Event) bool) []DeadLetter {
	return s.courier.DeadLetters(id, limit, show)
}

// Replay sends dead letters that this gateway keeps once more: one of them, or with "" all. It returns how many.
func (s *Service) Replay(_ context.Context, id, message string) (int, error) {
	if err := s.delivers(id); err != nil {
		return 0, err
	}
	return s.courier.Replay(id, message), nil
}

// DeliverNow tries at once what waits at this gateway for its next try. It returns how many messages wait. See Courier.DeliverNow.
func (s *Service) DeliverNow(id string) (int, error) {
	if err := s.delivers(id); err != nil {
		return 0, err
	}
	return s.courier.DeliverNow(id), nil
}

// delivers says why messages to a subscription are not sent; nil: they are.
func (s *Service) delivers(id string) error {
	sub, err := s.Get(id)
	switch {
	case err != nil:
		return err
	case !sub.Enabled:
		return wrong("enabled", "the webhook is disabled: enable it first")
	case sub.Standing.Paused != "":
		return wrong("enabled", "the webhook is paused: %s", sub.Standing.Paused)
	}
	return nil
}

// CheckURL says what is wrong with a notify_url; nil when nothing is. It does not quote it.
func (s *Service) CheckURL(raw string) error {
	err := checkURL(raw, s.opt.Addresses)
	wrong, ok := errors.AsType[*FieldError](err)
	if !ok {
		return err
	}
	if u, err := url.Parse(raw); err == nil && u.User != nil {
		return errors.New("it must not have a user or a password: leave them out, and verify the messages by their signature")
	}
	return errors.New(wrong.Detail)
}

// Statuses are what this gateway knows of the deliveries of all subscriptions; those without any are left out.
func (s *Service) Statuses() map[string]Status {
	all := s.courier.Statuses()
	s.bound.addTo(all)
	return all
}
