package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/wire"
)

// Kind is a kind of misfortune.
type Kind int

// The kinds of misfortune. New ones come last: plans that were kept name them by number.
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
	RevokeUnseen                // it does so to all of them while a gateway hears nothing from ZooKeeper
	LateZooKeeper               // all of a gateway's connections stand still for a moment and then break; what was said arrives later
	LagAll                      // all followers are far behind
	PartPeers                   // a gateway cannot reach the others, nor they it
	StallPeers                  // what they say to each other stands still for a while
	kinds
)

var kindNames = []string{"CutZooKeeper", "CutLate", "StallZooKeeper", "StallReplies", "LoseRequest", "LoseReply", "SlowZooKeeper", "PartServer",
	"PartAll", "CutFollower", "LagFollower", "RestartLeader", "KillGateway", "LeaveGateway", "FreezeGateway", "StepClock", "SuspendClock", "CutClients",
	"StallClients", "RemoveContender", "RemoveLock", "Depose", "Revoke", "RevokeUnseen", "LateZooKeeper", "LagAll", "PartPeers", "StallPeers"}

func (k Kind) String() string { return kindNames[k] }

// weather starts the faults of the plan, each at its time.
func (w *world) weather() {
	var over sync.WaitGroup
	for i, f := range w.plan.Faults {
		over.Go(func() {
			time.Sleep(time.Until(w.begun.Add(f.At + time.Duration(i)*time.Nanosecond)))
			w.strike(f)
		})
	}
	over.Wait()
}

