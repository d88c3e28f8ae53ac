package state

import "lockkeeper/internal/zk/wire"

// watchMode is how long a watch lasts and how far it reaches.
type watchMode uint8

const (
	oneShot    watchMode = iota
	persistent           // until it is removed
	recursive            // and for all nodes below; it sees no children events
)

type watch struct {
	conn *Conn
	mode watchMode
}

// watchTable holds the watches of one kind: data (and existence), or children. A connection has at most one watch per path
// in a table, and a newer one replaces its mode: so a read with a watch turns a persistent watch into a one-shot one, as it
// does in ZooKeeper.
type watchTable struct {
	kind      int // the place in Conn.watches
	byPath    map[string][]watch
	recursive map[string]int // how many recursive watches there are on a path
	count     int
	watchers  int // connections that have a watch
}

const (
	dataKind = iota
	childKind
	watchKinds
)

func newWatchTable(kind int) watchTable {
	return watchTable{kind: kind, byPath: make(map[string][]watch), recursive: make(map[string]int)}
}

func (t *watchTable) add(c *Conn, path string, mode watchMode) {
	if !c.attached {
		return
	}
	mine := &c.watches[t.kind]
	if *mine == nil {
		*mine = make(map[string]watchMode)
	}
	if len(*mine) == 0 {
		t.watchers++
	}
	old, had := (*mine)[path]
	(*mine)[path] = mode
	t.countRecursive(path, old, mode)
	if !had {
		t.byPath[path] = append(t.byPath[path], watch{c, mode})
		t.count++
		return
	}
	for i, w := range t.byPath[path] {
		if w.conn == c {
			t.byPath[path][i].mode = mode
		}
	}
}

// remove says whether there was one.
func (t *watchTable) remove(c *Conn, path string) bool {
	mode, had := c.watches[t.kind][path]
	if !had {
		return false
	}
	t.forget(c, path)
	t.countRecursive(path, mode, oneShot)
	list := t.byPath[path]
	for i, w := range list {
		if w.conn == c {
			t.keep(path, append(list[:i], list[i+1:]...), list)
			break
		}
	}
	return true
}

// forget takes a watch that there is off its connection's list.
func (t *watchTable) forget(c *Conn, path string) {
	delete(c.watches[t.kind], path)
	if len(c.watches[t.kind]) == 0 {
		t.watchers--
	}
}

// keep replaces the list of a path by what is left of it, in the same memory.
func (t *watchTable) keep(path string, left, list []watch) {
	t.count -= len(list) - len(left)
	clear(list[len(left):])
	if len(left) == 0 {
		delete(t.byPath, path)
		return
	}
	t.byPath[path] = left
}

func (t *watchTable) countRecursive(path string, from, to watchMode) {
	switch {
	case from != recursive && to == recursive:
		t.recursive[path]++
	case from == recursive && to != recursive:
		if t.recursive[path]--; t.recursive[path] == 0 {
			delete(t.recursive, path)
		}
	}
}

func (t *watchTable) removeAll(c *Conn) {
	for path := range c.watches[t.kind] {
		t.remove(c, path)
	}
	c.watches[t.kind] = nil
}

// watches are the attached connections and what each of them watches.
type watches struct {
	acls         *aclTable // events are filtered by the ACL of the node that they are about
	data, childs watchTable
	conns        int
	round        uint64 // the change that is being told: a connection gets one event of it
}

func (w *watches) attach(c *Conn) {
	if !c.attached {
		c.attached = true
		w.conns++
	}
}

func (w *watches) detach(c *Conn) {
	if !c.attached {
		return
	}
	w.data.removeAll(c)
	w.childs.removeAll(c)
	c.attached = false
	w.conns--
}

// addBoth adds a persistent watch: it stands in both tables.
func (w *watches) addBoth(c *Conn, path string, mode watchMode) {
	w.data.add(c, path, mode)
	w.childs.add(c, path, mode)
}

// The events of each change. ZooKeeper filters an event by the ACL of the node that it is about: for a change of the
// children, by the parent's.

func (w *watches) created(path string, n, parent *node) {
	w.round++
	w.trigger(&w.data, wire.EventCreated, path, n.acl)
	w.childrenChanged(path, parent)
}

// deleted sends one event to a connection that watches both the data and the children of the node.
func (w *watches) deleted(path string, n, parent *node) {
	w.round++
	w.trigger(&w.data, wire.EventDeleted, path, n.acl)
	w.trigger(&w.childs, wire.EventDeleted, path, n.acl)
	w.childrenChanged(path, parent)
}

func (w *watches) childrenChanged(path string, parent *node) {
	if len(w.childs.byPath) == 0 {
		return
	}
	w.round++
	above, _, _ := split(path)
	w.trigger(&w.childs, wire.EventChildrenChanged, watched(above), parent.acl)
}

func (w *watches) dataChanged(path string, n *node) {
	w.round++
	w.trigger(&w.data, wire.EventDataChanged, path, n.acl)
}

// trigger sends an event on a path to the watches of one table.
func (w *watches) trigger(t *watchTable, event wire.EventType, path string, acl aclID) {
	if len(t.byPath) == 0 {
		return
	}
	if list := t.byPath[path]; list != nil {
		left := list[:0]
		for _, one := range list {
			if one.mode != recursive || event != wire.EventChildrenChanged {
				w.send(one.conn, event, path, acl)
			}
			if one.mode == oneShot {
				t.forget(one.conn, path)
			} else {
				left = append(left, one)
			}
		}
		if len(left) < len(list) {
			t.keep(path, left, list)
		}
	}
	if len(t.recursive) == 0 || event == wire.EventChildrenChanged {
		return
	}
	for above := path; above != "/"; {
		parent, _, _ := split(above)
		above = watched(parent)
		if t.recursive[above] == 0 {
			continue
		}
		for _, one := range t.byPath[above] {
			if one.mode == recursive {
				w.send(one.conn, event, path, acl)
			}
		}
	}
}

// send delivers an event to a connection that may read the node, once in a round.
func (w *watches) send(c *Conn, event wire.EventType, path string, acl aclID) {
	if c.round == w.round {
		return
	}
	c.round = w.round
	if w.acls.may(c, acl, wire.PermRead) {
		c.deliver(event, path)
	}
}

func (c *Conn) deliver(event wire.EventType, path string) {
	if c.attached && c.Deliver != nil {
		c.Deliver(wire.WatcherEvent{Type: event, State: wire.StateSyncConnected, Path: path})
	}
}
