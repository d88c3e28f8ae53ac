package netfault

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// frameServer answers the handshake and then every request with a bare reply head, and reports the xids it executed.
func frameServer(t *testing.T) (addr string, executed chan int32) {
	t.Helper()
	l := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	executed = make(chan int32, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for i := 0; ; i++ {
					request, err := readFrame(conn)
					if err != nil {
						return
					}
					xid := int32(binary.BigEndian.Uint32(request))
					if i > 0 {
						executed <- xid
					}
					if _, err := conn.Write(frameOf(uint32(xid), 0, 77, 0)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), executed
}

func frameOf(fields ...uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4*len(fields)))
	for _, f := range fields {
		b = binary.BigEndian.AppendUint32(b, f)
	}
	return b
}

func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head))
	_, err := io.ReadFull(r, body)
	return body, err
}

// session is a connection that has shaken hands.
func session(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn := assert.Value(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	assert.Value(conn.Write(frameOf(0, 0, 0, 0)))(t)
	assert.Value(readFrame(conn))(t)
	return conn
}

func request(t *testing.T, conn net.Conn, xid uint32, op Op) {
	t.Helper()
	assert.Value(conn.Write(frameOf(xid, uint32(op))))(t)
}

func reply(t *testing.T, conn net.Conn) int32 {
	t.Helper()
	body := assert.Value(readFrame(conn))(t)
	return int32(binary.BigEndian.Uint32(body))
}

func framedSetup(t *testing.T) (*Proxy, chan int32) {
	t.Helper()
	testkit.NoLeaks(t)
	addr, executed := frameServer(t)
	return NewT(t, addr, Framed()), executed
}

func TestRequestsAreCountedByOperation(t *testing.T) {
	p, _ := framedSetup(t)
	counter := p.CountOps()
	conn := session(t, p.Addr())
	for xid, op := range []Op{OpMulti, OpGetData, OpPing, OpMulti, OpExists, OpCreate} {
		request(t, conn, uint32(xid+1), op)
		reply(t, conn)
	}
	counts := counter.Take()
	assert.Equal(t, counts.String(), "1 connect, 1 create, 1 exists, 1 getData, 1 ping, 2 multi", "counted")
	assert.That(t, counts.Writes() == 3 && counts.Reads() == 2, "%d writes, %d reads; want 3 and 2", counts.Writes(), counts.Reads())
	assert.That(t, len(counter.Counts()) == 0, "after Take: %s", counter.Counts())
}

func TestObserversSeeHeadsOfRequestsAndReplies(t *testing.T) {
	p, _ := framedSetup(t)
	seen := make(chan Frame, 10)
	remove := p.Observe(func(f Frame) Action {
		f.Raw = slices.Clone(f.Raw)
		seen <- f
		return Forward
	})
	conn := session(t, p.Addr())
	request(t, conn, 5, OpSetData)
	reply(t, conn)
	for _, want := range []struct {
		dir  Direction
		op   Op
		xid  int32
		zxid int64
	}{{dir: Requests, op: OpConnect}, {dir: Replies, op: OpConnect}, {dir: Requests, op: OpSetData, xid: 5}, {dir: Replies, xid: 5, zxid: 77}} {
		f := testkit.Receive(t, patience, seen, "a frame")
		assert.That(t, f.Dir == want.dir && f.Xid() == want.xid && f.Conn == 1 && f.Err() == 0,
			"saw %v xid %d of connection %d, error %d; want %+v", f.Dir, f.Xid(), f.Conn, f.Err(), want)
		assert.That(t, (f.Dir != Requests || f.Op() == want.op) && (f.Dir != Replies || f.Zxid() == want.zxid),
			"saw op %v, zxid %d; want %+v", f.Op(), f.Zxid(), want)
	}
	remove()
	request(t, conn, 6, OpSetData)
	reply(t, conn)
	assert.That(t, len(seen) == 0, "an observer that was removed still sees frames")
}

func TestFailRequestCutsBeforeTheNthRequestIsExecuted(t *testing.T) {
	p, executed := framedSetup(t)
	fault := p.FailRequest(2, IsOp(OpMulti))
	conn := session(t, p.Addr())
	request(t, conn, 1, OpMulti)
	request(t, conn, 2, OpGetData)
	request(t, conn, 3, OpMulti)
	for _, want := range []int32{1, 2} {
		assert.MustEqual(t, testkit.Receive(t, patience, executed, "request %d", want), want, "executed")
	}
	testkit.Closed(t, patience, fault.Fired(), "the fault strikes")
	testkit.Eventually(t, patience, func() bool { return p.Connections() == 0 }, "the connection ends")
	if len(executed) != 0 {
		t.Errorf("request %d was executed", <-executed)
	}
	again := session(t, p.Addr())
	request(t, again, 4, OpMulti)
	assert.That(t, reply(t, again) == 4, "the fault struck twice")
}

func TestFailReplyCutsAfterTheNthRequestIsExecuted(t *testing.T) {
	p, executed := framedSetup(t)
	fault := p.FailReply(2, IsOp(OpMulti))
	conn := session(t, p.Addr())
	request(t, conn, 1, OpMulti)
	assert.Must(t, reply(t, conn) == 1, "the first reply is missing")
	request(t, conn, 2, OpMulti)
	body, err := readFrame(conn)
	assert.Must(t, err != nil, "got the reply %x", body)
	testkit.Closed(t, patience, fault.Fired(), "the fault strikes")
	assert.Slices(t, []int32{<-executed, <-executed}, []int32{1, 2}, "executed")
}

func TestHoldRequestIsExecutedAfterTheClientHasComeBack(t *testing.T) {
	p, executed := framedSetup(t)
	fault := p.HoldRequest(1, IsOp(OpMulti))
	conn := session(t, p.Addr())
	request(t, conn, 1, OpMulti)
	testkit.Closed(t, patience, fault.Fired(), "the fault strikes")
	p.CutClients()
	_, err := readFrame(conn)
	assert.Must(t, err != nil, "got a reply")
	again := session(t, p.Addr())
	request(t, again, 2, OpMulti)
	assert.Must(t, reply(t, again) == 2, "the new connection must not be held")
	p.Heal()
	assert.Slices(t, []int32{<-executed, testkit.Receive(t, patience, executed, "the late request")}, []int32{2, 1}, "executed")
}

func TestHoldReplyIsDeliveredByHeal(t *testing.T) {
	p, executed := framedSetup(t)
	fault := p.HoldReply(1, IsOp(OpMulti))
	conn := session(t, p.Addr())
	request(t, conn, 1, OpMulti)
	testkit.Closed(t, patience, fault.Fired(), "the fault strikes")
	assert.That(t, len(executed) == 1, "not executed")
	p.Heal()
	assert.That(t, reply(t, conn) == 1, "another reply than the one that was held")
}

func TestSwallowLeavesOneFrameOut(t *testing.T) {
	p, executed := framedSetup(t)
	p.Observe(func(f Frame) Action {
		if f.Dir == Requests && f.Xid() == 2 {
			return Swallow
		}
		return Forward
	})
	conn := session(t, p.Addr())
	for xid := range uint32(3) {
		request(t, conn, xid+1, OpSetData)
	}
	assert.Slices(t, []int32{reply(t, conn), reply(t, conn)}, []int32{1, 3}, "replies to")
	assert.That(t, len(executed) == 2, "%d requests executed", len(executed))
}

func TestWhatIsNoFramePassesThroughAFramedProxy(t *testing.T) {
	testkit.NoLeaks(t)
	s := newLineServer(t)
	c := dial(t, NewT(t, s.addr, Framed()).Addr())
	c.send("ruok")
	c.expect("echo ruok")
}
