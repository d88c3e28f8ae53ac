package queues

import (
	"strconv"

	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Some programs lock by the oldest recipe: the program that creates the ephemeral node <root>/<lock> itself holds the
// lock, and the others wait for its deletion. Where a directory would be stands such a plain node then. It is the
// lock's only contender, exclusive, foreign and without a name below the lock's path, and holds: the empty name stands
// for it. An ephemeral node has no children, so no contender queues behind it.
//
// A created event does not tell a plain node from a directory. So a directory that was created while the replica
// followed, and has no child a moment later, is listed (LookSoon).

// maxPlains bounds the locks of a namespace of which it is remembered that plain nodes have stood there. When they are
// more it begins anew.
const maxPlains = 4096

// Plain is the plain node in the place of the lock, nil when none is known.
func (q *Queue) Plain() *recipe.Contender {
	if q.Contenders.Len() != 1 {
		return nil
	}
	if c := q.Contenders.At(0); c.Name == interop.PlainNode {
		return c
	}
	return nil
}

// Obstructed reports whether a plain node stands in the lock's place, or may stand there.
func (q *Queue) Obstructed() bool { return q.Plain() != nil || q.Extras().Unidentified }

// Empty reports whether the directory is there, and the replica shows no child of it.
func (q *Queue) Empty() bool {
	return q.Exists && q.Contenders.Len() == 0 && q.Extras().Unnumbered == 0
}

// NeverUsed reports whether the directory is there and has had no child, so that it may be a plain node.
func (q *Queue) NeverUsed() bool { return q.Empty() && q.next == 0 }

// Replaced reports whether the plain node that the replica shows is not the node whose stat a listing or a read tells.
func (q *Queue) Replaced(stat *wire.Stat) bool {
	return q.Plain() != nil && (stat == nil || !stat.Ephemeral() || q.Extras().PlainCzxid != stat.Czxid)
}

// NewPlain is the contender of a plain node that a listing or a read has shown; nil when stat, which may be nil, is that of a
// directory, or the replica shows the node already. Add follows.
func (q *Queue) NewPlain(stat *wire.Stat) *recipe.Contender {
	if stat == nil || !stat.Ephemeral() || q.Contenders.Len() > 0 {
		return nil
	}
	q.MakeExtras().PlainCzxid = stat.Czxid
	s := q.Namespace
	if s.plains == nil || len(s.plains) == maxPlains {
		s.plains = make(map[string]struct{})
	}
	s.plains[q.Name()] = struct{}{}
	return &recipe.Contender{Name: interop.PlainNode, Member: 1, Members: 1, Group: 1, Groups: 1}
}

// HadPlain reports whether plain nodes have stood in the lock's place.
func (q *Queue) HadPlain() bool {
	_, had := q.Namespace.plains[q.Name()]
	return had
}

// Temporary is the data of a directory that a gateway creates where plain nodes have stood. Programs that lock by those
// wait until the directory is deleted. So any gateway deletes it as soon as it is empty, in every namespace.
const Temporary = "lockkeeper: goes when it is empty"

// SetDirData takes in the data of the lock's directory: Temporary, or the limit of Kazoo's Semaphore.
func (r *Replica) SetDirData(q *Queue, data []byte) {
	x := q.MakeExtras()
	was := x.Ceiling
	ceiling := ceilingOf(data)
	x.Temporary, x.Ceiling = string(data) == Temporary, ceiling
	if ceiling != was {
		r.Touch(q)
	}
	q.Trim()
}

// ceilingOf is the limit of a semaphore of Kazoo's, which is the data of its directory; 0 for other data.
func ceilingOf(data []byte) int32 {
	n, err := strconv.ParseUint(string(data), 10, 31)
	if err != nil {
		return 0
	}
	return int32(n)
}

// RemovalProbe is created below a directory and deleted with it, so that the removal of a plain node fails: no node can
// be created below an ephemeral one. A plain node is another program's lock, and may have taken the directory's place
// after another gateway's sweep.
const RemovalProbe = "lockkeeper-sweep"

// RemoveDir returns the transaction that removes a lock's directory, and fails where a plain node stands.
func RemoveDir(path string) []zk.Op {
	probe := path + "/" + RemovalProbe
	return []zk.Op{{Kind: zk.OpCreate, Path: probe}, {Kind: zk.OpDelete, Path: probe, Version: -1}, {Kind: zk.OpDelete, Path: path, Version: -1}}
}
