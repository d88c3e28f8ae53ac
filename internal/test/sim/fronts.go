package sim

import (
	"math/rand/v2"
	"time"
)

// part is one fault of a front.
type part struct {
	kind      Kind
	after     time.Duration // since the front's beginning, at most
	long      time.Duration // how long, on average; at least a half and at most three halves of it
	elsewhere bool          // it strikes any gateway
}

// fronts are faults that come together because they are dangerous together: each is a moment at which one rule alone protects.
var fronts = [][]part{
	// A gateway is taken over while it believes itself well.
	{{kind: CutFollower, long: 6 * time.Second}, {kind: StallZooKeeper, after: time.Second, long: 4 * time.Second}},
	{{kind: StallZooKeeper, long: 5 * time.Second}, {kind: Depose, after: 500 * time.Millisecond}},
	{{kind: CutFollower, long: 4 * time.Second}, {kind: Depose, after: time.Second}},
	{{kind: StallReplies, long: 4 * time.Second}, {kind: Depose, after: time.Second}},
	{{kind: FreezeGateway, long: 12 * time.Second}},
	{{kind: FreezeGateway, long: 3 * time.Second}, {kind: Depose, after: 2 * time.Second}},
	// What it has sent arrives late, or it dies not knowing what became of it.
	{{kind: LagFollower, long: 4 * time.Second}, {kind: CutLate, after: 2 * time.Second, long: time.Second}, {kind: CutLate, after: 3 * time.Second, long: time.Second}},
	{{kind: StallZooKeeper, long: time.Second}, {kind: CutLate, after: time.Second, long: 700 * time.Millisecond}},
	{{kind: LateZooKeeper, long: 1500 * time.Millisecond}, {kind: LateZooKeeper, after: 5 * time.Second, long: time.Second}},
	{{kind: LateZooKeeper, long: time.Second}, {kind: LateZooKeeper, after: 9 * time.Second, long: 2 * time.Second, elsewhere: true}},
	{{kind: SlowZooKeeper, long: 5 * time.Second}, {kind: CutLate, after: 3 * time.Second, long: time.Second}, {kind: CutLate, after: 5 * time.Second, long: time.Second}},
	{{kind: LoseReply, long: 2 * time.Second}, {kind: KillGateway, after: 2 * time.Second, long: time.Second}},
	{{kind: LoseReply, long: 2 * time.Second}, {kind: LoseReply, after: time.Second, long: 2 * time.Second}, {kind: LoseRequest, after: 2 * time.Second, long: time.Second}},
	// The observer does not see what happens.
	{{kind: CutFollower, long: 7 * time.Second}, {kind: RemoveLock, after: 700 * time.Millisecond}, {kind: RemoveContender, after: time.Second}},
	{{kind: LagFollower, long: 5 * time.Second}, {kind: CutZooKeeper, after: 4 * time.Second}, {kind: CutZooKeeper, after: 5 * time.Second}},
	{{kind: LagAll, long: 8 * time.Second}, {kind: CutZooKeeper, after: 4 * time.Second}, {kind: CutZooKeeper, after: 6 * time.Second},
		{kind: CutZooKeeper, after: 7 * time.Second}, {kind: CutZooKeeper, after: 8 * time.Second}, {kind: CutZooKeeper, after: 8 * time.Second}},
	{{kind: PartAll, long: time.Second}, {kind: RemoveContender, after: time.Second}, {kind: RemoveLock, after: time.Second}},
	{{kind: LagFollower, long: 4 * time.Second}, {kind: StallReplies, after: 3 * time.Second, long: 300 * time.Millisecond}, {kind: CutZooKeeper, after: 3 * time.Second}},
	{{kind: StallZooKeeper, long: 2 * time.Second}, {kind: RemoveLock, after: 2 * time.Second}},
	// ZooKeeper cannot be reached for a while.
	{{kind: PartAll, long: 3 * time.Second}},
	{{kind: StallZooKeeper, long: 3 * time.Second}, {kind: StallZooKeeper, long: 3 * time.Second}},
	{{kind: RestartLeader, long: 4 * time.Second}},
	// Another program has written into contenders.
	{{kind: RevokeUnseen, long: 800 * time.Millisecond}},
	{{kind: Revoke}, {kind: KillGateway, after: time.Second, long: time.Second}},
	// One gateway after the other.
	{{kind: KillGateway, long: time.Second}, {kind: KillGateway, after: 8 * time.Second, long: time.Second, elsewhere: true}, {kind: LagFollower, long: 6 * time.Second}},
	{{kind: LeaveGateway, long: time.Second}, {kind: SlowZooKeeper, long: 3 * time.Second}},
}

// NewStorm draws a plan in which one front comes again and again; each has its turn with every second seed.
func NewStorm(seed uint64) Plan {
	return newPlan(seed, func(p *Plan, random *rand.Rand) {
		p.others(random)
		p.storm(random, fronts[int(seed/2)%len(fronts)])
	})
}

// others draws the clients beside the ordinary ones.
func (p *Plan) others(random *rand.Rand) {
	if random.IntN(2) == 0 {
		p.Clients = append(p.Clients, likenessFrom)
	}
	p.Clients = append(p.Clients, watcherFrom, watcherFrom+1, adminFrom)
}

// forecast draws the faults of a plan, and its other clients. Some runs are calm, some are stormy.
func (p *Plan) forecast(random *rand.Rand) {
	p.others(random)
	for range random.IntN(1 + random.IntN(16)) {
		at, arg := time.Duration(random.Int64N(int64(p.Length))), random.Uint64()
		if random.IntN(2) == 0 {
			p.Faults = append(p.Faults, Fault{At: at, Kind: Kind(random.IntN(int(PartPeers))), Arg: arg,
				For: time.Duration(random.ExpFloat64() * float64(3*time.Second))})
			continue
		}
		p.add(random, fronts[random.IntN(len(fronts))], at, arg)
	}
	if len(p.Faults) == 0 {
		// Nothing but time and the other clients takes a place away: what is owed to them can be told exactly.
		p.Clients = append(p.Clients, leaverFrom, leaverFrom+1)
	}
}

// storm has a front come again when it has hardly passed.
func (p *Plan) storm(random *rand.Rand, front []part) {
	passes := 3 * time.Second
	for _, part := range front {
		switch part.kind {
		case CutFollower, LagFollower, LagAll, LateZooKeeper:
			p.Servers = 3
		}
		passes = max(passes, part.after+part.long)
	}
	for at := 2 * time.Second; at < p.Length; at += passes + time.Duration(random.Int64N(int64(passes))) {
		p.add(random, front, at, random.Uint64())
	}
}

// add adds a front that strikes the gateway that arg chooses.
func (p *Plan) add(random *rand.Rand, front []part, at time.Duration, arg uint64) {
	for _, part := range front {
		f := Fault{At: at, Kind: part.kind, Arg: random.Uint64()}
		for !part.elsewhere && f.Arg%uint64(p.Gateways) != arg%uint64(p.Gateways) {
			f.Arg++
		}
		if part.after > 0 {
			f.At += time.Duration(random.Int64N(int64(part.after)))
		}
		if part.long > 0 {
			f.For = part.long/2 + time.Duration(random.Int64N(int64(part.long)))
		}
		p.Faults = append(p.Faults, f)
	}
}
