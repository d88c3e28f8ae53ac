package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"lockkeeper/internal/test/netfault"
)

// kind is one way to break something. It lasts from least to most.
type kind struct {
	name        string
	least, most time.Duration
	ensemble    bool // it is about servers; there is one such fault at a time
	// apply breaks it, and returns what mends it and waits until all of it is at work again.
	apply func(w *World, target int) (mend func(ctx context.Context) error, err error)
}

const aGateway, theEnsemble = false, true

// kinds are all ways. The plan draws each once before any comes again.
var kinds = []kind{
	{"gateway killed", time.Second, 8 * time.Second, aGateway, func(w *World, i int) (func(context.Context) error, error) {
		w.gateways[i].kill()
		return w.starting(i), nil
	}},
	{"gateway told to go", 100 * time.Millisecond, 6 * time.Second, aGateway, func(w *World, i int) (func(context.Context) error, error) {
		return w.starting(i), w.gateways[i].terminate()
	}},
	{"gateway frozen", 500 * time.Millisecond, sessionTimeout - time.Second, aGateway, frozenGateway},
	{"gateway frozen long", 3 * sessionTimeout, 3*sessionTimeout + time.Second, aGateway, frozenGateway},
	{"gateway deaf", 2 * time.Second, 12 * time.Second, aGateway, func(w *World, i int) (func(context.Context) error, error) {
		g := w.gateways[i]
		g.front.Stall()
		g.peer.Stall()
		return func(context.Context) error {
			g.front.Heal()
			g.peer.Heal()
			return nil
		}, nil
	}},
	{"clients reset", time.Millisecond, time.Millisecond, aGateway, func(w *World, i int) (func(context.Context) error, error) {
		w.gateways[i].front.Reset()
		return func(context.Context) error { return nil }, nil
	}},
	{"gateway cut from servers", time.Second, 8 * time.Second, aGateway, gatewayLinks((*netfault.Proxy).Cut)},
	{"gateway's servers silent", time.Second, 8 * time.Second, aGateway, gatewayLinks((*netfault.Proxy).Stall)},
	{"replies lost", time.Second, 6 * time.Second, aGateway, gatewayLinks((*netfault.Proxy).DropReplies)},
	{"gateway's servers slow", 4 * time.Second, 8 * time.Second, aGateway, func(w *World, i int) (func(context.Context) error, error) {
		delay := func(d time.Duration) {
			for _, p := range w.gateways[i].zk {
				p.SetDelay(netfault.Requests, d)
				p.SetDelay(netfault.Replies, d)
			}
		}
		delay(200 * time.Millisecond)
		return func(context.Context) error { delay(0); return nil }, nil
	}},
	{"clients' links slow", 3 * time.Second, 6 * time.Second, aGateway, func(w *World, i int) (func(context.Context) error, error) {
		front := w.gateways[i].front
		front.SetDelay(netfault.Requests, 150*time.Millisecond)
		front.SetDelay(netfault.Replies, 150*time.Millisecond)
		return func(context.Context) error {
			front.SetDelay(netfault.Requests, 0)
			front.SetDelay(netfault.Replies, 0)
			return nil
		}, nil
	}},
	{"follower killed", time.Second, 5 * time.Second, theEnsemble, func(w *World, i int) (func(context.Context) error, error) {
		return w.killServers(w.follower(i))
	}},
	{"leader killed", time.Second, 5 * time.Second, theEnsemble, func(w *World, i int) (func(context.Context) error, error) {
		return w.killServers(w.leader(i))
	}},
	{"server told to go", time.Second, 4 * time.Second, theEnsemble, func(w *World, i int) (func(context.Context) error, error) {
		w.ensemble.Servers()[i].Stop()
		return w.startingServers(i), nil
	}},
	{"leader frozen", 2 * time.Second, 7 * time.Second, theEnsemble, func(w *World, i int) (func(context.Context) error, error) {
		return w.freezeServer(w.leader(i))
	}},
	{"follower frozen", 2 * time.Second, 7 * time.Second, theEnsemble, func(w *World, i int) (func(context.Context) error, error) {
		return w.freezeServer(w.follower(i))
	}},
	{"follower without peers", 5 * time.Second, 9 * time.Second, theEnsemble, func(w *World, i int) (func(context.Context) error, error) {
		return w.parted(w.follower(i))
	}},
	{"leader without peers", 5 * time.Second, 9 * time.Second, theEnsemble, func(w *World, i int) (func(context.Context) error, error) {
		return w.parted(w.leader(i))
	}},
	{"leader's peers far away", 4 * time.Second, 8 * time.Second, theEnsemble, func(w *World, i int) (func(context.Context) error, error) {
		i = w.leader(i)
		w.ensemble.DelayPeers(i, 100*time.Millisecond)
		return func(ctx context.Context) error {
			w.ensemble.DelayPeers(i, 0)
			return w.awaitServing(ctx)
		}, nil
	}},
	{"all servers down", 2 * time.Second, 8 * time.Second, theEnsemble, func(w *World, _ int) (func(context.Context) error, error) {
		return w.killServers(0, 1, 2)
	}},
}

