package manager

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/waitfor"
	"lockkeeper/internal/zk/wire"
)

// The wait-for graph (package waitfor) of the queues that the replica has: what stands in them is copied in chunks under the
// monitor, and looked at without it.

// parties knows whose the contenders of contended locks are that this gateway does not run. The monitor guards it.
type parties struct {
	known map[*recipe.Contender]standing
	stale bool // what a contender says of itself has changed
	// showing has room for one request that is shown the graph: each copies all queues in which something waits. The others wait
	// for it until their clients go away. Not guarded.
	showing chan struct{}
}

// standing is what is known of a contender.
type standing struct {
	party  locks.Party
	born   int64         // czxid of the first node of its lease; 0: not known
	fails  bool          // the lease ends in a deadlock
	own    bool          // this gateway runs the lease
	queued time.Duration // wall clock: when it came; 0: not known
	look   uint64        // the last look for deadlocks that has found it, or since which it is known
}

// changed forgets what was read of a contender.
func (p *parties) changed(c *recipe.Contender) {
	delete(p.known, c)
	p.stale = true
}

// forget forgets all that was read: the stream had a gap.
func (p *parties) forget() {
	clear(p.known)
	p.stale = true
}

// Bounds of what a look at the graph reads of contenders. The owners of others are not known until a later look.
const (
	maxGraphReads  = 1024
	maxGraphRounds = 4
)

// waitScan is the graph as it was found.
type waitScan struct {
	graph   waitfor.Graph
	queues  []scannedQueue // as graph.Queues
	parties []locks.Party
	leases  []scannedLease // as graph.Leases
	unread  []queues.Location
	number  map[string]int // of a party, by its id
}

type scannedQueue struct {
	q              *queues.Queue
	ns, lock, path string
	at             []*recipe.Contender // as the entries; of a wait that is not there yet: nil
	copies         []recipe.Contender
	known          []standing // nil once it is in the graph
}

// graphChunk bounds the contenders that are copied under one hold of the monitor, but for the last queue, which is copied whole.
const graphChunk = 1024

type scannedLease struct {
	id    recipe.LeaseID // "" when foreign
	fails bool
	own   bool
}

// scanWaits copies the contended queues that may be looked at, and those of wants. The monitor is not held: it is taken for one chunk after the
// other. What is in one chunk was so at one moment.
func (m *Manager) scanWaits(may func(*queues.Queue) bool, wants []locks.Want) *waitScan {
	s := &waitScan{number: map[string]int{}}
	var all []*queues.Queue
	also := map[*queues.Queue]bool{}
	m.do(func() {
		all = m.replica.Contended()
		for i := range wants {
			if q := m.replica.FindWant(&wants[i]); q != nil && !also[q] {
				also[q] = true
				if q.Contenders.Len() < 2 {
					all = append(all, q)
				}
			}
		}
	})
	for len(all) > 0 {
		m.do(func() {
			for n := 0; len(all) > 0 && n < graphChunk; all = all[1:] {
				q := all[0]
				many := q.Contenders.Len()
				if n += max(many, 1); q.Contenders.Len() < 2 && !also[q] || !q.Contenders.Ordered() || q.NoLock() || !may(q) {
					continue
				}
				one := scannedQueue{q: q, ns: q.Namespace.Name, lock: q.Name(), path: q.Path, at: make([]*recipe.Contender, 0, many),
					copies: make([]recipe.Contender, 0, many), known: make([]standing, 0, many)}
				for _, c := range q.Contenders.All() {
					one.at = append(one.at, c)
					one.copies = append(one.copies, *c)
					known, read := m.standing(q, c)
					if !read {
						s.unread = append(s.unread, queues.Location{Queue: q, Contender: c})
					}
					one.known = append(one.known, known)
				}
				s.queues = append(s.queues, one)
			}
		})
	}
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
				s.graph.Leases = append(s.graph.Leases, waitfor.Lease{Party: s.party(&known.party)})
				if c.Ours && c.LeaseID != "" {
					byLease[c.LeaseID], s.leases[lease].id = lease, c.LeaseID
				}
			}
			s.leases[lease].fails, s.leases[lease].own = s.leases[lease].fails || known.fails, s.leases[lease].own || known.own
			s.graph.Leases[lease].Born = max(s.graph.Leases[lease].Born, known.born)
			entries[i] = waitfor.Entry{Contender: c, Lease: lease}
		}
		one.known = nil
		s.graph.Queues = append(s.graph.Queues, entries)
	}
	return s
}

// party is the number of a party.
func (s *waitScan) party(p *locks.Party) int {
	n, there := s.number[p.ID]
	if !there {
		n = len(s.parties)
		s.number[p.ID] = n
		s.parties = append(s.parties, *p)
		s.graph.Parties++
	}
	return n
}

// ownerParty is the party of leases with an owner. An address stands for none.
func ownerParty(owner string, id recipe.LeaseID) locks.Party {
	if locks.IsParty(owner) {
		return locks.Party{ID: "owner:" + owner, Kind: locks.PartyOwner, Owner: owner}
	}
	return locks.Party{ID: "lease:" + string(id), Kind: locks.PartyLease, Owner: owner}
}

