package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"lockkeeper/internal/backoff"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// belief is what is known about whether a lost transaction committed.
type assumption uint8

const (
	noIdea    assumption = iota
	traceless            // it would leave nothing behind: a bare guard write
	likelyNot
	likelyYes
	surelyNot
	surelyYes
)

// settled is the outcome of an item whose transaction was lost.
type outcome struct {
	item   *item
	result zk.Result
}

// resolveLost finds out about lost transactions once nothing of their epochs
// can commit any more and everything else of those epochs has been answered.
func (s *Session) resolveLost() {
	w := &s.writer
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
	later := s.conn.LastZxid()
	w.lost.resolving = true
	go func() { w.resolved <- s.investigate(batches, commits, later) }()
}

func (s *Session) onResolved(all []outcome) {
	s.writer.lost.resolving = false
	for _, one := range all {
		s.answer(one.item, one.result)
	}
}

// investigate answers for every item of the batches, of which so many
// committed. It reads on the writer's connection, and goes on until it has
// read what it needs or the session is over.
func (s *Session) investigate(batches []*batch, commits int, later int64) []outcome {
	inquest := &evidence{s: s, listings: make(map[string]childList)}
	beliefs := make([]assumption, len(batches))
	switch {
	case commits == 0: // nothing to ask
		for i := range beliefs {
			beliefs[i] = surelyNot
		}
	default:
		for i, b := range batches {
			beliefs[i] = inquest.of(b)
		}
		beliefs = conclude(beliefs, commits)
	}
	var all []outcome
	for i, b := range batches {
		for _, it := range b.items {
			var r zk.Result
			switch {
			case inquest.err != nil:
				r = zk.Result{Outcome: zk.Unknown, Err: inquest.err, Culprit: -1}
			case beliefs[i] == surelyYes:
				r = inquest.describe(b, it, later)
			case beliefs[i] == surelyNot:
				r = zk.Result{Outcome: zk.NotDone, Err: zk.ErrNotApplied, Culprit: -1}
			default:
				r = zk.Result{Outcome: zk.Unknown, Err: zk.ErrUnavailable, Culprit: -1}
			}
			all = append(all, outcome{it, r})
		}
	}
	return all
}

// conclude decides with the evidence for each transaction and the number of
// them that committed. What stays undecided is noIdea. A number that the
// evidence contradicts (somebody else wrote the guard), or uncounted, is not used.
//
// Hints decide when they explain the whole number: as many likelyYes as there
// are commits, and nothing beside them of which there is no idea. Absence of
// what should have been created never puts a commit down to a traceless
// transaction: another program may have removed the node.
func conclude(beliefs []assumption, commits int) []assumption {
	out := slices.Clone(beliefs)
	count := func(b assumption) (n int) {
		for _, x := range out {
			if x == b {
				n++
			}
		}
		return n
	}
	open := len(out) - count(surelyYes) - count(surelyNot)
	left := commits - count(surelyYes)
	settle := func(from, to assumption) {
		for i := range out {
			if out[i] == from {
				out[i] = to
			}
		}
	}
	all := func(to assumption) {
		for _, from := range []assumption{noIdea, traceless, likelyNot, likelyYes} {
			settle(from, to)
		}
	}
	switch {
	case left < 0 || left > open:
		all(noIdea)
	case left == 0:
		all(surelyNot)
	case left == open:
		all(surelyYes)
	case left == count(likelyYes) && count(noIdea) == 0:
		settle(likelyYes, surelyYes)
		settle(likelyNot, surelyNot)
		settle(traceless, surelyNot)
	default:
		all(noIdea)
	}
	return out
}

// inquest reads what transactions may have left behind. The first error that
// is not an answer (the session is over) ends it.
type evidence struct {
	s        *Session
	listings map[string]childList // by parent
	err      error
}

// childList is a directory's children, or that they may not be read.
type childList struct {
	names    []string
	readable bool
}

// evidence looks at a batch's operations until one is conclusive.
func (q *evidence) of(b *batch) assumption {
	if len(b.items) == 0 {
		return traceless
	}
	touched := make(map[string]int)
	for _, it := range b.items {
		for i := range it.write.Ops {
			touched[it.write.Ops[i].Path]++
		}
	}
	hint, mixed := noIdea, false
	for _, it := range b.items {
		for i := range it.write.Ops {
			op := &it.write.Ops[i]
			if touched[op.Path] > 1 { // created and deleted again: proves nothing
				continue
			}
			switch found := q.look(b, op); found {
			case surelyYes, surelyNot:
				return found
			case noIdea:
			default:
				mixed = mixed || hint != noIdea && hint != found
				hint = found
			}
			if q.err != nil {
				return noIdea
			}
		}
	}
	if mixed {
		return noIdea
	}
	return hint
}

