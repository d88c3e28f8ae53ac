package zkreal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/test/childproc"
)

// Server is one ZooKeeper server process, which may be stopped and started again over the same data and port. Its
// methods may be called from any goroutine; those that change whether it runs exclude each other.
type Server struct {
	cfg     config
	dir     string
	ownDir  bool // Close removes dir
	port    int
	id      int      // this server's number in its ensemble; 0 when standalone
	peers   []string // zoo.cfg lines of an ensemble
	other   StandIn  // not nil: this and no process of ours is the server
	startMu sync.Mutex

	mu   sync.Mutex
	proc *childproc.Process // nil before the first start
}

// errPortTaken: another process bound a port between our looking and the server's binding.
var errPortTaken = errors.New("address already in use")

// Start runs a standalone server and returns once it serves requests. The caller must Close it.
func Start(opts ...Option) (*Server, error) {
	cfg := newConfig(opts)
	if s, err := startStandIn(cfg); s != nil || err != nil {
		return s, err
	}
	const tries = 5
	for try := 1; ; try++ {
		port := cfg.clientPort
		if port == 0 {
			ports, err := freePorts(1)
			if err != nil {
				return nil, err
			}
			port = ports[0]
		}
		s, err := newServer(cfg, port)
		if err != nil {
			return nil, err
		}
		if err = s.Restart(); err == nil {
			return s, nil
		}
		s.Close()
		if cfg.clientPort != 0 || try == tries || !errors.Is(err, errPortTaken) {
			return nil, err
		}
	}
}

func newServer(cfg config, port int) (*Server, error) {
	s := &Server{cfg: cfg, dir: cfg.dir, port: port}
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "zkreal-")
		if err != nil {
			return nil, fmt.Errorf("directory for ZooKeeper: %w", err)
		}
		s.dir, s.ownDir = dir, true
	}
	return s, nil
}

// Addr is the client address, "127.0.0.1:port". It stays the same across restarts.
func (s *Server) Addr() string {
	if s.other != nil {
		return s.other.Addr()
	}
	return fmt.Sprintf("127.0.0.1:%d", s.port)
}

// Dir holds zoo.cfg, zookeeper.log and data/.
func (s *Server) Dir() string { return s.dir }

// PID is the process id of the JVM, of a stand-in that of this process; 0 when it does not run.
func (s *Server) PID() int {
	if s.other != nil {
		if s.other.Running() {
			return os.Getpid()
		}
		return 0
	}
	if p := s.current(); p != nil && !p.Ended() {
		return p.PID()
	}
	return 0
}

// Done is closed when the process that runs now has ended, for any reason. It is nil before the first start.
func (s *Server) Done() <-chan struct{} {
	if s.other != nil {
		return s.other.Done()
	}
	if p := s.current(); p != nil {
		return p.Done()
	}
	return nil
}

func (s *Server) current() *childproc.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// Restart stops the server if it runs, starts it over the same data and port, and returns once it serves requests.
func (s *Server) Restart() error {
	if s.other != nil {
		return s.other.Restart()
	}
	if err := s.launch(); err != nil {
		return err
	}
	return s.awaitServing()
}

