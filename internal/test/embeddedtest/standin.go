package embeddedtest

import (
	"fmt"
	"log/slog"
	"os"
	"sync"

	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/embedded"
)

// Variable is the environment variable that says on which server tests run: "embedded", which is the default, or "real".
const Variable = "LOCKKEEPER_TEST_ZK"

// StandIn makes zkreal hand out embedded servers in this test binary, unless LOCKKEEPER_TEST_ZK is "real": the same tests run
// on both. What is about ZooKeeper itself asks zkreal for the real one. Call it in TestMain; it ends the program when the
// variable has a value that means nothing.
func StandIn() {
	if _, err := wantsReal(os.Getenv(Variable)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	zkreal.UseStandIn(func(asked zkreal.StandInConfig) (zkreal.StandIn, error) {
		// Looked at again within a test: go test notes it then, and does not repeat a result of the other server from its cache.
		if real, err := wantsReal(os.Getenv(Variable)); real || err != nil {
			return nil, err
		}
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

// wantsReal reads the variable's value.
func wantsReal(value string) (bool, error) {
	switch value {
	case "", "embedded":
		return false, nil
	case "real":
		return true, nil
	}
	return false, fmt.Errorf("%s is %q, and may be \"embedded\" (the default) or \"real\"", Variable, value)
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
