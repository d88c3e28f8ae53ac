package session

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk"
)

// isBump matches epoch bumps: transactions that begin with a setData of the registration.
func isBump(f netfault.Frame) bool { return bumpFrame(f.Raw) }

func bumpFrame(raw []byte) bool {
	return len(raw) > 16 && binary.BigEndian.Uint32(raw[8:]) == uint32(netfault.OpMulti) &&
		binary.BigEndian.Uint32(raw[12:]) == uint32(netfault.OpSetData) && strings.Contains(string(raw), "/gateways/")
}

// latecomer keeps one frame from the network and delivers it on a later
// connection of the same session, as a request that was stuck on its way.
type latecomer struct {
	match func(frame []byte) bool

	mu     sync.Mutex
	kept   []byte
	keptCh chan struct{}
	conn   *lateConn // the present one
}

func newLatecomer(match func(frame []byte) bool) *latecomer {
	return &latecomer{keptCh: make(chan struct{}), match: match}
}

func (l *latecomer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = &lateConn{Conn: raw, l: l}
	return l.conn, nil
}

// deliver sends the kept frame on the present connection.
func (l *latecomer) deliver() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.conn.Conn.Write(l.kept)
	return err
}

type lateConn struct {
	net.Conn
	l *latecomer
}

// Write gets whole frames: the library writes each at once.
func (c *lateConn) Write(p []byte) (int, error) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.kept == nil && c.l.match(p) {
		c.l.kept = slices.Clone(p)
		close(c.l.keptCh)
		_ = c.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}

// xid is that of the kept frame.
func (l *latecomer) xid() int32 { return int32(binary.BigEndian.Uint32(l.kept[4:])) }

// replyTo waits, at the proxy, for the answer to a request.
func replyTo(proxy *netfault.Proxy, xid int32) <-chan string {
	said := make(chan string, 1)
	proxy.Observe(func(f netfault.Frame) netfault.Action {
		if f.Dir == netfault.Replies && f.Index > 0 && f.Xid() == xid {
			select {
			case said <- string(f.Raw):
			default:
			}
		}
		return netfault.Forward
	})
	return said
}

// says reports whether a multi's answer contains an error code.
func says(answer string, code int32) bool {
	return strings.Contains(answer, string(binary.BigEndian.AppendUint32(nil, uint32(code))))
}

const badVersion = -103

func TestALateTransactionFailsOnceTheEpochWasBumped(t *testing.T) {
	through, proxy, layout, p := faulty(t)
	dir := fixture.LocksDir(t, p, "l")
	late := newLatecomer(func(frame []byte) bool { return strings.Contains(string(frame), "write-late-") })
	through.Dial = late.dial
	s := openSession(t, through, layout, 1)

	result := submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/write-late-", Sequential: true}}})
	fixture.Await(t, late.keptCh)
	// The connection is lost, the gateway bumps its epoch, looks, finds nothing.
	r := fixture.Await(t, result)
	assert.Must(t, r.Outcome == zk.NotDone && errors.Is(r.Err, zk.ErrNotApplied), "%+v, want NotDone(ErrNotApplied)", r)
	got := p.Children(dir)
	assert.Must(t, len(got) == 0, "%v is there", got)
	// Its client asks again, and only now the first attempt arrives.
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/write-again-", Sequential: true}))
	answer := replyTo(proxy, late.xid())
	assert.NoError(t, late.deliver())
	if got := fixture.Await(t, answer); !says(got, badVersion) {
		t.Fatalf("the late transaction was answered %q, want BadVersion in it", got)
	}
	got = p.Children(dir)
	assert.Must(t, len(got) == 1 && strings.HasPrefix(got[0], "write-again-"), "%v is there, want the second attempt alone", got)
}

func TestARepeatedBumpWhoseFirstCommitsSecondDoesNotStopTheWriter(t *testing.T) {
	through, proxy, layout, p := faulty(t)
	dir := fixture.LocksDir(t, p, "l")
	first := newLatecomer(bumpFrame)
	through.Dial = first.dial
	s := openSession(t, through, layout, 1)

	proxy.FailRequest(1, fixture.About("lost"))
	result := submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/lost"}}})
	fixture.Await(t, first.keptCh)
	r := fixture.Await(t, result)
	assert.Must(t, r.Outcome == zk.NotDone, "%+v, want NotDone", r)
	answer := replyTo(proxy, first.xid())
	assert.NoError(t, first.deliver())
	got := fixture.Await(t, answer)
	assert.Must(t, says(got, badVersion), "the first bump was answered %q, want BadVersion in it", got)
	counter := proxy.CountOps()
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/next"}))
	n := fixture.Multis(counter)
	assert.That(t, n == 1, "the next write took %d transactions, want 1", n)
	assert.Equal(t, p.Stat(s.registration).Version, 1, "the epoch")
}

func TestABumpWhoseAnswerWasLostIsInForce(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		t.Run(map[bool]string{false: "one in flight failed", true: "one in flight failed but persisted"}[persisted], func(t *testing.T) {
			through, proxy, layout, p := faulty(t)
			dir := fixture.LocksDir(t, p, "l")
			s := openSession(t, through, layout, 1)
			if persisted {
				proxy.FailReply(1, fixture.About("lost"))
			} else {
				proxy.FailRequest(1, fixture.About("lost"))
			}
			proxy.FailReply(1, isBump)
			r := write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/lost"})
			if persisted {
				mustBeDone(t, r)
			} else if r.Outcome != zk.NotDone || !errors.Is(r.Err, zk.ErrNotApplied) {
				t.Fatalf("%+v, want NotDone(ErrNotApplied)", r)
			}
			assert.Equal(t, p.Stat(s.registration).Version, 1, "the epoch")
			mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/next"}))
		})
	}
}

