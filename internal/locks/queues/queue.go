package queues

import (
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/recipe"
)

// Queue is the replica of one lock: its contenders in ZooKeeper's order, and what is needed to trust that order. It is 80 bytes
// long, a size class of the allocator: there may be very many.
type Queue struct {
	Namespace *Namespace
	Path      string // of the lock's directory: the replica's string, once it exists

	Contenders recipe.Queue
	Leases     int32 // leases of this gateway that refer to this queue
	Polls      int32 // requests that refer to this queue

	Exists bool // the lock's directory, as far as the replica has seen
	// Numbers below next have been seen, or a listing showed that no contender has them. A gap is a number that was handed
	// out and never seen: perhaps of a contender that may not be read, about which ZooKeeper sends no events.
	known bool // next means something
	gap   bool
	Freed bool // since the last holder left no other one was granted: for hand-over times
	next  int32

	extras *Extras
	Since  time.Duration // boot: when the last holder left, or the last contender
	Rev    uint64        // of the last visible change; 0: there was none
}

// Extras are fields that few locks need.
type Extras struct {
	wake       chan struct{}       // closed at the next visible change; nil while none is awaited
	Hidden     map[string]struct{} // contenders that may not be read
	nodes      map[string]*Node    // see SetNode
	Unnumbered int                 // children without a number
	presence   interop.Presence    // of other programs' contenders
	settings   *settings           // nil for none
	ended      []*recipe.Contender // as the writer was told, and in the replica still: see Awaits
	polledFor  *recipe.Contender   // the first of ended at the last poll
	Hazards    []*interop.Hazard   // as the deltas have told; nil for none

	listing      bool  // a listing has been asked for
	misplaced    bool  // it is no lock's directory, but another program's contender
	PlainCzxid   int64 // of the plain node in the directory's place
	Unidentified bool  // there may be a plain node that the replica does not show yet
	Ceiling      int32 // of Kazoo's Semaphore whose directory it is: the data says so; else 0
	Marker       bool  // it is a marker of bigdata's, and no lock; see siblings.go
	Invalid      bool  // there is such a marker for it
	Temporary    bool  // the directory is ours, and goes as soon as it is empty
	EncodedName  bool  // the lock's name is not its directory's: see recipe.LockName
}

func (x *Extras) empty() bool {
	return x.wake == nil && !x.listing && len(x.Hidden) == 0 && len(x.nodes) == 0 && x.Unnumbered == 0 && x.settings == nil && len(x.ended) == 0 && !x.presence.Foreign() && x.Hazards == nil &&
		!x.misplaced && x.PlainCzxid == 0 && !x.Unidentified && !x.Temporary && !x.EncodedName && x.Ceiling == 0 && !x.Marker && !x.Invalid
}

// noExtras is read where there are none, and never written.
var noExtras Extras

// Extras are to be read: most queues share one empty value.
func (q *Queue) Extras() *Extras {
	if q.extras == nil {
		return &noExtras
	}
	return q.extras
}

// MakeExtras is where extras can be written. Trim follows a write that takes something away.
func (q *Queue) MakeExtras() *Extras {
	if q.extras == nil {
		q.extras = &Extras{}
	}
	return q.extras
}

// Trim drops the extras when nothing is left in them.
func (q *Queue) Trim() {
	if q.extras != nil && q.extras.empty() {
		q.extras = nil
	}
}

// forgetContender drops what is kept of a contender by its name.
func (q *Queue) forgetContender(name string) {
	if x := q.extras; x != nil {
		delete(x.Hidden, name)
		delete(x.nodes, name)
		q.Trim()
	}
}

// Awaits reports whether a contender stands behind one whose end the writer was told of before the replica shows
// it. Without that one the queue is a state that may never have been: the replica may still show as waiting what
// went before it. So no contender behind it is taken for a holder until the replica shows the end too.
func (q *Queue) Awaits(c *recipe.Contender) bool {
	return slices.ContainsFunc(q.Extras().ended, func(gone *recipe.Contender) bool {
		return recipe.Less(gone.Number, gone.Name, c.Number, c.Name)
	})
}

