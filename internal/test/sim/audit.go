package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/zk/embedded/state"
)

// lockRoot is the default namespace.
const lockRoot = "/lockkeeper/locks"

// settingsRoot is where the limits of semaphores are.
const settingsRoot = "/lockkeeper/settings"

// audit knows what ZooKeeper has committed, when it did. It is always up to date: the world is told of nothing sooner.
type audit struct {
	mu    sync.Mutex
	live  map[string][]*contender // by lock, in the queue's order
	all   []*contender
	paths map[string]*contender   // the newest with each path that there ever was
	lease map[string][]*contender // the places of each lease, in the order of its locks
	nodes map[string]struct{}     // every path there is
	// Gateways by their sessions and by their registrations: each has its name in its registration.
	sessions   map[int64]string
	registered []registration
	left       map[int64]time.Time    // when the registrations of sessions were deleted
	stalled    map[string]func() bool // those that certainly get no replies from ZooKeeper
	stolen     []string               // contenders of others that a gateway has deleted
	unseen     []string               // those that it has deleted though it cannot know what was in them
	unlimited  []string               // what was enqueued under a limit that was not in force
	noted      map[string]int64       // when, as a zxid, leases were put into the outbox first
	hooked     map[string]int64       // and webhooks were made
	dropped    int                    // keys of the fleet's secret
	trace      func(format string, args ...any)
}

func newAudit(trace func(string, ...any)) *audit {
	return &audit{live: make(map[string][]*contender), paths: make(map[string]*contender), lease: make(map[string][]*contender),
		noted: make(map[string]int64), hooked: make(map[string]int64),
		nodes: make(map[string]struct{}), sessions: make(map[int64]string), left: make(map[int64]time.Time),
		stalled: make(map[string]func() bool), trace: trace}
}

// commit gets each transaction. What it creates comes first: a downgrade is one, in any order of its operations.
func (a *audit) commit(txn *state.Txn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var touched []string
	for _, op := range txn.Ops {
		if op.Kind != state.TxnCreate {
			continue
		}
		a.nodes[op.Path] = struct{}{}
		if strings.HasPrefix(op.Path, droppedKeys) {
			a.dropped++
		}
		a.hook(txn, op)
		if _, rest, ok := strings.Cut(string(op.Data), `"address":"`); ok && strings.HasPrefix(op.Path, "/lockkeeper/gateways/") {
			name, _, _ := strings.Cut(rest, ":") // and its port
			a.sessions[txn.Session] = name
			a.registered = append(a.registered, registration{op.Path, name, txn.Session})
		}
		if lock, ok := lockOf(op.Path); ok {
			touched = append(touched, lock)
			a.created(txn, op, lock)
		}
	}
	for _, op := range txn.Ops {
		lock, ok := lockOf(op.Path)
		switch {
		case op.Kind == state.TxnDelete:
			delete(a.nodes, op.Path)
			a.deregistered(op.Path)
			if ok {
				touched = append(touched, lock)
				a.deleted(txn, op, lock)
				for _, c := range holders(a.live[lock]) {
					c.glimpsed = c.glimpsed || c.ephemeral // the end of a session goes by its own order, and is told one by one
				}
			}
		case op.Kind == state.TxnSetData && ok:
			a.wrote(txn, op)
		}
	}
	for _, op := range txn.Ops {
		if c := a.paths[op.Path]; op.Kind == state.TxnCreate && c != nil && c.mode == semaphore {
			if path := fmt.Sprintf("%s/default,%s/limit-%d", settingsRoot, c.lock, c.limit); !a.has(path) {
				a.unlimited = append(a.unlimited, c.path+" was enqueued, and there is no "+path)
			}
		}
	}
	for _, lock := range touched {
		for _, c := range holders(a.live[lock]) {
			a.leads(c)
		}
	}
}

func (a *audit) has(path string) bool {
	_, there := a.nodes[path]
	return there
}