func TestAnEpochThatAnotherProgramBumpedIsRaisedAgain(t *testing.T) {
	cfg := fixture.Config(t)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	p := fixture.NewProbe(t, cfg)
	dir := fixture.LocksDir(t, p, "l")
	p.Set(s.registration, "meddled")
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/next"}))
}

func TestAGatewayWhoseRegistrationIsGoneNeverWritesAgain(t *testing.T) {
	for _, victim := range []string{"/gateways/", "/guards/"} {
		cfg := fixture.Config(t)
		s := openSession(t, cfg, openLayout(t, cfg), 1)
		p := fixture.NewProbe(t, cfg)
		dir := fixture.LocksDir(t, p, "l")
		p.Delete(zk.DefaultRoot + victim + s.ID())
		r := write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/zombie"})
		assert.That(t, r.Outcome == zk.NotDone && errors.Is(r.Err, zk.ErrDeposed),
			"without its node in %s: %+v, want NotDone(ErrDeposed)", victim, r)
		fixture.Await(t, s.Done())
		assert.That(t, errors.Is(s.Err(), zk.ErrDeposed), "Err is %v, want ErrDeposed", s.Err())
		assert.That(t, !s.TrustWindow().Open(zk.SystemClock{}.Now()), "its trust window is open")
		err := s.Submit(&zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/zombie"}}, Done: func(zk.Result) {}})
		assert.That(t, errors.Is(err, zk.ErrDeposed), "Submit says %v, want ErrDeposed", err)
		got := p.Children(dir)
		assert.That(t, len(got) == 0, "%v is there", got)
	}
}

// The count of commits means nothing while a transaction of the old epoch has not been answered: it may be one of them.
func TestNothingIsConcludedWhileATransactionOfTheOldEpochIsUnanswered(t *testing.T) {
	w := newWriter(facts{cfg: &zk.Config{}})
	w.epoch = 1
	w.lost.batches = []*batch{{kind: guardBatch, epoch: 0}}
	w.inflight[2] = &batch{kind: workBatch, number: 2, epoch: 0}
	w.resolveLost()
	assert.That(t, !w.lost.resolving && len(w.lost.batches) == 1, "it was")
}

func TestConcludeDecidesByEvidenceAndCount(t *testing.T) {
	const (
		u  = noIdea
		t0 = traceless
		ln = likelyNot
		ly = likelyYes
		n  = surelyNot
		y  = surelyYes
	)
	for _, c := range []struct {
		name    string
		in      []assumption
		commits int
		want    []assumption
	}{
		{"all committed", []assumption{u, ln, ly}, 3, []assumption{y, y, y}},
		{"none of those in doubt", []assumption{y, ln, u}, 1, []assumption{y, n, n}},
		{"hints agree with the count", []assumption{ly, ln, t0}, 1, []assumption{y, n, n}},
		{"hints beside one that it may have been instead", []assumption{ly, ln, u}, 1, []assumption{u, u, u}},
		{"negative hints agree with the count", []assumption{ln, ly, ly}, 2, []assumption{n, y, y}},
		{"absence beside one that leaves no trace", []assumption{ln, t0}, 1, []assumption{u, u}},
		{"hints disagree with the count", []assumption{ly, ly, ln}, 1, []assumption{u, u, u}},
		{"nothing to go by", []assumption{u, u}, 1, []assumption{u, u}},
		{"certain ones stay certain beside the undecided", []assumption{y, n, u, u}, 2, []assumption{y, n, u, u}},
		{"a count above what is possible is not used", []assumption{n, u}, 2, []assumption{n, u}},
		{"a count below what is certain is not used", []assumption{y, ly}, 0, []assumption{y, u}},
	} {
		got := conclude(c.in, c.commits)
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v with %d commits gives %v, want %v", c.name, c.in, c.commits, got, c.want)
				break
			}
		}
	}
}

// At some thousand transactions a second the guard's data version reaches 2^31 within days, and goes on from -2^31.
func TestLostTransactionsAreCountedAcrossTheWrapOfTheGuardsVersion(t *testing.T) {
	const last, first = math.MaxInt32, math.MinInt32
	for _, c := range []struct {
		name    string
		highest int32
		told    []int32
		sealed  int32
		bumps   int
		want    int
	}{
		{"none lost", last - 1, []int32{last, first, first + 1}, first + 1, 0, 0},
		{"answers out of order", last - 1, []int32{first, first + 1, last}, first + 1, 0, 0},
		{"lost before the wrap", last - 1, []int32{first, first + 1}, first + 1, 0, 1},
		{"lost at the wrap", last - 1, []int32{last, first + 1}, first + 1, 0, 1},
		{"lost on both sides", last - 2, []int32{last - 1, first + 2}, first + 2, 0, 3},
		{"lost before the seal and after", last - 1, []int32{first, first + 2}, first, 0, 1},
		{"a lost bump is no lost write", last - 1, []int32{first}, first, 1, 0},
		{"-1 told", -3, []int32{-2, -1, 1}, 1, 0, 1},
		{"-1 missing, lost or skipped", -3, []int32{-2, 0}, 0, 0, uncounted},
		{"-1 missing and another one", -3, []int32{-2, 1}, 1, 0, uncounted},
	} {
		l := lost{highest: c.highest, sealed: c.sealed, bumps: c.bumps}
		for _, v := range c.told {
			l.told(v)
		}
		_, commits := l.collect()
		assert.That(t, commits == c.want, "%s: %d commits, want %d", c.name, commits, c.want)
	}
	assert.Slices(t, conclude([]assumption{surelyYes, likelyNot, likelyYes}, uncounted), []assumption{surelyYes, noIdea, noIdea},
		"without a count only what is certain is concluded")
}
