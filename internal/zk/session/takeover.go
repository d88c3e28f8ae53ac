package session

import (
	"context"
	"errors"
	"fmt"

	"lockkeeper/internal/zk"
)

// takeoverAttempts bounds how often a takeover is decided again because the
// dead gateway's nodes went away between the look and the write.
const takeoverAttempts = 5

// Takeover makes this session the successor of a dead gateway, in one transaction: the succession entry is created
// first, then guard and registration are each deleted, at the version at which they were seen, or proved absent by
// creating and deleting them. Afterwards the dead gateway cannot write, nor can what it has under way, and exactly one
// gateway succeeds it.
//
// The caller decides whether the gateway is dead. Either its registration is gone: then polled is nil, and its guard is
// read now. Or it is stalled: it is registered, and its guard has been as polled says for 3 W. Then only that guard
// ends, and nothing is read again: a transaction that the gateway has committed since the first of these reads fails
// this one, so a caller whose server is behind deposes no gateway that is alive.
//
// done is called once, from another goroutine, and must not block. Done: this session is the successor. NotDone with
// ErrNodeExists and Culprit 0: another is. NotDone with ErrBadVersion: the gateway wrote meanwhile, it is not dead.
// NotDone with any other error: nothing was done, because the polled guard has come or gone, ZooKeeper could not be
// asked, ctx ended, or the session did. Unknown: as for any Write.
func (s *Session) Takeover(ctx context.Context, dead string, polled *zk.Guard, done func(zk.Result)) {
	t := &takeover{s: s, ctx: ctx, dead: dead, polled: polled, done: done}
	go t.attempt() // ends with ctx or the session at the latest; the rest runs in the session's goroutine
}

type takeover struct {
	s      *Session
	ctx    context.Context
	dead   string
	polled *zk.Guard
	done   func(zk.Result)
	tries  int
}

// attempt looks and submits.
func (t *takeover) attempt() {
	t.tries++
	w, err := t.prepare()
	if err == nil {
		err = t.s.Submit(w)
	}
	if err != nil {
		t.done(zk.Result{Outcome: zk.NotDone, Culprit: -1, Err: fmt.Errorf("taking over %s: %w", t.dead, err)})
	}
}

// prepare decides what to do about each of the two nodes.
func (t *takeover) prepare() (*zk.Write, error) {
	root := t.s.cfg.Root
	w := &zk.Write{Alone: true, Done: t.finished, Ops: []zk.Op{
		{Kind: zk.OpCreate, Path: root + zk.NodeSuccession + "/" + t.dead, Data: []byte(t.s.id)},
	}}
	for _, path := range []string{root + zk.NodeGuards + "/" + t.dead, root + zk.NodeGateways + "/" + t.dead} {
		found := t.polled
		if found == nil || path != root+zk.NodeGuards+"/"+t.dead {
			var err error
			if found, err = t.look(path); err != nil {
				return nil, err
			}
		}
		ops, err := endGuard(found, path)
		if err != nil {
			return nil, err
		}
		w.Ops = append(w.Ops, ops...)
	}
	return w, nil
}

// look finds one of the two nodes as it is now.
func (t *takeover) look(path string) (*zk.Guard, error) {
	stat, err := t.s.conn.RetryExists(t.ctx, t.s.cfg, path)
	switch {
	case err != nil:
		return nil, err
	case stat == nil:
		return &zk.Guard{}, nil
	}
	return &zk.Guard{There: true, Version: stat.Version, Czxid: stat.Czxid}, nil
}

// finished decides again when one of the two nodes came or went since the look.
// Of the guard that was polled that is for the caller to do.
func (t *takeover) finished(r zk.Result) {
	const succession, guard = 0, 1
	moved := errors.Is(r.Err, zk.ErrNoNode) || errors.Is(r.Err, zk.ErrNodeExists)
	again := r.Culprit > succession && (t.polled == nil || r.Culprit > guard)
	if r.Outcome == zk.NotDone && again && moved && t.tries < takeoverAttempts {
		go t.attempt()
		return
	}
	t.done(r)
}
