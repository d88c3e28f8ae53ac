package sim

import (
	"sync"
	"time"
)

// Kind is a kind of fault.
type Kind int

// The kinds of faults. New ones come last: plans that were kept name them by number.
const (
	CutZooKeeper    Kind = iota // one of a gateway's connections with ZooKeeper breaks
	CutLate                     // the same, but what is under way still arrives, later
	StallZooKeeper              // one of them stands still for a while
	StallReplies                // requests arrive, replies do not
	LoseRequest                 // a gateway's next transaction is lost
	LoseReply                   // a gateway's next transaction is carried out, its reply is lost
	SlowZooKeeper               // everything between a gateway and its servers is slow
	PartServer                  // a gateway cannot reach one of the servers
	PartAll                     // or none of them
	CutFollower                 // a follower is cut off, and goes on answering reads and pings
	LagFollower                 // a follower is far behind
	RestartLeader               // the leader is away for a moment
	KillGateway                 // a gateway is killed, and another one starts in its place
	LeaveGateway                // a gateway leaves in good order, and another one starts
	FreezeGateway               // a gateway stands still (SIGSTOP), with everything it has
	StepClock                   // a gateway's wall clock is set
	SuspendClock                // a gateway's machine was asleep
	CutClients                  // a gateway's connections with its clients break
	StallClients                // they stand still for a while
	RemoveContender             // another program deletes a contender
	RemoveLock                  // another program deletes a lock with everything in it
	Depose                      // a gateway's registration is deleted under its feet
	Revoke                      // another program overwrites a contender's data, as Curator's revoker does
	RevokeUnseen                // it does so to all of them while ZooKeeper's replies to a gateway stand still
	LateZooKeeper               // all of a gateway's connections stand still for a moment and then break; what was sent arrives later
	LagAll                      // all followers are far behind
	PartPeers                   // a gateway cannot reach the others, nor they it
	StallPeers                  // their connections stand still for a while
	kinds
)

// faults are the kinds' names and what they do.
var faults = [kinds]struct {
	name string
	do   func(*fault)
}{
	CutZooKeeper:    {"CutZooKeeper", (*fault).cutZooKeeper},
	CutLate:         {"CutLate", (*fault).cutZooKeeper},
	StallZooKeeper:  {"StallZooKeeper", (*fault).stallZooKeeper},
	StallReplies:    {"StallReplies", (*fault).stallZooKeeper},
	LoseRequest:     {"LoseRequest", (*fault).loseTransaction},
	LoseReply:       {"LoseReply", (*fault).loseTransaction},
	SlowZooKeeper:   {"SlowZooKeeper", (*fault).slowZooKeeper},
	PartServer:      {"PartServer", (*fault).partServers},
	PartAll:         {"PartAll", (*fault).partServers},
	CutFollower:     {"CutFollower", (*fault).cutFollower},
	LagFollower:     {"LagFollower", (*fault).lagFollower},
	RestartLeader:   {"RestartLeader", (*fault).restartLeader},
	KillGateway:     {"KillGateway", (*fault).endGateway},
	LeaveGateway:    {"LeaveGateway", (*fault).endGateway},
	FreezeGateway:   {"FreezeGateway", (*fault).freezeGateway},
	StepClock:       {"StepClock", (*fault).stepClock},
	SuspendClock:    {"SuspendClock", (*fault).suspendClock},
	CutClients:      {"CutClients", (*fault).cutClients},
	StallClients:    {"StallClients", (*fault).stallClients},
	RemoveContender: {"RemoveContender", (*fault).removeContender},
	RemoveLock:      {"RemoveLock", (*fault).removeLock},
	Depose:          {"Depose", (*fault).depose},
	Revoke:          {"Revoke", (*fault).revoke},
	RevokeUnseen:    {"RevokeUnseen", (*fault).revokeUnseen},
	LateZooKeeper:   {"LateZooKeeper", (*fault).lateZooKeeper},
	LagAll:          {"LagAll", (*fault).lagAll},
	PartPeers:       {"PartPeers", (*fault).partPeers},
	StallPeers:      {"StallPeers", (*fault).stallPeers},
}

func (k Kind) String() string { return faults[k].name }

// weather makes the faults of a plan happen.
type weather struct {
	w        *world
	stalling sync.Mutex // held by a fault during which a gateway gets no replies
	mu       sync.Mutex
	revoked  []string // contenders whose data a fault has overwritten
}

// run starts the faults of the plan, each at its time, and returns when they are over.
func (x *weather) run() {
	var over sync.WaitGroup
	for i, f := range x.w.plan.Faults {
		over.Go(func() {
			time.Sleep(time.Until(x.w.begun.Add(f.At + time.Duration(i)*time.Nanosecond)))
			g := x.w.gateways.at(f.number(x.w))
			x.w.trace("%v strikes %s for %v", f.Kind, g.name, f.For)
			faults[f.Kind].do(&fault{Fault: f, weather: x, g: g, arg: f.Arg >> 8})
		})
	}
	over.Wait()
}

// number is that of the gateway which a fault strikes.
func (f Fault) number(w *world) int { return int(f.Arg % uint64(w.plan.Gateways)) }

// revoke overwrites a contender's data. A successor does not know for how long it is to keep such a lease, and keeps it for
// the longest time that there is; so clear deletes it.
func (x *weather) revoke(s *session, path string) {
	if s.set(path, "__REVOKE__") == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.revoked = append(x.revoked, path)
	}
}

// clear ends what may still be wrong when all faults are over.
func (x *weather) clear() {
	w := x.w
	w.trace("the weather clears up")
	if err := w.zk.StartLeader(); err != nil {
		w.violate("the leader does not start again: %v", err)
	}
	w.administer(func(s *session) {
		for _, path := range x.revoked {
			if c := w.audit.find(path); c != nil && c.gone.IsZero() {
				w.exemptions.excuse(path)
				_ = s.delete(c.path) // it may have gone by itself
			}
		}
	})
}
