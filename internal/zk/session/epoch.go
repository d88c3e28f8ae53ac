package session

import (
	"fmt"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// raise is the state of the epoch raise that is due or under way.
type bump struct {
	underWay bool
	tries    int // lost attempts at the present version
}

// lost is what is known about transactions whose answers were lost.
type lost struct {
	batches   []*batch       // of unknown outcome
	highest   int32          // guard version that an answer has told
	missing   map[int32]bool // versions below it that no answer has told
	sealed    int32          // guard version of the first commit of the present epoch
	bumps     int            // lost raises that are known to have committed
	resolving bool           // somebody is finding out about an earlier lot
}

// told notes the guard version of a committed transaction. Each adds one. The
// version is a signed 32-bit number that wraps, after some days of full load:
// versions are compared by their distance.
func (l *lost) told(version int32) {
	if version-l.highest <= 0 {
		delete(l.missing, version)
		return
	}
	for v := l.highest + 1; v != version; v++ {
		if l.missing == nil {
			l.missing = make(map[int32]bool)
		}
		l.missing[v] = true
	}
	l.highest = version
}

// uncounted is the number of commits that is known of nothing.
const uncounted = -1

// collect removes the batches in question, with the number of them that
// committed according to the guard's version, or uncounted: -1 means "any
// version" to ZooKeeper, so later servers skip it where earlier ones count it.
// When it is missing nobody can tell which of the two this is.
func (l *lost) collect() (batches []*batch, commits int) {
	batches, l.batches = l.batches, nil
	skipped := false
	for v := range l.missing {
		if v-l.sealed < 0 {
			commits++
			skipped = skipped || v == -1
			delete(l.missing, v)
		}
	}
	commits -= l.bumps
	l.bumps = 0
	if skipped && commits > 0 {
		commits = uncounted
	}
	return batches, commits
}

// onLost: nothing is known about the transaction. The epoch has to be raised
// before anything else is sent, unless that has happened since it was sent.
func (s *Session) onLost(b *batch, err error) {
	w := &s.writer
	s.cfg.Logger.Debug("zookeeper transaction lost", "gateway", s.id, "writes", len(b.items), "err", err)
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

// onRaised: the raise has committed. Nothing older can commit any more.
func (s *Session) onBumped(registration conn.OpResult, guardVersion int32) {
	w := &s.writer
	w.epoch++
	if registration.Stat != nil {
		w.epoch = registration.Stat.Version
	}
	w.mode = steady
	w.lost.sealed = guardVersion
}

// onRaiseOvertaken: the registration is not at the version that the raise
// expected. If an earlier attempt was lost, that is the one in force; a
// guarded transaction in the new epoch makes sure of it and shows where the
// guard stands. Otherwise somebody else wrote there: look.
func (s *Session) onBumpOvertaken() {
	w := &s.writer
	if w.bump.tries == 0 {
		w.mode = reading
		return
	}
	w.lost.bumps++
	w.epoch++
	w.mode = confirming
}

// onConfirmed: a transaction of the epoch that a lost raise began has committed.
func (s *Session) onConfirmed(guardVersion int32) {
	s.writer.mode = steady
	s.writer.lost.sealed = guardVersion
}

// look is the answer to the question at which version the registration is.
type versionRead struct {
	stat *zk.Stat
	err  error
}

// ask reads the registration's version. One question at a time is under way.
func (s *Session) readVersion() {
	w := &s.writer
	if w.bump.underWay {
		return
	}
	w.bump.underWay = true
	ctx := s.conn.Context()
	go func() {
		stat, err := s.conn.Exists(ctx, s.registration)
		w.looked <- versionRead{stat, err}
	}()
}

func (s *Session) onVersionRead(l versionRead) {
	w := &s.writer
	w.bump.underWay = false
	switch {
	case l.err != nil: // asked again when there is a connection
	case l.stat == nil, l.stat.EphemeralOwner != s.conn.SessionID():
		w.final = fmt.Errorf("%w: the registration is gone", zk.ErrDeposed)
	default:
		// Whoever raised it, a raise of our own from there makes all that is
		// older fail, and the epoch is ours again.
		w.epoch, w.mode, w.bump.tries = l.stat.Version, bumping, 0
	}
}
