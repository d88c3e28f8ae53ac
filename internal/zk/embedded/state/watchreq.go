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
func (s *State) addWatch(c *Conn, d *wire.Decoder) (wire.Record, wire.ErrCode) {
	path := d.View()
	var mode watchMode
	switch asked := d.Int(); {
	case d.Err() != nil, path == nil:
		return nil, wire.ErrMarshalling
	case asked == wire.WatchPersistent:
		mode = persistent
	case asked == wire.WatchRecursive:
		mode = recursive
	default:
		return nil, wire.ErrMarshalling
	}
	s.data.add(c, javaText(path), mode)
	s.childs.add(c, javaText(path), mode)
	return &wire.IntReply{}, wire.OK
}

// checkWatches asks whether there is a watch. ZooKeeper does not look whose it is.
func (s *State) checkWatches(d *wire.Decoder) wire.ErrCode {
	path, null, kinds, ok := watchType(d)
	switch {
	case !ok, null, path != "" && !strings.Contains(path, "/"):
		return wire.ErrMarshalling
	case path == "":
		return wire.ErrNoWatcher
	case kinds&watchChildren != 0 && s.childs.byPath[path] != nil, kinds&watchData != 0 && s.data.byPath[path] != nil:
		return wire.OK
	}
	return wire.ErrNoWatcher
}

func (s *State) removeWatches(c *Conn, d *wire.Decoder) wire.ErrCode {
	path, null, kinds, ok := watchType(d)
	switch {
	case !ok:
		return wire.ErrMarshalling
	case null: // nobody watches that
		return wire.ErrNoWatcher
	}
	removed := false
	if kinds&watchChildren != 0 {
		removed = s.childs.remove(c, path)
	}
	if kinds&watchData != 0 {
		removed = s.data.remove(c, path) || removed
	}
	if !removed {
		return wire.ErrNoWatcher
	}
	return wire.OK
}

// watchType reads a path and the kinds of watches that are meant: the numbers of the types are bits.
func watchType(d *wire.Decoder) (path string, null bool, kinds int32, ok bool) {
	text := d.View()
	kinds = d.Int()
	ok = d.Err() == nil && (kinds == watchChildren || kinds == watchData || kinds == watchAny)
	return javaText(text), text == nil, kinds, ok
}

// setWatches brings back the watches that a client had on its last connection. What it has missed since the last
// transaction that it knows is told at once, without a look at the ACL, instead of leaving the watch. For persistent
// watches nothing is made up.
func (s *State) setWatches(c *Conn, d *wire.Decoder, second bool) wire.ErrCode {
	since := d.Long()
	kinds := []func(path string){
		func(path string) { s.resetData(c, path, since) },
		func(path string) { s.resetExist(c, path) },
		func(path string) { s.resetChild(c, path, since) },
	}
	if second {
		kinds = append(kinds,
			func(path string) { s.setPersistent(c, path, persistent) },
			func(path string) { s.setPersistent(c, path, recursive) })
	}
	lists := make([]pathList, len(kinds))
	for i := range lists {
		lists[i] = decodePaths(d)
	}
	if d.Err() != nil {
		return wire.ErrMarshalling
	}
	for i, list := range lists {
		for _, path := range list.paths {
			kinds[i](path)
		}
		if list.null {
			return wire.ErrMarshalling
		}
	}
	return wire.OK
}

func (s *State) resetData(c *Conn, path string, since int64) {
	switch n := s.find(path); {
	case n == nil:
		c.deliver(wire.EventDeleted, path)
	case n.mzxid > since:
		c.deliver(wire.EventDataChanged, path)
	default:
		s.data.add(c, path, oneShot)
	}
}

func (s *State) resetExist(c *Conn, path string) {
	if s.find(path) != nil {
		c.deliver(wire.EventCreated, path)
	} else {
		s.data.add(c, path, oneShot)
	}
}

func (s *State) resetChild(c *Conn, path string, since int64) {
	switch n := s.find(path); {
	case n == nil:
		c.deliver(wire.EventDeleted, path)
	case n.pzxid > since:
		c.deliver(wire.EventChildrenChanged, path)
	default:
		s.childs.add(c, path, oneShot)
	}
}

func (s *State) setPersistent(c *Conn, path string, mode watchMode) {
	s.childs.add(c, path, mode)
	s.data.add(c, path, mode)
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
