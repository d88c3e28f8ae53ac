package difftest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/zk/wire"
)

// Target is a server that scenarios are played on, and nothing else happens on.
type Target struct{ Name, Addr string }

// Transcript is what the clients saw, for each step the frames of each connection.
type Transcript [][]string

// session is one that a scenario has opened.
type session struct {
	id     int64
	passwd []byte
	closed bool
}

// player plays one scenario on one server.
type player struct {
	addr string
	view
	conns    map[int]*conn
	sessions []session
	owner    map[*conn]int // the session that a connection attached to
	zxid     int64         // the last one that a ping has told
	replied  int64         // that of the last reply
	settled  *conn         // has just made its round trip, after the step
	lines    []string
}

// Play plays a scenario below root, which must not exist. It leaves no session behind.
func Play(target Target, root string, s Scenario) (Transcript, error) {
	p := &player{addr: target.Addr, conns: map[int]*conn{}, owner: map[*conn]int{}}
	p.view = view{place: place{root: root}, began: time.Now(), numbers: map[int64]int{}, times: map[int64]int64{}}
	if err := p.begin(); err != nil {
		return nil, fmt.Errorf("%s: preparing %s: %w", target.Name, root, err)
	}
	var all Transcript
	for i, step := range s.Steps {
		p.lines, p.settled = nil, nil
		p.disarm(step)
		err := p.step(step)
		if err == nil {
			err = p.settle()
		}
		// Each connection has an order, but which of two gets something first is chance.
		slices.SortStableFunc(p.lines, func(a, b string) int { return strings.Compare(a[:2], b[:2]) })
		endInAnyOrder(step, p.lines)
		all = append(all, p.lines)
		if err != nil {
			p.dropAll()
			_ = p.end() // what is left expires, and disturbs a later scenario
			return all, fmt.Errorf("%s: step %d (%v): %w", target.Name, i, step, err)
		}
	}
	if err := p.end(); err != nil {
		return all, fmt.Errorf("%s: ending the sessions: %w", target.Name, err)
	}
	return all, nil
}

// begin makes the root and takes the zxid of the start.
func (p *player) begin() error {
	c, err := dial(p.addr)
	if err != nil {
		return err
	}
	defer c.Conn.Close()
	reply, err := c.handshake(&wire.ConnectRequest{TimeoutMs: 30_000, Passwd: make([]byte, 16), HasReadOnly: true})
	if err != nil || reply == nil {
		return fmt.Errorf("connect: %v, %w", reply, err)
	}
	if err := c.Must(wire.OpCreate, &wire.CreateRequest{Path: p.root, ACL: worldOpen}, nil); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	var stat wire.StatReply
	if err := c.Must(wire.OpExists, &wire.ReadRequest{Path: "/"}, &stat); err != nil {
		return fmt.Errorf("exists: %w", err)
	}
	p.rootStat = stat.Stat
	h, err := c.Call(wire.OpCloseSession, nil, nil)
	p.base, p.zxid = h.Zxid, h.Zxid
	return err
}

// end closes the sessions that are left, so that none expires in a later scenario.
func (p *player) end() error {
	defer p.dropAll()
	for _, c := range p.conns {
		if n, ok := p.owner[c]; ok && !p.sessions[n].closed {
			if err := p.closeSession(c); err != nil {
				return err
			}
			p.sessions[n].closed = true
		}
	}
	for _, s := range p.sessions {
		if s.closed {
			continue
		}
		c, err := dial(p.addr)
		if err != nil {
			return err
		}
		reply, err := c.handshake(&wire.ConnectRequest{TimeoutMs: 30_000, SessionID: s.id, Passwd: s.passwd})
		if err == nil && reply != nil && reply.SessionID != 0 {
			err = p.closeSession(c)
		}
		c.Conn.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *player) closeSession(c *conn) error {
	if err := c.write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: 1 << 30, Op: wire.OpCloseSession})); err != nil {
		return err
	}
	_, _, err := c.until(1<<30, func(wire.ReplyHeader, []byte) {})
	return err
}

func (p *player) dropAll() {
	for client := range p.conns {
		p.drop(client)
	}
}

func (p *player) say(client int, format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf("c%d ", client)+fmt.Sprintf(format, args...))
}

