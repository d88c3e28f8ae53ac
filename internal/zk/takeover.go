package zk

import (
	"context"
	"errors"
	"fmt"
)

// takeoverAttempts bounds how often a takeover is decided again because the
// dead gateway's nodes went away between the look and the write.
const takeoverAttempts = 5

// Takeover makes this session the successor of a dead gateway, in one
// transaction: the succession entry is created first, then guard and
// registration are each deleted, at the version at which they were seen, or
// proved absent by creating and deleting them. Afterwards the dead gateway
// cannot write, whatever it has under way, and exactly one gateway succeeds it.
//
// done is called once, from another goroutine, and must not block. Done:
// this session is the successor. NotDone with ErrNodeExists: another is.
// NotDone with ErrBadVersion: the gateway wrote meanwhile, it is not dead.
// NotDone with any other error: nothing was done, because ZooKeeper could not
// be asked, or ctx ended, or the session did. Unknown: as for any Write.
//
// Whether the gateway is dead is the caller's to know: its registration is
// gone, or its guard has not moved for 3 W.
func (s *Session) Takeover(ctx context.Context, dead string, done func(Result)) {
	t := &takeover{s: s, ctx: ctx, dead: dead, done: done}
	go t.attempt() // ends with ctx or the session at the latest; the rest runs in the session's goroutine
}

type takeover struct {
	s     *Session
	ctx   context.Context
	dead  string
	done  func(Result)
	tries int
}

// attempt looks and submits.
func (t *takeover) attempt() {
	t.tries++
	w, err := t.prepare()
	if err == nil {
		err = t.s.Submit(w)
	}
	if err != nil {
		t.done(Result{Outcome: NotDone, Culprit: -1, Err: fmt.Errorf("taking over %s: %w", t.dead, err)})
	}
}

// prepare decides what to do about each of the two nodes.
func (t *takeover) prepare() (*Write, error) {
	root := t.s.cfg.Root
	w := &Write{Alone: true, Done: t.finished, Ops: []Op{
		{Kind: OpCreate, Path: root + "/succession/" + t.dead, Data: []byte(t.s.id)},
	}}
	for _, path := range []string{root + "/guards/" + t.dead, root + "/gateways/" + t.dead} {
		var stat *Stat
		err := t.s.conn.retry(t.ctx, reqExists, func(ctx context.Context) (err error) {
			stat, err = t.s.conn.exists(ctx, path)
			return err
		}, nil)
		switch {
		case err != nil:
			return nil, err
		case stat != nil:
			w.Ops = append(w.Ops, Op{Kind: OpDelete, Path: path, Version: stat.Version})
		default:
			w.Ops = append(w.Ops, Op{Kind: OpCreate, Path: path}, Op{Kind: OpDelete, Path: path, Version: -1})
		}
	}
	return w, nil
}

// finished decides again when one of the two nodes came or went since the look.
func (t *takeover) finished(r Result) {
	const succession = 0
	moved := errors.Is(r.Err, ErrNoNode) || errors.Is(r.Err, ErrNodeExists)
	if r.Outcome == NotDone && r.Culprit > succession && moved && t.tries < takeoverAttempts {
		go t.attempt()
		return
	}
	t.done(r)
}
