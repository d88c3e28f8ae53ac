package conn

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

const (
	// topXid is the xid of a connection's first transaction; the others count down from there. Those of go-zookeeper are
	// positive, and those that mean something to a server are above -10.
	topXid int32 = -1000
	// inlineBytes is how much may be without an answer for a frame to be written by the goroutine that flushes. A socket takes
	// as much at once, also when the server has stopped reading.
	inlineBytes = 32 << 10
)

// errLost says of a transaction that its connection ended before the answer came.
var errLost = errors.New("the connection was lost")

// Send queues a transaction for the present connection, and Flush writes it. Transactions go in the order of the calls. It
// returns false, and does nothing, when there is no connection.
//
// done is told the answer exactly once, by another goroutine, maybe before Send returns: by the one that reads the connection
// or, when the connection or the session ends first, by one that ends it. Nothing else is read from the connection until done
// returns, so done must not block, nor wait for a read of this Conn.
func (c *Conn) Send(ops []Op, done func(Answer)) bool {
	l := c.present()
	return l != nil && l.queue(c, ops, done)
}

// Flush writes what Send has queued, unless another call is writing: that one goes on with it. The caller waits for the
// network only where a socket has no room for inlineBytes.
func (c *Conn) Flush() {
	if l := c.present(); l != nil {
		l.flush()
	}
}

// present is the connection, nil when there is none.
func (c *Conn) present() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected {
		return nil
	}
	return c.link
}

// transactions are those of one connection.
type transactions struct {
	mu      sync.Mutex
	xid     int32    // of the next one
	sent    []sent   // without an answer, in order
	bytes   int      // of those
	line    [][]byte // frames to write, in order
	spare   []byte   // memory for the next frame
	writing bool     // a goroutine writes the line
	over    bool     // the connection has ended
}

// sent is a transaction without an answer.
type sent struct {
	xid   int32
	ops   int
	bytes int
	done  func(Answer)
}

// queue puts a transaction at the end of the line. It returns false when the connection has ended.
func (t *transactions) queue(c *Conn, ops []Op, done func(Answer)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	frame := c.appendTransaction(t.spare[:0], t.xid, ops)
	t.spare = nil
	t.sent = append(t.sent, sent{t.xid, len(ops), len(frame), done})
	t.bytes += len(frame)
	t.line = append(t.line, frame)
	if t.xid--; t.xid > topXid { // it has wrapped
		t.xid = topXid
	}
	return true
}

// begin reports whether the caller is to write the line.
func (t *transactions) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writing || len(t.line) == 0 {
		return false
	}
	t.writing = true
	return true
}

// next takes a written frame back and returns the next one, and whether the goroutine that flushes may write it. It is nil
// when the line is empty, which ends the writing.
func (t *transactions) next(written []byte) (frame []byte, inline bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cap(written) <= inlineBytes {
		t.spare = written
	}
	if len(t.line) == 0 {
		t.writing = false
		return nil, true
	}
	frame = t.line[0]
	n := copy(t.line, t.line[1:])
	t.line[n] = nil
	t.line = t.line[:n]
	return frame, t.bytes <= inlineBytes
}

// answered removes a transaction, ok is false when there is none of that number.
func (t *transactions) answered(xid int32) (found sent, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.sent { // as a rule it is the first
		if t.sent[i].xid == xid {
			found = t.sent[i]
			n := i + copy(t.sent[i:], t.sent[i+1:])
			t.sent[n] = sent{}
			t.sent = t.sent[:n]
			t.bytes -= found.bytes
			return found, true
		}
	}
	return sent{}, false
}

// abandon answers the transactions that have no answer: nothing is known about them. The connection takes no more.
func (t *transactions) abandon() {
	t.mu.Lock()
	left := t.sent
	t.sent, t.line, t.over = nil, nil, true
	t.mu.Unlock()
	for i := range left {
		left[i].done(unanswered(errLost))
	}
}

