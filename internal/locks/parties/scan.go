package parties

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/waitfor"
)

// Scan is the graph as it was found.
type Scan struct {
	Unread []queues.Location // contenders whose records are to be read before it is known whose they are

	graph   waitfor.Graph
	queues  []scannedQueue // as graph.Queues
	parties []locks.Party
	leases  []scannedLease // as graph.Leases
	number  map[string]int // of a party, by its id
}

type scannedQueue struct {
	q              *queues.Queue
	ns, lock, path string
	at             []*recipe.Contender // as the entries; of a wait that is not there yet: nil
	copies         []recipe.Contender
	known          []Standing // nil once it is in the graph
}

type scannedLease struct {
	id    recipe.LeaseID // "" when foreign
	fails bool
	own   bool
}

// NewScan makes one without queues.
func NewScan() *Scan { return &Scan{number: map[string]int{}} }

// Copy takes in what stands in a queue. standing says what is known of a contender, and whether that is all.
func (s *Scan) Copy(q *queues.Queue, standing func(*queues.Queue, *recipe.Contender) (Standing, bool)) {
	many := q.Contenders.Len()
	one := scannedQueue{q: q, ns: q.Namespace.Name, lock: q.Name(), path: q.Path, at: make([]*recipe.Contender, 0, many),
		copies: make([]recipe.Contender, 0, many), known: make([]Standing, 0, many)}
	for _, c := range q.Contenders.All() {
		one.at = append(one.at, c)
		one.copies = append(one.copies, *c)
		known, read := standing(q, c)
		if !read {
			s.Unread = append(s.Unread, queues.Location{Queue: q, Contender: c})
		}
		one.known = append(one.known, known)
	}
	s.queues = append(s.queues, one)
}

// Link makes the graph of what was copied.
func (s *Scan) Link() {
	slices.SortFunc(s.queues, func(a, b scannedQueue) int { return cmp.Compare(a.path, b.path) })
	byLease := map[recipe.LeaseID]int{}
	for n := range s.queues {
		one := &s.queues[n]
		entries := make([]waitfor.Entry, len(one.at))
		for i := range entries {
			c, known := &one.copies[i], &one.known[i]
			lease, there := byLease[c.LeaseID]
			if !there || !c.Ours || c.LeaseID == "" {
				lease = len(s.leases)
				s.leases = append(s.leases, scannedLease{})
				s.graph.Leases = append(s.graph.Leases, waitfor.Lease{Party: s.party(&known.Party)})
				if c.Ours && c.LeaseID != "" {
					byLease[c.LeaseID], s.leases[lease].id = lease, c.LeaseID
				}
			}
			s.leases[lease].fails, s.leases[lease].own = s.leases[lease].fails || known.Fails, s.leases[lease].own || known.Own
			s.graph.Leases[lease].Born = max(s.graph.Leases[lease].Born, known.Born)
			entries[i] = waitfor.Entry{Contender: c, Lease: lease}
		}
		one.known = nil
		s.graph.Queues = append(s.graph.Queues, entries)
	}
}

// party is the number of a party.
func (s *Scan) party(p *locks.Party) int {
	n, there := s.number[p.ID]
	if !there {
		n = len(s.parties)
		s.number[p.ID] = n
		s.parties = append(s.parties, *p)
		s.graph.Parties++
	}
	return n
}

// Stuck are the parties that cannot go on, by their numbers.
func (s *Scan) Stuck() []bool { return s.graph.Stuck() }

// Cycles are the cycles of the graph, as waitfor.Graph.Cycles finds them.
func (s *Scan) Cycles(stuck []bool) (cycles []waitfor.Cycle, more bool) {
	return s.graph.Cycles(stuck, waitfor.DefaultLimits)
}

// stands is a contender of an edge as a caller sees it.
func (s *Scan) stands(queue, entry, position int) locks.Standing {
	q := &s.queues[queue]
	v := locks.Standing{Position: position}
	c := s.graph.Queues[queue][entry].Contender
	if v.LeaseID = string(s.leases[s.graph.Queues[queue][entry].Lease].id); q.at[entry] != nil {
		v.Znode = q.path + "/" + c.Name
		if c.Name == interop.PlainNode {
			v.Znode = q.path
		}
	}
	return v
}

// wait is an edge as a caller sees it.
func (s *Scan) wait(e waitfor.Edge) locks.GraphWait {
	return locks.GraphWait{From: s.parties[e.From].ID, To: s.parties[e.To].ID, NS: s.queues[e.Queue].ns, Lock: s.queues[e.Queue].lock,
		Mode: locks.ModeOf(s.graph.Queues[e.Queue][e.Waiter].Contender.Mode), Any: e.Any,
		Waiter: s.stands(e.Queue, e.Waiter, e.Position), Blocker: s.stands(e.Queue, e.Blocker, e.Ahead)}
}

