package sim

import (
	"slices"
	"time"

	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/wire"
)

// fault is one fault while it lasts.
type fault struct {
	Fault
	*weather
	g   *gateway // that it strikes
	arg uint64   // what else it chooses
}

func (f *fault) pause() { time.Sleep(f.For) }

// links are the gateway's connections with servers, oldest first.
func (f *fault) links() []*zktest.Link { return f.w.linksToZooKeeper(f.g) }

// link is one of them; nil when there is none.
func (f *fault) link() *zktest.Link {
	if links := f.links(); len(links) > 0 {
		return links[f.arg%uint64(len(links))]
	}
	return nil
}

// stall lets links stand still for a while.
func (f *fault) stall(links []*zktest.Link) {
	for _, l := range links {
		l.Stall()
	}
	f.pause()
	for _, l := range links {
		l.Resume()
	}
}

func (f *fault) cutZooKeeper() {
	switch l := f.link(); {
	case l == nil:
	case f.Kind == CutLate:
		l.CutClient(f.For)
	default:
		l.Cut()
	}
}

func (f *fault) stallZooKeeper() {
	l := f.link()
	if l == nil {
		return
	}
	if f.Kind == StallZooKeeper {
		l.Stall()
	} else {
		l.StallReplies()
	}
	f.pause()
	l.Resume()
}

func (f *fault) loseTransaction() {
	network, lose := f.w.zk.Network, f.w.zk.Network.LoseReply
	if f.Kind == LoseRequest {
		lose = network.LoseRequest
	}
	order := lose(f.g.name, func(op wire.Op) bool { return op == wire.OpMulti })
	f.pause()
	network.Revoke(order)
}

func (f *fault) slowZooKeeper() {
	slow := func(delay zktest.Delay) {
		for _, s := range f.w.zk.Servers() {
			f.w.zk.Network.Slow(f.g.name, s, delay)
		}
	}
	slow(zktest.Delay{Min: 20 * time.Millisecond, Max: 800 * time.Millisecond})
	f.pause()
	slow(zktest.LAN)
}

// partServers cuts the gateway off from one server or from all.
func (f *fault) partServers() {
	network, servers := f.w.zk.Network, f.w.zk.Servers()
	if f.Kind == PartServer {
		i := f.arg % uint64(len(servers))
		servers = servers[i : i+1]
	}
	for _, s := range servers {
		network.Part(f.g.name, s)
		network.CutAll(network.Links(f.g.name, s))
	}
	f.pause()
	if !f.g.gone.Load() {
		for _, s := range servers {
			network.Join(f.g.name, s)
		}
	}
}

func (f *fault) lateZooKeeper() {
	links := f.links()
	for _, l := range links {
		l.Stall()
	}
	time.Sleep(100*time.Millisecond + time.Duration(f.arg%600)*time.Millisecond)
	for _, l := range links {
		l.CutClient(f.For)
		time.Sleep(time.Nanosecond) // the world comes to rest between them
	}
}

// behind is how far followers are that lag, and upToDate how far they are otherwise.
var (
	behind   = zktest.Delay{Min: 100 * time.Millisecond, Max: 1500 * time.Millisecond}
	upToDate = zktest.Delay{Max: 2 * time.Millisecond}
)

func (f *fault) lagAll() {
	for _, lag := range []zktest.Delay{behind, upToDate} {
		for i := range f.w.plan.Servers - 1 {
			f.w.zk.Follower(1 + i).Lag(lag)
		}
		f.pause()
	}
}

// follower is the one that the fault strikes; nil when there is none.
func (f *fault) follower() *zktest.Follower {
	if f.w.plan.Servers < 2 {
		return nil
	}
	return f.w.zk.Follower(1 + int(f.arg%uint64(f.w.plan.Servers-1)))
}

func (f *fault) cutFollower() {
	if follower := f.follower(); follower != nil {
		follower.CutOff()
		f.pause()
		follower.Heal()
	}
}

