package zktest_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/wire"
)

var everyone = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

// raw is a client that speaks frames.
type raw struct {
	*rawzk.Client
	t   *testing.T
	xid int32 // of the newest request
}

// connect opens a session, or attaches to one.
func connect(t *testing.T, e *zktest.Ensemble, name, server string, old *raw) (*raw, error) {
	t.Helper()
	hello := &wire.ConnectRequest{TimeoutMs: 4000, Passwd: make([]byte, 16)}
	if old != nil {
		hello.SessionID, hello.Passwd, hello.LastZxidSeen = old.ID, old.Passwd, old.Seen
	}
	c, _, err := greet(t, e, name, server, hello)
	return c, err
}

// greet sends a connect request and waits for the answer for as long as it takes.
func greet(t *testing.T, e *zktest.Ensemble, name, server string, hello *wire.ConnectRequest) (*raw, wire.ConnectReply, error) {
	t.Helper()
	nc, err := e.Dialer(name)(t.Context(), "tcp", server)
	if err != nil {
		return nil, wire.ConnectReply{}, err
	}
	c := &raw{Client: rawzk.New(nc, 0), t: t}
	reply, err := c.Connect(hello)
	if err != nil {
		return nil, reply, err
	}
	return c, reply, nil
}

func mustConnect(t *testing.T, e *zktest.Ensemble, name, server string) *raw {
	t.Helper()
	c, err := connect(t, e, name, server, nil)
	assert.Must(t, err == nil && c.ID != 0, "%s cannot connect with %s: %+v, %v", name, server, c, err)
	return c
}

func (c *raw) send(op wire.Op, body wire.Record) {
	c.t.Helper()
	var err error
	if c.xid, err = c.Send(op, body); err != nil {
		c.t.Logf("writing: %v", err)
	}
}

func (c *raw) receive(within time.Duration) (wire.ReplyHeader, []byte, error) {
	c.Patience = within
	defer func() { c.Patience = 0 }()
	f, err := c.Receive()
	return f.ReplyHeader, f.Body, err
}

func (c *raw) call(op wire.Op, body wire.Record) (wire.ReplyHeader, []byte, error) {
	c.t.Helper()
	c.send(op, body)
	return c.receive(10 * time.Second)
}

func (c *raw) must(op wire.Op, body wire.Record) wire.ReplyHeader {
	c.t.Helper()
	h, _, err := c.call(op, body)
	assert.Must(c.t, err == nil && h.Err == wire.OK, "operation %d: %+v, %v", op, h, err)
	return h
}

func (c *raw) create(path string, flags int32) wire.ReplyHeader {
	c.t.Helper()
	return c.must(wire.OpCreate, &wire.CreateRequest{Path: path, ACL: everyone, Flags: flags})
}

func (c *raw) has(path string) bool {
	c.t.Helper()
	h, _, err := c.call(wire.OpExists, &wire.ReadRequest{Path: path})
	assert.Must(c.t, err == nil && (h.Err == wire.OK || h.Err == wire.ErrNoNode), "exists %s: %+v, %v", path, h, err)
	return h.Err == wire.OK
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, cfg zktest.Config, f func(t *testing.T, e *zktest.Ensemble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, zktest.Start(t, cfg)) })
}

func TestAFollowerShowsItsOwnWritesAtOnceAndOthersLater(t *testing.T) {
	bubble(t, zktest.Config{Followers: 2, Lag: zktest.Delay{Min: time.Second, Max: time.Second}}, func(t *testing.T, e *zktest.Ensemble) {
		near, far := mustConnect(t, e, "near", zktest.FollowerName(1)), mustConnect(t, e, "far", zktest.FollowerName(2))
		e.Follower(2).Lag(zktest.Delay{Min: 3 * time.Second, Max: 3 * time.Second})
		near.create("/a", 0)
		assert.That(t, near.has("/a"), "a client does not see its own write")
		assert.That(t, !far.has("/a"), "a follower that is three seconds behind shows a write of now")
		time.Sleep(3 * time.Second)
		assert.That(t, far.has("/a"), "it has not arrived after three seconds")
	})
}

func TestAClientThatHasSeenMoreIsRefused(t *testing.T) {
	bubble(t, zktest.Config{Followers: 1}, func(t *testing.T, e *zktest.Ensemble) {
		e.Follower(1).Lag(zktest.Delay{Min: 10 * time.Second, Max: 10 * time.Second})
		c := mustConnect(t, e, "c", zktest.LeaderName)
		c.create("/a", 0)
		_, err := connect(t, e, "c", zktest.FollowerName(1), c)
		assert.That(t, err != nil, "a follower that is behind has taken the session")
		back, err := connect(t, e, "c", zktest.LeaderName, c)
		assert.That(t, err == nil && back.ID == c.ID, "the leader has not: %+v, %v", back, err)
	})
}

