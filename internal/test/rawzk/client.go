// Package rawzk is a ZooKeeper client for tests that sends and receives frames and does nothing by itself: no pings, no
// reconnecting, no watches. It is test support; no shipped code may import it.
package rawzk

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"time"

	"lockkeeper/internal/zk/wire"
)

// Client is one connection. One goroutine at a time uses it.
type Client struct {
	Conn net.Conn
	// Patience is how long a write, and the wait for a frame, may take; 0 for no limit.
	Patience time.Duration
	// ID and Passwd are the session's, Seen the newest zxid of a reply.
	ID     int64
	Passwd []byte
	Seen   int64

	Frames *wire.FrameReader // of Conn
	xid    int32
}

// ErrRefused is what Open returns when the server gives no session.
var ErrRefused = errors.New("no session")

// Frame is a reply or an event.
type Frame struct {
	wire.ReplyHeader
	Body []byte
}

// New is a client without a session.
func New(nc net.Conn, patience time.Duration) *Client {
	return &Client{Conn: nc, Patience: patience, Frames: wire.NewFrameReader(nc, 64<<20)}
}

// Open is a client with a new session. After an error the connection is closed.
func Open(nc net.Conn, patience, timeout time.Duration) (*Client, error) {
	c := New(nc, patience)
	reply, err := c.Connect(&wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds()), Passwd: make([]byte, 16)})
	if err == nil && reply.SessionID == 0 {
		err = ErrRefused
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// Dial is Open over TCP.
func Dial(addr string, patience, timeout time.Duration) (*Client, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return Open(nc, patience, timeout)
}

// Connect asks for a session and remembers it.
func (c *Client) Connect(ask *wire.ConnectRequest) (reply wire.ConnectReply, err error) {
	if err := c.Write(wire.AppendFrame(nil, ask)); err != nil {
		return reply, err
	}
	frame, err := c.Next()
	if err != nil {
		return reply, err
	}
	d := wire.NewDecoder(frame)
	reply.Decode(d)
	reply.Passwd = bytes.Clone(reply.Passwd)
	c.ID, c.Passwd = reply.SessionID, reply.Passwd
	return reply, d.Finish()
}

// Write sends bytes.
func (c *Client) Write(b []byte) error {
	if c.Patience > 0 {
		if err := c.Conn.SetDeadline(time.Now().Add(c.Patience)); err != nil {
			return err
		}
	}
	_, err := c.Conn.Write(b)
	return err
}

// Next is the next frame, valid until the call after it.
func (c *Client) Next() ([]byte, error) {
	if c.Patience > 0 {
		if err := c.Conn.SetReadDeadline(time.Now().Add(c.Patience)); err != nil {
			return nil, err
		}
	}
	return c.Frames.Next()
}

// Request is a request as bytes. body may be nil.
func Request(xid int32, op wire.Op, body wire.Record) []byte {
	header := &wire.RequestHeader{Xid: xid, Op: op}
	if body == nil {
		return wire.AppendFrame(nil, header)
	}
	return wire.AppendFrame(nil, header, body)
}

// Send sends a request and does not wait. A ping has its own xid, all others have rising ones.
func (c *Client) Send(op wire.Op, body wire.Record) (xid int32, err error) {
	if xid = wire.XidPing; op != wire.OpPing {
		c.xid++
		xid = c.xid
	}
	return xid, c.Write(Request(xid, op, body))
}

// Receive is the next reply or event.
func (c *Client) Receive() (f Frame, err error) {
	frame, err := c.Next()
	if err != nil {
		return f, err
	}
	d := wire.NewDecoder(frame)
	f.Decode(d)
	f.Body = bytes.Clone(frame[len(frame)-d.Len():])
	c.Seen = max(c.Seen, f.Zxid)
	return f, d.Err()
}

// Call sends a request, and its reply must be the next frame. Its body is decoded into reply, unless that is nil.
// ZooKeeper's errors are in the frame.
func (c *Client) Call(op wire.Op, body, reply wire.Record) (Frame, error) {
	xid, err := c.Send(op, body)
	if err != nil {
		return Frame{}, err
	}
	f, err := c.Receive()
	switch {
	case err != nil:
		return f, err
	case f.Xid != xid:
		return f, fmt.Errorf("operation %d: a frame with xid %d came before the reply %d", op, f.Xid, xid)
	case f.Err == wire.OK && reply != nil:
		d := wire.NewDecoder(f.Body)
		reply.Decode(d)
		return f, d.Err()
	}
	return f, nil
}

// Must is Call where ZooKeeper's errors are errors.
func (c *Client) Must(op wire.Op, body, reply wire.Record) error {
	f, err := c.Call(op, body, reply)
	if err != nil {
		return err
	}
	return f.Err.Err()
}
