package session

import (
	"cmp"
	"fmt"
	"slices"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// bump is the state of the epoch bump that is due or under way.
type bump struct {
	underWay bool
	tries    int // lost attempts at the present version
}

// onLost: nothing is known about the transaction. The epoch has to be bumped
// before anything else is sent, unless that has happened since it was sent.
func (w *writer) onLost(b *batch, err error) {
	w.cfg.Logger.Debug("zookeeper transaction lost", "gateway", w.id, "writes", len(b.items), "err", err)
	switch {
	case b.kind == closeBatch:
		w.final = fmt.Errorf("%w: its last transaction was lost: %w", zk.ErrSessionGone, err)
		return
	case b.kind == bumpBatch:
		w.bump.tries++ // again, at the same version: one of the two may commit
		return
	}
	w.lost.batches = append(w.lost.batches, b)
	if conn.Classify(conn.ReqMulti, err, 1) == conn.SessionOver {
		w.final = err
		return
	}
	if b.epoch == w.epoch && (w.mode == steady || w.mode == confirming) {
		w.mode, w.bump.tries = bumping, 0
		if fault.On("epoch-bump") {
			w.mode = confirming
		}
	}
}

// onBumped: the bump has committed. Nothing older can commit any more.
func (w *writer) onBumped(registration conn.OpResult, guardVersion int32) {
	w.epoch++
	if registration.Set {
		w.epoch = registration.Version
	}
	w.mode = steady
	w.lost.sealed = guardVersion
}

// onBumpOvertaken: the registration is not at the version that the bump expected. If an earlier attempt was lost, that
// is the one in force; a guarded transaction in the new epoch makes sure of it and shows where the guard stands.
// Otherwise another program wrote there: read it.
func (w *writer) onBumpOvertaken() {
	if w.bump.tries == 0 {
		w.mode = reading
		return
	}
	w.lost.bumps++
	w.epoch++
	w.mode = confirming
}

// onConfirmed: a transaction of the epoch that a lost bump began has committed.
func (w *writer) onConfirmed(guardVersion int32) {
	w.mode = steady
	w.lost.sealed = guardVersion
}

// versionRead is the answer to the question at which version the registration is.
type versionRead struct {
	stat *zk.Stat
	err  error
}

// readVersion reads the registration's version. One question at a time is under way.
func (w *writer) readVersion() {
	if w.bump.underWay {
		return
	}
	w.bump.underWay = true
	ctx := w.conn.Context()
	go func() {
		stat, err := w.conn.Exists(ctx, w.registration)
		w.looked <- versionRead{stat, err}
	}()
}

func (w *writer) onVersionRead(l versionRead) {
	w.bump.underWay = false
	switch {
	case l.err != nil: // asked again when there is a connection
	case l.stat == nil, l.stat.EphemeralOwner != w.conn.SessionID():
		w.final = fmt.Errorf("%w: the registration is gone", zk.ErrDeposed)
	default:
		// A bump from there makes all that is older fail, and the epoch is this session's again.
		w.epoch, w.mode, w.bump.tries = l.stat.Version, bumping, 0
	}
}

// outcome is what became of an item.
type outcome struct {
	item   *item
	result zk.Result
}

// resolveLost finds out about lost transactions once nothing of their epochs
// can commit any more and everything else of those epochs has been answered.
func (w *writer) resolveLost() {
	if len(w.lost.batches) == 0 || w.lost.resolving {
		return
	}
	for _, b := range w.inflight {
		if b.epoch < w.epoch || fault.On("epoch-bump") && b.number < w.number-8 {
			return
		}
	}
	// The library tells of a broken connection in no certain order.
	slices.SortFunc(w.lost.batches, func(a, b *batch) int { return cmp.Compare(a.number, b.number) })
	batches, commits := w.lost.collect()
	later := w.conn.LastZxid()
	w.lost.resolving = true
	go func() { w.resolved <- w.investigate(batches, commits, later) }()
}

func (w *writer) onResolved(all []outcome) {
	w.lost.resolving = false
	w.answer(all...)
}

// investigate answers for every item of the batches, of which so many committed. It reads on the writer's connection,
// and goes on until it has read what it needs or the session is over.
func (w *writer) investigate(batches []*batch, commits int, later int64) []outcome {
	evidence := &evidence{Conn: w.conn, random: w.cfg.Random, listings: make(map[string]childList)}
	assumed := make([]assumption, len(batches))
	switch {
	case commits == 0: // nothing to ask
		for i := range assumed {
			assumed[i] = surelyNot
		}
	default:
		for i, b := range batches {
			assumed[i] = evidence.of(b)
		}
		assumed = conclude(assumed, commits)
	}
	var all []outcome
	for i, b := range batches {
		for _, it := range b.items {
			var r zk.Result
			switch {
			case evidence.err != nil:
				r = zk.Result{Outcome: zk.Unknown, Err: evidence.err, Culprit: -1}
			case assumed[i] == surelyYes:
				r = evidence.describe(b, it, later)
			case assumed[i] == surelyNot:
				r = zk.Result{Outcome: zk.NotDone, Err: zk.ErrNotApplied, Culprit: -1}
			default:
				r = zk.Result{Outcome: zk.Unknown, Err: zk.ErrUnavailable, Culprit: -1}
			}
			all = append(all, outcome{it, r})
		}
	}
	return all
}
