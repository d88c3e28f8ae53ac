package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"
)

// Config says how a Server behaves. Only Storage is needed; zero values mean what ZooKeeper's defaults are.
type Config struct {
	// Storage keeps what is written. It stays the caller's.
	Storage Storage

	// TickTime is what sessions' ends are rounded up to; 2 s.
	TickTime time.Duration
	// MinSessionTimeout and MaxSessionTimeout bound what clients may ask for; 2 and 20 ticks.
	MinSessionTimeout, MaxSessionTimeout time.Duration
	// ReapInterval is how often empty containers and nodes whose time to live is over are looked for; a minute.
	ReapInterval time.Duration

	// MaxFrame is the longest request in bytes (jute.maxbuffer); 1,048,575.
	MaxFrame int
	// MaxUnread is how many bytes of output a connection may leave unread; 64 MiB. Beyond that it is closed.
	MaxUnread int
	// MaxUnreadTotal is how many bytes all connections together may leave unread; 256 MiB. Beyond that every connection that
	// is sent something and has left more than 1 MiB unread is closed.
	MaxUnreadTotal int
	// MaxConns bounds the connections in all; 4096.
	MaxConns int
	// MaxConnsPerIP bounds the connections from one address (maxClientCnxns); 60, and -1 for no bound. Connections without
	// an IP address (pipes) are not counted.
	MaxConnsPerIP int
	// HandshakeTimeout is how long a connection may take to send its connect request or four-letter word; 10 s.
	HandshakeTimeout time.Duration
	// DrainTimeout is how long released output may take to leave when the server stops in good order, or closes a single
	// connection after a last reply; 1 s.
	DrainTimeout time.Duration

	// EndLocalSessions ends the local sessions that are in the storage before the server serves any client. Set it when the
	// process which had opened them is gone: in a process that has just opened the storage for the first time.
	EndLocalSessions bool
	// KeepAdmin takes ADMIN on ZooKeeper's own nodes, such as "/", from all clients before the server serves any. Only the
	// process changes their ACLs then. A real ZooKeeper leaves ADMIN there to every client.
	KeepAdmin bool

	// SnapshotPiece is about how many bytes of a snapshot are stored at once, while requests wait; 256 KiB.
	SnapshotPiece int

	// Clock tells the milliseconds since the Unix epoch that nodes are stamped with and their times to live are measured by;
	// nil is the system's. Sessions do not depend on it: they live by monotonic time.
	Clock func() int64
	// Gate is called by the core before each batch and may hold it up for as long as stop is open; nil is none. It is how
	// tests freeze a server.
	Gate func(stop <-chan struct{})
	// Logger may be nil for none.
	Logger *slog.Logger
}

const (
	defaultTick     = 2 * time.Second
	defaultMaxFrame = 0xfffff
)

// complete fills in the defaults.
func (c *Config) complete() error {
	if c.Storage == nil {
		return errors.New("embedded ZooKeeper: no storage")
	}
	if len(c.Storage.Secret()) < 16 {
		return errors.New("embedded ZooKeeper: the storage's secret is shorter than 16 bytes")
	}
	setDefault(&c.TickTime, defaultTick)
	setDefault(&c.MinSessionTimeout, 2*c.TickTime)
	setDefault(&c.MaxSessionTimeout, 20*c.TickTime)
	setDefault(&c.ReapInterval, time.Minute)
	setDefault(&c.MaxFrame, defaultMaxFrame)
	setDefault(&c.MaxUnread, 64<<20)
	setDefault(&c.MaxUnreadTotal, 256<<20)
	setDefault(&c.MaxConns, 4096)
	setDefault(&c.MaxConnsPerIP, 60)
	setDefault(&c.HandshakeTimeout, 10*time.Second)
	setDefault(&c.DrainTimeout, time.Second)
	setDefault(&c.SnapshotPiece, defaultSnapshotPiece)
	if c.Clock == nil {
		c.Clock = func() int64 { return time.Now().UnixMilli() }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.TickTime < time.Millisecond:
		return fmt.Errorf("embedded ZooKeeper: a tick of %v is below a millisecond", c.TickTime)
	case c.MinSessionTimeout <= 0 || c.MaxSessionTimeout < c.MinSessionTimeout:
		return fmt.Errorf("embedded ZooKeeper: session timeouts from %v to %v", c.MinSessionTimeout, c.MaxSessionTimeout)
	case c.MaxSessionTimeout.Milliseconds() > math.MaxInt32:
		return fmt.Errorf("embedded ZooKeeper: a session timeout of %v does not fit into a connect reply", c.MaxSessionTimeout)
	case c.MaxFrame < 45: // a connect request
		return fmt.Errorf("embedded ZooKeeper: frames of at most %d bytes", c.MaxFrame)
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
