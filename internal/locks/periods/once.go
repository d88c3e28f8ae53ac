package periods

import (
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// Once is the period that a lease is for.
type Once struct {
	Per    time.Duration
	Period string
	On     locks.DoneOn
}

// OnceOf is what a lease's record says of it.
func OnceOf(r *record.Once) Once {
	return Once{Per: time.Duration(r.Per) * time.Millisecond, Period: r.Period, On: r.DoneOn}
}

// Record is what the lease's record says of it.
func (o Once) Record() *record.Once {
	return &record.Once{Per: o.Per.Milliseconds(), Period: o.Period, DoneOn: o.On}
}

// Entry is the entry of a lease for its period. wall is now, in milliseconds of Unix time.
func (o Once) Entry(lease, owner, principal string, wall int64, done bool) Period {
	return Period{Name: o.Period, LeaseID: lease, Owner: owner, Principal: principal, DoneOn: o.On, Done: done, At: wall,
		Until: wall + Keep(o.Per).Milliseconds()}
}

// Node is a lock's record as it was read from its node.
type Node struct {
	Record
	Exists  bool
	path    string
	version int32
}

// NoNode is the record of a lock that has no node for it.
func NoNode(path string) Node { return Node{path: path} }

// NodeOf is what a node says. The error is ErrNoRecord.
func NodeOf(path string, data []byte, version int32) (n Node, err error) {
	n = Node{path: path, Exists: true, version: version}
	n.Record, err = Parse(data)
	return n, err
}

// Write is the operation that makes a record of it, at the version that was read.
func (n *Node) Write(next Record) zk.Op {
	if !n.Exists {
		return zk.Op{Kind: zk.OpCreate, Path: n.path, Data: next.Encode()}
	}
	return zk.Op{Kind: zk.OpSetData, Path: n.path, Data: next.Encode(), Version: n.version}
}

// Decision is what a lease whose turn it is does about its period.
type Decision struct {
	Admitted bool    // the record has the lease's id: it may be granted
	Done     *Period // by another lease
	Full     bool    // the record has no room for the period
	Write    zk.Op   // else: what has to be done before the grant
}

// Decide is what the lease does whose entry is given. wall is now, in milliseconds of Unix time.
func (n *Node) Decide(own Period, wall int64) Decision {
	found := n.Find(own.Name)
	switch {
	case found != nil && found.LeaseID == own.LeaseID:
		return Decision{Admitted: true}
	case found != nil && found.Done && !fault.On("once-done"):
		return Decision{Done: found}
	}
	next, fits := n.With(own, wall)
	if !fits {
		return Decision{Full: true}
	}
	return Decision{Write: n.Write(next)}
}

// Mark is what is known of the attempts to release a lease that make its period done.
type Mark struct {
	attempts int
	tried    bool // such an attempt is under way, or may have committed
	marked   bool // it has
	missed   bool // the last such attempt was not done
}

// Try notes that an attempt is under way.
func (k *Mark) Try() {
	k.attempts++
	k.tried, k.marked, k.missed = true, false, false
}

// Settle notes what became of it.
func (k *Mark) Settle(done bool) { k.marked, k.missed, k.tried = done, !done, done }

// Attempt is the number of the last attempt.
func (k *Mark) Attempt() int { return k.attempts }

// Tried reports whether an attempt is under way, or may have committed.
func (k *Mark) Tried() bool { return k.tried }

// Open reports whether it is not known yet what became of an attempt.
func (k *Mark) Open() bool { return k.tried && !k.marked }

// Missed reports whether the last attempt was not done.
func (k *Mark) Missed() bool { return k.missed }

// DoneBy is by which lease a period of a lock was done.
func DoneBy(ns, lock string, p *Period) *locks.Done {
	return &locks.Done{NS: ns, Lock: lock, Period: p.Name, LeaseID: p.LeaseID, By: p.Owner, At: time.UnixMilli(p.At).UTC()}
}

// Conceal leaves out who has done it where the principal may not read the lock.
func Conceal(d *locks.Done, p locks.Principal) {
	if p.Check(access.Read, d.NS, d.Lock) != nil {
		d.By, d.LeaseID = "", ""
	}
}

// TooMany is the error for a lock whose record has no room for another period.
func TooMany(lock string) *locks.Error {
	return &locks.Error{Code: locks.CodeTooManyPeriods,
		Detail: "the lock " + lock + " keeps 64 periods, and none may be forgotten yet: each stays for twice its once_per and a day at least. Use a longer period, or a lock for each job; an administrator can forget one with DELETE /v1/locks/{lock}/periods/{period}"}
}

// List is the record as administrators see it.
func (p Record) List() []locks.Period {
	list := make([]locks.Period, 0, len(p.Periods))
	for _, one := range p.Periods {
		list = append(list, locks.Period{Name: one.Name, LeaseID: one.LeaseID, Owner: one.Owner, Principal: one.Principal, DoneOn: one.DoneOn, Done: one.Done,
			At: time.UnixMilli(one.At).UTC(), KeptUntil: time.UnixMilli(one.Until).UTC()})
	}
	return list
}
