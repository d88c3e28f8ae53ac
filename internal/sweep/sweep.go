package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// Options change what a sweep does.
type Options struct {
	// DryRun looks, reports and changes nothing.
	DryRun bool
	// Dead says that the processes of all gateways are known to have ended, so that
	// none can speak for a lease any more.
	Dead bool
	// Progress may be nil. It gets the step and how far it is, often,
	// from several goroutines.
	Progress func(what string, done, total int)
	// Waiting may be nil. It gets the time before the first deletion.
	Waiting func(time.Duration)
	// Deleted may be nil. It gets each node that was deleted, or would be.
	Deleted func(path string)

	// wait lets the promise window pass.
	wait func(context.Context, time.Duration) error
	// looked is called between the look and the first transaction, committed after each one.
	looked, committed func()
	// piece bounds what one transaction deletes, in bytes as layout.Offline counts them.
	piece int
}

// Report says what was deleted, or would be.
type Report struct {
	Leases, Contenders, Locks int
	Keys, Successions, Outbox int
	// Registrations counts registrations and guards without a session.
	Registrations int
	// Foreign contenders stay: those of other programs and other fleets.
	Foreign int
	// Kept are nodes that were to go and stay, because something is below them.
	Kept []string
	// LongestTTL of the leases: so long after its last heartbeat may a client believe
	// that it holds.
	LongestTTL time.Duration
	// Transactions that were committed.
	Transactions int
}

// Sweep clears a root. Its errors are *Error, *zk.FatalError, and those that wrap
// zk.ErrUnavailable. The report is of what was done until then.
func Sweep(ctx context.Context, cfg zk.Config, opt Options) (Report, error) {
	if opt.wait == nil {
		opt.wait = wait
	}
	if opt.piece == 0 {
		opt.piece = maxPiece
	}
	o, err := layout.OpenOffline(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer o.Close()
	s := sweeper{Offline: o, opt: opt}
	if err := s.run(ctx); err != nil {
		return s.report, fmt.Errorf("sweeping %s: %w", o.FullRoot(), err)
	}
	return s.report, nil
}

type sweeper struct {
	*layout.Offline
	opt    Options
	report Report
	fleet  recipe.FleetID
	window time.Duration // the largest ever recorded
	// registrations is how many children /gateways had ever been given when none was
	// left, and goes on with this sweep's own.
	registrations int32
}

func (s *sweeper) run(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	// The reads below are of no earlier state than this.
	if _, err := s.Barrier(ctx); err != nil {
		return err
	}
	if err := s.noGateway(ctx); err != nil {
		return err
	}
	if !s.opt.DryRun && !s.opt.Dead {
		if s.opt.Waiting != nil {
			s.opt.Waiting(s.window)
		}
		if err := s.opt.wait(ctx, s.window); err != nil {
			return err
		}
	}
	left, err := s.look(ctx)
	if err != nil {
		return err
	}
	if s.opt.looked != nil {
		s.opt.looked()
	}
	return s.clear(ctx, left)
}

// open reads what has to be known of the root before anything else.
func (s *sweeper) open(ctx context.Context) error {
	version, _, err := s.Get(ctx, s.Root()+zk.NodeVersion)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return offline.Refuse(KindNoRoot, "correct --zk, its chroot or --root", "there is no Lockkeeper")
	case err != nil:
		return err
	}
	if err := layout.CheckVersion(version); err != nil {
		return err
	}
	secret, _, err := s.Get(ctx, s.Root()+zk.NodeSecret)
	if err != nil {
		return err
	}
	parsed, err := layout.ParseSecret(secret)
	if err != nil {
		return err
	}
	s.fleet = recipe.FleetID(parsed.FleetID)
	window, _, err := s.Get(ctx, s.Root()+zk.NodePromiseWindow)
	if err != nil {
		return err
	}
	_, s.window, err = layout.ParseWindow(window)
	return err
}

// noGateway makes sure that no gateway is registered, clears registrations and guards
// that no session has, and notes how many there ever were.
func (s *sweeper) noGateway(ctx context.Context) error {
	for {
		ids, stat, err := s.Children(ctx, s.Root()+zk.NodeGateways)
		if err != nil {
			return err
		}
		// A registration is an ephemeral node. One that a copying tool has made persistent
		// would keep every sweep, and every takeover, waiting for ever.
		stale, living, err := s.sessionless(ctx, zk.NodeGateways, ids)
		if err != nil {
			return err
		}
		if len(living) > 0 {
			return offline.InUse(ctx, s.Offline, living)
		}
		if len(stale) == 0 || s.opt.DryRun {
			s.report.Registrations += len(stale)
			s.deleted(stale)
			s.registrations = creations(stat)
			return nil
		}
		for _, op := range stale {
			at, err := s.Commit(ctx, []zk.Op{op})
			switch {
			case err == nil:
				s.report.Registrations++
				s.report.Transactions++
				s.deleted([]zk.Op{op})
			case at < 0 && errors.Is(err, zk.ErrUnavailable):
				return unknown(err)
			case !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion): // these are read again
				return err
			}
		}
	}
}

// sessionless splits nodes into those without a session, as operations that delete them, and the others.
func (s *sweeper) sessionless(ctx context.Context, dir string, names []string) (stale []zk.Op, living []string, err error) {
	for _, name := range names {
		path := s.Root() + dir + "/" + name
		stat, err := s.Exists(ctx, path)
		switch {
		case err != nil:
			return nil, nil, err
		case stat == nil: // its session has just ended
		case stat.EphemeralOwner != 0:
			living = append(living, name)
		default:
			stale = append(stale, zk.Op{Kind: zk.OpDelete, Path: path, Version: stat.Version})
		}
	}
	return stale, living, nil
}

// creations is how many children a node has ever been given: ZooKeeper shows twice that,
// less those that are left.
func creations(stat zk.Stat) int32 { return (stat.Cversion + stat.NumChildren) / 2 }

func (s *sweeper) progress(what string, done, total int) {
	if s.opt.Progress != nil {
		s.opt.Progress(what, done, total)
	}
}

func (s *sweeper) deleted(ops []zk.Op) {
	if s.opt.Deleted == nil {
		return
	}
	for i := range ops {
		s.opt.Deleted(ops[i].Path)
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
