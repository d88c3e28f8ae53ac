package embeddedtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded"
)

// Server is one embedded ZooKeeper server, which may be stopped and started again over the same data and address.
type Server struct {
	cfg   embedded.Config
	pipes bool
	port  int
	due   bool       // a snapshot, always
	life  sync.Mutex // held while the server is started or stopped

	mu     sync.Mutex
	thawed chan struct{} // closed while the server is not frozen
	up     *life         // nil while it does not run
	last   *life
}

// life is one run of the server.
type life struct {
	server *embedded.Server
	drain  context.CancelFunc
	ended  chan struct{}
	err    error // how Run ended; valid when ended is closed
}

// Option changes how a server is run.
type Option func(*Server)

// With changes the configuration. Storage, Gate and everything else may be set.
func With(change func(*embedded.Config)) Option { return func(s *Server) { change(&s.cfg) } }

// Pipes lets the server listen on nothing: connections come through Dial alone. For tests in a synctest bubble.
func Pipes() Option { return func(s *Server) { s.pipes = true } }

// OnPort fixes the port. Start fails when it is taken.
func OnPort(port int) Option { return func(s *Server) { s.port = port } }

// SnapshotsAlways makes the server take one snapshot after the other for as long as anything is written, in tiny pieces.
func SnapshotsAlways() Option { return func(s *Server) { s.due = true } }

// alwaysDue is a storage that always asks for a snapshot.
type alwaysDue struct{ embedded.Storage }

func (alwaysDue) SnapshotDue() bool { return true }

// RunT runs a server for one test and ends it with the test.
func RunT(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := assert.Value(Start(opts...))(t, "embeddedtest")
	t.Cleanup(s.Close)
	return s
}

// Start runs a server. The caller must Close it.
func Start(opts ...Option) (*Server, error) {
	s := &Server{thawed: make(chan struct{})}
	close(s.thawed)
	s.cfg = embedded.Config{
		TickTime:          500 * time.Millisecond,
		MinSessionTimeout: 200 * time.Millisecond,
		MaxSessionTimeout: time.Minute,
		MaxConnsPerIP:     -1,
	}
	for _, o := range opts {
		o(s)
	}
	if s.cfg.Storage == nil {
		s.cfg.Storage = embedded.NewMemoryStorage()
	}
	if s.due {
		s.cfg.Storage, s.cfg.SnapshotPiece = alwaysDue{s.cfg.Storage}, 64
	}
	if s.cfg.Gate == nil {
		s.cfg.Gate = s.gate
	}
	if s.pipes || s.port != 0 {
		return s, s.Restart()
	}
	// From below Linux's ephemeral range: the port must still be free after a Kill.
	var err error
	for range 100 {
		s.port = 20000 + rand.IntN(12000)
		if err = s.Restart(); !errors.Is(err, syscall.EADDRINUSE) {
			return s, err
		}
	}
	return nil, err
}

// gate holds the server's core up while the server is frozen.
func (s *Server) gate(stop <-chan struct{}) {
	s.mu.Lock()
	thawed := s.thawed
	s.mu.Unlock()
	select {
	case <-thawed:
	case <-stop:
	}
}

// Addr is "127.0.0.1:port", the same across restarts; with Pipes an address that only Dial looks at.
func (s *Server) Addr() string {
	if s.pipes {
		return "127.0.0.1:2181"
	}
	return fmt.Sprintf("127.0.0.1:%d", s.port)
}

// Dial connects to the server; it fits zk.Config.Dial. The address does not matter.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if !s.pipes {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", s.Addr())
	}
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	if up == nil {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	go up.server.ServeConn(server)
	return client, nil
}

// Restart stops the server if it runs, as an operator would, and starts it over the same data and address.
func (s *Server) Restart() error {
	s.life.Lock()
	defer s.life.Unlock()
	s.end((*life).stop)
	server, err := embedded.New(s.cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{server: server, drain: cancel, ended: make(chan struct{})}
	var running sync.WaitGroup
	if !s.pipes {
		listener, err := net.Listen("tcp4", s.Addr())
		if err != nil {
			cancel()
			return err
		}
		running.Go(func() { _ = server.Serve(listener) }) // fails only after the server has
	}
	running.Go(func() { l.err = server.Run(ctx) })
	go func() {
		running.Wait()
		close(l.ended)
	}()
	s.mu.Lock()
	s.up, s.last = l, l
	s.mu.Unlock()
	return nil
}

// RestartT is Restart; a failure ends the test.
func (s *Server) RestartT(t testing.TB) {
	t.Helper()
	assert.NoError(t, s.Restart(), "embeddedtest")
}

// stop ends the server in good order, kill at once. Both return when it is gone.
func (l *life) stop() {
	l.drain()
	<-l.ended
}

func (l *life) kill() {
	l.server.Close()
	<-l.ended
	l.drain()
}

func (s *Server) end(how func(*life)) {
	s.mu.Lock()
	up := s.up
	s.up = nil
	frozen := !isClosed(s.thawed)
	s.mu.Unlock()
	if up == nil {
		return
	}
	if frozen {
		how = (*life).kill // it could not do anything in good order
	}
	how(up)
	s.Thaw() // the next one is not frozen
}

// Stop ends the server in good order: what has reached it is answered. Data stays.
func (s *Server) Stop() {
	s.life.Lock()
	defer s.life.Unlock()
	s.end((*life).stop)
}

// Kill ends the server at once and drops all connections. What it had acknowledged is stored.
func (s *Server) Kill() {
	s.life.Lock()
	defer s.life.Unlock()
	s.end((*life).kill)
}

// Close ends the server.
func (s *Server) Close() { s.Kill() }

// Freeze stops the server in its tracks, as SIGSTOP does: connections stay open and new ones are accepted, nothing answers,
// no session expires.
func (s *Server) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isClosed(s.thawed) {
		s.thawed = make(chan struct{})
	}
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isClosed(s.thawed) {
		close(s.thawed)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Running says whether the server is up. A frozen one is.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up != nil && !isClosed(s.up.ended)
}

// Done is closed when the life that began last has ended, for any reason.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.ended
}

// Err is how the life that began last has ended: nil in good order, embedded.ErrClosed when it was killed, or the storage's
// error. It waits for that end.
func (s *Server) Err() error {
	<-s.Done()
	return s.last.err
}

// Unread is how many bytes of output the present life keeps for clients that have not taken them.
func (s *Server) Unread() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.server.Unread()
}

// FourLetter sends a four-letter word and returns the answer. It gives up after two seconds.
func (s *Server) FourLetter(word string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := s.Dial(ctx, "tcp", s.Addr())
	if err != nil {
		return "", fmt.Errorf("four-letter word %s: %w", word, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", fmt.Errorf("four-letter word %s: %w", word, err)
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("four-letter word %s: %w", word, err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("four-letter word %s: %w", word, err)
	}
	return string(answer), nil
}
