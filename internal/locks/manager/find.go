package manager

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// maxLook bounds the locks and contenders that one search looks at. Found.Stopped says that there are others.
const maxLook = 1 << 18

// Find looks for locks, owners and contenders in what the principal may read, in chunks, so that no acquire waits for it. An owner is
// known of the leases that this gateway runs, and of others whose records it has read.
func (m *Manager) Find(ctx context.Context, req locks.FindRequest) (locks.Found, error) {
	if err := req.Check(); err != nil {
		return locks.Found{}, err
	}
	return locked2(m, func() (locks.Found, error) {
		if err := known(&m.stream, m.replica, ""); err != nil {
			return locks.Found{}, err
		}
		s := newFindSearch(m, &req)
		for _, name := range slices.Sorted(maps.Keys(m.replica.Namespaces)) {
			for from, done := "", false; !done && !s.found.Stopped; {
				if from, done = s.scan(m.replica.Namespaces[name], from); done {
					break
				}
				var err error
				if m.outside(func() { err = ctx.Err() }); err != nil {
					return locks.Found{}, cancelled(ctx)
				}
			}
		}
		return s.answer(), nil
	})
}

// findSearch is a search that goes on.
type findSearch struct {
	m      *Manager
	req    *locks.FindRequest
	token  int64  // the text, when it is a number
	id     string // the text, when a lease's id may end with it
	left   int    // that may be looked at
	begin  []locks.FoundLock
	inside []locks.FoundLock
	owners map[string]*locks.FoundOwner
	hosts  map[string]*locks.FoundOwner
	found  locks.Found
}

func newFindSearch(m *Manager, req *locks.FindRequest) *findSearch {
	s := &findSearch{m: m, req: req, left: maxLook, owners: map[string]*locks.FoundOwner{}, hosts: map[string]*locks.FoundOwner{}}
	s.token, _ = strconv.ParseInt(strings.TrimPrefix(req.Text, "#"), 10, 64)
	const least = 6 // characters of an id that are hardly another's
	if id := strings.TrimPrefix(req.Text, "…"); len(id) >= least {
		s.id = strings.ToLower(id)
	}
	return s
}

// scan looks at the next queues of a namespace, and returns where it goes on. The monitor is held.
func (s *findSearch) scan(ns *queues.Namespace, from string) (next string, done bool) {
	looked := 0
	done = true
	ns.Queues.Ascend(queues.At(from), func(q *queues.Queue) bool {
		if looked > scanChunk || s.left <= 0 {
			next, done, s.found.Stopped = q.Dir(), false, s.left <= 0
			return false
		}
		n := 1 + q.Contenders.Len()
		looked, s.left = looked+n, s.left-n
		if !q.NoLock() && (q.Contenders.Len() > 0 || q.HasSettings()) && readable(q, s.req.Principal.Rules) {
			s.look(q)
		}
		return true
	})
	return next, done
}

// look looks at one lock and its contenders.
func (s *findSearch) look(q *queues.Queue) {
	text := s.req.Text
	if text != "" {
		switch at := strings.Index(q.Name(), text); {
		case at == 0, q.Path == text:
			s.lock(&s.begin, q)
		case at > 0:
			s.lock(&s.inside, q)
		}
	}
	below, inside := strings.CutPrefix(text, q.Path+"/")
	holds := q.Contenders.Len() - q.Contenders.Waiting()
	for i, c := range q.Contenders.All() {
		if c.Member > 1 {
			continue
		}
		owner := s.ownerName(q, c)
		host := locks.HostOf(owner)
		if text == "" {
			if owner != "" && owner == s.req.Owner || host != "" && host == s.req.Host {
				s.contender(q, c)
			}
			continue
		}
		s.count(s.owners, owner, i < holds)
		s.count(s.hosts, host, i < holds)
		switch {
		case inside && c.Name == below, s.id != "" && c.Ours && strings.HasSuffix(strings.ToLower(string(c.LeaseID)), s.id),
			s.token > 0 && i < holds && s.tokenOf(q, c) == s.token:
			s.contender(q, c)
		}
	}
}