// launch starts the process without waiting until it serves: members of an ensemble need each other for that.
func (s *Server) launch() error {
	s.startMu.Lock()
	defer s.startMu.Unlock()
	s.stop()
	java, err := javaBinary()
	if err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("data directory of ZooKeeper: %w", err)
	}
	if s.id != 0 {
		if err := os.WriteFile(filepath.Join(data, "myid"), fmt.Appendf(nil, "%d\n", s.id), 0o600); err != nil {
			return fmt.Errorf("myid of ZooKeeper: %w", err)
		}
	}
	cfgFile := filepath.Join(s.dir, "zoo.cfg")
	if err := os.WriteFile(cfgFile, []byte(s.cfg.zooCfg(data, s.port, s.peers)), 0o600); err != nil {
		return fmt.Errorf("configuration of ZooKeeper: %w", err)
	}
	// Truncated at each start: the log answers "why does it not serve now", and a development server's must not grow for ever.
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("log of ZooKeeper: %w", err)
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(java, s.cfg.javaArgs(cfgFile)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	p, err := childproc.Start(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	return nil
}

// awaitServing polls until the server answers srvr as one that serves, and proves by its data directory to be ours.
func (s *Server) awaitServing() error {
	p := s.current()
	deadline := time.NewTimer(s.cfg.startWithin)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.modeWithin(askStartingWithin) != "" {
			conf, err := fourLetter(s.Addr(), "conf", askStartingWithin)
			if err == nil && strings.Contains(conf, s.dir+"/") {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-p.Done():
			tail := s.LogTail(20)
			if strings.Contains(tail, "Address already in use") {
				return fmt.Errorf("ZooKeeper on %s: %w", s.Addr(), errPortTaken)
			}
			return fmt.Errorf("ZooKeeper on %s ended while starting (%v); the end of its log:\n%s", s.Addr(), p.Wait(), tail)
		case <-deadline.C:
			return fmt.Errorf("ZooKeeper on %s does not serve after %v; the end of its log:\n%s", s.Addr(), s.cfg.startWithin, s.LogTail(20))
		}
	}
}

// Stop ends the server as an operator would (SIGTERM) and waits until it is gone; one that is still there after ten
// seconds is killed. Stopping a stopped server does nothing. Data stays.
func (s *Server) Stop() {
	if s.other != nil {
		s.other.Stop()
		return
	}
	s.startMu.Lock()
	defer s.startMu.Unlock()
	s.stop()
}

func (s *Server) stop() {
	if p := s.current(); p != nil {
		p.Stop(10 * time.Second)
	}
}

// Kill ends the server with SIGKILL and waits until it is gone. What it had acknowledged is on disk (unless WithoutFsync).
func (s *Server) Kill() {
	if s.other != nil {
		s.other.Kill()
		return
	}
	s.startMu.Lock()
	defer s.startMu.Unlock()
	if p := s.current(); p != nil {
		p.Kill()
	}
}

// Close stops the server and removes its temporary directory. A directory given by WithDir stays.
func (s *Server) Close() {
	if s.other != nil {
		s.other.Close()
	} else {
		s.Stop()
	}
	if s.ownDir {
		_ = os.RemoveAll(s.dir) // nothing a caller could do about it
	}
}

// Freeze stops the process in its tracks (SIGSTOP): connections stay open, nothing answers. Thaw lets it go on.
func (s *Server) Freeze() {
	if s.other != nil {
		s.other.Freeze()
		return
	}
	if p := s.current(); p != nil {
		p.Freeze()
	}
}

// Thaw lets a frozen server go on (SIGCONT).
func (s *Server) Thaw() {
	if s.other != nil {
		s.other.Thaw()
		return
	}
	if p := s.current(); p != nil {
		p.Thaw()
	}
}

// FourLetter sends a four-letter word to this server.
func (s *Server) FourLetter(word string) (string, error) { return FourLetter(s.Addr(), word) }

// Mode is "standalone", "leader" or "follower" as the server itself says now; "" when it does not serve or not answer.
func (s *Server) Mode() string { return s.modeWithin(askWithin) }

func (s *Server) modeWithin(within time.Duration) string {
	answer, err := fourLetter(s.Addr(), "srvr", within)
	if err != nil {
		return ""
	}
	return modeOf(answer)
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "zookeeper.log") }

// Log is what the server has logged since its last start.
func (s *Server) Log() string {
	if s.other != nil {
		return s.other.Log()
	}
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return "no log: " + err.Error()
	}
	return string(b)
}

// LogTail is the last lines of the log.
func (s *Server) LogTail(lines int) string {
	all := strings.Split(strings.TrimRight(s.Log(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