func (a *audit) created(txn *state.Txn, op state.TxnOp, lock string) {
	c := &contender{claim: claim{mode: exclusive}, lock: lock, path: op.Path, lease: op.Path, number: op.Path[len(op.Path)-10:], czxid: txn.Zxid,
		made: time.Now(), data: string(op.Data), by: txn.Session, group: 1, groups: 1, member: 1, members: 1}
	a.trace("zxid %#x creates %s", txn.Zxid, op.Path)
	if a.sessions[txn.Session] != "" {
		c.read()
	}
	if c.first != 0 {
		for _, old := range a.live[lock] {
			if old.lease == c.lease && old.number == c.number {
				old.path, old.claim, old.replaced, old.data = c.path, c.claim, c.made, c.data
				a.paths[op.Path] = old
				return
			}
		}
		c.czxid = c.first
	}
	a.live[lock] = append(a.live[lock], c)
	slices.SortStableFunc(a.live[lock], func(x, y *contender) int { return strings.Compare(x.number, y.number) })
	a.all = append(a.all, c)
	a.paths[op.Path] = c
	a.lease[c.lease] = append(a.lease[c.lease], c)
}

func (a *audit) deleted(txn *state.Txn, op state.TxnOp, lock string) {
	a.trace("zxid %#x deletes %s", txn.Zxid, op.Path)
	a.live[lock] = slices.DeleteFunc(a.live[lock], func(c *contender) bool {
		if c.path == op.Path {
			c.gone = time.Now()
			a.lastOf(c, txn)
			a.judge(c, txn.Session)
		}
		return c.path == op.Path
	})
}

// wrote notes what became of a contender's data.
func (a *audit) wrote(txn *state.Txn, op state.TxnOp) {
	c := a.paths[op.Path]
	switch {
	case c == nil || !c.gone.IsZero():
	case a.sessions[txn.Session] == "":
		if c.written.IsZero() {
			c.written = time.Now()
		}
		c.endOverwritten = c.endOverwritten || !c.closed.IsZero()
	case strings.Contains(string(op.Data), `"closed":`):
		if c.closed.IsZero() {
			c.closed = time.Now()
			_, reason, _ := strings.Cut(string(op.Data), `"closed":{"reason":"`)
			reason, _, _ = strings.Cut(reason, `"`)
			a.lastOf(c, txn)
			for _, other := range a.lease[c.lease] { // the record of a lease of several locks is the first one's
				other.closed, other.closedFor = c.closed, reason
			}
			a.trace("zxid %#x closes %s", txn.Zxid, op.Path)
		}
	}
}

// leads notes that a contender holds by the names of its queue.
func (a *audit) leads(c *contender) {
	if c.led.IsZero() {
		c.led = time.Now()
	}
	places := a.lease[c.lease]
	if !c.held.IsZero() || !complete(places) {
		return
	}
	for _, other := range places {
		if other.led.IsZero() || !other.gone.IsZero() {
			return
		}
	}
	for _, other := range places {
		other.held = time.Now()
	}
}

// judge looks at the session that has deleted a contender.
func (a *audit) judge(c *contender, session int64) {
	gateway := a.sessions[session]
	if gateway == "" {
		return
	}
	if a.sessions[c.by] == "" {
		a.stolen = append(a.stolen, c.path)
	}
	if stalled := a.stalled[gateway]; stalled != nil && c.group == 1 && c.member == 1 && !c.written.IsZero() && c.closed.IsZero() && stalled() { // a closed one's lease has ended: nothing in it counts
		a.unseen = append(a.unseen, c.path)
	}
}

// stall says for how long a gateway gets no replies: as long as certain is true; nil: it gets them again.
func (a *audit) stall(gateway string, certain func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stalled[gateway] = certain
}

// registration is that of a gateway's session.
type registration struct {
	path, gateway string
	session       int64
}

// deregistered notes that a registration has been deleted, by its gateway or by a successor.
func (a *audit) deregistered(path string) {
	a.registered = slices.DeleteFunc(a.registered, func(r registration) bool {
		if r.path == path {
			a.left[r.session] = time.Now()
		}
		return r.path == path
	})
}