func (p *player) step(s Step) error {
	switch a := s.Action.(type) {
	case Open:
		ask := &wire.ConnectRequest{TimeoutMs: a.TimeoutMs, LastZxidSeen: p.place.zxid(a.LastSeen),
			Passwd: make([]byte, 16), HasReadOnly: !a.NoReadOnly}
		return p.connect(s.Client, ask)
	case Attach:
		if a.Session >= len(p.sessions) {
			return nil
		}
		of := p.sessions[a.Session]
		ask := &wire.ConnectRequest{TimeoutMs: a.TimeoutMs, LastZxidSeen: p.place.zxid(a.LastSeen), SessionID: of.id,
			Passwd: slices.Clone(of.passwd), HasReadOnly: true}
		if a.WrongPasswd {
			ask.Passwd[3] ^= 1
		}
		if a.ShortPasswd {
			ask.Passwd = ask.Passwd[:3]
		}
		if a.WrongID {
			ask.SessionID ^= 1 << 20
		}
		return p.connect(s.Client, ask)
	case Drop:
		p.drop(s.Client)
		return nil
	case Send:
		c := p.conns[s.Client]
		if c == nil {
			return nil
		}
		return p.send(s.Client, c, a)
	case Raw:
		c := p.conns[s.Client]
		if c == nil {
			return nil
		}
		return c.write(a)
	case Expire:
		return p.expire(a)
	case Await:
		c := p.conns[s.Client]
		if c == nil {
			return nil
		}
		if err := p.send(s.Client, c, a.After); err != nil {
			return err
		}
		return p.await(p.replied+a.Transactions, nil)
	}
	panic("difftest: an action of unknown type")
}

func (p *player) drop(client int) {
	if c := p.conns[client]; c != nil {
		c.leave()
		delete(p.conns, client)
	}
}

func (p *player) connect(client int, ask *wire.ConnectRequest) error {
	p.drop(client)
	c, err := dial(p.addr)
	if err != nil {
		return err
	}
	reply, err := c.handshake(ask)
	if err != nil || reply == nil {
		c.Conn.Close()
		if err == nil {
			p.say(client, "closed without an answer")
		}
		return err
	}
	p.conns[client] = c
	if reply.SessionID != 0 {
		if _, known := p.numbers[reply.SessionID]; !known {
			p.numbers[reply.SessionID] = len(p.sessions)
			p.sessions = append(p.sessions, session{id: reply.SessionID, passwd: reply.Passwd})
		}
		p.owner[c] = p.numbers[reply.SessionID]
	}
	passwd := "zeros"
	if slices.ContainsFunc(reply.Passwd, func(b byte) bool { return b != 0 }) {
		passwd = "a password"
		if n, ok := p.owner[c]; ok && slices.Equal(reply.Passwd, p.sessions[n].passwd) {
			passwd = "its password"
		}
	}
	p.say(client, "connected protocol=%d timeout=%d session=%s %s(%d) readonly=%v,%v, %d bytes",
		reply.ProtocolVersion, reply.TimeoutMs,
		p.session(reply.SessionID), passwd, len(reply.Passwd), reply.HasReadOnly, reply.ReadOnly, len(wire.AppendFrame(nil, reply))-4)
	return nil
}

// send sends requests together as far as ZooKeeper's answer to that is always the same (inTurn).
func (p *player) send(client int, c *conn, requests Send) error {
	for n := 0; len(requests) > 0; requests = requests[n:] {
		for n = 1; n < len(requests) && !inTurn(requests[n-1], requests[n]); n++ {
		}
		if err := p.burst(client, c, requests[:n]); err != nil {
			return err
		}
		if p.conns[client] == nil {
			return nil // the server has closed it
		}
	}
	return nil
}

// inTurn says that a request must not be sent before the one ahead of it is answered, because ZooKeeper may mix them up:
// what follows a setACL is judged by the old ACL or the new one, authentication and what ZooKeeper does not know
// overtake what was sent before.
func inTurn(first, second Request) bool {
	return first.Op == wire.OpSetACL || first.Op == wire.OpCloseSession || overtakes(first) || overtakes(second)
}

