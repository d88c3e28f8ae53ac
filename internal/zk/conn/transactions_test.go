package conn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// send sends one create, and flushes.
func send(c *Conn, path string, data []byte) <-chan Answer {
	answered := make(chan Answer, 2)
	if c.Send([]Op{c.Op(&zk.Op{Kind: zk.OpCreate, Path: path, Data: data})}, func(a Answer) { answered <- a }) {
		c.Flush()
	} else {
		answered <- Answer{Err: errors.New("not taken")}
	}
	return answered
}

func TestATransactionIsAnsweredAndTheReadsBesideItToo(t *testing.T) {
	cfg := fixture.Config(t)
	c := dialed(t, cfg)
	for i := range 20 {
		path := fmt.Sprintf("/n%d", i)
		made := send(c, path, []byte("x"))
		_, listed := c.Exists(fixture.Context(t), "/")
		assert.NoError(t, listed, "a read beside a transaction")
		a := fixture.Await(t, made)
		assert.Must(t, a.Committed && c.cfg.Below(a.Results[0].Path) == path, "%+v", a)
		again := fixture.Await(t, send(c, path, nil))
		assert.That(t, again.Refused && again.Culprit == 0 && errors.Is(again.Err, zk.ErrNodeExists), "once more: %+v", again)
	}
}

// More than a socket takes at once is written by a goroutine of its own, and a reply larger than the reader's memory is read whole.
func TestLargeTransactionsAndLargeRepliesPass(t *testing.T) {
	c := dialed(t, fixture.Config(t))
	var all []<-chan Answer
	for i := range 4 {
		all = append(all, send(c, fmt.Sprintf("/large%d", i), bytes.Repeat([]byte("x"), MaxTransaction-GuardOverhead)))
	}
	for i, answered := range all {
		a := fixture.Await(t, answered)
		assert.Must(t, a.Committed, "transaction %d: %+v", i, a.Err)
	}
	const sets = 2000 // each has a Stat of 68 bytes
	ops := make([]Op, sets)
	for i := range ops {
		ops[i] = c.Op(&zk.Op{Kind: zk.OpSetData, Path: "/large0", Version: -1})
	}
	answered := make(chan Answer, 1)
	assert.Must(t, c.Send(ops, func(a Answer) { answered <- a }), "not taken")
	c.Flush()
	a := fixture.Await(t, answered)
	assert.Must(t, a.Committed && len(a.Results) == sets && a.Results[sets-1].Version == sets, "%+v, %d results", a.Err, len(a.Results))
}

// Each transaction has one answer: when its connection is lost, that nothing is known; and none is sent again.
func TestALostConnectionAnswersItsTransactionsOnce(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	p := fixture.NewProbe(t, direct)
	c := dialed(t, through)
	hold := proxy.HoldRequest(1, netfault.IsOp(netfault.OpMulti))
	var all []<-chan Answer
	for i := range 3 {
		all = append(all, send(c, fmt.Sprintf("/n%d", i), nil))
	}
	fixture.Await(t, hold.Fired())
	proxy.Reset()
	for _, answered := range all {
		a := fixture.Await(t, answered)
		assert.That(t, !a.Committed && !a.Refused && errors.Is(a.Err, zk.ErrUnavailable), "%+v, want that nothing is known", a)
	}
	proxy.Heal()
	fixture.Eventually(t, "a transaction on the next connection", func() bool { return fixture.Await(t, send(c, "/later", nil)).Committed })
	assert.That(t, p.Stat("/n1") == nil, "a lost transaction was sent again")
	for _, answered := range all {
		assert.Equal(t, len(answered), 0, "further answers")
	}
}

func TestTheEndOfTheSessionAnswersItsTransactions(t *testing.T) {
	_, through, proxy := fixture.Faulty(t)
	c := dialed(t, through)
	hold := proxy.HoldReply(1, netfault.IsOp(netfault.OpMulti))
	answered := send(c, "/n", nil)
	fixture.Await(t, hold.Fired())
	c.End(errTestOver)
	assert.ErrorIs(t, fixture.Await(t, answered).Err, zk.ErrUnavailable)
	assert.That(t, !c.Send(nil, func(Answer) { t.Error("a transaction that was not taken was answered") }), "a transaction was taken after the end")
}

func TestNumbersOfTransactionsNeverMeetTheLibrarys(t *testing.T) {
	tr := transactions{xid: math.MinInt32}
	c := newConn(&zk.Config{}, func() {})
	for _, want := range []int32{math.MinInt32, topXid, topXid - 1} {
		tr.line = nil
		assert.Must(t, tr.queue(c, nil, func(Answer) {}), "not taken")
		assert.Equal(t, int32(binary.BigEndian.Uint32(tr.line[0][4:])), want, "xid")
	}
}

