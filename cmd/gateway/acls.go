package main

import (
	"context"
	"log/slog"

	"lockkeeper/internal/aclrepair"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// repairedStore signals that the layout is open. From then on run repairs the ACLs below it.
type repairedStore struct {
	term.Store
	check  func(*layout.Layout) error // before it is used
	opened chan *layout.Layout        // one place
}

func newRepairedStore(store term.Store, check func(*layout.Layout) error) repairedStore {
	return repairedStore{store, check, make(chan *layout.Layout, 1)}
}

func (s repairedStore) Layout(ctx context.Context) (*layout.Layout, error) {
	layout, err := s.Store.Layout(ctx)
	if err == nil {
		err = s.check(layout)
	}
	if err == nil {
		select {
		case s.opened <- layout:
		default: // opened before: once is enough
		}
	}
	return layout, err
}

// run repairs ACLs once, and returns then, or when ctx ends. What it cannot do does not end the gateway. own is the gateway's
// store, nil with --zk.
func (s repairedStore) run(ctx context.Context, cfg zk.Config, own *ownStore, logger *slog.Logger) {
	select {
	case layout := <-s.opened:
		report, err := aclrepair.Run(ctx, cfg, layout, own.acls())
		report.Log(logger)
		if err != nil && ctx.Err() == nil {
			logger.Warn("the ACLs of all nodes could not be checked", "err", err)
		}
		logger.Debug("the check of ACLs is over", "checked", report.Checked)
	case <-ctx.Done():
	}
}
