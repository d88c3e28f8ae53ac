package dashboard

import (
	"cmp"
	"fmt"
	"slices"

	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

// The drawing of the wait-for graph. Parties stand in columns: at the left those that wait for nothing, and each other one right of
// all for which it waits. An edge leads from a port of the party that waits, along the name of the lock, to the party that blocks. One
// that closes a cycle goes below the drawing. The same graph is always drawn alike.

const (
	// drawnParties and drawnWaits bound a drawing. Beyond them the cycles come first, then the parties for which most wait.
	drawnParties = 60
	drawnWaits   = 150

	// Measures of the drawing, in pixels.
	partyWidth  = 140
	partyHeight = 30 // at least
	portHeight  = 20 // for each wait of a party
	labelWidth  = 114
	columnGap   = labelWidth + 38
	rowGap      = 14
	laneGap     = 12
	drawnEdge   = 12 // around it
	headLength  = 9
)

// drawnParty is a party in the drawing.
type drawnParty struct {
	party  *locks.Party
	waits  []*wait // of it, in the order of their ports
	column int
	center float64 // by which it is placed in its column
	x, y   int
	bad    bool // it is in a cycle
}

func (d *drawnParty) height() int { return max(partyHeight, portHeight*len(d.waits)+rowGap) }

// wait is a line in the drawing: all waits of one party for another.
type wait struct {
	from, to *drawnParty
	locks    []string
	bad      bool // it is in a cycle
}

// drawingOf draws a graph; nil when nothing waits.
func drawingOf(v *locks.WaitGraph) *templates.Drawing {
	waits, all, more := waitsToDraw(v)
	if len(waits) == 0 {
		return nil
	}
	parties := partiesIn(waits)
	columns := columnsOf(parties)
	d := &templates.Drawing{Parties: len(parties), AllParties: all, MoreWaits: more, Cycles: len(v.Cycles)}
	place(columns, d)
	for _, p := range parties {
		d.Nodes = append(d.Nodes, templates.DrawnParty{X: p.x, Y: p.y, Width: partyWidth, Height: p.height(), Who: partyWho(p.party), Bad: p.bad})
	}
	slices.SortStableFunc(waits, func(a, b *wait) int { return orderBad(a.bad, b.bad) }) // red ones lie above the others
	lanes := 0
	for _, w := range waits {
		d.Waits = append(d.Waits, line(w, d, &lanes))
	}
	d.Height += lanes * laneGap
	return d
}

func orderBad(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

type pair struct{ from, to string }

// waitsToDraw are the waits of the parties that are drawn, in order; all counts the parties of the graph that wait or are waited for,
// and more the waits that are left out.
func waitsToDraw(v *locks.WaitGraph) (waits []*wait, all, more int) {
	parties := map[string]*locks.Party{}
	for i := range v.Parties {
		parties[v.Parties[i].ID] = &v.Parties[i]
	}
	known := map[pair]*wait{}
	nodes := map[string]*drawnParty{}
	node := func(id string) *drawnParty {
		if nodes[id] == nil && parties[id] != nil {
			nodes[id] = &drawnParty{party: parties[id]}
		}
		return nodes[id]
	}
	add := func(w *locks.GraphWait, bad bool) {
		from, to := node(w.From), node(w.To)
		if from == nil || to == nil {
			return
		}
		e := known[pair{w.From, w.To}]
		if e == nil {
			e = &wait{from: from, to: to}
			known[pair{w.From, w.To}] = e
			waits = append(waits, e)
		}
		e.bad, from.bad, to.bad = e.bad || bad, from.bad || bad, to.bad || bad
		if name := lockLink(w.NS, w.Lock).Name; !slices.Contains(e.locks, name) {
			e.locks = append(e.locks, name)
		}
	}
	for i := range v.Cycles {
		for j := range v.Cycles[i].Waits {
			add(&v.Cycles[i].Waits[j], true)
		}
	}
	behindHolders := map[locks.Standing]bool{}
	for i := range v.Waits {
		w := &v.Waits[i]
		behindHolders[w.Waiter] = behindHolders[w.Waiter] || w.Blocker.Position == 0
	}
	for i := range v.Waits {
		if w := &v.Waits[i]; w.Blocker.Position == 0 || !behindHolders[w.Waiter] { // who waits for holders is shown with these alone
			add(w, false)
		}
	}
	blocked := map[*drawnParty]int{}
	for _, w := range waits {
		blocked[w.to]++
	}
	slices.SortStableFunc(waits, func(a, b *wait) int {
		return cmp.Or(orderBad(b.bad, a.bad), orderBad(b.to.bad, a.to.bad), cmp.Compare(blocked[b.to], blocked[a.to]),
			cmp.Compare(a.to.party.ID, b.to.party.ID), cmp.Compare(a.from.party.ID, b.from.party.ID))
	})
	kept := map[*drawnParty]bool{}
	shown := waits[:0:0]
	for _, w := range waits {
		come := 0
		for _, p := range slices.Compact([]*drawnParty{w.from, w.to}) {
			if !kept[p] {
				come++
			}
		}
		if len(kept)+come <= drawnParties && len(shown) < drawnWaits {
			kept[w.from], kept[w.to] = true, true
			shown = append(shown, w)
		}
	}
	return shown, len(nodes), len(waits) - len(shown)
}

// partiesIn are the parties of some waits in the order of their names, with their waits.
func partiesIn(waits []*wait) (parties []*drawnParty) {
	for _, w := range waits {
		w.from.waits = append(w.from.waits, w)
		for _, p := range []*drawnParty{w.from, w.to} {
			if !slices.Contains(parties, p) {
				parties = append(parties, p)
			}
		}
	}
	slices.SortFunc(parties, func(a, b *drawnParty) int { return cmp.Compare(a.party.ID, b.party.ID) })
	return parties
}

// columnsOf puts the parties into columns, in the order from the top.
func columnsOf(parties []*drawnParty) (columns [][]*drawnParty) {
	const under, done = 1, 2
	state := map[*drawnParty]int{}
	var rank func(p *drawnParty)
	rank = func(p *drawnParty) {
		state[p] = under
		for _, w := range p.waits {
			if state[w.to] == 0 {
				rank(w.to)
			}
			if state[w.to] == done { // else it closes a cycle
				p.column = max(p.column, w.to.column+1)
			}
		}
		state[p] = done
	}
	for _, p := range parties {
		if state[p] == 0 {
			rank(p)
		}
		for len(columns) <= p.column {
			columns = append(columns, nil)
		}
		columns[p.column] = append(columns[p.column], p)
	}
	return columns
}

// place gives each party its place, near to those for which it waits, and the drawing its size.
func place(columns [][]*drawnParty, d *templates.Drawing) {
	x := drawnEdge
	if closesCycle(columns[0]) {
		x += columnGap
	}
	for _, column := range columns {
		for _, p := range column {
			n := 0
			for _, w := range p.waits {
				if w.to.column < p.column {
					p.center, n = p.center+float64(w.to.y)+float64(w.to.height())/2, n+1
				}
			}
			p.center /= float64(max(n, 1))
		}
		slices.SortStableFunc(column, func(a, b *drawnParty) int { return cmp.Compare(a.center, b.center) })
		y := drawnEdge
		for _, p := range column {
			p.x, p.y = x, max(y, int(p.center)-p.height()/2)
			y = p.y + p.height() + rowGap
		}
		d.Height = max(d.Height, y)
		x += partyWidth + columnGap
	}
	d.Width = x - columnGap + 3*laneGap
}

// closesCycle reports whether one of the first column waits: what it waits for is not left of it.
func closesCycle(column []*drawnParty) bool {
	return slices.ContainsFunc(column, func(p *drawnParty) bool { return len(p.waits) > 0 })
}

// line is a wait as it is drawn: from its port to the left, along its label.
func line(w *wait, d *templates.Drawing, lanes *int) templates.DrawnWait {
	port := slices.Index(w.from.waits, w)
	y := w.from.y + (w.from.height()-portHeight*(len(w.from.waits)-1))/2 + portHeight*port
	x := w.from.x - labelWidth
	shown := templates.DrawnWait{Bad: w.bad, Lock: w.locks[0], More: len(w.locks) - 1, LabelX: w.from.x - 6, LabelY: y - 4,
		From: partyWho(w.from.party), To: partyWho(w.to.party)}
	end, at := w.to.x+partyWidth, w.to.y+w.to.height()/2
	start := fmt.Sprintf("M%d %dH%d", w.from.x, y, x)
	if w.to.column < w.from.column {
		bend := (x - end - headLength) / 2
		if w.from.column > w.to.column+1 {
			bend = columnGap / 4 // it passes other columns
		}
		shown.Path = fmt.Sprintf("%sC%d %d %d %d %d %d", start, x-bend, y, end+headLength+bend, at, end+headLength, at)
	} else {
		below := d.Height + *lanes*laneGap
		*lanes++
		side := end + headLength + laneGap
		shown.Path = fmt.Sprintf("%sQ%d %d %d %dV%dQ%d %d %d %dH%dQ%d %d %d %dV%dQ%d %d %d %d", start,
			x-laneGap, y, x-laneGap, y+laneGap, below-laneGap, x-laneGap, below, x, below,
			side-laneGap, side, below, side, below-laneGap, at+laneGap, side, at, end+headLength, at)
	}
	shown.Head = fmt.Sprintf("M%d %dL%d %dV%dZ", end, at, end+headLength, at-5, at+5)
	return shown
}
