package observer

import (
	"bytes"
	"slices"
	"strings"

	"lockkeeper/internal/byname"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// dir is a Dir and what the replica knows of it. The struct has 64 bytes.
type dir struct {
	zk.Dir
	nodes nodeSet
	// czxid is that of the directory as last listed, 0 before. It tells a
	// directory from another one that took its place while there was no connection.
	czxid int64
}

// name is the last component of Path.
func (d *dir) name() string { return d.Path[strings.LastIndexByte(d.Path, '/')+1:] }

// root is a WatchRoot and its directories.
type root struct {
	zk.WatchRoot
	full   string           // Path as ZooKeeper knows it
	prefix string           // full and a slash
	dirs   *byname.Set[dir] // of depth 1 the root itself, by ""

	// Of the present connection:
	listed  bool // the root's own listing has arrived
	synced  bool // every listing of the tree read has arrived
	pending int  // listings of the tree read still to come
	// fresh are the nodes that an event has told of while the tree is read. They are in the directories of the present;
	// what else is known may be from directories that were replaced while there was no connection.
	fresh map[leaf]struct{}
}

// leaf is a node of a directory.
type leaf struct {
	dir  *dir
	node string
}

// freshen notes that an event has told of a node.
func (root *root) freshen(d *dir, node string) {
	if root.synced {
		return
	}
	if root.fresh == nil {
		root.fresh = make(map[leaf]struct{})
	}
	root.fresh[leaf{d, node}] = struct{}{}
}

// key is under what dirs has a directory.
func (root *root) key(d *dir) string {
	if root.Depth == 1 {
		return ""
	}
	return d.name()
}

// listing is a directory to list: the whole root of depth 2 when top.
type listing struct {
	root *root
	name string
	top  bool
	tree bool // part of a tree read, which waits for it
}

// replica is the pure core of the observer: it turns events and listings, in
// the order of the stream, into changes. One goroutine owns it.
type replica struct {
	roots   []*root // longest path first
	changes []zk.Change
	want    []listing // listings that an event or a reply has made necessary
	names   [][]byte  // scratch: the names of the listing at hand
	events  uint64    // watch events
	ignored uint64    // events on paths that are no leaf and no directory of a root
}

// reset forgets what belongs to a connection. What exists stays known: the
// listings of the next connection are compared with it.
func (r *replica) reset() {
	r.want = r.want[:0]
	for _, root := range r.roots {
		root.listed, root.synced, root.pending, root.fresh = false, false, 0, nil
	}
}

// add takes in a root, unless it is there.
func (r *replica) add(w zk.WatchRoot, full string) *root {
	for _, have := range r.roots {
		if have.Path == w.Path {
			return nil
		}
	}
	prefix := full + "/"
	if full == "/" {
		prefix = full
	}
	added := &root{WatchRoot: w, full: full, prefix: prefix}
	added.dirs = byname.New(added.key)
	r.roots = append(r.roots, added)
	// Of nested roots the inner one must be found first.
	slices.SortStableFunc(r.roots, func(a, b *root) int { return len(b.full) - len(a.full) })
	return added
}

// locate finds where a full path lies: in a root, as its top (no directory),
// as a directory (no node) or as a node. ok is false for every other place.
func (r *replica) locate(path []byte) (in *root, name, node []byte, ok bool) {
	for _, root := range r.roots {
		if len(path) > len(root.prefix) && string(path[:len(root.prefix)]) == root.prefix {
			rest := path[len(root.prefix):]
			slash := bytes.IndexByte(rest, '/')
			switch {
			case root.Depth == 1 && slash < 0:
				return root, nil, rest, true
			case root.Depth == 1:
				return root, nil, nil, false
			case slash < 0:
				return root, rest, nil, true
			case bytes.IndexByte(rest[slash+1:], '/') >= 0:
				return root, nil, nil, false
			}
			return root, rest[:slash], rest[slash+1:], true
		}
		if string(path) == root.full {
			return root, nil, nil, true
		}
	}
	return nil, nil, nil, false
}

// event applies a watch event.
func (r *replica) event(t wire.EventType, path []byte) {
	r.events++
	root, in, node, ok := r.locate(path)
	if !ok {
		r.ignored++
		return
	}
	if node == nil {
		r.dirEvent(root, in, t)
		return
	}
	d := root.dirs.GetBytes(in)
	if d == nil {
		// Something happened in it, so it exists; we were not told because it
		// is older than the watch and not listed yet, or may not be read.
		d = r.addDir(root, string(in), true, 0)
		if root.listed {
			r.need(root, root.key(d)) // otherwise the listing of the top will ask for it
		}
	}
	name, known := d.nodes.get(node)
	if !known {
		name = string(node)
	}
	switch t {
	case wire.EventCreated:
		root.freshen(d, name)
		if known {
			// An event precedes every reply that shows its change, so this is not the creation of the node we know:
			// that one must have been deleted without our being told (an ACL, or before the watch).
			r.emit(zk.Change{Kind: zk.NodeChanged, Root: &root.WatchRoot, Dir: &d.Dir, Node: name})
			return
		}
		r.addNode(root, d, name, false, 0)
	case wire.EventDeleted:
		if known {
			d.nodes.remove(name)
			delete(root.fresh, leaf{d, name})
		}
		r.emit(zk.Change{Kind: zk.NodeRemoved, Root: &root.WatchRoot, Dir: &d.Dir, Node: name})
	case wire.EventDataChanged:
		if !known {
			r.addNode(root, d, name, false, 0)
		}
		root.freshen(d, name)
		r.emit(zk.Change{Kind: zk.NodeChanged, Root: &root.WatchRoot, Dir: &d.Dir, Node: name})
	default:
		r.ignored++
	}
}

// dirEvent applies an event on a directory, or on the top of a root.
func (r *replica) dirEvent(root *root, name []byte, t wire.EventType) {
	top := root.Depth == 2 && len(name) == 0
	switch t {
	case wire.EventCreated:
		if top {
			return
		}
		if d := root.dirs.GetBytes(name); d == nil {
			r.addDir(root, string(name), false, 0)
		} else if root.synced {
			// The deletion of the one we know was withheld. This one is new, and what its events tell is in it.
			r.removeDir(root, d, false, 0)
			r.need(root, root.key(r.addDir(root, string(name), false, 0)))
		} else if root.listed {
			r.need(root, root.key(d)) // the listing tells whether it is the one we know
		}
	case wire.EventDeleted:
		// A node is deleted only when it is empty, so every node still known
		// below it is gone, though its own event was withheld.
		if top {
			r.removeDirs(root, nil, false, 0)
		} else if d := root.dirs.GetBytes(name); d != nil {
			r.removeDir(root, d, false, 0)
		}
	case wire.EventDataChanged:
		if d := root.dirs.GetBytes(name); d != nil && root.Depth == 2 && !top { // another one is listed, or will be
			r.emit(zk.Change{Kind: zk.DirChanged, Root: &root.WatchRoot, Dir: &d.Dir})
		} else {
			r.ignored++
		}
	default:
		r.ignored++
	}
}

// listedTop applies a listing of the top of a root of depth 2, and asks for
// the listing of each directory when it is part of a tree read.
func (r *replica) listedTop(root *root, names [][]byte, tree bool, zxid int64) {
	root.listed = true
	if tree {
		r.want = slices.Grow(r.want, len(names))
	}
	if root.dirs.Len() == 0 {
		r.changes = slices.Grow(r.changes, len(names))
	}
	for _, name := range names {
		d, isNew := root.dirs.GetBytes(name), false
		if d == nil {
			d, isNew = r.addDir(root, string(name), true, zxid), true
		}
		if tree {
			r.needTree(root, root.key(d))
		} else if isNew {
			r.need(root, root.key(d))
		}
	}
	if root.dirs.Len() == len(names) {
		return
	}
	r.removeDirs(root, nameSet(names), true, zxid)
}

// listedDir applies the listing of a directory.
func (r *replica) listedDir(root *root, name string, names [][]byte, stat *wire.Stat, zxid int64) {
	if root.Depth == 1 {
		root.listed = true
	}
	d := root.dirs.Get(name)
	if d != nil && d.czxid != 0 && d.czxid != stat.Czxid {
		d = r.replaced(root, d, zxid) // deleted and created again while there was no connection
	}
	if d == nil {
		d = r.addDir(root, name, true, zxid)
	}
	d.czxid = stat.Czxid
	for _, child := range names {
		if _, known := d.nodes.get(child); !known {
			r.addNode(root, d, string(child), true, zxid)
		}
	}
	if d.nodes.len() > len(names) {
		present := nameSet(names)
		for name := range d.nodes.all() {
			if !present[name] {
				d.nodes.remove(name)
				r.emit(zk.Change{Kind: zk.NodeRemoved, Listed: true, Zxid: zxid, Root: &root.WatchRoot, Dir: &d.Dir, Node: name})
			}
		}
	}
	listed := zk.Change{Kind: zk.DirListed, Listed: true, Zxid: zxid, Root: &root.WatchRoot, Dir: &d.Dir, Created: stat.Created()}
	if stat.Ephemeral() || stat.DataLength > 0 {
		kept := *stat
		listed.Stat = &kept
	}
	r.emit(listed)
}

// replaced takes away what was in a directory that has been created again. The directory goes with it, unless events
// have told of nodes since we are back: those are in the one that took its place and must not be told as removed.
func (r *replica) replaced(root *root, d *dir, zxid int64) *dir {
	stays := false
	for name := range d.nodes.all() {
		if _, fresh := root.fresh[leaf{d, name}]; fresh {
			stays = true
			continue
		}
		d.nodes.remove(name)
		r.emit(zk.Change{Kind: zk.NodeRemoved, Listed: true, Zxid: zxid, Root: &root.WatchRoot, Dir: &d.Dir, Node: name})
	}
	if stays {
		return d
	}
	r.removeDir(root, d, true, zxid)
	return nil
}

// listedGone applies a listing that found no node.
func (r *replica) listedGone(root *root, name string, top bool, zxid int64) {
	if top || root.Depth == 1 {
		root.listed = true
	}
	if top {
		r.removeDirs(root, nil, true, zxid)
	} else if d := root.dirs.Get(name); d != nil {
		r.removeDir(root, d, true, zxid)
	}
}

// listedRefused applies a listing of a directory that we may not read.
func (r *replica) listedRefused(root *root, name string, zxid int64, err error) {
	d := root.dirs.Get(name)
	if d == nil {
		d = r.addDir(root, name, true, zxid)
	}
	r.emit(zk.Change{Kind: zk.DirListed, Listed: true, Zxid: zxid, Root: &root.WatchRoot, Dir: &d.Dir, Err: err})
}

func (r *replica) addDir(root *root, name string, listed bool, zxid int64) *dir {
	path := root.Path
	if root.Depth == 2 {
		if path != "/" {
			path += "/"
		}
		path += name
	}
	d := &dir{Dir: zk.Dir{Path: path}}
	root.dirs.Put(d)
	r.emit(zk.Change{Kind: zk.DirAdded, Listed: listed, Zxid: zxid, Root: &root.WatchRoot, Dir: &d.Dir})
	return d
}

func (r *replica) removeDir(root *root, d *dir, listed bool, zxid int64) {
	for name := range d.nodes.all() {
		r.emit(zk.Change{Kind: zk.NodeRemoved, Listed: listed, Zxid: zxid, Root: &root.WatchRoot, Dir: &d.Dir, Node: name})
	}
	d.nodes = nodeSet{}
	root.dirs.Delete(d)
	r.emit(zk.Change{Kind: zk.DirRemoved, Listed: listed, Zxid: zxid, Root: &root.WatchRoot, Dir: &d.Dir})
}

// removeDirs removes the directories that are not among the present, in the order of their names: they are told in this order,
// and nothing that is told depends on that of a map.
func (r *replica) removeDirs(root *root, present map[string]bool, listed bool, zxid int64) {
	var gone []string
	for d := range root.dirs.All() {
		if name := root.key(d); !present[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		r.removeDir(root, root.dirs.Get(name), listed, zxid)
	}
}

func (r *replica) addNode(root *root, d *dir, name string, listed bool, zxid int64) {
	d.nodes.add(name)
	r.emit(zk.Change{Kind: zk.NodeAdded, Listed: listed, Zxid: zxid, Root: &root.WatchRoot, Dir: &d.Dir, Node: name})
}

func (r *replica) emit(c zk.Change) { r.changes = append(r.changes, c) }

// need asks for a listing that the tree read waits for if it is still going on.
func (r *replica) need(root *root, name string) {
	if !root.synced {
		r.needTree(root, name)
		return
	}
	r.want = append(r.want, listing{root: root, name: name})
}

func (r *replica) needTree(root *root, name string) {
	root.pending++
	r.want = append(r.want, listing{root: root, name: name, tree: true})
}

func nameSet(names [][]byte) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[string(name)] = true
	}
	return set
}