// look takes the evidence of one operation. doc.go says why each is sound.
func (q *evidence) look(b *batch, op *zk.Op) assumption {
	if op.Kind == zk.OpCheck {
		return noIdea
	}
	if op.Kind == zk.OpCreate && op.Sequential {
		path, readable := q.find(op.Path)
		switch {
		case path != "":
			return surelyYes
		case !readable:
			return noIdea
		}
		return likelyNot
	}
	stat := q.exists(op.Path)
	if q.err != nil {
		return noIdea
	}
	switch op.Kind {
	case zk.OpCreate:
		switch {
		case stat == nil:
			return likelyNot
		case stat.Czxid <= b.floor:
			return surelyNot
		case op.Ephemeral && stat.EphemeralOwner == q.s.conn.SessionID():
			return surelyYes
		case len(op.Data) > 0 && string(q.read(op.Path)) == string(op.Data):
			return likelyYes
		}
		return likelyNot
	case zk.OpDelete:
		switch {
		case stat == nil:
			return likelyYes
		case stat.Czxid <= b.floor:
			return surelyNot
		}
		return noIdea
	default: // OpSetData
		switch {
		case stat == nil:
			return noIdea
		case stat.Mzxid <= b.floor:
			return surelyNot
		case op.Version >= 0 && stat.Version == op.Version+1:
			return likelyYes
		}
		return noIdea
	}
}

// describe builds the Result of an item that committed. A node that is gone
// again has no path to tell; a transaction that created nothing is told with a
// zxid that is later than its own.
func (q *evidence) describe(b *batch, it *item, later int64) zk.Result {
	n := len(it.write.Ops)
	r := zk.Result{Outcome: zk.Done, Culprit: -1, Zxid: later, SentAt: b.sent, Paths: make([]string, n), Versions: make([]int32, n)}
	for i := range it.write.Ops {
		op := &it.write.Ops[i]
		switch op.Kind {
		case zk.OpCreate:
			path := op.Path
			if op.Sequential {
				path, _ = q.find(op.Path)
			}
			if path == "" {
				continue
			}
			if stat := q.exists(path); stat != nil && stat.Czxid > b.floor {
				r.Paths[i], r.Zxid = path, stat.Czxid
			}
		case zk.OpSetData:
			if op.Version >= 0 {
				r.Versions[i] = op.Version + 1
			} else if stat := q.exists(op.Path); stat != nil {
				r.Versions[i] = stat.Version
			}
		}
	}
	if q.err != nil {
		return zk.Result{Outcome: zk.Unknown, Err: q.err, Culprit: -1}
	}
	return r
}

// find looks for the sequential node with the prefix; "" when there is none,
// or when the directory may not be read.
func (q *evidence) find(prefix string) (path string, readable bool) {
	cut := strings.LastIndexByte(prefix, '/')
	parent, name := prefix[:cut], prefix[cut+1:]
	children, listed := q.listings[parent]
	if !listed {
		err := q.retry(func(ctx context.Context) (err error) {
			children.names, _, err = q.s.conn.Children(ctx, parent)
			return err
		})
		children.readable = err == nil || errors.Is(err, zk.ErrNoNode)
		q.listings[parent] = children
	}
	for _, child := range children.names {
		if number, ok := strings.CutPrefix(child, name); ok && isSequence(number) {
			return parent + "/" + child, true
		}
	}
	return "", children.readable
}

// isSequence accepts what ZooKeeper appends: "%010d" of an int32.
func isSequence(s string) bool {
	s, negative := strings.CutPrefix(s, "-")
	if len(s) < sequenceDigits-1 || !negative && len(s) != sequenceDigits {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}

func (q *evidence) exists(path string) (stat *zk.Stat) {
	_ = q.retry(func(ctx context.Context) error { // any answer without a Stat is "not there"
		var err error
		stat, err = q.s.conn.Exists(ctx, path)
		return err
	})
	return stat
}

func (q *evidence) read(path string) (data []byte) {
	_ = q.retry(func(ctx context.Context) error { // what may not be read is not what we wrote
		var err error
		data, _, err = q.s.conn.Get(ctx, path)
		return err
	})
	return data
}

// insist repeats a read until it is answered or the session is over. What the
// answer is does not matter to it: a missing node is an answer, and returned.
// That the session has expired is none, though the connection may still stand.
func (q *evidence) retry(read func(ctx context.Context) error) error {
	c := q.s.conn
	for delays := conn.NewBackoff(q.s.cfg.Random); q.err == nil; {
		err := read(c.Context())
		if over := c.Err(); over != nil {
			q.err = over
			break
		}
		if errors.Is(err, zk.ErrSessionGone) {
			q.err = err
			break
		}
		if err == nil || !errors.Is(err, zk.ErrUnavailable) && c.Context().Err() == nil {
			return err
		}
		select {
		case <-c.Up():
		case <-c.Over():
		}
		_ = backoff.Sleep(c.Context(), delays.NextBackOff()) // a cancelled context shows as the session's end
	}
	return q.err
}
