package dashboard

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/locks"
)

// Bounds of a viewer's socket.
const (
	writeTimeout = 10 * time.Second // of one message; a viewer that has not read it by then is closed
	closeTimeout = time.Second      // of the close message
	pongTimeout  = 50 * time.Second // a viewer that has answered no ping for so long is closed
	readLimit    = 512              // bytes; pages send nothing
	retryAfter   = "5"              // seconds, when there are too many
)

// upgrader checks the Origin against the Host by itself (its CheckOrigin is
// nil), although the server around it should have done so: the browser does not keep
// a socket from reading across origins. Buffers for writing are shared: a
// viewer needs one only while it is sent something. Messages are compressed one by one, each once for all viewers.
var upgrader = websocket.Upgrader{HandshakeTimeout: writeTimeout, ReadBufferSize: 1024, WriteBufferSize: 4096, WriteBufferPool: &pool,
	EnableCompression: true}

// pool holds buffers for writing.
var pool sync.Pool

var errNoRoom = errors.New("this gateway has as many live pages as it may have; poll instead")
var errNotLive = errors.New("this gateway is not live now")

// live serves a page's socket for as long as it is open.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) {
	p, wrong := livePage(r)
	if wrong != nil {
		d.refuse(w, r, wrong)
		return
	}
	if !websocket.IsWebSocketUpgrade(r) {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "this is a WebSocket", http.StatusUpgradeRequired)
		return
	}
	t, err := d.join(p, visitor(r))
	if err != nil {
		w.Header().Set("Retry-After", retryAfter)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer d.leave(t)
	conn, err := upgrader.Upgrade(hijackable{w}, r, nil)
	if err != nil {
		return // it has been answered
	}
	d.attach(conn.NetConn())
	defer d.detach(conn.NetConn())
	viewer{d: d, conn: conn, gone: make(chan struct{})}.serve(r.Context(), t)
}

// join makes the caller, who may do what who may, a viewer of p's topic, which begins with the first. It
// must leave.
func (d *Dashboard) join(p page, who locks.Principal) (*topic, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining || d.running == nil || d.running.Err() != nil {
		return nil, errNotLive
	}
	at := sightOf(p, who)
	t := d.topics[at]
	if d.viewers >= d.opt.MaxViewers || t == nil && !(d.topicFree() && d.setFree(at.rules)) {
		return nil, errNoRoom
	}
	if t == nil {
		ctx, cancel := context.WithCancel(d.running)
		t = newTopic(d, p, who, cancel)
		d.topics[at] = t
		d.wg.Go(func() { t.run(ctx) })
	}
	t.viewers++
	d.viewers++
	d.wg.Add(1)
	return t, nil
}

// topicFree reports whether there is room for one more topic; one that lingers
// without viewers makes room. mu is held.
func (d *Dashboard) topicFree() bool {
	if len(d.topics) < d.opt.MaxTopics {
		return true
	}
	for at, t := range d.topics {
		if t.viewers == 0 {
			delete(d.topics, at)
			t.cancel()
			return true
		}
	}
	return false
}

// setFree reports whether there is room for viewers with the rules; topics of others that linger without viewers make
// room. mu is held.
func (d *Dashboard) setFree(rules string) bool {
	sets := map[string]bool{rules: true}
	for at, t := range d.topics {
		if t.viewers > 0 {
			sets[at.rules] = true
		}
	}
	if len(sets) > d.opt.MaxSets {
		return false
	}
	for at, t := range d.topics {
		if !sets[at.rules] {
			delete(d.topics, at)
			t.cancel()
		}
	}
	return true
}

func (d *Dashboard) leave(t *topic) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.viewers--
	d.viewers--
	t.emptied = time.Now()
	d.wg.Done()
}

// retire removes the topic when it has had no viewer for a
// while, and reports whether it did.
func (d *Dashboard) retire(t *topic) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.viewers > 0 || time.Since(t.emptied) < linger {
		return false
	}
	if d.topics[t.at] == t { // it may have made room for another
		delete(d.topics, t.at)
	}
	return true
}

// attach makes the connection known to Drain.
func (d *Dashboard) attach(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[conn] = struct{}{}
}

func (d *Dashboard) detach(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, conn)
}

// viewer is one socket.
type viewer struct {
	d    *Dashboard
	conn *websocket.Conn
	gone chan struct{} // closed when nothing can be read any more
}

// serve sends the topic's snapshots until the socket, or ctx, ends. What was missed
// while a message was being written is not made up for.
func (v viewer) serve(ctx context.Context, t *topic) {
	sent := false // the viewer sent something; written before gone is closed
	go func() {
		defer close(v.gone)
		sent = v.listen()
	}()
	defer func() {
		_ = v.conn.Close()
		<-v.gone
	}()
	ping := time.NewTicker(v.d.pongTimeout * 2 / 5)
	defer ping.Stop()
	seen, snap := uint64(0), t.latest.Load()
	for {
		if snap.seq > seen {
			if err := v.send(snap, seen); err != nil {
				return
			}
			seen = snap.seq
		}
		select {
		case <-snap.next:
			snap = t.latest.Load()
		case <-ping.C:
			if err := v.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(v.d.writeTimeout)); err != nil {
				return
			}
		case <-v.gone:
			if sent {
				v.closeWith(websocket.ClosePolicyViolation, "a page must not send anything")
			}
			return
		case <-v.d.drained:
			v.closeWith(websocket.CloseGoingAway, gatewayStops)
			return
		case <-ctx.Done():
			v.closeWith(endOf(ctx))
			return
		}
	}
}

// listen reads, which answers pings and notices pongs and the end, until the
// socket ends or the viewer sends something.
func (v viewer) listen() (sent bool) {
	v.conn.SetReadLimit(readLimit)
	alive := func(string) error { return v.conn.SetReadDeadline(time.Now().Add(v.d.pongTimeout)) }
	v.conn.SetPongHandler(alive)
	if alive("") != nil {
		return false
	}
	_, _, err := v.conn.NextReader()
	return err == nil
}

// send brings a viewer that has been sent the snapshot seen up to date.
func (v viewer) send(snap *snapshot, seen uint64) error {
	if err := v.conn.SetWriteDeadline(time.Now().Add(v.d.writeTimeout)); err != nil {
		return err
	}
	if seen > 0 && seen == snap.seq-1 {
		return v.conn.WritePreparedMessage(snap.update)
	}
	status, err := renderStatus(context.Background(), snap.status, time.Now())
	if err != nil {
		return err
	}
	// What is made for one viewer is small, and not compressed: each writer of permessage-deflate takes hundreds of kilobytes.
	v.conn.EnableWriteCompression(false)
	err = v.conn.WriteMessage(websocket.TextMessage, status)
	v.conn.EnableWriteCompression(true)
	if err != nil {
		return err
	}
	rest, err := snap.rest(seen)
	if err != nil || rest == nil {
		return err
	}
	return v.conn.WritePreparedMessage(rest)
}

func (v viewer) closeWith(code int, reason string) {
	// A viewer that does not read it sees the connection end right after.
	_ = v.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(closeTimeout))
}

// hijackable lets the upgrader have the connection of a ResponseWriter that is
// wrapped: it looks for the method itself, and not through Unwrap.
type hijackable struct{ http.ResponseWriter }

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}
