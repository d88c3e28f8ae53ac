package zktest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
)

// LeaderName is the leader's name in the network. Followers are "follower-1", "follower-2" and so on.
const LeaderName = "leader"

// FollowerName is the name of a follower, counted from 1.
func FollowerName(i int) string { return fmt.Sprint("follower-", i) }

// Config says what an ensemble is like.
type Config struct {
	Seed uint64
	// Followers is how many there are beside the leader.
	Followers int
	// Lag is how far followers are behind; the zero value is up to two milliseconds.
	Lag Delay
	// SyncLimit is how long a follower that is cut off goes on serving; 0 is five seconds.
	SyncLimit time.Duration
	// Tick is the server's; 0 is 500 ms. Sessions of one to twenty ticks are granted.
	Tick time.Duration
	// LocalSessions makes followers open local sessions: see doc.go.
	LocalSessions bool
}

// Ensemble is a leader and its followers, connected by a network of their own seed.
type Ensemble struct {
	Network *Network

	cfg       Config
	history   *history
	followers []*Follower

	listening sync.Mutex
	told      []func(*state.Txn)

	moving  sync.Mutex
	present []*followed // connections of clients with followers, oldest first

	leading atomic.Bool  // the leader runs
	locals  atomic.Int64 // how many local sessions there have been

	turn   chan struct{}    // one place, taken to start or end the leader. Waiting for a mutex would stop the bubble's clock.
	leader *embedded.Server // nil while it does not run
	ended  chan struct{}
	cancel context.CancelFunc
}

// Start runs an ensemble until the test ends. It must be called inside a bubble.
func Start(t testing.TB, cfg Config) *Ensemble {
	t.Helper()
	if cfg.Lag == (Delay{}) {
		cfg.Lag = Delay{0, 2 * time.Millisecond}
	}
	if cfg.SyncLimit == 0 {
		cfg.SyncLimit = 5 * time.Second
	}
	if cfg.Tick == 0 {
		cfg.Tick = 500 * time.Millisecond
	}
	e := &Ensemble{Network: NewNetwork(cfg.Seed), cfg: cfg, turn: make(chan struct{}, 1)}
	e.history = &history{MemoryStorage: embedded.NewMemoryStorage(), e: e}
	for i := range cfg.Followers {
		e.followers = append(e.followers, newFollower(e, FollowerName(i+1)))
	}
	assert.NoError(t, e.StartLeader(), "zktest")
	t.Cleanup(e.Close)
	return e
}

// Servers are the names of all servers, the leader's first.
func (e *Ensemble) Servers() []string {
	names := []string{LeaderName}
	for _, f := range e.followers {
		names = append(names, f.name)
	}
	return names
}

// Follower is the ith one, counted from 1.
func (e *Ensemble) Follower(i int) *Follower { return e.followers[i-1] }

// OnCommit has f called with every transaction when it is committed, in order and before any client learns of it. f must be
// quick, and may keep the transaction.
func (e *Ensemble) OnCommit(f func(*state.Txn)) {
	e.listening.Lock()
	defer e.listening.Unlock()
	e.told = append(e.told, f)
}

// Dialer connects a client by its name; it fits zk.Config.Dial. The address is the server's name, with or without a port.
func (e *Ensemble) Dialer(client string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return e.DialerBy("", client)
}

// DialerBy is Dialer for a client that connects by several ways (Network.DialBy).
func (e *Ensemble) DialerBy(way, client string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if host, _, err := net.SplitHostPort(addr); err == nil {
			addr = host
		}
		return e.Network.DialBy(way, client, addr)
	}
}

// StartLeader starts the leader over what it had. All sessions have their whole timeout to come back.
func (e *Ensemble) StartLeader() error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	if e.leader != nil {
		return nil
	}
	server, err := embedded.New(embedded.Config{
		Storage: e.history, TickTime: e.cfg.Tick, MinSessionTimeout: e.cfg.Tick, MaxSessionTimeout: 20 * e.cfg.Tick, MaxConnsPerIP: -1,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Run(ctx) // ErrClosed, when it is killed
	}()
	e.leader, e.ended, e.cancel = server, ended, cancel
	e.leading.Store(true)
	e.Network.Serve(LeaderName, server.ServeConn)
	return nil
}

// KillLeader ends the leader at once; what it had acknowledged is there when it starts again.
func (e *Ensemble) KillLeader() {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	if e.leader == nil {
		return
	}
	e.leading.Store(false)
	e.Network.Serve(LeaderName, nil)
	// Here, one after the other, for the server would do it in no certain order.
	e.Network.CutAll(e.Network.Links("", LeaderName))
	for _, f := range e.followers {
		f.dropLocals()
	}
	e.leader.Close()
	e.cancel()
	<-e.ended
	e.leader = nil
}

// Close ends all servers and connections.
func (e *Ensemble) Close() {
	for _, f := range e.followers {
		f.close()
	}
	e.KillLeader()
	for _, l := range e.Network.Links("", "") {
		l.Cut()
	}
}

// history is the leader's log, which the followers follow.
type history struct {
	*embedded.MemoryStorage
	e *Ensemble
}

// Append implements embedded.Storage.
func (h *history) Append(b embedded.Batch) error {
	if err := h.MemoryStorage.Append(b); err != nil {
		return err
	}
	h.e.listening.Lock()
	told := h.e.told
	h.e.listening.Unlock()
	for _, txn := range b.Txns {
		txn = decouple(txn)
		for _, f := range told {
			f(txn)
		}
		for _, f := range h.e.followers {
			f.feed(txn)
		}
	}
	return nil
}

// SnapshotDue implements embedded.Storage.
func (h *history) SnapshotDue() bool { return false }

// decouple copies a transaction, whose buffers are used again.
func decouple(txn *state.Txn) *state.Txn {
	c, err := state.DecodeTxn(slices.Clip(txn.AppendTo(nil)))
	if err != nil {
		panic(err) // it was written a line above
	}
	return c
}