func (s *findSearch) lock(list *[]locks.FoundLock, q *queues.Queue) {
	if len(*list) == s.req.Limit {
		s.found.More = true
		return
	}
	waiting := q.Contenders.Waiting()
	*list = append(*list, locks.FoundLock{NS: q.Namespace.Name, Name: q.Name(), Holders: q.Contenders.Len() - waiting, Waiting: waiting})
}

// count adds a contender to its owner or host when that has the text in its name.
func (s *findSearch) count(of map[string]*locks.FoundOwner, name string, holds bool) {
	if name == "" || !strings.Contains(name, s.req.Text) {
		return
	}
	o := of[name]
	if o == nil {
		if len(of) == locks.MaxFound {
			s.found.More = true
			return
		}
		o = &locks.FoundOwner{Name: name}
		of[name] = o
	}
	if holds {
		o.Holds++
	} else {
		o.Waiting++
	}
}

// contender adds a contender as it is shown.
func (s *findSearch) contender(q *queues.Queue, c *recipe.Contender) {
	if len(s.found.Contenders) == s.req.Limit {
		s.found.More = true
		return
	}
	position, _ := q.Contenders.Position(c.Name)
	if position == 0 && queues.OneOfSeveral(c) && !s.m.replica.LeaseHolds(q, c) {
		position = 1 // its lease waits for another of its locks
	}
	view := s.m.answers.contender(q, c, position)
	view.Owner = cmp.Or(view.Owner, s.ownerName(q, c))
	s.found.Contenders = append(s.found.Contenders, locks.FoundContender{NS: q.Namespace.Name, Lock: q.Name(), Contender: view})
}

// answer is what was found, in order, with at most the limit of each kind. Nothing of a group's locks is in it that the rules hide.
func (s *findSearch) answer() locks.Found {
	f := &s.found
	limit := s.req.Limit
	cut := func(n int) int {
		f.More = f.More || n > limit
		return min(n, limit)
	}
	f.Locks = slices.Concat(s.begin, s.inside)
	f.Locks = f.Locks[:cut(len(f.Locks))]
	f.Owners, f.Hosts = s.ordered(s.owners), s.ordered(s.hosts)
	f.Owners, f.Hosts = f.Owners[:cut(len(f.Owners))], f.Hosts[:cut(len(f.Hosts))]
	slices.SortStableFunc(f.Contenders, func(a, b locks.FoundContender) int { return cmp.Compare(min(a.Position, 1), min(b.Position, 1)) })
	for i := range f.Contenders {
		one := []locks.Contender{f.Contenders[i].Contender}
		s.req.Principal.Conceal(one)
		f.Contenders[i].Contender = one[0]
	}
	return *f
}

func (s *findSearch) ordered(of map[string]*locks.FoundOwner) (list []locks.FoundOwner) {
	for _, o := range of {
		list = append(list, *o)
	}
	inside := func(name string) int {
		if strings.HasPrefix(name, s.req.Text) {
			return 0
		}
		return 1
	}
	slices.SortFunc(list, func(a, b locks.FoundOwner) int {
		return cmp.Or(inside(a.Name)-inside(b.Name), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// ownerName is whose a contender of this fleet is, as far as this gateway knows.
func (s *findSearch) ownerName(q *queues.Queue, c *recipe.Contender) string {
	if !c.Ours || s.m.leases.copied(q, c) {
		return ""
	}
	if l := s.m.leases.lease(c.LeaseID); l != nil {
		return l.owner
	}
	if i := q.Node(c.Name); i != nil {
		return i.Record.Owner
	}
	return cmp.Or(s.m.answers.parties.Get(c).Party.Owner, s.req.Owners[string(c.LeaseID)])
}

// tokenOf is the fencing token of a holder; 0: not known.
func (s *findSearch) tokenOf(q *queues.Queue, c *recipe.Contender) int64 {
	if l := s.m.leases.leaseOf(q, c); l != nil {
		return s.m.fleet.fencingToken(l.czxid)
	}
	return s.m.fleet.tokenOf(q, c)
}
