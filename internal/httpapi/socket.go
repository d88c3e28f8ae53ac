package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/events"
)

const (
	socketRead    = 4 << 10     // bytes of a message from a client, of which none is expected
	socketGoodbye = time.Second // for the client to answer a close frame
	socketVersion = "13"        // RFC 6455, section 4.1
	// closeUnauthenticated is the close code of a socket whose caller is not let in any more: it does not come back without
	// another credential.
	closeUnauthenticated = 4401
	messageRefused       = "nothing is expected from the client"
)

// errMessage: the client sent a message.
var errMessage = errors.New("the client sent a message")

// watchEventsSocket serves events over a WebSocket.
func (s *streams) watchEventsSocket(x *exchange) error {
	var in watchInput
	if err := decode(x, &watchSocket, &in); err != nil {
		return err
	}
	leave, err := s.enter(x, &in)
	if err != nil {
		return err
	}
	defer leave()
	if !websocket.IsWebSocketUpgrade(x.r) || x.r.Method != http.MethodGet || x.r.Header.Get("Sec-Websocket-Version") != socketVersion {
		h := x.Header()
		h["Sec-Websocket-Version"] = []string{socketVersion}
		detail := "this path speaks WebSocket, version 13"
		if x.r.ProtoMajor == 1 {
			h["Upgrade"], h["Connection"] = []string{"websocket"}, []string{"Upgrade"} // RFC 9110, section 7.8
		} else {
			detail += ", over HTTP/1.1" // HTTP/2 knows no such headers (RFC 9113, section 8.2.2)
		}
		return &problem{code: codeUpgradeRequired, detail: detail + "; /v1/events has the same events over plain HTTP"}
	}
	sub, err := s.hub.Subscribe(in.filter, in.since)
	if err != nil {
		return tooManyStreams()
	}
	defer sub.Close()
	w := &framingWriter{exchange: x}
	var refused error
	upgrader := websocket.Upgrader{
		HandshakeTimeout: s.write,
		CheckOrigin:      func(r *http.Request) bool { return !crossOrigin(r) }, // the guard has said so; this is the second lock
		Error: func(_ http.ResponseWriter, _ *http.Request, status int, reason error) {
			refused = handshakeRefused(status, reason)
		},
	}
	conn, err := upgrader.Upgrade(w, x.r, http.Header{"Lockkeeper-Request-Id": {x.requestID}})
	if err != nil {
		return refused // nil: the connection is gone
	}
	x.line.streamed = true
	ended(x, s.converse(x, &socketStream{s: s, conn: conn, frames: w.conn}, sub))
	return nil
}

// handshakeRefused is what the upgrader found wrong.
func handshakeRefused(status int, reason error) error {
	switch {
	case status == http.StatusForbidden:
		return &problem{code: codeCrossOrigin, detail: "a browser sent this for a page of another origin"}
	case status >= 500:
		return internal(reason)
	}
	return malformed(reason.Error())
}

// converse sends events until either side has enough, and says goodbye. The
// goroutine that reads has ended when it returns, and the connection is closed.
func (s *streams) converse(x *exchange, to *socketStream, sub *events.Subscriber) error {
	// The request's own context is no use: net/http does not watch a connection
	// that was hijacked. Here it ends when the reader does.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(x.r.Context()))
	defer context.AfterFunc(s.s.drained, func() { cancel(errDraining) })()
	defer s.s.rechecks.add(&recheck{caller: x.caller, end: func(why *problem) { cancel(why) }})()
	done := make(chan struct{})
	go func() {
		defer close(done)
		to.read(cancel)
	}()
	defer func() {
		_ = to.conn.Close() // first: it is what ends the reader
		<-done
		cancel(nil)
	}()
	err := s.follow(ctx, x, sub, to)
	code, why := websocket.CloseNoStatusReceived, ""
	switch cut := cutBy(ctx); {
	case cut != nil:
		x.line.code = cut.code
		if code, why = websocket.CloseTryAgainLater, cut.detail; cut.code == codeUnauthenticated {
			code = closeUnauthenticated
		}
	case errors.Is(err, errDraining), errors.Is(err, events.ErrClosed):
		code, why = websocket.CloseGoingAway, gatewayStops
	case errors.Is(err, events.ErrLagged):
		code, why = websocket.CloseTryAgainLater, readTooSlow
	case errors.Is(err, errMessage):
		code, why = websocket.CloseUnsupportedData, messageRefused
	default:
		return err // the client is gone, or takes nothing more
	}
	if to.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, why), time.Now().Add(socketGoodbye)) == nil {
		// Closing with something unread resets the connection, and the client
		// might never see the close frame: the reader goes on for a moment.
		moment := time.NewTimer(socketGoodbye)
		defer moment.Stop()
		select {
		case <-done:
		case <-moment.C:
		}
	}
	return err
}

// socketStream is a stream over a WebSocket.
type socketStream struct {
	s      *streams
	conn   *websocket.Conn
	frames *framedConn // what conn writes to
}

// read takes in pongs and the close frame; anything else is too much. What comes after that is thrown away.
func (s *socketStream) read(cancel context.CancelCauseFunc) {
	s.conn.SetReadLimit(socketRead)
	patience := func(string) error { return s.conn.SetReadDeadline(time.Now().Add(s.s.keepalive + s.s.pong)) }
	s.conn.SetPongHandler(patience)
	_ = patience("") // on an open connection this cannot fail; a closed one says so below
	for {
		if _, _, err := s.conn.NextReader(); err != nil {
			cancel(err)
			return
		}
		cancel(errMessage)
	}
}

func (s *socketStream) send(sub *events.Subscriber) error {
	return s.frames.writeFrames(sub.Encoded("frames", appendFrames), s.s.write)
}

// keepalive pings; a client that does not answer in time is gone.
func (s *socketStream) keepalive(string) error {
	return s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(s.s.write))
}
