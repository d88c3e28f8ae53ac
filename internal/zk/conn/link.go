package conn

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// maxLinkFrame bounds a reply: a listing of a hundred thousand children is 8 MB.
const maxLinkFrame = 64 << 20

// The parts of the protocol that the link looks at.
const (
	replyHead    = 16 // xid, zxid, err
	connectReply = 36 // protocol, timeout, session, password
	maxIdentity  = 16 << 10
)

// link is the network connection as go-zookeeper sees it. It closes what the library leaves open at this level:
//
//   - the handshake has one deadline until the whole answer has been read; the
//     library would wait 6.7 session timeouts for its first byte and for ever
//     for the rest;
//   - it reads the negotiated timeout out of the answer;
//   - it sends the credentials right behind the connect request, in one write,
//     on every connection, and keeps the answer to itself: the library's own
//     way blocks for good when a write fails meanwhile;
//   - it names the zxid of transactions in each connect request, so that no server is read that lags behind them;
//   - it refuses replies of impossible length, which would make the library
//     panic or allocate without bound;
//   - it carries the transactions, of which the library knows nothing: see doc.go.
//
// The library reads from one goroutine at a time, and writes from one.
type link struct {
	net.Conn
	c    *Conn
	addr string
	transactions

	// The reading side's.
	r      *bufio.Reader
	shaken bool // the handshake has been answered
	left   int  // bytes of the present frame not yet handed out
	// patience is how long the library waits for a reply, as it said at that time.
	patience time.Duration
	waits    time.Time

	greeted bool // the writing side's: the connect request is out
}

func newLink(c *Conn, raw net.Conn, addr string, deadline time.Time) *link {
	l := &link{Conn: raw, c: c, addr: addr, r: bufio.NewReaderSize(raw, 64<<10), transactions: transactions{xid: topXid}}
	// A connection that is already broken fails its first read just as well.
	_ = raw.SetDeadline(deadline)
	return l
}

// SetReadDeadline keeps the handshake's deadline until that is over. Clearing
// is skipped: the library does so only to set another one before it reads on.
func (l *link) SetReadDeadline(t time.Time) error {
	if !l.shaken || t.IsZero() {
		return nil
	}
	l.waits = time.Now()
	l.patience = t.Sub(l.waits)
	return l.Conn.SetReadDeadline(t)
}

// heard moves the deadline of a read when a transaction was answered, as the library does for the replies that it sees. It
// may be too early by an eighth.
func (l *link) heard() {
	if now := time.Now(); l.patience > 0 && now.Sub(l.waits) > l.patience/8 {
		l.waits = now
		_ = l.Conn.SetReadDeadline(now.Add(l.patience)) // fails when the connection is closed, which the read finds
	}
}

// Close also answers the transactions that have no answer.
func (l *link) Close() error {
	err := l.Conn.Close()
	l.abandon()
	return err
}

// SetWriteDeadline keeps the handshake's deadline for the connect request. The library clears it after each write.
func (l *link) SetWriteDeadline(t time.Time) error {
	if !l.greeted {
		return nil
	}
	return l.Conn.SetWriteDeadline(t)
}

func (l *link) Write(p []byte) (int, error) {
	if l.greeted {
		return l.Conn.Write(p)
	}
	hello := slices.Clone(p)
	l.nameZxid(hello)
	switch cfg := l.c.cfg; {
	case cfg.Auth != nil:
		hello = appendAuth(hello, cfg.Auth)
	case cfg.Certificate != nil:
		hello = cfg.Certificate.AppendQuestion(hello)
	}
	n, err := l.Conn.Write(hello)
	l.greeted = true
	if err != nil {
		l.c.failed(fmt.Errorf("greeting %s: %w", l.addr, err))
		return min(n, len(p)), err
	}
	return len(p), nil
}

// nameZxid makes a connect request name the highest zxid that this session was told: the library knows of no transaction. A
// server that has not got as far refuses the connection, so that no read after a transaction sees what was true before it.
func (l *link) nameZxid(hello []byte) {
	const at = 4 + 4 // behind the frame's length and the version of the protocol
	if len(hello) >= at+8 && l.c.LastZxid() > int64(binary.BigEndian.Uint64(hello[at:])) {
		binary.BigEndian.PutUint64(hello[at:], uint64(l.c.LastZxid()))
	}
}

