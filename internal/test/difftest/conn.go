package difftest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"lockkeeper/internal/zk/wire"
)

// patience is how long a server may take for an answer.
const patience = 20 * time.Second

// frameLimit is far above what scenarios ask for.
const frameLimit = 8 << 20

// conn is one connection to a server. It adds nothing to the protocol: xids are the caller's.
type conn struct {
	nc     net.Conn
	frames *wire.FrameReader
	xid    int32
	asked  map[int32]Request // by xid, as sent
}

func dial(addr string) (*conn, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &conn{nc: nc, frames: wire.NewFrameReader(nc, frameLimit), asked: map[int32]Request{}}, nil
}

// leave closes the connection and waits until the server has done the same: it has dropped the connection's watches then.
// (Both servers answer checkWatches and removeWatches by the watches of all connections.)
func (c *conn) leave() {
	defer c.nc.Close()
	if tcp, ok := c.nc.(*net.TCPConn); !ok || tcp.CloseWrite() != nil || c.nc.SetReadDeadline(time.Now().Add(patience)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.nc) // what ends it does not matter
}

// write sends bytes. That the server has closed the connection is for the reader to find out.
func (c *conn) write(b []byte) error {
	if err := c.nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.nc.Write(b); err != nil && !hungUp(err) {
		return err
	}
	return nil
}

// next is the next frame, io.EOF when the server has closed the connection.
func (c *conn) next() ([]byte, error) {
	if err := c.nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	frame, err := c.frames.Next()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("no answer within %v", patience)
	case err != nil && hungUp(err):
		return nil, io.EOF
	}
	return frame, err
}

// hungUp is also true for an end inside a frame: ZooKeeper may close a connection while it writes the answer to the ping that
// follows the last request. An answer that is cut off by mistake is missing in the transcript.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

var ping = wire.AppendFrame(nil, &wire.RequestHeader{Xid: wire.XidPing, Op: wire.OpPing})

// until reads frames until so many pings have been answered, and hands each to seen but the answer to the last ping.
// open is false when the server closed the connection instead.
func (c *conn) until(pings int, seen func(h wire.ReplyHeader, body []byte)) (zxid int64, open bool, err error) {
	for {
		frame, err := c.next()
		if err == io.EOF {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, err
		}
		d := wire.NewDecoder(frame)
		var h wire.ReplyHeader
		h.Decode(d)
		if d.Err() != nil {
			return 0, false, fmt.Errorf("a frame that is no reply: %x", frame)
		}
		if h.Xid == wire.XidPing {
			if pings--; pings == 0 {
				return h.Zxid, true, nil
			}
		}
		seen(h, frame[len(frame)-d.Len():])
	}
}

// handshake asks for a session. It is nil when the server closes the connection without an answer.
func (c *conn) handshake(ask *wire.ConnectRequest) (*wire.ConnectReply, int, error) {
	if err := c.write(wire.AppendFrame(nil, ask)); err != nil {
		return nil, 0, err
	}
	frame, err := c.next()
	if err == io.EOF {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	d := wire.NewDecoder(frame)
	reply := new(wire.ConnectReply)
	reply.Decode(d)
	if err := d.Finish(); err != nil {
		return nil, 0, fmt.Errorf("connect reply %x: %w", frame, err)
	}
	reply.Passwd = append([]byte(nil), reply.Passwd...)
	return reply, len(frame), nil
}

// call makes one request of a connection that nothing else happens on, and returns its reply.
func (c *conn) call(op wire.Op, req wire.Record, reply wire.Record) (wire.ReplyHeader, error) {
	c.xid++
	records := []wire.Record{&wire.RequestHeader{Xid: c.xid, Op: op}}
	if req != nil {
		records = append(records, req)
	}
	var h wire.ReplyHeader
	if err := c.write(wire.AppendFrame(nil, records...)); err != nil {
		return h, err
	}
	frame, err := c.next()
	if err != nil {
		return h, err
	}
	d := wire.NewDecoder(frame)
	h.Decode(d)
	if h.Err == wire.OK && reply != nil {
		reply.Decode(d)
	}
	return h, d.Err()
}
