package session

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"lockkeeper/internal/backoff"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// evidence reads what transactions may have left behind. The first error that
// is not an answer (the session is over) ends it.
type evidence struct {
	*conn.Conn
	random   rand.Source
	listings map[string]childList // by parent
	err      error
}

// childList is a directory's children, or that they may not be read.
type childList struct {
	names    []string
	readable bool
}

// of looks at a batch's operations until one is conclusive.
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
		case op.Ephemeral && stat.EphemeralOwner == q.SessionID():
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
		case op.Version < 0 || stat.Version != op.Version+1:
			return noIdea
		case q.overwritten(op, b.floor):
			return surelyNot
		}
		return likelyYes
	}
}

// describe builds the Result of an item that committed. A node that is gone again has no path to tell; a transaction
// that created nothing is told with a zxid that is later than its own.
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

// find looks for the sequential node with the prefix; "" when there is none, or when the directory may not be read.
func (q *evidence) find(prefix string) (path string, readable bool) {
	cut := strings.LastIndexByte(prefix, '/')
	parent, name := prefix[:cut], prefix[cut+1:]
	children, listed := q.listings[parent]
	if !listed {
		err := q.retry(func(ctx context.Context) (err error) {
			children.names, _, err = q.Children(ctx, parent)
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

func (q *evidence) exists(path string) (stat *zk.Stat) {
	_ = q.retry(func(ctx context.Context) error { // any answer without a Stat is "not there"
		var err error
		stat, err = q.Exists(ctx, path)
		return err
	})
	return stat
}

func (q *evidence) read(path string) (data []byte) {
	_ = q.retry(func(ctx context.Context) error { // what may not be read is not what we wrote
		var err error
		data, _, err = q.Get(ctx, path)
		return err
	})
	return data
}

// overwritten reports whether the data that followed the version which a set names is certainly another client's. Data that may
// not be read, or has changed since, says nothing; nor does a node that was made after floor, for its versions began anew.
func (q *evidence) overwritten(op *zk.Op, floor int64) (certain bool) {
	_ = q.retry(func(ctx context.Context) error {
		data, stat, err := q.Get(ctx, op.Path)
		certain = err == nil && stat.Czxid <= floor && stat.Version == op.Version+1 && string(data) != string(op.Data)
		return err
	})
	return certain
}

// retry repeats a read until it is answered or the session is over. What the answer is does not matter to it: a missing
// node is an answer, and returned. That the session has expired is none, though the connection may still stand.
func (q *evidence) retry(read func(ctx context.Context) error) error {
	for delays := conn.NewBackoff(q.random); q.err == nil; {
		err := read(q.Context())
		if q.err = q.Err(); q.err != nil {
			break
		}
		if errors.Is(err, zk.ErrSessionGone) {
			q.err = err
			break
		}
		if err == nil || !errors.Is(err, zk.ErrUnavailable) && q.Context().Err() == nil {
			return err
		}
		select {
		case <-q.Up():
		case <-q.Over():
		}
		_ = backoff.Sleep(q.Context(), delays.NextBackOff()) // a cancelled context shows as the session's end
	}
	return q.err
}