// appendAuth appends the frame of an auth request.
func appendAuth(b []byte, auth *zk.DigestAuth) []byte {
	mark := len(b)
	b = wire.BeginFrame(b)
	b = wire.AppendInt(b, int32(wire.XidAuth))
	b = wire.AppendInt(b, int32(wire.OpAuth))
	b = wire.AppendInt(b, 0) // type
	b = wire.AppendString(b, "digest")
	b = wire.AppendBuffer(b, auth.Packet())
	return wire.EndFrame(b, mark)
}

func (l *link) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for l.left == 0 {
		if err := l.nextFrame(); err != nil {
			if !l.shaken {
				l.c.failed(fmt.Errorf("handshake with %s: %w", l.addr, err))
			}
			l.abandon()
			return 0, err
		}
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	if err != nil {
		l.abandon()
	}
	return n, err
}

// nextFrame looks at the head of the next frame. It leaves left at 0 when that frame was for the link itself.
func (l *link) nextFrame() error {
	head, err := l.r.Peek(4)
	if err != nil {
		return err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if !l.shaken {
		return l.handshake(size)
	}
	if size < replyHead || size > maxLinkFrame {
		return fmt.Errorf("reply of impossible length %d", size)
	}
	head, err = l.r.Peek(4 + replyHead)
	if err != nil {
		return err
	}
	xid := int32(binary.BigEndian.Uint32(head[4:]))
	zxid := int64(binary.BigEndian.Uint64(head[8:]))
	code := int32(binary.BigEndian.Uint32(head[16:]))
	if zxid > 0 {
		l.c.seen(zxid)
	}
	switch {
	case xid <= topXid:
		// Events of the same transaction and requests that are ready come first: what they submit shares the next transaction.
		runtime.Gosched()
		return l.receive(xid, wire.ErrCode(code), size)
	case xid != wire.XidAuth && !zk.IsIdentity(xid):
		l.left = 4 + size
		return nil
	}
	if _, err := l.r.Discard(4 + size); err != nil || xid != wire.XidAuth {
		return err // an identity is known since the handshake
	}
	if refusal := wire.ErrCode(code); refusal != wire.OK {
		refused := &zk.FatalError{Kind: zk.KindAuth, Hint: "check the user and password in the ZooKeeper auth file",
			Err: fmt.Errorf("%s refused the credentials: %w", l.addr, refusal)}
		l.c.End(refused)
		return refused
	}
	return nil
}

// handshake waits for the whole answer, so that its deadline covers it all.
func (l *link) handshake(size int) error {
	if size < connectReply || size > 1024 {
		return fmt.Errorf("connect answer of impossible length %d", size)
	}
	frame, err := l.r.Peek(4 + size)
	if err != nil {
		return err
	}
	granted := time.Duration(int32(binary.BigEndian.Uint32(frame[8:]))) * time.Millisecond
	if l.c.cfg.Certificate != nil && granted > 0 {
		if err := l.identify(4 + size); err != nil {
			return err
		}
	}
	l.c.handshaken(granted)
	l.shaken = true
	l.left = 4 + size
	if err := l.Conn.SetDeadline(time.Time{}); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// identify waits for who the server says this is, behind the answer to the handshake, which stays in the reader with it: the
// library must not use a session before the server knows the fleet.
func (l *link) identify(behind int) error {
	head, err := l.r.Peek(behind + 4)
	if err != nil {
		return err
	}
	size := int(int32(binary.BigEndian.Uint32(head[behind:])))
	if size < replyHead || size > maxIdentity {
		return fmt.Errorf("answer of impossible length %d", size)
	}
	frames, err := l.r.Peek(behind + 4 + size)
	if err != nil {
		return err
	}
	if err := l.c.cfg.Certificate.Learn(l.addr, frames[behind+4:]); err != nil {
		if fatal, ok := errors.AsType[*zk.FatalError](err); ok {
			l.c.End(fatal)
		} else {
			l.c.log.Warn("a ZooKeeper server does not know this gateway; another one is tried", "err", err)
		}
		return err
	}
	if l.c.acls[Private] == nil {
		l.c.giveACLs()
	}
	return nil
}