func TestAReplyThatDoesNotFitItsTransactionTellsNothing(t *testing.T) {
	set := wire.MultiResult{Op: wire.OpSetData}
	failed := wire.MultiResult{Op: wire.OpError, Err: wire.ErrNoNode}
	unknown := wire.MultiResult{Op: wire.OpError, Err: -77}
	skipped := wire.MultiResult{Op: wire.OpError, Err: wire.ErrRuntimeInconsistency}
	for name, c := range map[string]struct {
		code      wire.ErrCode
		results   []wire.MultiResult
		cut       int
		committed bool
		refused   bool
		err       error
	}{
		"committed":                 {results: []wire.MultiResult{set, set}, committed: true},
		"refused":                   {results: []wire.MultiResult{{Op: wire.OpError}, failed}, refused: true, err: zk.ErrNoNode},
		"refused by a code unknown": {results: []wire.MultiResult{unknown, skipped}, refused: true, err: wire.ErrCode(-77)},
		"too few results":           {results: []wire.MultiResult{set}, err: zk.ErrUnavailable},
		"too few, with an error":    {results: []wire.MultiResult{failed}, err: zk.ErrUnavailable},
		"cut short":                 {results: []wire.MultiResult{set, set}, cut: 10, err: zk.ErrUnavailable},
		"session moved":             {code: wire.ErrSessionMoved, err: zk.ErrUnavailable},
		"session expired":           {code: wire.ErrSessionExpired, err: zk.ErrSessionGone},
	} {
		body := (&wire.MultiReply{Results: c.results}).AppendTo(nil)
		a := readAnswer(c.code, body[:len(body)-c.cut], 2)
		assert.That(t, a.Committed == c.committed && a.Refused == c.refused && errors.Is(a.Err, c.err), "%s: %+v", name, a)
	}
}

// The library gives a server so long for each reply that it sees. It does not see those of transactions, which count too.
func TestAnswersToTransactionsShowThatTheServerLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		l := newLink(newConn(&zk.Config{}, func() {}), near, "", time.Now().Add(time.Hour))
		defer near.Close()
		l.shaken = true
		const patience = 6 * time.Second
		go func() {
			for range 5 {
				time.Sleep(patience / 2)
				head := wire.ReplyHeader{Xid: topXid, Zxid: 1}
				_, _ = far.Write(wire.AppendFrame(nil, &head, &wire.MultiReply{}))
			}
		}()
		began := time.Now()
		assert.NoError(t, l.SetReadDeadline(began.Add(patience)))
		_, err := l.Read(make([]byte, 4))
		took := time.Since(began)
		assert.That(t, err != nil && took > 5*patience/2+patience/2 && took <= 5*patience/2+patience, "%v after %v", err, took)
	})
}

// The library names the highest zxid of the replies that it sees. A server that lags behind a transaction must refuse the session.
func TestAConnectRequestNamesTheZxidOfTransactions(t *testing.T) {
	for _, z := range []struct{ library, told, want int64 }{{7, 42, 42}, {50, 42, 50}, {0, 0, 0}} {
		near, far := net.Pipe()
		c := newConn(&zk.Config{}, func() {})
		c.seen(z.told)
		l := newLink(c, near, "", time.Now().Add(time.Minute))
		sent := wire.AppendFrame(nil, &wire.ConnectRequest{LastZxidSeen: z.library, TimeoutMs: 6000, SessionID: 9, Passwd: make([]byte, 16)})
		before := bytes.Clone(sent)
		go func() { _, _ = l.Write(sent); _ = near.Close() }()
		frame := assert.Value(wire.NewFrameReader(far, 1<<10).Next())(t)
		var got wire.ConnectRequest
		got.Decode(wire.NewDecoder(frame))
		assert.That(t, got.LastZxidSeen == z.want && got.SessionID == 9 && got.TimeoutMs == 6000, "%+v, want %d", got, z.want)
		assert.That(t, bytes.Equal(sent, before), "the library's bytes were changed")
	}
}

// slowConn writes up to inlineBytes at once, as a socket does, and more only once it is closed.
type slowConn struct {
	net.Conn
	first, begun, closed chan struct{}
}

func (s slowConn) Write(p []byte) (int, error) {
	if len(p) > inlineBytes {
		<-s.closed
		return 0, net.ErrClosed
	}
	close(s.begun)
	<-s.first
	return len(p), nil
}

// A goroutine that writes finds frames that others have queued meanwhile. It must not wait for the network with those either.
func TestFlushDoesNotWaitForWhatOthersHaveQueued(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := newConn(&zk.Config{}, func() {})
	raw := slowConn{near, make(chan struct{}), make(chan struct{}), make(chan struct{})}
	defer close(raw.closed)
	l := newLink(c, raw, "", time.Now().Add(time.Minute))
	queue := func(size int) {
		op := c.OpAs(&zk.Op{Kind: zk.OpSetData, Path: "/n", Data: make([]byte, size)}, Private)
		assert.Must(t, l.queue(c, []Op{op}, func(Answer) {}), "not taken")
	}
	flushed := make(chan struct{})
	queue(10)
	go func() { l.flush(); close(flushed) }()
	fixture.Await(t, raw.begun)
	queue(2 * inlineBytes)
	l.flush() // the other call goes on with it
	close(raw.first)
	fixture.Await(t, flushed)
}
