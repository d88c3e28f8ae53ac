package embeddedtest

import (
	"log/slog"
	"os"
	"sync"

	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/zkreal"
)

// Variable is the environment variable that StandIn looks at.
const Variable = "LOCKKEEPER_TEST_ZK"

// StandIn makes zkreal hand out embedded servers in this test binary when LOCKKEEPER_TEST_ZK is "embedded", so that the tests
// that were written for the real ZooKeeper run on this one unchanged. Call it in TestMain.
func StandIn() {
	if os.Getenv(Variable) != "embedded" {
		return
	}
	zkreal.UseStandIn(func(asked zkreal.StandInConfig) (zkreal.StandIn, error) {
		log := new(tail)
		s, err := Start(OnPort(asked.Port), With(func(c *embedded.Config) {
			c.TickTime, c.MinSessionTimeout, c.MaxSessionTimeout = asked.Tick, asked.MinSession, asked.MaxSession
			c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}))
		if err != nil {
			return nil, err
		}
		return &logged{s, log}, nil
	})
}

// logged is a Server with what it has logged.
type logged struct {
	*Server
	log *tail
}

func (l *logged) Log() string { return l.log.String() }

func (l *logged) Restart() error {
	l.log.clear()
	return l.Server.Restart()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailKept = 1 << 20

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.text)+len(p) > 2*tailKept {
		t.text = append(t.text[:0], t.text[len(t.text)-min(len(t.text), tailKept):]...)
	}
	t.text = append(t.text, p...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

func (t *tail) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = t.text[:0]
}