func frozenGateway(w *World, i int) (func(context.Context) error, error) {
	w.gateways[i].freeze()
	return func(ctx context.Context) error {
		w.gateways[i].thaw()
		return w.gateways[i].awaitReady(ctx)
	}, nil
}

func gatewayLinks(fault func(*netfault.Proxy)) func(w *World, i int) (func(context.Context) error, error) {
	return func(w *World, i int) (func(context.Context) error, error) {
		for _, p := range w.gateways[i].zk {
			fault(p)
		}
		return func(ctx context.Context) error {
			for _, p := range w.gateways[i].zk {
				p.Heal()
			}
			return w.gateways[i].awaitReady(ctx)
		}, nil
	}
}

// starting starts a gateway and waits until it is ready.
func (w *World) starting(i int) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := w.gateways[i].start(); err != nil {
			return err
		}
		return w.gateways[i].awaitReady(ctx)
	}
}

// startingServers starts servers and waits until the fleet is at work on the whole ensemble.
func (w *World) startingServers(which ...int) func(context.Context) error {
	return func(ctx context.Context) error {
		errs := make([]error, len(which))
		var started sync.WaitGroup
		for n, i := range which {
			started.Go(func() { errs[n] = w.ensemble.Servers()[i].Restart() })
		}
		started.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		return w.awaitServing(ctx)
	}
}

func (w *World) killServers(which ...int) (func(context.Context) error, error) {
	var killed sync.WaitGroup
	for _, i := range which {
		killed.Go(w.ensemble.Servers()[i].Kill)
	}
	killed.Wait()
	return w.startingServers(which...), nil
}

func (w *World) freezeServer(i int) (func(context.Context) error, error) {
	s := w.ensemble.Servers()[i]
	s.Freeze()
	return func(ctx context.Context) error {
		s.Thaw()
		return w.awaitServing(ctx)
	}, nil
}

// parted cuts a server off from its peers. It goes on serving its clients until it notices.
func (w *World) parted(i int) (func(context.Context) error, error) {
	w.ensemble.CutPeers(i)
	return func(ctx context.Context) error {
		w.ensemble.HealPeers(i)
		return w.awaitServing(ctx)
	}, nil
}

// leader is the leader, or, while there is none, any.
func (w *World) leader(otherwise int) int {
	if i := w.ensemble.Leader(); i >= 0 {
		return i
	}
	return otherwise
}

// follower is the nth follower, or, while there is none, any.
func (w *World) follower(n int) int {
	if f := w.ensemble.Followers(); len(f) > 0 {
		return f[n%len(f)]
	}
	return n
}

// awaitServing waits until the ensemble has a leader and each running gateway is at work on it.
func (w *World) awaitServing(ctx context.Context) error {
	if err := w.ensemble.AwaitServing(); err != nil {
		return err
	}
	for _, g := range w.gateways {
		if p := g.current(); p == nil || p.Ended() || w.busy(g) {
			continue // another fault's business
		}
		if err := g.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func kindNamed(name string) (kind, error) {
	for _, k := range kinds {
		if k.name == name {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("no fault is called %q", name)
}