func TestAFollowerThatIsCutOffGoesOnAnsweringWhileTheLeaderExpires(t *testing.T) {
	bubble(t, zktest.Config{Followers: 1, SyncLimit: 20 * time.Second}, func(t *testing.T, e *zktest.Ensemble) {
		c := mustConnect(t, e, "c", zktest.FollowerName(1))
		other := mustConnect(t, e, "other", zktest.LeaderName)
		c.create("/mine", wire.FlagEphemeral)
		e.Follower(1).CutOff()
		cut := time.Now()
		for time.Since(cut) < 10*time.Second {
			time.Sleep(time.Second)
			c.must(wire.OpPing, nil)
			other.must(wire.OpPing, nil)
			assert.Must(t, c.has("/mine"), "the copy has changed")
		}
		assert.That(t, !other.has("/mine"), "the leader has not expired the session")
		c.send(wire.OpCreate, &wire.CreateRequest{Path: "/b", ACL: everyone})
		h, _, err := c.receive(2 * time.Second)
		assert.That(t, err != nil, "a write was answered: %+v", h)
		time.Sleep(10 * time.Second)
		_, _, err = c.receive(time.Second)
		assert.That(t, err != nil, "it serves beyond the sync limit")
		_, err = connect(t, e, "c", zktest.FollowerName(1), nil)
		assert.That(t, err != nil, "it accepts beyond the sync limit")
		e.Follower(1).Heal()
		time.Sleep(time.Second)
		again := mustConnect(t, e, "c", zktest.FollowerName(1))
		assert.That(t, !again.has("/mine") && !again.has("/b"), "it has not caught up, or the write of a session that is over was done")
	})
}

func TestEventsAndRepliesKeepTheirOrderAtAFollower(t *testing.T) {
	bubble(t, zktest.Config{Followers: 1}, func(t *testing.T, e *zktest.Ensemble) {
		c := mustConnect(t, e, "c", zktest.FollowerName(1))
		c.must(wire.OpAddWatch, &wire.AddWatchRequest{Path: "/", Mode: 1})
		c.send(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
		h, _, err := c.receive(time.Second)
		assert.Must(t, err == nil && h.Xid == wire.XidWatcherEvent, "first came %+v, %v, want the event", h, err)
		h, _, err = c.receive(time.Second)
		assert.Must(t, err == nil && h.Xid == c.xid, "then came %+v, %v, want the reply", h, err)
	})
}

func TestARequestIsLostOrItsReplyIs(t *testing.T) {
	creates := func(op wire.Op) bool { return op == wire.OpCreate }
	for name, done := range map[string]bool{"request": false, "reply": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, zktest.Config{}, func(t *testing.T, e *zktest.Ensemble) {
				c := mustConnect(t, e, "c", zktest.LeaderName)
				order := e.Network.LoseRequest
				if done {
					order = e.Network.LoseReply
				}
				o := order("c", creates)
				c.has("/a")
				assert.That(t, !o.Done(), "another request has set it off")
				h, _, err := c.call(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
				assert.That(t, err != nil, "the client was told %+v", h)
				assert.That(t, o.Done(), "it was not set off")
				back, err := connect(t, e, "c", zktest.LeaderName, c)
				assert.Must(t, err == nil && back.ID == c.ID, "the session is gone: %v", err)
				assert.That(t, back.has("/a") == done, "the node is there: %v", !done)
			})
		})
	}
}

func TestBytesOfAnOldConnectionComeAfterThoseOfANewOne(t *testing.T) {
	bubble(t, zktest.Config{}, func(t *testing.T, e *zktest.Ensemble) {
		c := mustConnect(t, e, "c", zktest.LeaderName)
		other := mustConnect(t, e, "other", zktest.LeaderName)
		c.send(wire.OpCreate, &wire.CreateRequest{Path: "/late", ACL: everyone})
		e.Network.Links("c", "")[0].CutClient(time.Second)
		_, _, err := c.receive(time.Second)
		assert.That(t, err != nil, "the client notices nothing")
		again := mustConnect(t, e, "c", zktest.LeaderName)
		again.create("/new", 0)
		assert.That(t, !again.has("/late"), "it has come already")
		time.Sleep(2 * time.Second)
		assert.That(t, other.has("/late"), "it has never come")
	})
}

// As ZooKeeper does it: only what stands in a transaction protects from its coming late.
func TestATransactionComesAfterItsSessionHasMoved(t *testing.T) {
	bubble(t, zktest.Config{Followers: 2}, func(t *testing.T, e *zktest.Ensemble) {
		c := mustConnect(t, e, "c", zktest.FollowerName(1))
		other := mustConnect(t, e, "other", zktest.LeaderName)
		c.send(wire.OpMulti, &wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: "/late", ACL: everyone}}}})
		e.Network.Links("c", "")[0].CutClient(time.Second)
		again, err := connect(t, e, "c", zktest.FollowerName(2), c)
		assert.Must(t, err == nil && again.ID == c.ID, "the session does not move: %+v, %v", again, err)
		again.create("/new", 0)
		assert.That(t, !other.has("/late"), "it has come already")
		time.Sleep(2 * time.Second)
		assert.That(t, other.has("/late"), "it has never come")
		again.create("/newer", 0) // the answer to the late one is lost
	})
}