// strike does one fault and, when it is one that lasts, ends it.
func (w *world) strike(f Fault) {
	w.mu.Lock()
	g := w.gateways[f.Arg%uint64(len(w.gateways))]
	w.mu.Unlock()
	arg := f.Arg >> 8
	pause := func() { time.Sleep(f.For) }
	w.trace("%v strikes %s for %v", f.Kind, g.name, f.For)
	network := w.zk.Network
	link := func() *zktest.Link {
		if links := w.linksToZooKeeper(g); len(links) > 0 {
			return links[arg%uint64(len(links))]
		}
		return nil
	}
	transactions := func(op wire.Op) bool { return op == wire.OpMulti }
	switch f.Kind {
	case CutZooKeeper:
		if l := link(); l != nil {
			l.Cut()
		}
	case CutLate:
		if l := link(); l != nil {
			l.CutClient(f.For)
		}
	case StallZooKeeper, StallReplies:
		if l := link(); l != nil {
			if f.Kind == StallZooKeeper {
				l.Stall()
			} else {
				l.StallReplies()
			}
			pause()
			l.Resume()
		}
	case LoseRequest, LoseReply:
		order := network.LoseReply(g.name, transactions)
		if f.Kind == LoseRequest {
			network.Revoke(order)
			order = network.LoseRequest(g.name, transactions)
		}
		pause()
		network.Revoke(order)
	case SlowZooKeeper:
		for _, s := range w.zk.Servers() {
			network.Slow(g.name, s, zktest.Delay{Min: 20 * time.Millisecond, Max: 800 * time.Millisecond})
		}
		pause()
		for _, s := range w.zk.Servers() {
			network.Slow(g.name, s, zktest.LAN)
		}
	case PartServer, PartAll:
		servers := w.zk.Servers()
		if f.Kind == PartServer {
			i := arg % uint64(len(servers))
			servers = servers[i : i+1]
		}
		for _, s := range servers {
			network.Part(g.name, s)
			network.CutAll(network.Links(g.name, s))
		}
		pause()
		if !g.isGone() {
			for _, s := range servers {
				network.Join(g.name, s)
			}
		}
	case LateZooKeeper:
		links := w.linksToZooKeeper(g)
		for _, l := range links {
			l.Stall()
		}
		time.Sleep(100*time.Millisecond + time.Duration(arg%600)*time.Millisecond)
		for _, l := range links {
			l.CutClient(f.For)
			time.Sleep(time.Nanosecond) // the world comes to rest between them
		}
	case LagAll:
		for _, lag := range []zktest.Delay{{Min: 100 * time.Millisecond, Max: 1500 * time.Millisecond}, {Max: 2 * time.Millisecond}} {
			for i := range w.plan.Servers - 1 {
				w.zk.Follower(1 + i).Lag(lag)
			}
			pause()
		}
	case PartPeers:
		others := w.othersThan(g)
		for _, o := range others {
			for _, pair := range [][2]string{{asPeer(g.name), o.name}, {asPeer(o.name), g.name}} {
				network.Part(pair[0], pair[1])
				network.CutAll(network.Links(pair[0], pair[1]))
			}
		}
		pause()
		for _, o := range others {
			network.Join(asPeer(g.name), o.name)
			network.Join(asPeer(o.name), g.name)
		}
	case StallPeers:
		links := network.Links(asPeer(g.name), "")
		for _, o := range w.othersThan(g) {
			links = append(links, network.Links(asPeer(o.name), g.name)...)
		}
		for _, l := range links {
			l.Stall()
		}
		pause()
		for _, l := range links {
			l.Resume()
		}
	case CutFollower, LagFollower:
		if w.plan.Servers < 2 {
			return
		}
		follower := w.zk.Follower(1 + int(arg%uint64(w.plan.Servers-1)))
		if f.Kind == CutFollower {
			follower.CutOff()
			pause()
			follower.Heal()
			return
		}
		follower.Lag(zktest.Delay{Min: 100 * time.Millisecond, Max: 1500 * time.Millisecond})
		pause()
		follower.Lag(zktest.Delay{Max: 2 * time.Millisecond})
	case RestartLeader:
		w.zk.KillLeader()
		time.Sleep(min(f.For, 5*time.Second))
		if err := w.zk.StartLeader(); err != nil {
			w.violate("the leader does not start again: %v", err)
		}
	case KillGateway, LeaveGateway:
		if !g.claimEnd() {
			return
		}
		if f.Kind == KillGateway {
			g.kill()
		} else {
			g.leave()
		}
		pause()
		number := int(f.Arg % uint64(len(w.gateways)))
		next := w.startGateway(number)
		w.mu.Lock()
		w.gateways[number] = next
		w.mu.Unlock()
	case FreezeGateway:
		links := append(network.Links(g.name, ""), network.Links("", g.name)...)
		links = append(links, network.Links(asPeer(g.name), "")...)
		links = append(links, network.Links(asEar(g.name), "")...)
		thaw := g.listen.freeze()
		g.clock.Freeze()
		for _, l := range links {
			l.Stall()
		}
		pause()
		w.hasten(f.For)
		g.clock.Thaw()
		// What its clients have said is read first, or what ZooKeeper has.
		slices.SortStableFunc(links, func(a, b *zktest.Link) int {
			if a, b := (a.Client == g.name) == (arg%2 == 0), (b.Client == g.name) == (arg%2 == 0); a != b {
				return map[bool]int{true: -1, false: 1}[a]
			}
			return 0
		})
		for i, l := range links {
			if i > 0 && (l.Client == g.name) != (links[i-1].Client == g.name) {
				time.Sleep(time.Duration(arg % uint64(100*time.Millisecond)))
			}
			l.Resume()
		}
		thaw()
	case StepClock:
		g.clock.Step(time.Duration(int64(arg%uint64(2*time.Hour))) - time.Hour)
	case SuspendClock:
		// Clients' clocks do not jump with it. So it sleeps for longer than what a gateway takes for a late timer: less would be a
		// clock that goes faster than theirs.
		w.hasten(2*time.Second + f.For)
		w.slept(g.name)
		g.clock.Sleep(2*time.Second + f.For)
	case CutClients:
		network.CutAll(network.Links("", g.name))
	case StallClients:
		links := network.Links("", g.name)
		for _, l := range links {
			l.Stall()
		}
		pause()
		for _, l := range links {
			l.Resume()
		}
	case RemoveContender:
		w.administer(func(s *session) {
			if all := w.audit.contenders(); len(all) > 0 {
				path := all[arg%uint64(len(all))]
				w.excuse(path)
				_ = s.delete(path) // it may have gone by itself
			}
		})
	case RemoveLock:
		w.administer(func(s *session) {
			dir := lockRoot + "/" + lockNames[arg%uint64(len(lockNames))]
			names, _ := s.children(dir) // no directory, nothing to do
			slices.Sort(names)
			for _, n := range names {
				w.excuse(dir + "/" + n)
				_ = s.delete(dir + "/" + n)
			}
			_ = s.delete(dir)
		})
	case Depose:
		w.administer(func(s *session) {
			if path := w.audit.registration(g.name); path != "" {
				_ = s.delete(path) // it may have gone by itself
			}
		})
	case Revoke:
		w.administer(func(s *session) {
			if all := w.audit.contenders(); len(all) > 0 {
				w.revoke(s, all[arg%uint64(len(all))])
			}
		})
	case RevokeUnseen:
		if g = w.nearTheEnd(); g == nil || !w.deafening.TryLock() {
			return
		}
		defer w.deafening.Unlock()
		links := w.linksToZooKeeper(g)
		for _, l := range links {
			l.StallReplies()
		}
		w.audit.deafen(g.name, w.deafness(g, links))
		w.administer(func(s *session) {
			for _, path := range w.audit.contenders() {
				w.revoke(s, path)
			}
		})
		w.trace("%s hears nothing", g.name)
		time.Sleep(600 * time.Millisecond) // less than after what it connects anew
		w.trace("%s hears again", g.name)
		w.audit.deafen(g.name, nil)
		for _, l := range links {
			l.Resume()
		}
	default:
		panic(fmt.Sprint("no fault of kind ", int(f.Kind)))
	}
}

