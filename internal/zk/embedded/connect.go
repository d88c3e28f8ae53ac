package embedded

import (
	"fmt"

	"lockkeeper/internal/zk/wire"
)

// connect carries out a connect request: a new session, or an old one for a new connection.
func (k *core) connect(c *conn, it item) {
	k.stats.received++
	c.received.Add(1)
	r := it.connect
	if last := k.state.LastZxid(); r.LastZxidSeen > last {
		k.log.Info("client refused: it has seen a later zxid", "remote", c.remote, "seen", r.LastZxidSeen, "last", last)
		k.end(c, endsAtOnce)
		return
	}
	timeout := min(max(int64(r.TimeoutMs), k.s.cfg.MinSessionTimeout.Milliseconds()), k.s.cfg.MaxSessionTimeout.Milliseconds())
	var s *session
	if r.SessionID == 0 {
		s = k.sessions.open(it.at, timeout, c.local)
		if txn := k.state.OpenSession(k.now, s.id, int32(timeout)); txn != nil {
			k.txns = append(k.txns, txn)
		}
	} else if s = k.sessions.find(r.SessionID, r.Passwd); s != nil && isLocal(s.id) != c.local {
		s = nil // even with its password: a local session belongs to this process alone
	} else if s != nil {
		s.timeout = timeout
		k.sessions.touch(s, it.at)
		if s.conn != nil {
			k.end(s.conn, endsAtOnce)
		}
	}
	reply := wire.ConnectReply{Passwd: make([]byte, 16), HasReadOnly: r.HasReadOnly}
	if s != nil {
		c.session, s.conn = s, c
		c.peer.Session = s.id
		k.state.Attach(c.peer)
		reply.TimeoutMs, reply.SessionID, reply.Passwd = int32(timeout), s.id, k.sessions.password(s.id)
	}
	mark := k.begin(c)
	c.batch = reply.AppendTo(c.batch)
	k.finish(c, mark)
	if s == nil {
		k.log.Info("session refused: expired, or not this client's", "remote", c.remote, "session", fmt.Sprintf("0x%x", r.SessionID))
		k.end(c, endsAfterOutput)
	}
}
