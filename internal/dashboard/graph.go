package dashboard

import (
	"cmp"
	"context"
	"net/url"
	"slices"

	"github.com/a-h/templ"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

const pageGraph = "graph"

const (
	// treeRows is how many waits the page of the graph shows, and treeDepth how deep they are nested.
	treeRows  = 200
	treeDepth = 6
	// maxCircles is how many cycles it shows that may end by themselves.
	maxCircles = 20
)

// graphPage is the wait-for graph: the cycles, and those that go on with who waits for them.
type graphPage struct {
	plain
	ns, lock, owner string
}

func parseGraph(_ string, values url.Values) (page, *refusal) {
	p := graphPage{ns: values.Get("ns"), lock: values.Get("lock"), owner: values.Get("owner")}
	if p.lock != "" && p.ns == "" {
		p.ns = locks.DefaultNamespace
	}
	return p, nil
}

func (graphPage) name() string  { return pageGraph }
func (graphPage) title() string { return "Waits" }

func (p graphPage) own() (subject string, parameters url.Values) {
	implied := ""
	if p.lock != "" {
		implied = locks.DefaultNamespace
	}
	return "", differing([3]string{"ns", p.ns, implied}, [3]string{"lock", p.lock}, [3]string{"owner", p.owner})
}

func (p graphPage) read(ctx context.Context, _ *Options, as reading) (content, error) {
	shown := &graphContent{templates.Graph{Page: as.frame, NS: visible(p.ns), Lock: visible(p.lock), Owner: visible(p.owner)}}
	if p != (graphPage{}) {
		shown.All = urlOf(graphPage{})
	}
	req := locks.GraphRequest{Principal: as.who, NS: p.ns, Lock: p.lock, Owner: p.owner}
	if err := mayAsk(&req); err != nil {
		shown.Problem = problemOf(err)
		return shown, err
	}
	look, err := as.waits.look(ctx, as.who)
	if err != nil {
		shown.Problem = problemOf(err)
		return shown, err
	}
	v := look.Answer(&req)
	shown.Truncated, shown.Unread = v.Truncated, v.Unread
	for i := range v.Cycles {
		c := &v.Cycles[i]
		switch {
		case c.Certain && len(c.Waits) > 1 && len(shown.Deadlocks) < maxDeadlocks:
			shown.Deadlocks = append(shown.Deadlocks, look.deadlock(c))
		case c.Certain && len(c.Waits) > 1:
			shown.MoreDeadlocks++
		case len(shown.Circles) < maxCircles:
			shown.Circles = append(shown.Circles, look.deadlock(c))
		default:
			shown.MoreCircles++
		}
	}
	shown.Drawing = drawingOf(&v)
	shown.Trees, shown.MoreTrees = forestOf(&v)
	return shown, nil
}

// mayAsk refuses what GET /v1/graph would.
func mayAsk(req *locks.GraphRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	if req.Lock != "" {
		if err := req.Principal.Check(access.Read, req.NS, req.Lock); err != nil {
			return err
		}
	} else if req.NS != "" {
		if err := req.Principal.CheckIn(access.Read, req.NS); err != nil {
			return err
		}
	}
	return nil
}

type graphContent struct{ templates.Graph }

func (c *graphContent) document() templ.Component { return templates.GraphPage(c.Graph) }
func (c *graphContent) parts() []part             { return []part{{"graph", templates.GraphFragment(c.Graph)}} }

// forest makes trees of a graph: its roots are the parties that wait for nothing, then those of cycles.
type forest struct {
	parties map[string]*locks.Party
	blocks  map[string][]*locks.GraphWait // by the party that blocks
	waits   map[string]bool               // parties that wait
	shown   map[string]bool               // parties whose waiters are on the page
	room    int                           // of rows
}

// forestOf shows the parties of a graph that are waited for, those before most others first; more counts those that are left out.
func forestOf(v *locks.WaitGraph) (trees []templates.Tree, more int) {
	f := &forest{parties: map[string]*locks.Party{}, blocks: map[string][]*locks.GraphWait{}, waits: map[string]bool{}, shown: map[string]bool{}, room: treeRows}
	for i := range v.Parties {
		f.parties[v.Parties[i].ID] = &v.Parties[i]
	}
	behindHolders := map[locks.Standing]bool{}
	for i := range v.Waits {
		behindHolders[v.Waits[i].Waiter] = behindHolders[v.Waits[i].Waiter] || v.Waits[i].Blocker.Position == 0
	}
	for i := range v.Waits {
		w := &v.Waits[i]
		f.waits[w.From] = true
		if w.Blocker.Position == 0 || !behindHolders[w.Waiter] { // who waits for holders is shown with these alone
			f.blocks[w.To] = append(f.blocks[w.To], w)
		}
	}
	type root struct {
		id     string
		behind map[string]bool
	}
	var roots []root
	reached := map[string]bool{}
	add := func(id string) {
		r := root{id, map[string]bool{}}
		f.behind(id, r.behind)
		for other := range r.behind {
			reached[other] = true
		}
		reached[id] = true
		roots = append(roots, r)
	}
	for i := range v.Parties {
		if id := v.Parties[i].ID; !f.waits[id] && len(f.blocks[id]) > 0 {
			add(id)
		}
	}
	for i := range v.Parties { // what is left waits in circles, or behind one
		if id := v.Parties[i].ID; !reached[id] && len(f.blocks[id]) > 0 {
			add(id)
		}
	}
	slices.SortStableFunc(roots, func(a, b root) int { return cmp.Compare(len(b.behind), len(a.behind)) })
	for i, r := range roots {
		if f.room <= 0 {
			return trees, len(roots) - i
		}
		if f.shown[r.id] {
			continue // behind another one of its circle
		}
		t := f.tree(r.id, 1)
		t.Circle, t.Behind = r.behind[r.id], len(r.behind)
		if t.Circle {
			t.Behind--
		}
		trees = append(trees, t)
	}
	return trees, 0
}

// behind adds the parties that wait for one, directly or by way of others.
func (f *forest) behind(id string, all map[string]bool) {
	next := []string{id}
	for len(next) > 0 {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		for _, w := range f.blocks[at] {
			if !all[w.From] {
				all[w.From] = true
				next = append(next, w.From)
			}
		}
	}
}

// tree is a party with who waits for it, which is shown once.
func (f *forest) tree(id string, depth int) templates.Tree {
	t := templates.Tree{Who: partyWho(f.parties[id])}
	if len(f.blocks[id]) == 0 {
		return t
	}
	if t.Shown = f.shown[id] || depth > treeDepth; t.Shown {
		return t
	}
	f.shown[id] = true
	for _, w := range f.blocks[id] {
		link := lockLink(w.NS, w.Lock)
		if n := len(t.Locks); n == 0 || t.Locks[n-1].Lock != link {
			t.Locks = append(t.Locks, templates.TreeLock{Lock: link})
		}
		l := &t.Locks[len(t.Locks)-1]
		if f.room <= 0 {
			l.More++
			continue
		}
		f.room--
		l.Waits = append(l.Waits, templates.TreeWait{Tree: f.tree(w.From, depth+1), WhyURL: contenderURL(w.NS, w.Lock, standingID(&w.Waiter)), Position: w.Waiter.Position, Any: w.Any})
	}
	return t
}