// Cycle is a cycle as a caller sees it.
func (s *Scan) Cycle(c *waitfor.Cycle) locks.Cycle {
	v := locks.Cycle{Certain: c.Certain}
	hash := sha256.New()
	for i, e := range c.Edges {
		v.Waits = append(v.Waits, s.wait(e))
		if s.born(e) > s.born(c.Edges[v.Youngest]) {
			v.Youngest = i
		}
	}
	first := 0 // parties have other numbers in each answer
	for i := range v.Waits {
		if v.Waits[i].From < v.Waits[first].From {
			first = i
		}
	}
	v.Waits = slices.Concat(v.Waits[first:], v.Waits[:first])
	v.Youngest = (v.Youngest - first + len(v.Waits)) % len(v.Waits)
	for _, w := range v.Waits {
		hash.Write([]byte(w.From + "\x00" + w.Waiter.Znode + "\x00" + w.Blocker.Znode + "\x00"))
	}
	v.ID = hex.EncodeToString(hash.Sum(nil)[:8])
	return v
}

func (s *Scan) born(e waitfor.Edge) int64 { return s.graph.Leases[s.graph.WaiterOf(e)].Born }

// StillStands reports whether the contenders of a cycle are all still in their queues. What was copied was not all so at one moment.
func (s *Scan) StillStands(c *waitfor.Cycle) bool {
	return !slices.ContainsFunc(c.Edges, func(e waitfor.Edge) bool {
		q := &s.queues[e.Queue]
		return slices.ContainsFunc([]int{e.Waiter, e.Blocker}, func(i int) bool {
			return q.at[i] == nil || q.q.Contenders.Get(q.at[i].Name) != q.at[i]
		})
	})
}

// Failing is how many leases of this gateway end in a deadlock.
func (s *Scan) Failing() (n int) {
	for _, l := range s.leases {
		if l.own && l.fails {
			n++
		}
	}
	return n
}

// End is a wait that ends, and the cycle for which it does.
type End struct {
	Lease recipe.LeaseID
	Cycle waitfor.Cycle
}

// Ends are this gateway's waits with deadlock=fail that are the youngest such of a certain cycle, at most so many.
func (s *Scan) Ends(stuck []bool, most int) (ends []End) {
	var rest *waitfor.Rest // only where it is needed
	for i, l := range s.leases {
		if !l.own || !l.fails || !stuck[s.graph.Leases[i].Party] {
			continue
		}
		if rest == nil {
			rest = s.graph.Rest(stuck, waitfor.DefaultLimits)
		}
		if c, closed := rest.Through(i); closed && s.youngest(i, &c) {
			if ends = append(ends, End{l.id, c}); len(ends) == most {
				break
			}
		}
	}
	return ends
}

// youngest reports whether a lease is the youngest of those in a cycle that end in a deadlock.
func (s *Scan) youngest(lease int, c *waitfor.Cycle) bool {
	born := s.graph.Leases[lease].Born
	return born != 0 && !slices.ContainsFunc(c.Edges, func(e waitfor.Edge) bool {
		other := s.graph.WaiterOf(e)
		return s.leases[other].fails && other != lease && (s.graph.Leases[other].Born > born && !fault.On("deadlock-youngest") || s.graph.Leases[other].Born == 0)
	})
}

// Closes is the cycle that a wait of an owner would close; nil: none. It stands last in each queue.
func (s *Scan) Closes(owner string, wants []locks.Want) *locks.Cycle {
	party := OfOwner(owner, "")
	if _, there := s.number[party.ID]; !there {
		return nil // it holds nothing that others wait for
	}
	with := *s
	with.queues, with.graph.Queues = slices.Clone(s.queues), slices.Clone(s.graph.Queues)
	lease := len(s.leases)
	with.leases = append(slices.Clip(s.leases), scannedLease{fails: true})
	with.graph.Leases = append(slices.Clip(s.graph.Leases), waitfor.Lease{Party: s.number[party.ID], Born: math.MaxInt64})
	for i := range wants {
		w := &wants[i]
		c := queues.ContenderOf(w)
		c.Name, c.LeaseID, c.Ours = fmt.Sprintf("asked-%d", i), "asked", true
		at := slices.IndexFunc(with.queues, func(one scannedQueue) bool { return one.ns == w.NS && one.lock == w.Lock })
		if at < 0 {
			continue // nothing is there
		}
		entry := waitfor.Entry{Contender: c, Lease: lease}
		with.graph.Queues[at] = append(slices.Clip(with.graph.Queues[at]), entry)
		with.queues[at].at = append(slices.Clip(with.queues[at].at), nil)
	}
	c, closed := with.graph.Rest(with.graph.Stuck(), waitfor.DefaultLimits).Through(lease)
	if !closed {
		return nil
	}
	view := with.Cycle(&c)
	return &view
}

// Deadlocks are the cycles that are published, by their ids: certain ones that still stand. A wait that ends by itself
// needs no person, and a party that waits for itself is most often two programs with one owner's name: neither is told of.
func (s *Scan) Deadlocks(cycles []waitfor.Cycle) map[string]*locks.Cycle {
	found := map[string]*locks.Cycle{}
	for i := range cycles {
		c := &cycles[i]
		fails := slices.ContainsFunc(c.Edges, func(e waitfor.Edge) bool { return s.leases[s.graph.WaiterOf(e)].fails })
		if !c.Certain || len(c.Edges) < 2 || fails || !s.StillStands(c) {
			continue
		}
		view := s.Cycle(c)
		found[view.ID] = &view
	}
	return found
}