func (f *fault) lagFollower() {
	if follower := f.follower(); follower != nil {
		follower.Lag(behind)
		f.pause()
		follower.Lag(upToDate)
	}
}

func (f *fault) restartLeader() {
	f.w.zk.KillLeader()
	time.Sleep(min(f.For, 5*time.Second))
	if err := f.w.zk.StartLeader(); err != nil {
		f.w.violate("the leader does not start again: %v", err)
	}
}

// endGateway kills a gateway or lets it leave, and starts another one in its place.
func (f *fault) endGateway() {
	if !f.g.claimEnd() {
		return
	}
	if f.Kind == KillGateway {
		f.g.kill()
	} else {
		f.g.leave()
	}
	f.pause()
	f.w.startGateway(f.number(f.w))
}

func (f *fault) freezeGateway() {
	network := f.w.zk.Network
	links := append(network.Links(f.g.name, ""), network.Links("", f.g.name)...)
	links = append(links, network.Links(asPeer(f.g.name), "")...)
	links = append(links, network.Links(asListener(f.g.name), "")...)
	thaw := f.g.listen.freeze()
	f.g.clock.Freeze()
	for _, l := range links {
		l.Stall()
	}
	f.pause()
	f.w.exemptions.hasten(f.For)
	f.g.clock.Thaw()
	// What its clients have sent is read first, or what ZooKeeper has.
	first := func(l *zktest.Link) int {
		if (l.Client == f.g.name) == (f.arg%2 == 0) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(links, func(a, b *zktest.Link) int { return first(a) - first(b) })
	for i, l := range links {
		if i > 0 && first(l) != first(links[i-1]) {
			time.Sleep(time.Duration(f.arg % uint64(100*time.Millisecond)))
		}
		l.Resume()
	}
	thaw()
}

func (f *fault) stepClock() {
	if f.w.plan.books() {
		to := time.Duration(f.arg%uint64(2*clockRange)) - clockRange
		f.g.clock.Step(to - time.Duration(f.g.skew.Swap(int64(to))))
		return
	}
	f.g.clock.Step(time.Duration(int64(f.arg%uint64(2*time.Hour))) - time.Hour)
}

// suspendClock lets a gateway's clock jump. Clients' clocks do not jump with it. So it sleeps for longer than what a gateway
// takes for a late timer: less would be a clock that goes faster than theirs.
func (f *fault) suspendClock() {
	asleep := 2*time.Second + f.For
	f.w.exemptions.hasten(asleep)
	f.w.beliefs.slept(f.g.name, asleep)
	f.g.clock.Sleep(asleep)
}

func (f *fault) cutClients() { f.w.zk.Network.CutAll(f.w.zk.Network.Links("", f.g.name)) }

func (f *fault) stallClients() { f.stall(f.w.zk.Network.Links("", f.g.name)) }

// partPeers lets no gateway reach the one that is struck, nor that one them.
func (f *fault) partPeers() {
	network := f.w.zk.Network
	var pairs [][2]string
	for _, o := range f.w.gateways.others(f.g) {
		pairs = append(pairs, [2]string{asPeer(f.g.name), o.name}, [2]string{asPeer(o.name), f.g.name})
	}
	for _, p := range pairs {
		network.Part(p[0], p[1])
		network.CutAll(network.Links(p[0], p[1]))
	}
	f.pause()
	for _, p := range pairs {
		network.Join(p[0], p[1])
	}
}

func (f *fault) stallPeers() {
	network := f.w.zk.Network
	links := network.Links(asPeer(f.g.name), "")
	for _, o := range f.w.gateways.others(f.g) {
		links = append(links, network.Links(asPeer(o.name), f.g.name)...)
	}
	f.stall(links)
}

func (f *fault) removeContender() {
	f.w.administer(func(s *session) {
		if path := f.contender(); path != "" {
			f.w.exemptions.excuse(path)
			_ = s.delete(path) // it may have gone by itself
		}
	})
}

// contender is one of those that there are; "" for none.
func (f *fault) contender() string {
	if all := f.w.audit.contenders(); len(all) > 0 {
		return all[f.arg%uint64(len(all))]
	}
	return ""
}

func (f *fault) removeLock() {
	f.w.administer(func(s *session) {
		dir := lockRoot + "/" + lockNames[f.arg%uint64(len(lockNames))]
		names, _ := s.children(dir) // no directory, nothing to do
		slices.Sort(names)
		for _, n := range names {
			f.w.exemptions.excuse(dir + "/" + n)
			_ = s.delete(dir + "/" + n)
		}
		_ = s.delete(dir)
	})
}

func (f *fault) depose() {
	f.w.administer(func(s *session) {
		if path := f.w.audit.registration(f.g.name); path != "" {
			_ = s.delete(path) // it may have gone by itself
		}
	})
}

func (f *fault) revoke() {
	f.w.administer(func(s *session) {
		if path := f.contender(); path != "" {
			f.weather.revoke(s, path)
		}
	})
}

// revokeUnseen overwrites all contenders while a gateway that is about to end a lease gets no replies.
func (f *fault) revokeUnseen() {
	g := f.nearTheEnd()
	if g == nil || !f.stalling.TryLock() {
		return
	}
	defer f.stalling.Unlock()
	links := f.w.linksToZooKeeper(g)
	for _, l := range links {
		l.StallReplies()
	}
	f.w.audit.stall(g.name, f.staysStalled(g, links))
	f.w.administer(func(s *session) {
		for _, path := range f.w.audit.contenders() {
			f.weather.revoke(s, path)
		}
	})
	f.w.trace("%s gets no replies", g.name)
	time.Sleep(600 * time.Millisecond) // less than after what it connects anew
	f.w.trace("%s gets replies again", g.name)
	f.w.audit.stall(g.name, nil)
	for _, l := range links {
		l.Resume()
	}
}

// staysStalled tells whether a gateway gets no replies as long as these connections stand still: it has no others, and no other fault
// lets them go.
func (f *fault) staysStalled(g *gateway, links []*zktest.Link) func() bool {
	now := time.Since(f.w.begun)
	for _, other := range f.w.plan.Faults {
		stalls := other.Kind == StallZooKeeper || other.Kind == StallReplies || other.Kind == FreezeGateway
		if stalls && other.At < now+time.Second && other.At+other.For+time.Second > now {
			return nil
		}
	}
	return func() bool {
		return !slices.ContainsFunc(f.w.linksToZooKeeper(g), func(l *zktest.Link) bool { return !slices.Contains(links, l) })
	}
}

// nearTheEnd waits for a lease whose client has gone and whose time is nearly over, and returns the gateway that runs its clock.
func (f *fault) nearTheEnd() *gateway {
	for range 200 {
		now := time.Now()
		last := map[string]*belief{}
		for _, b := range f.w.beliefs.list() {
			exempt := f.w.exemptions.isExcused(b.lease) || f.w.exemptions.isFreed(b.lease)
			if b.held && !b.foreign && !exempt && (last[b.lease] == nil || b.until.After(last[b.lease].until)) {
				last[b.lease] = b
			}
		}
		for _, g := range f.w.gateways.list() {
			for _, b := range last {
				if left := b.until.Sub(now); b.gateway == g.name && !g.gone.Load() && left > 50*time.Millisecond && left < 300*time.Millisecond {
					return g
				}
			}
		}
		time.Sleep(50*time.Millisecond + time.Nanosecond)
	}
	return nil
}

// linksToZooKeeper are a gateway's connections with servers, oldest first.
func (w *world) linksToZooKeeper(g *gateway) []*zktest.Link { return w.zk.Network.Links(g.name, "") }