// flush writes the line, unless another goroutine is at it. When the socket may have no room for the rest of the line, also
// for what others have queued meanwhile, another goroutine goes on with it.
func (l *link) flush() {
	if !l.begin() {
		return
	}
	for frame, inline := l.next(nil); frame != nil; frame, inline = l.next(frame) {
		if !inline {
			go l.writeOn(frame) // ends with the connection at the latest
			return
		}
		l.write(frame)
	}
}

// writeOn writes a frame and the line behind it.
func (l *link) writeOn(frame []byte) {
	for frame != nil {
		l.write(frame)
		frame, _ = l.next(frame)
	}
}

// write writes a frame in one call, as the library does, so that frames of both follow each other.
func (l *link) write(frame []byte) {
	if _, err := l.Conn.Write(frame); err != nil {
		_ = l.Conn.Close() // the reading side finds out, and abandons what has no answer
	}
}

// receive takes the reply to a transaction out of the stream. size is that of its frame.
func (l *link) receive(xid int32, code wire.ErrCode, size int) error {
	frame, err := l.wholeFrame(4 + size)
	if err != nil {
		return err
	}
	t, known := l.answered(xid)
	var a Answer
	if known {
		a = readAnswer(code, frame[4+replyHead:], t.ops)
	}
	if len(frame) <= l.r.Size() {
		if _, err := l.r.Discard(len(frame)); err != nil {
			return err
		}
	}
	l.heard()
	if known {
		t.done(a)
	}
	return nil
}

// wholeFrame waits for the rest of a frame. One that fits into the reader's memory is still to be discarded there.
func (l *link) wholeFrame(size int) ([]byte, error) {
	if size <= l.r.Size() {
		return l.r.Peek(size)
	}
	frame := make([]byte, size)
	_, err := io.ReadFull(l.r, frame)
	return frame, err
}

// readAnswer understands the reply to so many operations. In a refused multi the operations before the culprit carry no
// error and those after it carry one that means nothing: the first one counts. Any error of an operation shows that
// ZooKeeper executed the whole and refused it; an error of the reply itself tells nothing about the transaction.
func readAnswer(code wire.ErrCode, body []byte, ops int) Answer {
	if code != wire.OK {
		a := unanswered(code)
		if known := errorOf(code); known != nil {
			a.Err = fmt.Errorf("sending a transaction: %w", known)
		}
		return a
	}
	var refused error
	culprit, n := -1, 0
	results := make([]OpResult, 0, ops)
	d := wire.NewDecoder(body)
	for r := (wire.MultiResult{}); d.MultiResult(&r); n++ {
		if r.Op == wire.OpError && r.Err != wire.OK && refused == nil {
			culprit, refused = n, refusal(r.Err)
		}
		results = append(results, OpResult{Path: r.Path, Set: r.Op == wire.OpSetData, Version: r.Stat.Version, Mzxid: r.Stat.Mzxid})
	}
	switch {
	case d.Err() != nil:
		return unanswered(d.Err())
	case n != ops:
		return unanswered(fmt.Errorf("%d results for %d operations", n, ops))
	case refused != nil:
		return Answer{Refused: true, Err: refused, Culprit: culprit}
	}
	return Answer{Committed: true, Results: results}
}

// unanswered is the Answer of a transaction of which nothing is known.
func unanswered(why error) Answer {
	return Answer{Err: fmt.Errorf("sending a transaction: %w: %w", zk.ErrUnavailable, why), Culprit: -1}
}

// errorOf is our error for a code, nil when there is none.
func errorOf(code wire.ErrCode) error {
	switch code {
	case wire.ErrNoNode:
		return zk.ErrNoNode
	case wire.ErrNodeExists:
		return zk.ErrNodeExists
	case wire.ErrBadVersion:
		return zk.ErrBadVersion
	case wire.ErrNotEmpty:
		return zk.ErrNotEmpty
	case wire.ErrNoAuth:
		return zk.ErrNoAuth
	case wire.ErrSessionExpired:
		return zk.ErrSessionGone
	case wire.ErrNoChildrenForEphemeral:
		return zk.ErrEphemeralParent
	}
	return nil
}

// refusal is the error of one operation inside a transaction, where a code that we do not know is still an answer.
func refusal(code wire.ErrCode) error {
	if known := errorOf(code); known != nil {
		return known
	}
	return code
}
