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
	var req wire.AddWatchRequest
	req.Decode(d)
	var mode watchMode
	switch {
	case d.Err() == nil && req.Mode == wire.WatchPersistent:
		mode = persistent
	case d.Err() == nil && req.Mode == wire.WatchRecursive:
		mode = recursive
	default:
		return nil, wire.ErrMarshalling
	}
	s.data.add(c, req.Path, mode)
	s.childs.add(c, req.Path, mode)
	return &wire.IntReply{}, wire.OK
}

// checkWatches asks whether there is a watch. ZooKeeper does not look whose it is.
func (s *State) checkWatches(d *wire.Decoder) wire.ErrCode {
	path, kinds, ok := watchType(d)
	switch {
	case !ok, path != "" && !strings.Contains(path, "/"):
		return wire.ErrMarshalling
	case path == "":
		return wire.ErrNoWatcher
	case kinds&watchChildren != 0 && s.childs.byPath[path] != nil, kinds&watchData != 0 && s.data.byPath[path] != nil:
		return wire.OK
	}
	return wire.ErrNoWatcher
}

func (s *State) removeWatches(c *Conn, d *wire.Decoder) wire.ErrCode {
	path, kinds, ok := watchType(d)
	if !ok {
		return wire.ErrMarshalling
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
func watchType(d *wire.Decoder) (path string, kinds int32, ok bool) {
	null := d.View()
	kinds = d.Int()
	ok = d.Err() == nil && null != nil && (kinds == watchChildren || kinds == watchData || kinds == watchAny)
	return javaText(null), kinds, ok
}

// setWatches brings back the watches that a client had on its last connection. What it has missed since the last
// transaction that it knows is told at once, without a look at the ACL, instead of leaving the watch. For persistent
// watches nothing is made up.
func (s *State) setWatches(c *Conn, d *wire.Decoder, second bool) wire.ErrCode {
	var req wire.SetWatches2Request
	if second {
		req.Decode(d)
	} else {
		req.SetWatchesRequest.Decode(d)
	}
	if d.Err() != nil {
		return wire.ErrMarshalling
	}
	for _, path := range req.Data {
		switch n := s.find(path); {
		case n == nil:
			c.deliver(wire.EventDeleted, path)
		case n.mzxid > req.RelativeZxid:
			c.deliver(wire.EventDataChanged, path)
		default:
			s.data.add(c, path, oneShot)
		}
	}
	for _, path := range req.Exist {
		if s.find(path) != nil {
			c.deliver(wire.EventCreated, path)
		} else {
			s.data.add(c, path, oneShot)
		}
	}
	for _, path := range req.Child {
		switch n := s.find(path); {
		case n == nil:
			c.deliver(wire.EventDeleted, path)
		case n.pzxid > req.RelativeZxid:
			c.deliver(wire.EventChildrenChanged, path)
		default:
			s.childs.add(c, path, oneShot)
		}
	}
	s.setPersistent(c, req.Persistent, persistent)
	s.setPersistent(c, req.Recursive, recursive)
	return wire.OK
}

func (s *State) setPersistent(c *Conn, paths []string, mode watchMode) {
	for _, path := range paths {
		s.childs.add(c, path, mode)
		s.data.add(c, path, mode)
	}
}
