package queues

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// Namespace is a lock root in ZooKeeper and the queues below it.
type Namespace struct {
	Name     string
	Root     string
	Naming   *recipe.Naming // its dialect: the names that its leases have
	ignoring interop.Ignoring
	Queues   *btree.BTreeG[*Queue] // by directory, thus by lock name: lists are pages in order
	pivot    Queue                 // see Find
	// Whole: the replica holds all of it. Before, nothing in it is adopted or granted.
	Whole     bool
	InUse     int                 // locks with contenders
	Hazardous int                 // locks with a hazard
	markers   int                 // nodes that mark a lock as invalid; see siblings.go
	plains    map[string]struct{} // locks in whose place plain nodes have stood
	Asked     uint64              // how often it was asked whether a lease holds by the names in a queue

	changed map[*Queue]struct{} // see KeepChanges; nil: they are not kept

	// The sweeper's.
	SweepFrom string // where the next sweep goes on, "" for the front
	Sweeping  int    // directories that sweeps have asked to remove, and ZooKeeper has not answered
}

// NamespaceOf makes the namespace that a record describes. The error is a *zk.FatalError for a dialect of a later release.
func NamespaceOf(name string, ns zk.Namespace) (*Namespace, error) {
	naming, err := recipe.ParseNaming(cmp.Or(ns.Dialect, string(recipe.Native)))
	if err != nil {
		return nil, &zk.FatalError{Kind: zk.KindNamespace, Hint: "a newer gateway made it: upgrade this one",
			Err: fmt.Errorf("namespace %s has the dialect %q, which this gateway does not know: %w", name, ns.Dialect, err)}
	}
	byDir := btree.NewBTreeGOptions(func(a, b *Queue) bool { return a.Dir() < b.Dir() }, btree.Options{NoLocks: true})
	return &Namespace{Name: name, Root: ns.Root, Naming: naming, ignoring: interop.IgnoringOf(naming), Queues: byDir}, nil
}

// Find returns the queue of a lock, or nil.
func (s *Namespace) Find(name string) *Queue {
	s.pivot.Path, _ = recipe.LockDir(name)
	q, _ := s.Queues.Get(&s.pivot)
	return q
}

// At is the place of a directory in the tree.
func At(dir string) *Queue { return &Queue{Path: dir} }

// From is the place of the lock of that name in the tree.
func From(name string) *Queue {
	dir, _ := recipe.LockDir(name)
	return At(dir)
}

// Path is the directory of the lock of that name, which is a name as recipe.LockName writes it.
func (s *Namespace) Path(name string) string {
	dir, _ := recipe.LockDir(name)
	return s.Root + "/" + dir
}

// Every gateway watches every recorded namespace, also one that another gateway adds while this one runs: it may have to
// run leases there one day. The rule:
//
//	A takeover begins only when the replica holds all recorded namespaces whole.
//
// It is enough, because a gateway writes into a namespace only after the record is there, and no more after its
// registration is gone. The record stands before that end in the stream: the replica that shows the end has shown the
// record of every namespace in which the dead gateway can have left anything. For the same reason nothing is concluded
// meanwhile from what the replica does not show: that a lease of a gateway that is gone has ended, that a succession
// entry or a key is not needed, that contenders of a group are missing.
//
// A namespace is loaded in three steps: the record is read, its lock root is added to those that are watched, the root
// has been read. A record that makes no sense, or has a dialect that this release does not know, is never loaded:
// this gateway goes on with its own leases and succeeds no other gateway.

// Loading is a recorded namespace that the replica does not hold whole.
type Loading struct {
	Reading   bool       // the record
	Namespace *Namespace // nil until the record has been read
	added     bool       // the observer has been told of its root
	Problem   string     // why it will not be loaded, "" while it may
}

// KnowsAll reports whether the replica holds all recorded namespaces.
func (r *Replica) KnowsAll() bool { return len(r.Loading) == 0 || fault.On("knows-all") }

