package apitest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
)

// Stream is an event stream as it arrives: server-sent events, JSON lines or a WebSocket. Every event is held against
// the schema Event of openapi.yaml. It is for one goroutine at a time; Close is for any.
type Stream struct {
	Header http.Header
	// Position is what a client would resume with: the id of the last event, or
	// of a server-sent comment that came later.
	Position string
	// Keepalives counts the signs of life: comments, empty lines, pings. It may be read at any time.
	Keepalives atomic.Int64
	// Comment is the last server-sent comment.
	Comment string

	untilKeepalive bool

	c     *Client
	next  func() (raw string, err error)
	close func() error
}

// StreamEvent is an event, and the JSON that it came as.
type StreamEvent struct {
	api.Event
	JSON string
}

// Events opens GET /v1/events. The form is what the request asks for. When the
// gateway refuses, the stream is nil and the answer tells why.
func (c *Client) Events(ctx context.Context, options ...Option) (*Stream, *Answer, error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/v1/events", nil)
	if err != nil {
		return nil, nil, err
	}
	for _, option := range options {
		option(req)
	}
	response, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	if response.StatusCode != http.StatusOK {
		a, err := c.answer(req, response)
		return nil, a, err
	}
	assert.Nil(c.t, c.spec.Check(req, response.StatusCode, response.Header, nil),
		"%s: the stream's header is not what openapi.yaml says", req.URL)
	s := &Stream{Header: response.Header, c: c, close: response.Body.Close}
	reader := bufio.NewReader(response.Body)
	s.next = func() (string, error) { return s.line(reader) }
	if response.Header.Get("Content-Type") == "text/event-stream" {
		s.next = func() (string, error) { return s.serverSent(reader) }
	}
	return s, nil, nil
}

// Socket opens GET /v1/events/ws. When the gateway refuses, the stream is nil and the answer tells why.
func (c *Client) Socket(ctx context.Context, options ...Option) (*Stream, *Answer, error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/v1/events/ws", nil)
	if err != nil {
		return nil, nil, err
	}
	for _, option := range options {
		option(req)
	}
	header := req.Header.Clone()
	if req.Host != "" {
		header.Set("Host", req.Host)
	}
	conn, response, err := new(websocket.Dialer).DialContext(ctx, "ws"+strings.TrimPrefix(req.URL.String(), "http"), header)
	if err != nil {
		if response == nil {
			return nil, nil, err
		}
		a, err := c.answer(req, response)
		return nil, a, err
	}
	assert.Nil(c.t, c.spec.Check(req, response.StatusCode, response.Header, nil),
		"%s: the handshake is not what openapi.yaml says", req.URL)
	s := &Stream{Header: response.Header, c: c}
	forget := context.AfterFunc(ctx, func() { _ = conn.Close() })
	s.close = func() error { forget(); return conn.Close() }
	pong := conn.PingHandler()
	conn.SetPingHandler(func(data string) error { s.Keepalives.Add(1); return pong(data) })
	s.next = func() (string, error) {
		kind, message, err := conn.ReadMessage()
		assert.That(c.t, err != nil || kind == websocket.TextMessage, "a message of type %d", kind)
		return string(message), err
	}
	return s, nil, nil
}

// Next waits for the next event. At the end of a stream the error is io.EOF, or the *websocket.CloseError.
func (s *Stream) Next() (StreamEvent, error) {
	s.c.t.Helper()
	raw, err := s.next()
	if err != nil {
		return StreamEvent{}, err
	}
	err = s.c.spec.CheckEvent(raw)
	assert.That(s.c.t, err == nil, "an event is not what openapi.yaml says: %v\n%s", err, raw)
	e := StreamEvent{JSON: raw}
	if err := json.Unmarshal([]byte(raw), &e.Event); err != nil {
		return e, err
	}
	s.Position = e.ID
	return e, nil
}

// NextKeepalive waits for the next sign of life of server-sent events, and fails when an event comes first.
func (s *Stream) NextKeepalive() error {
	s.untilKeepalive = true
	defer func() { s.untilKeepalive = false }()
	raw, err := s.next()
	if err == nil && raw != "" {
		err = fmt.Errorf("an event came: %s", raw)
	}
	return err
}

// Close ends the stream.
func (s *Stream) Close() { _ = s.close() }

// line reads JSON lines up to the next event.
func (s *Stream) line(r *bufio.Reader) (string, error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if line != "" {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		if line != "\n" {
			return strings.TrimSuffix(line, "\n"), nil
		}
		s.Keepalives.Add(1)
	}
}

// serverSent reads server-sent events up to the next that has data, as the HTML
// standard says, section 9.2.6, and holds id and event against the data.
func (s *Stream) serverSent(r *bufio.Reader) (string, error) {
	fields := map[string]string{}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if line != "" || len(fields) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if id, ok := fields["id"]; ok {
				s.Position = id
			}
			if fields["data"] != "" {
				return fields["data"], s.agree(fields)
			}
			if s.untilKeepalive {
				return "", nil
			}
			clear(fields)
		case name == "":
			s.Comment = value
			s.Keepalives.Add(1)
		default:
			if _, twice := fields[name]; twice {
				return "", fmt.Errorf("the field %s comes twice in one event", name)
			}
			fields[name] = value
		}
	}
}

func (s *Stream) agree(fields map[string]string) error {
	var e api.Event
	if err := json.Unmarshal([]byte(fields["data"]), &e); err != nil {
		return err
	}
	if fields["id"] != e.ID || fields["event"] != string(e.Type) {
		return fmt.Errorf("the event says id %q and type %q, its data %q and %q", fields["id"], fields["event"], e.ID, e.Type)
	}
	return nil
}

// CheckEvent holds the JSON of an event against the specification.
func (s *Spec) CheckEvent(raw string) error {
	return s.judgeJSON("/components/schemas/Event", []byte(raw))
}
