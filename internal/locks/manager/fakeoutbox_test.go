package manager

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/zk"
)

// fakeOutbox notes each end below /outbox. It learns the version of /webhooks when it
// is told to look, a while later.
type fakeOutbox struct {
	s       *fakeStore
	changed func()

	mu      sync.Mutex
	version int32
	known   bool
	stale   bool // it is told to look, and does not come to it
	reckons bool // it does not check who wants to be told
	verbose bool // its notes fit into no transaction
	noted   []*Ending
	gone    []*Ending
	results []zk.Result
	adopted int
}

func (o *fakeOutbox) Ending(_ bool, describe func() *Ending) ([]zk.Op, any, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.known {
		return nil, nil, false
	}
	e := describe()
	ops := []zk.Op{{Kind: zk.OpCheck, Path: "/lockkeeper/webhooks", Version: o.version}, {Kind: zk.OpCreate, Path: "/lockkeeper/outbox/" + e.LeaseID, Data: []byte(e.Reason)}}
	if o.reckons {
		ops = ops[1:]
	}
	if o.verbose {
		ops[1].Data = make([]byte, 256<<10)
	}
	return ops, e, true
}

func (o *fakeOutbox) Notify(e *Ending) ([]zk.Op, any) {
	name := e.LeaseID
	if e.Granted {
		name += "-granted"
	}
	return []zk.Op{{Kind: zk.OpCreate, Path: "/lockkeeper/outbox/" + name, Data: []byte(e.Reason)}}, e
}

func (o *fakeOutbox) CheckURL(url string) error {
	if strings.Contains(url, "inside") {
		return errors.New("it is inside")
	}
	return nil
}

func (o *fakeOutbox) Ended(entry any, _ []zk.Op, res zk.Result) {
	o.mu.Lock()
	o.results = append(o.results, res)
	if res.Outcome == zk.Done {
		o.noted = append(o.noted, entry.(*Ending))
	}
	if res.Outcome == zk.Conflict {
		o.known = false
	}
	o.mu.Unlock()
	if res.Outcome == zk.Conflict {
		o.Look()
	}
}

func (o *fakeOutbox) Gone(e *Ending) { o.with(func() { o.gone = append(o.gone, e) }) }
func (o *fakeOutbox) Adopt()         { o.with(func() { o.adopted++ }) }
func (o *fakeOutbox) with(f func())  { o.mu.Lock(); defer o.mu.Unlock(); f() }

func (o *fakeOutbox) Look() {
	go func() {
		time.Sleep(50 * time.Millisecond)
		version := o.s.node("/lockkeeper/webhooks").stat.Version
		o.mu.Lock()
		if !o.stale {
			o.version, o.known = version, true
		}
		o.mu.Unlock()
		o.changed()
	}()
}

// subscribe changes who wants to be told, unknown to all gateways.
func (s *fakeStore) subscribe() {
	s.foreign(zk.Op{Kind: zk.OpSetData, Path: "/lockkeeper/webhooks", Version: -1})
}

// told are the endings of leases that a gateway has noted, by lease.
func (g *gate) notedFor(l locks.Lease) (list []*Ending) {
	synctest.Wait() // whoever delivers is told beside the answer
	g.outbox.with(func() {
		for _, e := range g.outbox.noted {
			if e.LeaseID == l.ID {
				list = append(list, e)
			}
		}
	})
	return list
}

func notingScene(t *testing.T, f func(t *testing.T, s *fakeStore)) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.outboxes = true
		f(t, s)
	})
}

// withOutbox is a notingScene with one gateway.
func withOutbox(t *testing.T, f func(t *testing.T, s *fakeStore, g *gate)) {
	t.Helper()
	notingScene(t, func(t *testing.T, s *fakeStore) { f(t, s, s.notingGateway(t)) })
}

// withOutboxes is a notingScene with two gateways.
func withOutboxes(t *testing.T, f func(t *testing.T, s *fakeStore, one, two *gate)) {
	t.Helper()
	notingScene(t, func(t *testing.T, s *fakeStore) { f(t, s, s.notingGateway(t), s.notingGateway(t)) })
}

// started waits until the outbox knows.
func (s *fakeStore) notingGateway(t *testing.T) *gate {
	g := s.gateway(t)
	pass(time.Second)
	return g
}

func (s *fakeStore) outbox() []string { return s.names("/lockkeeper/outbox") }

// last is the last transaction with a deletion, by the kinds of its operations.
func (s *fakeStore) lastEnd() (kinds []zk.OpKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range slices.Backward(s.writes) {
		if slices.ContainsFunc(w.Ops, func(op zk.Op) bool { return op.Kind == zk.OpDelete && strings.Contains(op.Path, "/locks/") }) {
			for _, op := range w.Ops {
				kinds = append(kinds, op.Kind)
			}
			return kinds
		}
	}
	return nil
}
