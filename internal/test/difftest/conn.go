package difftest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/zk/wire"
)

// patience is how long a server may take for an answer.
const patience = 20 * time.Second

// conn is one connection to a server. xids are the scenario's.
type conn struct {
	*rawzk.Client
	xid   int32             // of the newest request that was given none
	asked map[int32]Request // by xid, as sent
}

func dial(addr string) (*conn, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &conn{Client: rawzk.New(nc, patience), asked: map[int32]Request{}}, nil
}

// leave closes the connection and waits until the server has done the same: it has dropped the connection's watches then.
// (Both servers answer checkWatches and removeWatches by the watches of all connections.)
func (c *conn) leave() {
	defer c.Conn.Close()
	if tcp, ok := c.Conn.(*net.TCPConn); !ok || tcp.CloseWrite() != nil || c.Conn.SetReadDeadline(time.Now().Add(patience)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.Conn) // what ends it does not matter
}

// write sends bytes. That the server has closed the connection is for the reader to find out.
func (c *conn) write(b []byte) error {
	if err := c.Write(b); err != nil && !hungUp(err) {
		return err
	}
	return nil
}

// next is the next frame, io.EOF when the server has closed the connection.
func (c *conn) next() ([]byte, error) {
	frame, err := c.Next()
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
func (c *conn) handshake(ask *wire.ConnectRequest) (*wire.ConnectReply, error) {
	reply, err := c.Connect(ask)
	switch {
	case err != nil && hungUp(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("connect reply: %w", err)
	}
	return &reply, nil
}
