package state

import (
	"strings"

	"lockkeeper/internal/zk/wire"
)

// Types of watches in requests that look for them or remove them.
const (
	watchChildren int32 = 1
	watchData     int32 = 2
	watchAny      int32 = 3
)

// addWatch sets a persistent watch. Neither the path nor the permission to read it is checked: events are filtered.
func (r *call) addWatch() (wire.Record, wire.ErrCode) {
	path := r.d.View()
	var mode watchMode
	switch asked := r.d.Int(); {
	case r.d.Err() != nil, path == nil:
		return nil, wire.ErrMarshalling
	case asked == wire.WatchPersistent:
		mode = persistent
	case asked == wire.WatchRecursive:
		mode = recursive
	default:
		return nil, wire.ErrMarshalling
	}
	r.s.watches.addBoth(r.c, javaText(path), mode)
	return &wire.IntReply{}, wire.OK
}

// checkWatches asks whether there is a watch, of any connection: ZooKeeper does not compare them.
func (r *call) checkWatches() wire.ErrCode {
	path, null, kinds, ok := r.watchType()
	switch {
	case !ok, null, path != "" && !strings.Contains(path, "/"):
		return wire.ErrMarshalling
	case path == "":
		return wire.ErrNoWatcher
	case kinds&watchChildren != 0 && r.s.watches.childs.byPath[path] != nil, kinds&watchData != 0 && r.s.watches.data.byPath[path] != nil:
		return wire.OK
	}
	return wire.ErrNoWatcher
}

func (r *call) removeWatches() wire.ErrCode {
	path, null, kinds, ok := r.watchType()
	switch {
	case !ok:
		return wire.ErrMarshalling
	case null:
		return wire.ErrNoWatcher
	}
	removed := false
	if kinds&watchChildren != 0 {
		removed = r.s.watches.childs.remove(r.c, path)
	}
	if kinds&watchData != 0 {
		removed = r.s.watches.data.remove(r.c, path) || removed
	}
	if !removed {
		return wire.ErrNoWatcher
	}
	return wire.OK
}

// watchType reads a path and the kinds of watches that are meant: the numbers of the types are bits.
func (r *call) watchType() (path string, null bool, kinds int32, ok bool) {
	text := r.d.View()
	kinds = r.d.Int()
	ok = r.d.Err() == nil && (kinds == watchChildren || kinds == watchData || kinds == watchAny)
	return javaText(text), text == nil, kinds, ok
}

// setWatches brings back the watches that a client had on its last connection. What it has missed since the last
// transaction that it knows is sent at once, without a look at the ACL, instead of leaving the watch. For persistent
// watches nothing is made up.
func (r *call) setWatches(second bool) wire.ErrCode {
	since := r.d.Long()
	lists := make([]pathList, 3, 5)
	if second {
		lists = lists[:5]
	}
	for i := range lists {
		lists[i] = decodePaths(&r.d)
	}
	if r.d.Err() != nil {
		return wire.ErrMarshalling
	}
	for kind, list := range lists {
		for _, path := range list.paths {
			r.resetWatch(kind, path, since)
		}
		if list.null {
			return wire.ErrMarshalling
		}
	}
	return wire.OK
}

// The lists of a setWatches, in their order. The last two are in a setWatches2 only.
const (
	watchedData = iota
	watchedExistence
	watchedChildren
	watchedPersistently
	watchedRecursively
)

// resetWatch leaves a watch, or sends the event that the client has missed.
func (r *call) resetWatch(kind int, path string, since int64) {
	w, n := &r.s.watches, r.s.tree.find(path)
	switch {
	case kind == watchedPersistently:
		w.addBoth(r.c, path, persistent)
	case kind == watchedRecursively:
		w.addBoth(r.c, path, recursive)
	case kind == watchedExistence && n == nil:
		w.data.add(r.c, path, oneShot)
	case kind == watchedExistence:
		r.c.deliver(wire.EventCreated, path)
	case n == nil:
		r.c.deliver(wire.EventDeleted, path)
	case kind == watchedData && n.mzxid() > since:
		r.c.deliver(wire.EventDataChanged, path)
	case kind == watchedData:
		w.data.add(r.c, path, oneShot)
	case n.pzxid() > since:
		r.c.deliver(wire.EventChildrenChanged, path)
	default:
		w.childs.add(r.c, path, oneShot)
	}
}

// pathList is a vector of paths up to the first null: where ZooKeeper stops with an error.
type pathList struct {
	paths []string
	null  bool
}

func decodePaths(d *wire.Decoder) (l pathList) {
	start := *d
	if start.Int() == -1 {
		l.null = true
	}
	for range d.Count(4) {
		if path := d.View(); path == nil {
			l.null = true
		} else if !l.null {
			l.paths = append(l.paths, javaText(path))
		}
	}
	return l
}
