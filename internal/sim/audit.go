package sim

import (
	"slices"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/zk/embedded/state"
)

// lockRoot is the default namespace.
const lockRoot = "/lockkeeper/locks"

// contender is one sequential node of a lock, from its creation on.
type contender struct {
	lock, path string
	number     string // its last ten characters: order, as long as nothing overflows
	czxid      int64
	made       time.Time
	gone       time.Time // zero while it is there
	led        time.Time // when it came to the head of its queue, zero before
	data       string
	by         int64     // the session that made it
	written    time.Time // when somebody who is no gateway has overwritten its data
}

// audit knows what ZooKeeper has committed, when it did. It is always up to date: the world is told of nothing sooner.
type audit struct {
	mu    sync.Mutex
	live  map[string][]*contender // by lock, in the queue's order
	all   []*contender
	nodes map[string]struct{} // every path there is
	// Gateways by their sessions and by their registrations: each has its name in its registration.
	sessions   map[int64]string
	registered map[string]string
	deaf       map[string]func() bool // those that certainly hear nothing from ZooKeeper
	stolen     []string               // contenders of others that a gateway has deleted
	unseen     []string               // those that it has deleted though it cannot know what was in them
	trace      func(format string, args ...any)
}

func newAudit(trace func(string, ...any)) *audit {
	return &audit{live: make(map[string][]*contender), nodes: make(map[string]struct{}), sessions: make(map[int64]string),
		registered: make(map[string]string), deaf: make(map[string]func() bool), trace: trace}
}

// commit is told of each transaction.
func (a *audit) commit(txn *state.Txn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, op := range txn.Ops {
		switch op.Kind {
		case state.TxnCreate:
			a.nodes[op.Path] = struct{}{}
			if _, rest, ok := strings.Cut(string(op.Data), `"address":"`); ok && strings.HasPrefix(op.Path, "/lockkeeper/gateways/") {
				name, _, _ := strings.Cut(rest, `"`)
				a.sessions[txn.Session], a.registered[op.Path] = name, name
			}
			if lock, ok := lockOf(op.Path); ok {
				c := &contender{lock: lock, path: op.Path, number: op.Path[len(op.Path)-10:], czxid: txn.Zxid, made: time.Now(),
					data: string(op.Data), by: txn.Session}
				a.live[lock] = append(a.live[lock], c)
				slices.SortStableFunc(a.live[lock], func(x, y *contender) int { return strings.Compare(x.number, y.number) })
				a.all = append(a.all, c)
				a.trace("zxid %#x creates %s", txn.Zxid, op.Path)
			}
		case state.TxnDelete:
			delete(a.nodes, op.Path)
			delete(a.registered, op.Path)
			if lock, ok := lockOf(op.Path); ok {
				a.live[lock] = slices.DeleteFunc(a.live[lock], func(c *contender) bool {
					if c.path == op.Path {
						c.gone = time.Now()
						a.judge(c, txn.Session)
					}
					return c.path == op.Path
				})
				a.trace("zxid %#x deletes %s", txn.Zxid, op.Path)
			}
		case state.TxnSetData:
			if lock, ok := lockOf(op.Path); ok && a.sessions[txn.Session] == "" {
				for _, c := range a.live[lock] {
					if c.path == op.Path {
						c.written = time.Now()
					}
				}
			}
		}
	}
	for _, q := range a.live {
		if len(q) > 0 && q[0].led.IsZero() {
			q[0].led = time.Now()
		}
	}
}

// judge looks at who has deleted a contender.
func (a *audit) judge(c *contender, session int64) {
	gateway := a.sessions[session]
	if gateway == "" {
		return
	}
	if a.sessions[c.by] == "" {
		a.stolen = append(a.stolen, c.path)
	}
	if deaf := a.deaf[gateway]; deaf != nil && !c.written.IsZero() && deaf() {
		a.unseen = append(a.unseen, c.path)
	}
}

// deafen says for how long a gateway hears nothing: as long as certain is true; nil: it does again.
func (a *audit) deafen(gateway string, certain func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deaf[gateway] = certain
}

// registration is the path of a gateway's registration, "" when it has none.
func (a *audit) registration(gateway string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for path, name := range a.registered {
		if name == gateway {
			return path
		}
	}
	return ""
}

// lockOf is the lock of a contender's path.
func lockOf(path string) (lock string, ok bool) {
	rest, ok := strings.CutPrefix(path, lockRoot+"/")
	if !ok {
		return "", false
	}
	lock, child, ok := strings.Cut(rest, "/")
	return lock, ok && len(child) > 10
}

// find is the newest contender with this path.
func (a *audit) find(path string) *contender {
	a.mu.Lock()
	defer a.mu.Unlock()
	if found := a.newest(path); found != nil {
		c := *found
		return &c
	}
	return nil
}

func (a *audit) newest(path string) *contender {
	for i := len(a.all) - 1; i >= 0; i-- {
		if a.all[i].path == path {
			return a.all[i]
		}
	}
	return nil
}

// before is the contender that stands at the head of the queue of the contender at path, when that is another one.
func (a *audit) before(lock, path string) *contender {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.live[lock]; len(q) > 0 && q[0].path != path {
		c := *q[0]
		return &c
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
