package clientsuite

import (
	"context"
	"math/rand/v2"
	"time"
)

// calm is for how long nothing of the fleet is broken between two faults: longer than the takeover of a gateway's leases.
const calm = 6 * time.Second

// weather breaks one part of the fleet after the other until ctx ends, and leaves none broken. It counts what it did. The error
// says that something did not start again.
func (f *fleet) weather(ctx context.Context, rng *rand.Rand) (did map[string]int, err error) {
	did = make(map[string]int)
	for sleep(ctx, calm/2+upTo(rng, calm)) {
		g := f.gateways[rng.IntN(len(f.gateways))]
		length := 300*time.Millisecond + upTo(rng, 3*time.Second)
		var what string
		switch n := rng.IntN(10); {
		case n < 4:
			what = "gateway killed"
			g.kill()
			sleep(ctx, length)
			err = g.start()
		case n < 7:
			what = "gateway frozen"
			proc := g.current()
			proc.Freeze()
			sleep(ctx, length)
			proc.Thaw()
		case n < 8:
			what = "ZooKeeper killed"
			f.zk.Kill()
			sleep(ctx, length/4)
			err = f.zk.Restart()
		default:
			what = "ZooKeeper frozen"
			f.zk.Freeze()
			sleep(ctx, length/2)
			f.zk.Thaw()
		}
		if did[what]++; err != nil {
			return did, err
		}
	}
	return did, nil
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// sleep is false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
