package webhooks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
)

// adoptAll searches the outbox for entries that this gateway delivers
// and does not know: a dead gateway's, or its own whose create lost its answer.
//
// The subscriptions are read after the entries have been listed: a subscription of an
// entry that is not among them has been removed, and is not merely unknown here.
func (s *Service) adoptAll(ctx context.Context) error {
	// An entry that is delivered while the outbox is read may still be found there.
	finished := s.writer.watchFinished()
	defer s.writer.unwatchFinished()
	if err := s.store.Barrier(ctx); err != nil { // a server that lags may lack what a dead gateway did last
		return err
	}
	names, _, err := s.store.Children(ctx, s.writer.path)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return s.courier.has(name) || !s.opt.Mine(name) })
	if len(names) == 0 || fault.On("hooks-left") {
		return nil
	}
	if !fault.On("hooks-fresh") {
		if now, err := s.refresh(ctx); err != nil || now.unchecked {
			return cmp.Or(err, ErrUnavailable)
		}
	}
	found, err := s.readAll(ctx, names)
	if err != nil {
		return err
	}
	for _, e := range found {
		if !finished(e.Name) && s.mine(e) {
			s.courier.Add(e)
		}
	}
	return nil
}

// mine reports whether an entry that has been read is this gateway's to deliver.
func (s *Service) mine(e *Entry) bool {
	if s.opt.MineFrom == nil || LeaseOf(e.Name) != "" || len(e.Notices) == 0 {
		return true
	}
	return s.opt.MineFrom(e.Name, e.Notices[0].Event.Gateway)
}

// readAll reads entries, and gives them in the order in which they were made.
func (s *Service) readAll(ctx context.Context, names []string) ([]*Entry, error) {
	var (
		mu    sync.Mutex
		found []*Entry
	)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(requestsAtOnce)
	for _, name := range names {
		group.Go(func() error {
			data, stat, err := s.store.Get(ctx, s.writer.path+"/"+name)
			switch {
			case errors.Is(err, zk.ErrNoNode):
				return nil
			case err != nil:
				return err
			}
			e, err := ParseEntry(name, stat.Czxid, data)
			if err != nil {
				s.log.Error("webhooks: an entry of the outbox cannot be delivered; it stays in the outbox", "err", err)
				return nil
			}
			mu.Lock()
			found = append(found, e)
			mu.Unlock()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *Entry) int { return cmp.Compare(a.Order, b.Order) })
	return found, nil
}