// NamespaceAt is the namespace with that lock root, nil when there is none.
func (r *Replica) NamespaceAt(root string) *Namespace {
	if r.latest != nil && r.latest.Root == root {
		return r.latest // a namespace with a lock root stays
	}
	for s := range r.All {
		if s.Root == root {
			r.latest = s
			return s
		}
	}
	return nil
}

// All yields the namespaces and those that are being loaded, in no order.
func (r *Replica) All(yield func(*Namespace) bool) {
	for _, s := range r.Namespaces {
		if !yield(s) {
			return
		}
	}
	for _, l := range r.Loading {
		if l.Namespace != nil && !yield(l.Namespace) {
			return
		}
	}
}

// Recorded notes that the record of a namespace has come, or was written to, and reports whether it is to be read. It is
// not when the namespace is being loaded: what the record said first stays in force.
func (r *Replica) Recorded(name string) bool {
	if l := r.Loading[name]; l != nil && l.Namespace != nil {
		return false
	}
	// A new one: the reply to an earlier read is about what was there before.
	r.Loading[name] = &Loading{}
	return true
}

// Unrecorded notes that the record of a namespace is gone, and reports whether that ends its loading. It does not when the record
// has been read: the namespace stays, for there may be leases in it.
func (r *Replica) Unrecorded(name string) bool {
	if l := r.Loading[name]; l == nil || l.Namespace != nil {
		return false
	}
	delete(r.Loading, name)
	return true
}

// Unread are the namespaces whose record is to be read: it has not been, and no read is under way.
func (r *Replica) Unread() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Loading)) {
		if l := r.Loading[name]; l.Namespace == nil && !l.Reading && l.Problem == "" {
			names = append(names, name)
		}
	}
	return names
}

// Learn takes in what a namespace's record says. It reports whether the namespace is one that the replica had already, whose
// record says the same again. root is the root of the layout in ZooKeeper.
func (r *Replica) Learn(name, root string, data []byte) (known bool, err error) {
	record, err := layout.ParseNamespace(name, data)
	if err != nil {
		return false, err
	}
	s, err := NamespaceOf(name, record)
	if err != nil {
		return false, err
	}
	if have := r.Namespaces[name]; have != nil {
		if have.Root != s.Root || have.Naming.String() != s.Naming.String() {
			return false, fmt.Errorf("namespace %s is recorded with root %s and dialect %s now, and was with root %s and dialect %s: restart this gateway",
				name, s.Root, s.Naming, have.Root, have.Naming)
		}
		delete(r.Loading, name)
		return true, nil
	}
	all := map[string]zk.Namespace{name: record}
	for other := range r.All {
		all[other.Name] = zk.Namespace{Root: other.Root, Dialect: other.Naming.String()}
	}
	if err := layout.CheckNamespaces(&zk.Config{Root: root}, all); err != nil {
		return false, err
	}
	r.Loading[name].Namespace = s
	return false, nil
}

// Watch reports whether the observer is to be told of the namespace's root, and notes that it is. It is told only while
// the replica is synced: then either the root's own Synced tells when it has been read, or, if the connection is lost
// first, the Synced of the next one tells so of all.
func (l *Loading) Watch(synced bool) bool {
	if l.Namespace == nil || !synced || l.added {
		return false
	}
	l.added = true
	return true
}

// Arrived takes in that a lock root has been read, or, nil, all that the observer has been told of: those namespaces are whole
// now. They are returned in the order of their names.
func (r *Replica) Arrived(root *zk.WatchRoot) (whole []*Namespace) {
	for _, name := range slices.Sorted(maps.Keys(r.Loading)) {
		l := r.Loading[name]
		if l.Namespace == nil || !l.added || l.Problem != "" || root != nil && root.Path != l.Namespace.Root {
			continue
		}
		l.Namespace.Whole = true
		r.Namespaces[name] = l.Namespace
		delete(r.Loading, name)
		whole = append(whole, l.Namespace)
	}
	return whole
}
