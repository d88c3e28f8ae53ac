package observer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// stream is one connection. The goroutine in Run reads it; another one writes what is queued, so that Run never waits for
// the network to take something, and a server that stops reading while it sends cannot lock both sides.
type stream struct {
	nc        net.Conn
	server    string
	sessionID int64
	timeout   time.Duration // negotiated

	// Owned by the goroutine in Run.
	frames *wire.FrameReader
	in     *listener

	kick chan struct{} // something is queued
	quit chan struct{} // closed by close
	wg   sync.WaitGroup

	mu          sync.Mutex
	out         []byte    // frames to write
	failed      error     // why the writer has stopped
	until       time.Time // the read deadline, unless interrupted
	interrupted bool      // reads end at once
}

// dialStream connects to a server and opens a session of its own. It refuses a
// server that has not got as far as lastZxid; the server sees to that itself.
func dialStream(ctx context.Context, cfg *zk.Config, server string, lastZxid int64) (*stream, error) {
	limit := min(handshakeMax, max(handshakeMin, cfg.SessionTimeout/3))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	nc, err := cfg.Dial(ctx, "tcp", server)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", server, err)
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	in := &listener{nc: nc}
	frames := wire.NewFrameReader(in, maxObserved)
	reply, err := shakeHands(nc, frames, cfg.SessionTimeout, lastZxid)
	if err == nil && cfg.Certificate != nil {
		err = identify(nc, frames, cfg.Certificate, server)
	}
	if !stop() || err != nil {
		nc.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("opening a session at %s: %w", server, err)
	}
	s := &stream{
		nc:        nc,
		server:    server,
		sessionID: reply.SessionID,
		timeout:   time.Duration(reply.TimeoutMs) * time.Millisecond,
		frames:    frames,
		in:        in,
		kick:      make(chan struct{}, 1),
		quit:      make(chan struct{}),
	}
	s.wg.Go(s.write)
	return s, nil
}

// listener notes when bytes arrive: also those of a reply that takes long.
type listener struct {
	nc    net.Conn
	heard time.Time
}

func (l *listener) Read(p []byte) (int, error) {
	n, err := l.nc.Read(p)
	if n > 0 {
		l.heard = time.Now()
	}
	return n, err
}

func shakeHands(nc net.Conn, frames *wire.FrameReader, timeout time.Duration, lastZxid int64) (*wire.ConnectReply, error) {
	// HasReadOnly with ReadOnly false: a server that has lost its quorum must not serve us.
	hello := wire.AppendFrame(nil, &wire.ConnectRequest{
		LastZxidSeen: lastZxid,
		TimeoutMs:    int32(timeout.Milliseconds()),
		Passwd:       make([]byte, 16),
		HasReadOnly:  true,
	})
	if _, err := nc.Write(hello); err != nil {
		return nil, err
	}
	frame, err := frames.Next()
	if err != nil {
		// A server that lags behind lastZxid closes without a word.
		return nil, fmt.Errorf("no session (a server behind zxid %#x refuses this way): %w", lastZxid, err)
	}
	reply := new(wire.ConnectReply)
	d := wire.NewDecoder(frame)
	reply.Decode(d)
	if err := d.Finish(); err != nil {
		return nil, err
	}
	if reply.SessionID == 0 || reply.TimeoutMs <= 0 {
		return nil, errors.New("the server refused the session")
	}
	reply.Passwd = nil
	return reply, nil
}

// identify sees to it that the server knows the fleet by its certificate: to others it shows not all that there is.
func identify(nc net.Conn, frames *wire.FrameReader, certificate *zk.CertificateAuth, server string) error {
	if _, err := nc.Write(certificate.AppendQuestion(nil)); err != nil {
		return err
	}
	frame, err := frames.Next()
	if err != nil {
		return err
	}
	return certificate.Learn(server, frame)
}

// listen lets the reads that follow wait until then, or until interrupt is called, which may happen at once. What others have
// asked for before an interrupt must be looked at after listen, and before the next read: an interrupt that came while nothing
// was read leaves no other trace. The same goes for the end of a context. The error is why the writer has stopped.
func (s *stream) listen(until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupted || !until.Equal(s.until) {
		s.interrupted, s.until = false, until
		_ = s.nc.SetReadDeadline(until) // of a connection that is closed the next read tells
	}
	return s.failed
}

// longAgo as a deadline ends a read at once.
var longAgo = time.Unix(1, 0)

// interrupt ends the read of the goroutine in Run, or the next one: its error is os.ErrDeadlineExceeded. Bytes that have
// arrived stay. Any goroutine may call it.
func (s *stream) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.interrupted {
		s.interrupted = true
		_ = s.nc.SetReadDeadline(longAgo)
	}
}

// queue takes over frames to be written. What may be queued is bounded by the windows of requests in flight.
func (s *stream) queue(frames []byte) {
	s.mu.Lock()
	s.out = append(s.out, frames...)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// write writes what is queued until the connection fails or is closed.
func (s *stream) write() {
	var frames []byte
	for {
		select {
		case <-s.kick:
		case <-s.quit:
			return
		}
		s.mu.Lock()
		frames, s.out = s.out, frames[:0]
		s.mu.Unlock()
		if len(frames) == 0 {
			continue
		}
		// A server that takes nothing for that long would have expired us.
		err := s.nc.SetWriteDeadline(time.Now().Add(s.timeout))
		if err == nil {
			_, err = s.nc.Write(frames)
		}
		if err != nil {
			s.mu.Lock()
			s.failed = fmt.Errorf("writing to %s: %w", s.server, err)
			s.mu.Unlock()
			s.interrupt()
			return
		}
	}
}

// closeSession ends the session at the server, so that it need not wait until the session expires, and waits a moment
// for the server to hang up. Nothing interrupts it.
func (s *stream) closeSession(xid int32) {
	s.queue(wire.AppendFrame(nil, &wire.RequestHeader{Xid: xid, Op: wire.OpCloseSession}))
	s.mu.Lock()
	s.interrupted = true // so no other interrupt moves the deadline
	_ = s.nc.SetReadDeadline(time.Now().Add(closeLimit))
	s.mu.Unlock()
	for err := error(nil); err == nil; {
		_, err = s.frames.Next()
	}
}

// close ends the connection and its goroutine.
func (s *stream) close() {
	close(s.quit)
	s.nc.Close()
	s.wg.Wait()
}

// silence is how long nothing has arrived.
func (s *stream) silence() time.Duration { return time.Since(s.in.heard) }
