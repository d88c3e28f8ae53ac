package zkreal

import (
	"fmt"
	"os"
	"time"
)

// StandIn is another server that is handed out in place of Debian's ZooKeeper, behind the same Server. It says what happens
// to whom as Server does.
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

// UseStandIn makes every standalone server of this test binary come from start. Call it in TestMain. Tests of ensembles are
// skipped then.
func UseStandIn(start func(StandInConfig) (StandIn, error)) { standIn = start }

// startStandIn is Start for a stand-in.
func startStandIn(cfg config) (*Server, error) {
	if len(cfg.lines)+len(cfg.jvm) > 0 {
		return nil, fmt.Errorf("a stand-in for ZooKeeper takes no lines of zoo.cfg and no JVM flags: %q, %q", cfg.lines, cfg.jvm)
	}
	s, err := newServer(cfg, cfg.clientPort)
	if err != nil {
		return nil, err
	}
	s.other, err = standIn(StandInConfig{Port: cfg.clientPort, Tick: cfg.tick, MinSession: cfg.minSession, MaxSession: cfg.maxSession})
	if err != nil {
		if s.ownDir {
			_ = os.RemoveAll(s.dir) // it is empty
		}
		return nil, err
	}
	return s, nil
}
