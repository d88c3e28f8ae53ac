package waitfor

// sparseComponents gives each party that reaches another one and is reached by it, or waits for itself, the number of those;
// -1 for the others. A queue's edges would be as many as its waiters times its holders. So they lead by way of further nodes:
// one for the holders of each queue, and one for each waiter, which leads to its party and to the waiters beside it. What is
// reached so is at least what is reached by the edges.
func (g *Graph) sparseComponents() []int {
	out := make([][]int, g.Parties, g.Parties+len(g.Queues))
	node := func() int {
		out = append(out, nil)
		return len(out) - 1
	}
	link := func(from, to int) { out[from] = append(out[from], to) }
	self := make([]bool, g.Parties)
	for q, entries := range g.Queues {
		l := g.layout(q)
		if len(l.waiters) == 0 {
			continue
		}
		holders := node()
		held := map[int]bool{}
		for _, h := range l.holders {
			link(holders, g.party(q, h))
			held[g.party(q, h)] = true
		}
		nodes := make([]int, len(entries)) // of the waiters
		first := map[[2]int]int{}          // by party and run, which its front names: the party's first waiter there
		for _, i := range l.waiters {
			nodes[i] = node()
			p := g.party(q, i)
			link(nodes[i], p)
			if b := l.beside(entries, i); b >= 0 {
				link(nodes[i], nodes[b])
				join(first, g.party(q, b), l.places[b].front, b)
				join(first, p, l.places[i].front, i)
			}
			if l.places[i].blockedByHold {
				link(p, holders)
				self[p] = self[p] || held[p]
			}
			if a := l.places[i].ahead; a >= 0 {
				link(p, nodes[a])
				g.look()
				// A run of one, as most are, is not in the map.
				own, there := first[[2]int{p, l.places[a].front}]
				self[p] = self[p] || g.party(q, a) == p || there && own <= a
			}
		}
	}
	of := tarjan(len(out), func(v int, yield func(int)) {
		for _, to := range out[v] {
			yield(to)
		}
	})
	parties := map[int]int{}
	for _, c := range of[:g.Parties] {
		parties[c]++
	}
	for p := range g.Parties {
		if parties[of[p]] < 2 && !self[p] {
			of[p] = -1
		}
	}
	return of[:g.Parties]
}

// join notes that a party has a waiter in a run, unless it has an earlier one there.
func join(first map[[2]int]int, party, front, waiter int) {
	key := [2]int{party, front}
	if _, there := first[key]; !there {
		first[key] = waiter
	}
}

// tarjan numbers the strongly connected components of a graph with n nodes: Tarjan's algorithm, without recursion, for a queue
// is a path as long as it has waiters.
func tarjan(n int, edges func(v int, yield func(to int))) []int {
	const unseen = -1
	of, index, low := make([]int, n), make([]int, n), make([]int, n)
	onStack := make([]bool, n)
	for v := range index {
		index[v] = unseen
	}
	var stack []int
	type frame struct {
		v    int
		rest []int
	}
	next, components := 0, 0
	for root := range n {
		if index[root] != unseen {
			continue
		}
		var frames []frame
		enter := func(v int) {
			index[v], low[v] = next, next
			next++
			stack, onStack[v] = append(stack, v), true
			var to []int
			edges(v, func(w int) { to = append(to, w) })
			frames = append(frames, frame{v, to})
		}
		for enter(root); len(frames) > 0; {
			f := &frames[len(frames)-1]
			if len(f.rest) > 0 {
				w := f.rest[0]
				f.rest = f.rest[1:]
				if index[w] == unseen {
					enter(w)
				} else if onStack[w] {
					low[f.v] = min(low[f.v], index[w])
				}
				continue
			}
			v := f.v
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				up := frames[len(frames)-1].v
				low[up] = min(low[up], low[v])
			}
			if low[v] != index[v] {
				continue
			}
			for done := false; !done; {
				w := stack[len(stack)-1]
				stack, onStack[w] = stack[:len(stack)-1], false
				of[w], done = components, w == v
			}
			components++
		}
	}
	return of
}
