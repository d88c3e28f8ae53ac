package netfault

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

const patience = 20 * time.Second    // for what must happen
const glance = 50 * time.Millisecond // for what must not

// lineServer answers each line with "echo <line>" and reports what it received.
type lineServer struct {
	addr     string
	received chan string
	ended    chan struct{} // one value for each connection that ended
}

func newLineServer(t *testing.T) *lineServer {
	t.Helper()
	l := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := &lineServer{addr: l.Addr().String(), received: make(chan string, 100), ended: make(chan struct{}, 100)}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { conn.Close(); s.ended <- struct{}{} }()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					s.received <- lines.Text()
					if _, err := io.WriteString(conn, "echo "+lines.Text()+"\n"); err != nil {
						return
					}
				}
			}()
		}
	}()
	return s
}

type lineClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, addr string) *lineClient {
	t.Helper()
	conn := assert.Value(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { conn.Close() })
	return &lineClient{t, conn, bufio.NewReader(conn)}
}

func (c *lineClient) send(line string) {
	c.t.Helper()
	assert.Value(io.WriteString(c.conn, line+"\n"))(c.t)
}

func (c *lineClient) expect(line string) {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	got, err := c.in.ReadString('\n')
	assert.Must(c.t, err == nil && strings.TrimSuffix(got, "\n") == line, "got %q, %v; want %q", got, err, line)
}

func (c *lineClient) expectSilence() {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(glance))
	b, err := c.in.ReadByte()
	assert.Must(c.t, errors.Is(err, os.ErrDeadlineExceeded), "want silence, got byte %q, error %v", b, err)
}

func (c *lineClient) expectEnd() {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	b, err := c.in.ReadByte()
	assert.Must(c.t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "want the end of the connection, got byte %q, error %v", b, err)
}

// expectRefused: the connection is reset, before or after connect has returned.
func expectRefused(t *testing.T, addr string) {
	t.Helper()
	if conn, err := net.Dial("tcp", addr); err == nil {
		(&lineClient{t, conn, bufio.NewReader(conn)}).expectEnd()
		conn.Close()
	}
}

func (s *lineServer) expect(t *testing.T, line string) {
	t.Helper()
	assert.MustEqual(t, testkit.Receive(t, patience, s.received, "the server receives %q", line), line, "the server received")
}

func (s *lineServer) expectNothing(t *testing.T) {
	t.Helper()
	testkit.Never(t, glance, func() bool { return len(s.received) > 0 }, "the server receives something")
}

func setup(t *testing.T) (*lineServer, *Proxy, *lineClient) {
	t.Helper()
	testkit.NoLeaks(t)
	s := newLineServer(t)
	p := NewT(t, s.addr)
	c := dial(t, p.Addr())
	c.send("hello")
	c.expect("echo hello")
	s.expect(t, "hello")
	return s, p, c
}

func TestCutEndsConnectionsAndRefusesUntilHeal(t *testing.T) {
	s, p, c := setup(t)
	p.Cut()
	c.expectEnd()
	testkit.Closed(t, patience, s.ended, "the server's side ends")
	expectRefused(t, p.Addr())
	p.Heal()
	healed := dial(t, p.Addr())
	healed.send("back")
	healed.expect("echo back")
}

func TestStallHoldsBothDirectionsAndHealDelivers(t *testing.T) {
	s, p, c := setup(t)
	p.Stall()
	c.send("one")
	s.expectNothing(t)
	late := dial(t, p.Addr())
	late.send("two")
	s.expectNothing(t)
	late.expectSilence()
	p.Heal()
	c.expect("echo one")
	late.expect("echo two")
}

func TestStallHidesTheEndOfAConnectionUntilHeal(t *testing.T) {
	s, p, c := setup(t)
	p.Stall()
	c.send("last words")
	c.conn.Close()
	testkit.Never(t, glance, func() bool { return len(s.ended) > 0 }, "the server sees the end")
	p.Heal()
	s.expect(t, "last words")
	testkit.Closed(t, patience, s.ended, "the server sees the end")
	testkit.Eventually(t, patience, func() bool { return p.Connections() == 0 }, "the proxy forgets the connection")
}

func TestStallRepliesLetsRequestsThrough(t *testing.T) {
	s, p, c := setup(t)
	p.StallReplies()
	c.send("write")
	s.expect(t, "write")
	c.expectSilence()
	p.Heal()
	c.expect("echo write")
}

func TestStallRequestsLetsRepliesThrough(t *testing.T) {
	s, p, c := setup(t)
	p.StallReplies()
	c.send("asked before")
	s.expect(t, "asked before")
	p.Heal()
	p.StallRequests()
	c.send("asked after")
	c.expect("echo asked before")
	s.expectNothing(t)
	p.Heal()
	c.expect("echo asked after")
}

