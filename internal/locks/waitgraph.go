package locks

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"lockkeeper/internal/locks/access"
)

// The wait-for graph, as a caller sees it.

// OnDeadlock says what an acquire does where its wait would be one of a deadlock.
type OnDeadlock string

const (
	DeadlockWait OnDeadlock = "wait" // it waits
	DeadlockFail OnDeadlock = "fail" // it is refused, or ends, unless a younger wait of the cycle does
)

// IsParty reports whether leases of that owner belong to one party. An owner that is the address of a client stands for no
// party: many programs may have it. Such leases, and those without an owner, are parties of their own.
func IsParty(owner string) bool {
	if owner == "" || owner == "unix" || strings.HasPrefix(owner, "uid:") {
		return false
	}
	_, err := netip.ParseAddr(owner)
	return err != nil
}

// OwnerOf is the owner that the lease of an acquire has.
func (r *AcquireRequest) OwnerOf() string { return cmp.Or(r.Owner, r.Principal.Owner(), r.Client) }

// DefaultEdges and MaxEdges bound the edges of a WaitGraph. Of what is beyond, Truncated tells.
const (
	DefaultEdges = 1000
	MaxEdges     = 10_000
)

// GraphRequest asks for the wait-for graph.
type GraphRequest struct {
	Principal Principal
	NS, Lock  string // Lock: only the waits in that lock, and the cycles with one of them; then NS "" is DefaultNamespace
	Owner     string // only the waits of that owner and for it, and the cycles with one of them
	Cycles    bool   // only the waits of cycles
	Limit     int    // of edges; 0: DefaultEdges
}

// Check fills in defaults and refuses invalid requests.
func (r *GraphRequest) Check() error {
	if r.Limit == 0 {
		r.Limit = DefaultEdges
	}
	if r.Limit < 0 || r.Limit > MaxEdges {
		return Invalid("limit", fmt.Sprintf("limit must be between 1 and %d", MaxEdges))
	}
	if r.Lock != "" {
		if err := CheckPlace(&r.NS, &r.Lock); err != nil {
			return err
		}
	} else if r.NS != "" {
		if err := checkNS("ns", &r.NS); err != nil {
			return err
		}
	}
	return CheckText("owner", r.Owner, MaxOwner)
}

// PartyKind is what a node of the graph stands for.
type PartyKind string

const (
	PartyOwner   PartyKind = "owner"   // all leases with that owner
	PartyLease   PartyKind = "lease"   // one lease, which has no owner but an address, or whose owner is not known yet
	PartySession PartyKind = "session" // all contenders of another program that one ZooKeeper session has made
	PartyZnode   PartyKind = "znode"   // another program's contender
)

// Party is a node of the graph.
type Party struct {
	ID      string // unique in the graph: the kind, a colon, and a name
	Kind    PartyKind
	Owner   string // of leases; for PartyLease an address, or ""
	Program string // of another program's contenders
	Label   string // what these say of themselves
	Stuck   bool   // it cannot go on: see waitfor
}

// Standing is a contender in a Wait.
type Standing struct {
	LeaseID  string // "" when foreign
	Znode    string
	Position int // among the waiters, from 1; 0: no contender blocks it there
}

// GraphWait is an edge of the graph: a contender waits for another one.
type GraphWait struct {
	From, To        string // ids of parties
	NS, Lock        string
	Mode            Mode // of the waiter
	Waiter, Blocker Standing
	Any             bool // it wants permits, and the end of another holder may suffice
}

// Cycle is a minimal cycle: Waits[i] leads from a party to the next one.
type Cycle struct {
	ID      string // the same in each answer, at each gateway
	Waits   []GraphWait
	Certain bool // it does not end by itself as long as its waits last
	// Youngest is the index of the wait that came last: its end breaks the cycle, and costs least.
	Youngest int
	Hidden   int // waits that were left out because the caller may not read their locks
}

// WaitGraph is the wait-for graph.
type WaitGraph struct {
	Parties   []Party
	Waits     []GraphWait
	Cycles    []Cycle
	Truncated bool   // there are more edges, or there may be more cycles
	Unread    int    // contenders whose owners are not known yet: they count as parties of their own
	Of        string // of Waits.Ahead: the party of the contender that was asked for; "" when it is not there
}

// Waits is the wait-for graph at one moment, as one principal may see it. It can be asked often, by several at the same time.
type Waits interface {
	// Answer is the part of the graph that a request asks for, which has been checked. It shows no more than the principal of
	// the Waits may see.
	Answer(*GraphRequest) WaitGraph
	// Ahead is what a contender of a lock waits for, without an end: its own waits, those of the parties that block it, and so
	// on, at most so many. A contender is named by its lease's id or by its znode's name. Of a holder these are the waits of
	// its party. A party that waits behind holders is shown to wait for these alone, and not for other waiters.
	Ahead(ns, lock, contender string, most int) WaitGraph
}

// conceal leaves out the waits in locks that the rules do not let read.
func (c *Cycle) conceal(rules *access.Rules) *Cycle {
	if c == nil || rules.MayAll(access.Read) {
		return c
	}
	shown := *c
	shown.Waits, shown.Youngest = nil, -1
	for i, w := range c.Waits {
		switch {
		case !rules.May(access.Read, w.NS, w.Lock):
			shown.Hidden++
			continue
		case i == c.Youngest:
			shown.Youngest = len(shown.Waits)
		}
		shown.Waits = append(shown.Waits, w)
	}
	return &shown
}