// othersThan are the gateways besides one.
func (w *world) othersThan(g *gateway) []*gateway {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.gateways), func(o *gateway) bool { return o == nil || o == g })
}

// linksToZooKeeper are a gateway's connections with servers, oldest first.
func (w *world) linksToZooKeeper(g *gateway) []*zktest.Link { return w.zk.Network.Links(g.name, "") }

// deafness tells whether a gateway hears nothing as long as these connections stand still: it has no others, and no other fault
// lets them go.
func (w *world) deafness(g *gateway, links []*zktest.Link) func() bool {
	now := time.Since(w.begun)
	for _, f := range w.plan.Faults {
		stalls := f.Kind == StallZooKeeper || f.Kind == StallReplies || f.Kind == FreezeGateway
		if stalls && f.At < now+time.Second && f.At+f.For+time.Second > now {
			return nil
		}
	}
	return func() bool {
		for _, l := range w.linksToZooKeeper(g) {
			if !slices.Contains(links, l) {
				return false
			}
		}
		return true
	}
}

// nearTheEnd waits for a lease whose client has gone and whose time is nearly over, and tells the gateway that runs its clock.
func (w *world) nearTheEnd() *gateway {
	for range 200 {
		now := time.Now()
		w.mu.Lock()
		last := map[string]*belief{}
		for _, b := range w.beliefs {
			if b.held && !b.foreign && !w.excused[b.lease] && !w.freed[b.lease] && (last[b.lease] == nil || b.until.After(last[b.lease].until)) {
				last[b.lease] = b
			}
		}
		for _, g := range w.gateways {
			for _, b := range last {
				if left := b.until.Sub(now); b.gateway == g.name && !g.gone && left > 50*time.Millisecond && left < 300*time.Millisecond {
					w.mu.Unlock()
					return g
				}
			}
		}
		w.mu.Unlock()
		time.Sleep(50*time.Millisecond + time.Nanosecond)
	}
	return nil
}

// revoke overwrites a contender's data. A successor does not know for how long it is to keep such a lease, and keeps it for
// the longest time that there is; so whoever does that sees to it that it goes, when clear does.
func (w *world) revoke(s *session, path string) {
	if s.set(path, "__REVOKE__") == nil {
		w.mu.Lock()
		w.revoked = append(w.revoked, path)
		w.mu.Unlock()
	}
}

// clear ends what may still be wrong when all faults are over, and makes sure that there is a gateway.
func (w *world) clear() {
	w.trace("the weather clears up")
	if err := w.zk.StartLeader(); err != nil {
		w.violate("the leader does not start again: %v", err)
	}
	w.administer(func(s *session) {
		for _, path := range w.revoked {
			if c := w.audit.find(path); c != nil && c.gone.IsZero() {
				w.excuse(path)
				_ = s.delete(c.path) // it may have gone by itself
			}
		}
	})
}

func (g *gateway) isGone() bool {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	return g.gone
}

// claimEnd makes sure that one life ends once.
func (g *gateway) claimEnd() bool {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	if g.gone {
		return false
	}
	g.gone = true
	return true
}
