package zkreal

import (
	"fmt"
	"time"
)

// StandIn is another server that is handed out in place of Debian's ZooKeeper, behind the same Server. It reports events
// as Server does.
type StandIn interface {
	Addr() string
	Restart() error
	Stop()
	Kill()
	Close()
	Freeze()
	Thaw()
	// Running is true for a frozen server, too. Done is closed when the present run has ended.
	Running() bool
	Done() <-chan struct{}
	// Log is what the server has said since it was last started.
	Log() string
}

// StandInConfig is what a stand-in is asked for.
type StandInConfig struct {
	Port                   int // 0: any
	Tick                   time.Duration
	MinSession, MaxSession time.Duration
}

// standIn makes the servers of this test binary when it is not nil. UseStandIn alone writes it, before the first test.
var standIn func(StandInConfig) (StandIn, error)

// UseStandIn makes standalone servers of this test binary come from start, but for those that are asked for with Real. It is
// asked each time, and may answer nil: then Debian's server it is. Call UseStandIn in TestMain.
func UseStandIn(start func(StandInConfig) (StandIn, error)) { standIn = start }

// startStandIn is Start for a stand-in. It is nil when there is none for this server.
func startStandIn(cfg config) (*Server, error) {
	if standIn == nil || cfg.real {
		return nil, nil
	}
	other, err := standIn(StandInConfig{Port: cfg.clientPort, Tick: cfg.tick, MinSession: cfg.minSession, MaxSession: cfg.maxSession})
	if other == nil || err != nil {
		return nil, err
	}
	if len(cfg.lines)+len(cfg.jvm) > 0 {
		other.Close()
		return nil, fmt.Errorf("a stand-in for ZooKeeper takes no lines of zoo.cfg and no JVM flags (zkreal.Real asks for one that does): %q, %q",
			cfg.lines, cfg.jvm)
	}
	s, err := newServer(cfg, cfg.clientPort)
	if err != nil {
		other.Close()
		return nil, err
	}
	s.other = other
	return s, nil
}
