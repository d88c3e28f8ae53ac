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

// stream is one connection: a goroutine that reads bursts of frames and one that writes what is queued, so that the
// goroutine between them never waits for the network, and a server that stops reading while it sends cannot lock both
// sides.
type stream struct {
	nc        net.Conn
	server    string
	sessionID int64
	timeout   time.Duration // negotiated

	bursts chan []byte   // from the reader
	spare  chan []byte   // back to it
	failed chan error    // the reader's or the writer's last word; capacity 2
	quit   chan struct{} // closed by close
	wg     sync.WaitGroup
	in     *listener

	mu   sync.Mutex
	out  []byte // frames to write
	kick chan struct{}
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
		bursts:    make(chan []byte),
		spare:     make(chan []byte, 1),
		failed:    make(chan error, 2),
		quit:      make(chan struct{}),
		in:        in,
		kick:      make(chan struct{}, 1),
	}
	s.wg.Go(func() { s.read(frames) })
	s.wg.Go(s.write)
	return s, nil
}

// listener notes when bytes arrive: also those of a reply that takes long.
type listener struct {
	nc    net.Conn
	mu    sync.Mutex
	heard time.Time
}

func (l *listener) Read(p []byte) (int, error) {
	n, err := l.nc.Read(p)
	if n > 0 {
		l.mu.Lock()
		l.heard = time.Now()
		l.mu.Unlock()
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

// read hands over bursts until the connection fails or is closed.
func (s *stream) read(frames *wire.FrameReader) {
	var spare []byte
	for {
		burst, err := frames.Burst(spare)
		if err != nil {
			s.failed <- fmt.Errorf("reading from %s: %w", s.server, err)
			return
		}
		select {
		case s.bursts <- burst:
		case <-s.quit:
			return
		}
		select {
		case spare = <-s.spare:
		default:
			spare = nil // the burst is still being worked on
		}
	}
}

// recycle gives a burst's buffer back to the reader.
func (s *stream) recycle(burst []byte) {
	select {
	case s.spare <- burst:
	default:
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
			s.failed <- fmt.Errorf("writing to %s: %w", s.server, err)
			return
		}
	}
}

// closeSession ends the session at the server, so that it need not wait until the session expires, and waits a moment
// for the server to hang up. Nothing else may be received from the stream meanwhile.
func (s *stream) closeSession(xid int32) {
	s.queue(wire.AppendFrame(nil, &wire.RequestHeader{Xid: xid, Op: wire.OpCloseSession}))
	timer := time.NewTimer(closeLimit)
	defer timer.Stop()
	for {
		select {
		case burst := <-s.bursts:
			s.recycle(burst)
		case <-s.failed:
			return
		case <-timer.C:
			return
		}
	}
}

// close ends the connection and both goroutines.
func (s *stream) close() {
	close(s.quit)
	s.nc.Close()
	s.wg.Wait()
}

// silence is how long nothing has arrived.
func (s *stream) silence() time.Duration {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	return time.Since(s.in.heard)
}