// standing is what is known of a contender; read: enough.
func (m *Manager) standing(q *queues.Queue, c *recipe.Contender) (s standing, read bool) {
	if l := m.leases.leaseOf(q, c); l != nil {
		s = standing{party: ownerParty(l.owner, l.id()), born: l.czxid, fails: l.known().failsOnDeadlock, own: true}
		if s.born == 0 {
			s.born = math.MaxInt64 - 1 // its create's reply is under way
		}
		if l.Ending() || l.Ended() || l.abandoned || m.delays.byID[l.id()] != nil {
			s.party = locks.Party{ID: "lease:" + string(l.id()), Kind: locks.PartyLease, Owner: l.owner} // it goes by itself
		}
		return s, true // an adopted lease whose record has not been read is a party of its own until it has
	}
	if c.Ours && m.delays.byID[c.LeaseID] != nil {
		return standing{party: locks.Party{ID: "lease:" + string(c.LeaseID), Kind: locks.PartyLease}}, true
	}
	if known, there := m.parties.known[c]; there {
		if known.look != m.deadlocks.looks {
			known.look = m.deadlocks.looks
			m.parties.known[c] = known
		}
		return known, true
	}
	if i := q.Node(c.Name); i != nil {
		s = standingOf(q, c, &i.Record, i.IsRecord, i.Data, i.Session, i.Czxid, i.Created)
		s.look = m.deadlocks.looks
		m.parties.known[c] = s
		return s, true
	}
	_, hidden := q.Extras().Hidden[c.Name]
	return standing{party: partyOf(q, c, nil, nil, 0)}, hidden
}

// partyOf is the party of a contender that this gateway does not run; r is nil where its data is no record.
func partyOf(q *queues.Queue, c *recipe.Contender, r *record.Record, data []byte, session int64) locks.Party {
	if c.Ours && c.LeaseID != "" {
		if r == nil || r.Closed != nil {
			return locks.Party{ID: "lease:" + string(c.LeaseID), Kind: locks.PartyLease}
		}
		return ownerParty(strings.Clone(r.Owner), c.LeaseID)
	}
	program, kind := interop.Recipe(c.Name)
	p := locks.Party{Kind: locks.PartyZnode, ID: "znode:" + q.NodeOf(c.Name), Program: program, Label: interop.Decode(program, kind, data).String()}
	if session != 0 {
		p.Kind, p.ID = locks.PartySession, "session:0x"+strconv.FormatUint(uint64(session), 16)
	}
	return p
}

func standingOf(q *queues.Queue, c *recipe.Contender, r *record.Record, isRecord bool, data []byte, session, czxid int64, created time.Duration) standing {
	queued := created
	if !isRecord {
		r = nil
	} else if c.Ours {
		queued = record.EnqueuedAt(r.Enqueued, created.Milliseconds())
	}
	s := standing{party: partyOf(q, c, r, data, session), born: cmp.Or(c.FirstCzxid, czxid), queued: queued}
	s.fails = r != nil && r.OnDeadlock == locks.DeadlockFail
	return s
}

// readParties has the contenders read, some of them, and calls done, with the monitor held, when all have been.
func (m *Manager) readParties(unread []queues.Location, done func()) {
	unread = unread[:min(len(unread), maxGraphReads)]
	left := len(unread)
	if left == 0 {
		done()
	}
	for _, at := range unread {
		m.port.Read(at.Path(), 0, func(data []byte, stat wire.Stat, err error) {
			if c := at.Contender; err == nil && at.Queue.Contenders.Get(c.Name) == c {
				r, is := record.Parse(data)
				known := standingOf(at.Queue, c, &r, is, data[:min(len(data), maxLabel)], stat.EphemeralOwner, stat.Czxid, time.Duration(stat.Ctime)*time.Millisecond)
				known.look = m.deadlocks.looks
				m.parties.known[c] = known
				at.Queue.Mark()
			}
			if left--; left == 0 {
				done()
			}
		})
	}
}

// maxLabel is how much of another program's data is decoded to name it.
const maxLabel = 1 << 10

// scanRead is scanWaits, again after what was not known has been read, for at most describeWithin.
func (m *Manager) scanRead(ctx context.Context, may func(*queues.Queue) bool, wants []locks.Want) *waitScan {
	ctx, cancel := context.WithTimeout(ctx, describeWithin)
	defer cancel()
	for round := 1; ; round++ {
		s := m.scanWaits(may, wants)
		if len(s.unread) == 0 || round == maxGraphRounds || ctx.Err() != nil {
			return s
		}
		answered := make(chan struct{})
		m.do(func() { m.readParties(s.unread, func() { m.wake(answered) }) })
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}
}

// stands is a contender of an edge as a caller sees it.
func (s *waitScan) stands(queue, entry, position int) locks.Standing {
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
func (s *waitScan) wait(e waitfor.Edge) locks.GraphWait {
	return locks.GraphWait{From: s.parties[e.From].ID, To: s.parties[e.To].ID, NS: s.queues[e.Queue].ns, Lock: s.queues[e.Queue].lock,
		Mode: locks.ModeOf(s.graph.Queues[e.Queue][e.Waiter].Contender.Mode), Any: e.Any,
		Waiter: s.stands(e.Queue, e.Waiter, e.Position), Blocker: s.stands(e.Queue, e.Blocker, e.Ahead)}
}

// cycle is a cycle as a caller sees it.
func (s *waitScan) cycle(c *waitfor.Cycle) locks.Cycle {
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

func (s *waitScan) born(e waitfor.Edge) int64 { return s.graph.Leases[s.graph.WaiterOf(e)].Born }
