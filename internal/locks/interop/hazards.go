package interop

import (
	"slices"

	"lockkeeper/internal/locks"
)

// A hazard is something wrong with a lock that a person has to mend. A hazard has one of a few codes. Where it is about
// programs that do not wait, it names them. The table of all hazards is computed once, from what is known of each
// program (families.go). A lock's hazards are entries of that table, and cost nothing for locks that have none.

const (
	kazooPatterns  = `extra_lock_patterns=["-lock-"] (its names do not tell whether it has it)`
	kazooReadOrder = "it waits for the last writer, also for one that waits for it, and then both wait for ever"
)

// apart is what to do about two programs that do not exclude each other, where that is not a directory for each.
var apart = map[familySet]string{
	setOf(mutexFamily, kazooFamily): `give Kazoo's Lock Curator's names (_NODE_NAME = "-lock-", _EXCLUDE_NAMES = ["-lock-"]): ` +
		`extra_lock_patterns=["-lock-"] makes Kazoo alone wait`,
	setOf(goFamily, kazooFamily):         "give Kazoo's Lock " + kazooPatterns,
	setOf(kazooFamily, kazooNamedFamily): "give all of Kazoo's locks the same names",
	setOf(kazooFamily, kazooReadFamily):  "use no ReadLock beside writers: " + kazooReadOrder,
}

// Hazard is a hazard in the catalogue of all. It is never written to.
type Hazard struct {
	locks.Hazard
	code   int       // its code's place in HazardCodes
	who    familySet // the programs; empty where the code concerns none
	beside besides   // what they ignore
}

// besides is what stands in the queue beside a program that ignores it.
type besides uint8

const (
	besideProgram      besides = iota
	besideLeases               // of any mode
	besideSharedLeases         // they wait for exclusive leases
)

var hazardOrder = locks.HazardCodes()

// catalogue is every hazard there is. The codes that concern no program come first, in the order of HazardCodes.
var catalogue = func() (list []Hazard) {
	add := func(e Hazard) {
		e.code = slices.Index(hazardOrder, e.Code)
		list = append(list, e)
	}
	for _, h := range []locks.Hazard{
		{Code: locks.HazardUnreadable, Detail: "the ACL of a contender hides it from this gateway, which notices its end by a listing, once a second; " +
			"give the gateways' ZooKeeper identity read permission on it"},
		{Code: locks.HazardDisordered, Detail: "the contenders' sequence numbers do not fit into half of ZooKeeper's counter, so their order is unknown, and nothing is granted; " +
			"delete the contender whose number was made by hand"},
		{Code: locks.HazardStrayChild, Detail: "the lock's directory has a child without a sequence number, which can starve or break other programs' lock clients; delete it. " +
			"If it is the directory of a lock, the namespace's lock root is one level too high"},
		{Code: locks.HazardMisplaced, Detail: "this is no lock, but another program's contender in the lock root itself, which is the directory of a lock; " +
			"record a namespace whose lock root is the node above it"},
		{Code: locks.HazardLockInvalid, Detail: "a program of bigdata's is destroying the lock: the node with the lock's name and _INVALID at the end stands beside it, " +
			"so no lease joins, and nothing is granted; delete that node if it was left behind"},
	} {
		add(Hazard{Hazard: h})
	}
	for f := unknownFamily + 1; f < families; f++ {
		for g := f + 1; g < families; g++ {
			if detail := pairDetail(f, g); detail != "" {
				add(Hazard{Hazard: locks.Hazard{Code: locks.HazardIgnoreEachOther, Programs: []string{known[f].id, known[g].id}, Detail: detail}, who: setOf(f, g)})
			}
		}
	}
	for f := unknownFamily + 1; f < families; f++ {
		says, code := known[f].says+" "+known[f].ignores+" ", locks.HazardIgnoresLeases
		if f == semaphoreFamily {
			code = locks.HazardForeignSemaphore
		}
		add(Hazard{Hazard: locks.Hazard{Code: code, Programs: []string{known[f].id}, Detail: says + "leases of this namespace's dialect; " + known[f].beside}, who: setOf(f), beside: besideLeases})
		only := "use exclusive leases there"
		if f == kazooFamily {
			only += ", or Kazoo's WriteLock, which waits for them (the names do not tell which it is)"
		}
		add(Hazard{Hazard: locks.Hazard{Code: code, Programs: []string{known[f].id}, Detail: says + "shared leases of this namespace's dialect; " + only}, who: setOf(f), beside: besideSharedLeases})
	}
	return list
}()

// pairDetail says which of two programs does not wait for the other, and what to do. It is "" when both wait.
func pairDetail(f, g family) (detail string) {
	for _, way := range [][2]family{{f, g}, {g, f}} {
		if of := known[way[0]]; way[0].ignores(way[1]) {
			if detail != "" {
				detail += ", and "
			}
			detail += of.says + " " + of.ignores + " " + known[way[1]].says
		}
	}
	if detail == "" {
		return ""
	}
	if what, ok := apart[setOf(f, g)]; ok {
		return detail + "; " + what
	}
	return detail + "; give each a directory of its own"
}

// HazardAt is the hazard of a code that concerns no program, by the code's place in locks.HazardCodes.
func HazardAt(code int) *Hazard { return &catalogue[code] }

// CountCodes counts each code of a list once.
func CountCodes(list []*Hazard) (n [locks.NumHazards]int) {
	for _, h := range list {
		n[h.code] = 1
	}
	return n
}