// ShowEnd notes that the replica shows the end of a contender: Awaits waits for it no longer.
func (q *Queue) ShowEnd(name string) {
	if x := q.extras; x != nil && len(x.ended) > 0 {
		x.ended = slices.DeleteFunc(x.ended, func(c *recipe.Contender) bool { return c.Name == name })
		q.Trim()
	}
}

// Dir is the name of the lock's directory.
func (q *Queue) Dir() string {
	if q.Namespace == nil {
		return q.Path // of a place in the tree: see At
	}
	return q.Path[len(q.Namespace.Root)+1:]
}

// Name is the lock's name: the directory's, unless another program has made one that no lease's lock could have.
func (q *Queue) Name() string {
	if !q.Extras().EncodedName { // a list that looks at 100,000 names writes none of them
		return q.Dir()
	}
	return recipe.LockName(q.Dir())
}

// NodeOf is the path of a contender's node.
func (q *Queue) NodeOf(name string) string {
	if name == interop.PlainNode {
		return q.Path
	}
	return q.Path + "/" + name
}

// Changed returns a channel that is closed after the queue's next visible change.
func (q *Queue) Changed() <-chan struct{} {
	x := q.MakeExtras()
	if x.wake == nil {
		x.wake = make(chan struct{})
	}
	return x.wake
}

// BeginListing reports whether the caller shall ask for a listing of the queue's directory, and notes that it does.
func (q *Queue) BeginListing() bool {
	if q.Listing() || !q.Exists {
		return false
	}
	q.MakeExtras().listing = true
	return true
}

func (q *Queue) endListing() {
	if q.Listing() {
		q.extras.listing = false
		q.Trim()
	}
}

// Listing reports whether a listing has been asked for, and has not come.
func (q *Queue) Listing() bool { return q.Extras().listing }

// Blocked reports whether nothing more of this gateway's is granted in the queue for now: numbers are missing, or a marker says
// that the lock is being destroyed.
func (q *Queue) Blocked() bool { return q.gap || !q.known || q.Extras().Invalid }

// LeaseHolds is recipe.Queue.LeaseHolds. It counts the questions: tests bound them.
func (q *Queue) LeaseHolds(name string) bool {
	q.Namespace.Asked++
	return q.Contenders.LeaseHolds(name)
}

// Hazards are those of the lock, as they are shown.
func (q *Queue) Hazards() (list []locks.Hazard) {
	for _, h := range q.Extras().Hazards {
		list = append(list, h.Hazard)
	}
	return list
}

// Holders lists the lock's present holders by the names alone, at most limit.
func (q *Queue) Holders(limit int) (list []*recipe.Contender) {
	for c := range q.Contenders.Holders() {
		if len(list) == limit {
			break
		}
		list = append(list, c)
	}
	return list
}

// Replacement is the contender that takes a contender's place after a downgrade: of the same lease, for the same lock,
// with the same number. Nil when there is none.
func (q *Queue) Replacement(c *recipe.Contender) *recipe.Contender {
	return q.twin(c, func(other *recipe.Contender) bool { return c.Mode == recipe.Exclusive && other.FirstCzxid != 0 })
}

// Replaces reports whether a contender stands beside the one whose place it takes.
func (q *Queue) Replaces(c *recipe.Contender) bool {
	return c.FirstCzxid != 0 && q.twin(c, func(other *recipe.Contender) bool { return other.FirstCzxid == 0 }) != nil
}

// twin is another contender of the same lease, lock and number that is as asked.
func (q *Queue) twin(c *recipe.Contender, is func(*recipe.Contender) bool) *recipe.Contender {
	at := q.Contenders.Index(c.Name)
	if at < 0 || !c.Ours || c.Unknown {
		return nil
	}
	first := at
	for first > 0 && q.Contenders.At(first-1).Number == c.Number {
		first--
	}
	for i := first; i < q.Contenders.Len() && q.Contenders.At(i).Number == c.Number; i++ {
		other := q.Contenders.At(i)
		if i != at && other.LeaseID == c.LeaseID && SameSlot(other, c) && is(other) {
			return other
		}
	}
	return nil
}