// orphaned is when the gateway that has made an ephemeral contender was taken over; zero for any other contender.
func (a *audit) orphaned(c *contender) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !c.ephemeral {
		return time.Time{}
	}
	return a.left[c.by]
}

// registration is the path of a gateway's newest registration, "" when it has none.
func (a *audit) registration(gateway string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range slices.Backward(a.registered) {
		if r.gateway == gateway {
			return r.path
		}
	}
	return ""
}

// lockOf is the lock of a contender's path.
func lockOf(path string) (lock string, ok bool) {
	mark := ""
	rest, ok := strings.CutPrefix(path, lockRoot+"/")
	if !ok {
		mark = spaceMark
		if rest, ok = strings.CutPrefix(path, spaceRoot+"/"); !ok {
			return "", false
		}
	}
	lock, child, ok := strings.Cut(rest, "/")
	return mark + lock, ok && len(child) > 10
}

// find is the newest contender with this path.
func (a *audit) find(path string) *contender {
	a.mu.Lock()
	defer a.mu.Unlock()
	if found := a.paths[path]; found != nil {
		c := *found
		return &c
	}
	return nil
}

// leaseOf is the lease of the contender with this path; the path itself when it is no gateway's.
func (a *audit) leaseOf(path string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.paths[path]; c != nil {
		return c.lease
	}
	return path
}

// places are the contenders of a lease, those that have gone, too.
func (a *audit) places(lease string) []contender {
	a.mu.Lock()
	defer a.mu.Unlock()
	var places []contender
	for _, c := range a.lease[lease] {
		places = append(places, *c)
	}
	return places
}

// broken reports whether a lease has lost one of its places: its gateway, or a successor, deletes the others.
func (a *audit) broken(lease string) bool {
	return slices.ContainsFunc(a.places(lease), func(c contender) bool { return !c.gone.IsZero() })
}

// glimpsed reports whether events may have shown an ephemeral lease as first in all its queues while its session's end was told.
func (a *audit) glimpsed(lease string) bool {
	places := a.places(lease)
	seen := func(c contender) bool { return c.glimpsed }
	return slices.ContainsFunc(places, seen) && !slices.ContainsFunc(places, func(c contender) bool { return !seen(c) && c.led.IsZero() })
}

// ender is the gateway that has ended a lease, "" for another hand.
func (a *audit) ender(lease string) string {
	for _, c := range a.places(lease) {
		if c.endedBy != "" {
			return c.endedBy
		}
	}
	return ""
}

// at is a lease's contender in a lock's queue, nil when it never had one.
func (a *audit) at(lease, lock string) *contender {
	for _, c := range a.places(lease) {
		if c.lock == lock {
			return &c
		}
	}
	return nil
}

// byToken is the contender with a fencing token in a lock's queue; nil when no lease ever had it.
func (a *audit) byToken(lock string, token int64) *contender {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := len(a.all) - 1; i >= 0; i-- {
		if c := a.all[i]; c.lock == lock && c.czxid == token {
			found := *c
			return &found
		}
	}
	return nil
}

// maker is the gateway whose session has made a contender.
func (a *audit) maker(c *contender) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[c.by]
}

// ahead is the contender that keeps a lease from holding a lock by the names; nil when it holds, or is not there.
func (a *audit) ahead(lease, lock string) *contender {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.lease[lease] {
		if c.lock != lock || !c.gone.IsZero() {
			continue
		}
		if other := inTheWay(a.live[lock], c); other != nil {
			found := *other
			return &found
		}
	}
	return nil
}

// contenders are the paths of all that are there, in a fixed order.
func (a *audit) contenders() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var paths []string
	for _, q := range a.live {
		for _, c := range q {
			paths = append(paths, c.path)
		}
	}
	slices.Sort(paths)
	return paths
}

// litter is what is left below these.
func (a *audit) litter(roots []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var left []string
	for path := range a.nodes {
		for _, root := range roots {
			if strings.HasPrefix(path, root+"/") {
				left = append(left, path)
			}
		}
	}
	slices.Sort(left)
	return left
}

// history is every contender that there ever was.
func (a *audit) history() []*contender {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all)
}