func overtakes(r Request) bool {
	return r.Op == wire.OpAuth || r.Op == wire.OpSASL || opNames[r.Op] == "" || r.Op == wire.OpError
}

func (p *player) burst(client int, c *conn, requests Send) error {
	var burst []byte
	pings := 1
	for _, r := range requests {
		xid := r.Xid
		if xid == 0 {
			c.xid++
			xid = c.xid
		}
		if r.Op == wire.OpPing {
			xid = wire.XidPing
			pings++
		}
		c.asked[xid] = r
		var body []byte
		if r.Record != nil {
			body = p.record(r.Record).AppendTo(nil)
		}
		body = append(body[:max(0, len(body)-r.Cut)], r.Extra...)
		mark := len(burst)
		burst = (&wire.RequestHeader{Xid: xid, Op: r.Op}).AppendTo(wire.BeginFrame(burst))
		burst = wire.EndFrame(append(burst, body...), mark)
	}
	if err := c.write(append(burst, ping...)); err != nil {
		return err
	}
	p.settled = c
	return p.read(client, c, pings)
}

// settle makes a round trip on every connection, so that what the step has caused is there.
func (p *player) settle() error {
	var clients []int
	for client, c := range p.conns {
		if c == p.settled {
			continue
		}
		clients = append(clients, client)
		if err := c.write(ping); err != nil {
			return err
		}
	}
	slices.Sort(clients)
	for _, client := range clients {
		if err := p.read(client, p.conns[client], 1); err != nil {
			return err
		}
	}
	return nil
}

// read writes down what a connection gets until so many pings have been answered.
func (p *player) read(client int, c *conn, pings int) error {
	bye := false
	zxid, open, err := c.until(pings, func(h wire.ReplyHeader, body []byte) {
		if h.Xid == wire.XidWatcherEvent {
			text := p.event(body)
			if h.Zxid != -1 || h.Err != wire.OK {
				text += fmt.Sprintf(" HEADER %+v", h)
			}
			p.say(client, "%s", text)
			return
		}
		if h.Err == wire.OK && c.asked[h.Xid].Op == wire.OpCloseSession {
			p.sessions[p.owner[c]].closed = true
		}
		p.replied = h.Zxid
		bye = bye || farewell(c.asked[h.Xid], h)
		p.say(client, "%s", p.reply(c.asked[h.Xid], h, body))
	})
	if bye && open && err == nil { // it has answered the ping, too; the end is to come
		_, open, err = c.until(math.MaxInt, func(h wire.ReplyHeader, body []byte) {
			p.say(client, "%s BEHIND THE FAREWELL", p.reply(c.asked[h.Xid], h, body))
		})
	}
	if err != nil {
		return err
	}
	if !open {
		p.say(client, "closed")
		p.drop(client)
	}
	p.zxid = max(p.zxid, zxid)
	return nil
}

// farewell says that ZooKeeper closes the connection behind this reply.
func farewell(r Request, h wire.ReplyHeader) bool {
	switch h.Err {
	case wire.OK:
		return r.Op == wire.OpCloseSession
	case wire.ErrAuthFailed:
		return r.Op == wire.OpAuth
	case wire.ErrUnimplemented:
		return overtakes(r)
	}
	return false
}

// expire waits until a transaction happens by itself: the end of the session.
func (p *player) expire(a Expire) error {
	if a.Session >= len(p.sessions) || p.sessions[a.Session].closed {
		return nil
	}
	client, silent := -1, (*conn)(nil)
	for n, c := range p.conns {
		if owner, ok := p.owner[c]; ok && owner == a.Session {
			client, silent = n, c
		}
	}
	if err := p.await(p.zxid+1, silent); err != nil {
		return err
	}
	p.sessions[a.Session].closed = true
	if silent != nil {
		return p.read(client, silent, math.MaxInt) // the server closes it
	}
	return nil
}

// await waits until the server has reached a zxid. A silent connection does not ask.
func (p *player) await(zxid int64, silent *conn) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); p.zxid < zxid; <-tick.C {
		if time.Now().After(deadline) {
			return fmt.Errorf("it has not happened within %v", patience)
		}
		p.settled = silent
		if err := p.settle(); err != nil {
			return err
		}
	}
	return nil
}

var worldOpen = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}