func TestAStalledConnectionLosesNothing(t *testing.T) {
	bubble(t, zktest.Config{}, func(t *testing.T, e *zktest.Ensemble) {
		c := mustConnect(t, e, "c", zktest.LeaderName)
		l := e.Network.Links("c", zktest.LeaderName)[0]
		l.StallReplies()
		c.send(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
		h, _, err := c.receive(time.Second)
		assert.That(t, err != nil, "answered %+v", h)
		l.Stall()
		l.Resume() // it was stalled twice
		h, _, err = c.receive(time.Second)
		assert.That(t, err != nil, "answered %+v", h)
		l.Resume()
		h, _, err = c.receive(time.Second)
		assert.That(t, err == nil && h.Err == wire.OK, "not answered: %+v, %v", h, err)
	})
}

func TestTheLeaderStartsAgainWithWhatItHad(t *testing.T) {
	bubble(t, zktest.Config{Followers: 1}, func(t *testing.T, e *zktest.Ensemble) {
		c := mustConnect(t, e, "c", zktest.FollowerName(1))
		c.create("/a", wire.FlagEphemeral)
		e.KillLeader()
		_, _, err := c.receive(time.Minute)
		assert.That(t, err != nil, "the client of a follower does not notice")
		assert.NoError(t, e.StartLeader())
		back, err := connect(t, e, "c", zktest.FollowerName(1), c)
		assert.That(t, err == nil && back.ID == c.ID && back.has("/a"), "the session is gone: %+v, %v", back, err)
	})
}

// history is what a few clients see, with times.
func history(t *testing.T, seed uint64) string {
	var b bytes.Buffer
	bubble(t, zktest.Config{Seed: seed, Followers: 2}, func(t *testing.T, e *zktest.Ensemble) {
		begun := time.Now()
		done := make(chan []byte)
		servers := e.Servers()
		for i := range 6 {
			c := mustConnect(t, e, string(rune('a'+i)), servers[i%len(servers)])
			go func() {
				var seen bytes.Buffer
				for range 20 {
					h := c.create("/n-", wire.FlagSequential)
					seen.WriteString(time.Since(begun).String())
					seen.WriteString(" ")
					seen.WriteByte(byte('0' + h.Zxid%10))
					seen.WriteString("\n")
				}
				done <- seen.Bytes()
			}()
		}
		var all [][]byte
		for range 6 {
			all = append(all, <-done)
		}
		for _, seen := range all {
			b.Write(seen)
		}
	})
	return b.String()
}

func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	first := history(t, 1)
	for range 20 {
		again := history(t, 1)
		assert.Must(t, again == first, "another history:\n%s\nafter\n%s", again, first)
	}
	assert.That(t, history(t, 2) != first, "another seed gives the same history")
}

func TestADeadlineAndAContextEndWaiting(t *testing.T) {
	bubble(t, zktest.Config{}, func(t *testing.T, e *zktest.Ensemble) {
		c := mustConnect(t, e, "c", zktest.LeaderName)
		began := time.Now()
		_, _, err := c.receive(3 * time.Second)
		assert.That(t, err != nil && time.Since(began) == 3*time.Second, "%v after %v", err, time.Since(began))
		e.Network.Part("c", zktest.LeaderName)
		_, err = connect(t, e, "c", zktest.LeaderName, nil)
		assert.That(t, err != nil, "connected with a server that is kept away")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = e.Dialer("d")(ctx, "tcp", zktest.LeaderName)
		assert.That(t, err != nil, "dialed with a context that is over")
	})
}

// A client that hangs up while its connection stands still has its last words said when the connection breaks, too: the server
// would wait for ever.
func TestAConnectionThatIsClosedWhileItStandsStillEndsWhenItBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork(1)
		ended := make(chan error, 1)
		n.Serve("server", func(nc net.Conn) {
			_, err := nc.Read(make([]byte, 1))
			ended <- err
			nc.Close()
		})
		nc := assert.Value(n.Dial("client", "server"))(t)
		link := n.Links("client", "server")[0]
		link.Stall()
		nc.Close()
		link.CutClient(time.Second)
		time.Sleep(2 * time.Second)
		select {
		case err := <-ended:
			assert.That(t, err != nil, "the server read something")
		default:
			t.Error("the server still waits")
			link.Cut()
		}
	})
}

func TestARequestThatIsSwallowedIsNeverAnsweredAndTheConnectionLivesOn(t *testing.T) {
	bubble(t, zktest.Config{}, func(t *testing.T, e *zktest.Ensemble) {
		c := mustConnect(t, e, "c", zktest.LeaderName)
		o := e.Network.Swallow("c", func(op wire.Op) bool { return op == wire.OpCreate })
		for range 2 {
			c.send(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone})
			h, _, err := c.receive(time.Second)
			assert.That(t, err != nil, "it is answered: %+v", h)
			assert.That(t, !c.has("/a"), "it was carried out")
		}
		assert.That(t, o.Done(), "nothing was swallowed")
		e.Network.Revoke(o)
		c.create("/a", 0)
		assert.That(t, c.has("/a"), "an order that was revoked goes on")
	})
}
