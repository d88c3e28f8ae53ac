package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/backoff"
)

// Peer is another gateway.
type Peer struct{ Gateway, Address string }

// Listener follows every other gateway of the fleet: one stream from each, begun when
// its registration is seen and ended when that is gone. The functions are all required.
type Listener struct {
	Fleet *Fleet
	// Peers are the other gateways with their addresses; Changed is a channel that is closed when they may have changed.
	Peers   func() []Peer
	Changed func() <-chan struct{}
	// Receive takes the reports of a gateway, in its order. Following is called when its stream begins, and when it ends.
	Receive   func(gateway string, news [][]byte)
	Following func(gateway string, is bool)

	Random func(Peer) rand.Source // spreads the attempts; nil: the runtime's
	Logger *slog.Logger           // nil: nothing is logged

	mu     sync.Mutex
	places map[string]string // by address: a gateway with a new session continues its stream
}

// A broken stream is opened again after up to twice firstPause, which doubles up to lastPause.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	maxPlaces  = 256
)

// Run follows until ctx ends, and returns when no stream is open.
func (l *Listener) Run(ctx context.Context) error {
	l.places = map[string]string{}
	if l.Logger == nil {
		l.Logger = slog.New(slog.DiscardHandler)
	}
	var streams sync.WaitGroup
	defer streams.Wait()
	followed := map[Peer]context.CancelFunc{}
	for {
		changed := l.Changed() // before Peers: no change is missed
		there := map[Peer]bool{}
		for _, p := range l.Peers() {
			if _, err := l.Fleet.baseURL(p.Address); errors.Is(err, ErrOwnAddress) {
				continue // until this gateway knows its new id, its own registration looks like another gateway's
			}
			there[p] = true
			if followed[p] == nil {
				following, cancel := context.WithCancel(ctx)
				followed[p] = cancel
				streams.Go(func() { l.follow(following, p) })
			}
		}
		for _, p := range inOrder(followed) {
			if !there[p] {
				followed[p]()
				delete(followed, p)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, p := range inOrder(followed) {
				followed[p]()
			}
			return nil
		}
	}
}

// inOrder are gateways in the order of their ids: deterministic, unlike the map.
func inOrder(followed map[Peer]context.CancelFunc) []Peer {
	return slices.SortedFunc(maps.Keys(followed), func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.Gateway, b.Gateway), cmp.Compare(a.Address, b.Address))
	})
}

// follow follows one gateway, again and again.
func (l *Listener) follow(ctx context.Context, p Peer) {
	var random rand.Source
	if l.Random != nil {
		random = l.Random(p)
	}
	pause := backoff.New(random, firstPause, lastPause)
	quiet := false // that it cannot be followed has been logged
	for ctx.Err() == nil {
		following := false
		err := l.Fleet.Follow(ctx, p, l.place(p.Address), func(at string, news [][]byte) {
			first := !following
			if first {
				following, quiet = true, false
				pause.Reset()
				l.Following(p.Gateway, true)
			}
			if len(news) > 0 {
				l.Receive(p.Gateway, news)
			}
			l.passed(p.Address, at)
			if first {
				l.Logger.Debug("another gateway is followed", "peer", p.Gateway, "address", p.Address)
			}
		})
		if following {
			l.Following(p.Gateway, false)
		}
		switch {
		case errors.Is(err, ErrNoSession):
			pause.Reset() // at the start other registrations may be seen before this gateway's session begins
		case ctx.Err() == nil && !quiet:
			quiet = true
			l.Logger.Info("another gateway cannot be followed: the reasons for which its leases end are not known here until it can", "peer", p.Gateway, "address", p.Address, "err", err)
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
		}
	}
}

func (l *Listener) place(address string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.places[address]
}

func (l *Listener) passed(address, at string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.places[address]; !known && len(l.places) >= maxPlaces {
		clear(l.places) // the streams begin at their start again
	}
	l.places[address] = at
}
