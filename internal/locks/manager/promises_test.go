package manager

import (
	"path"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

// promises is what clients were told on a random schedule, and what became of it.
type promises struct {
	mu      sync.Mutex
	until   map[string]time.Time // by contender: it was said to be held until then
	deleted map[string]time.Time // by contender
	excused map[string]bool      // a client let it go, or another program deleted it
}

// watch notes when contenders are deleted.
func (p *promises) watch(s *fakeStore) {
	p.until, p.deleted, p.excused = map[string]time.Time{}, map[string]time.Time{}, map[string]bool{}
	s.deleted = func(path string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.deleted[path] = time.Now()
	}
}

func (p *promises) promise(contender string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.until[contender]) {
		p.until[contender] = until
	}
}

func (p *promises) excuse(contender string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.excused[contender] = true
}

// checkPromises verifies that no held lease was shortened.
func (p *promises) checkPromises(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for contender, until := range p.until {
		if at, gone := p.deleted[contender]; gone && at.Before(until) && !p.excused[contender] {
			t.Errorf("%s was promised for %v more when it was ended", contender, until.Sub(at))
		}
	}
}

// checkExclusion verifies that whoever holds in a gateway's mind, and is in
// ZooKeeper, is the first in ZooKeeper's queue.
func (d *schedule) checkExclusion() {
	d.t.Helper()
	for _, g := range d.gates {
		var held []string
		g.m.mu.Lock()
		for _, l := range g.m.leases.byID {
			if l.Phase() == held_ {
				held = append(held, l.path())
			}
		}
		g.m.mu.Unlock()
		for _, holder := range held {
			if d.s.node(holder).stat.Czxid == 0 {
				continue // deleted; the gateway has not heard of it
			}
			for _, name := range d.s.names(path.Dir(holder)) {
				c, ok := g.naming(holder).Parse(g.m.fleet.id, name)
				assert.That(d.t, !ok || !recipe.Less(c.Number, c.Name, mustNumber(d.t, holder), path.Base(holder)),
					"%s is held though %s stands before it", holder, name)
			}
		}
	}
}