func TestDropRequestsSwallowsThemAndHealResetsTheConnection(t *testing.T) {
	s, p, c := setup(t)
	quiet := dial(t, p.Addr())
	quiet.send("here")
	quiet.expect("echo here")
	s.expect(t, "here")
	p.DropRequests()
	c.send("lost")
	s.expectNothing(t)
	c.expectSilence()
	p.Heal()
	c.expectEnd()
	quiet.send("no hole in mine")
	quiet.expect("echo no hole in mine")
	s.expect(t, "no hole in mine")
	s.expectNothing(t)
}

func TestDropRepliesLetsRequestsThroughAndHealResetsTheConnection(t *testing.T) {
	s, p, c := setup(t)
	p.DropReplies()
	c.send("first")
	s.expect(t, "first")
	c.expectSilence()
	c.send("second")
	s.expect(t, "second")
	p.Heal()
	c.expectEnd()
}

func TestRequestsThatWereHeldReachTheServerAfterTheirClientIsGone(t *testing.T) {
	s, p, c := setup(t)
	p.StallRequests()
	c.send("late")
	testkit.Eventually(t, patience, func() bool { return p.Held(Requests) == 1 }, "the proxy has it")
	p.CutClients()
	c.expectEnd()
	s.expectNothing(t)
	p.Heal()
	s.expect(t, "late")
	testkit.Closed(t, patience, s.ended, "then the server sees the end")
}

func TestRequestsThatAreHeldSurviveRepliesToAClientThatIsGone(t *testing.T) {
	testkit.NoLeaks(t)
	l := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	p := NewT(t, l.Addr().String())
	c := dial(t, p.Addr())
	conn := assert.Value(l.Accept())(t)
	defer conn.Close()
	p.StallRequests()
	c.send("late")
	testkit.Eventually(t, patience, func() bool { return p.Held(Requests) == 1 }, "the proxy has it")
	p.CutClients()
	server := &lineClient{t, conn, bufio.NewReader(conn)}
	for range 3 {
		server.send("an event that is lost")
		server.expectSilence()
	}
	p.Heal()
	server.expect("late")
}

func TestDelayDelaysOneDirectionAndKeepsOrder(t *testing.T) {
	s, p, c := setup(t)
	const delay = 200 * time.Millisecond
	p.SetDelay(Replies, delay)
	start := time.Now()
	for _, line := range []string{"a", "b", "c"} {
		c.send(line)
		s.expect(t, line)
	}
	for _, line := range []string{"echo a", "echo b", "echo c"} {
		c.expect(line)
	}
	took := time.Since(start)
	assert.That(t, took >= delay, "replies came after %v, sooner than %v", took, delay)
}

func TestATargetThatDoesNotListenLooksRefused(t *testing.T) {
	testkit.NoLeaks(t)
	expectRefused(t, NewT(t, "127.0.0.1:1").Addr())
}

func TestAPatientProxyWaitsForATargetThatIsAboutToListen(t *testing.T) {
	testkit.NoLeaks(t)
	l := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := l.Addr().String()
	l.Close()
	c := dial(t, NewT(t, addr, WithPatience(patience)).Addr())
	c.expectSilence()
	l = assert.Value(net.Listen("tcp", addr))(t)
	defer l.Close()
	conn := assert.Value(l.Accept())(t)
	defer conn.Close()
	assert.Value(io.WriteString(conn, "here\n"))(t)
	c.expect("here")
}

func TestCloseEndsEverythingAlsoWhileStalled(t *testing.T) {
	_, p, c := setup(t)
	p.Stall()
	c.send("held")
	p.Close()
	c.expectEnd()
	assert.Equal(t, p.Connections(), 0, "connections after Close")
}

func TestAServerThatEndsIsSeenByTheClient(t *testing.T) {
	testkit.NoLeaks(t)
	l := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	c := dial(t, NewT(t, l.Addr().String()).Addr())
	conn := assert.Value(l.Accept())(t)
	conn.Close()
	c.expectEnd()
}

func TestAPreambleCanBeRewritten(t *testing.T) {
	testkit.NoLeaks(t)
	s := newLineServer(t)
	p := NewT(t, s.addr, WithPreamble(func(from, to net.Conn) error {
		if _, err := io.ReadFull(from, make([]byte, 3)); err != nil {
			return err
		}
		_, err := io.WriteString(to, "new")
		return err
	}))
	c := dial(t, p.Addr())
	c.send("old line")
	c.expect("echo new line")
}
