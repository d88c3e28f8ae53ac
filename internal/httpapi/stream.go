package httpapi

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"lockkeeper/internal/events"
)

var (
	typeSSE     = []string{"text/event-stream"}
	typeJSONL   = []string{"application/jsonl"}
	typeNDJSON  = []string{"application/x-ndjson"}
	noBuffering = []string{"no"}
)

// What clients get at the end of a stream.
const (
	gatewayStops = "the gateway stops: go on with another one, or come back"
	readTooSlow  = "read too slowly: come back, and look at the present state"
)

// watchEvents serves events over plain HTTP.
func (s *streams) watchEvents(x *exchange) error {
	var in watchInput
	if err := decode(x, &watchEvents, &in); err != nil {
		return err
	}
	leave, err := s.enter(x, &in)
	if err != nil {
		return err
	}
	defer leave()
	h := x.Header()
	h["Content-Type"] = streamType(in.format, x.r.Header)
	h["X-Accel-Buffering"] = noBuffering
	if x.r.Method == http.MethodHead {
		x.WriteHeader(http.StatusOK)
		return nil
	}
	sub, err := s.hub.Subscribe(in.filter, cmp.Or(in.seen, in.since))
	if err != nil {
		return tooManyStreams()
	}
	defer sub.Close()
	x.line.streamed = true
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.s.drained, func() { cancel(errDraining) })()
	defer s.s.rechecks.add(&recheck{caller: x.caller, end: func(why *problem) { cancel(why) }})()

	to := &textStream{x: x, control: http.NewResponseController(x.w), within: s.write, sse: h["Content-Type"][0] == typeSSE[0]}
	if err = to.begin(sub.Position()); err == nil {
		err = s.follow(ctx, x, sub, to)
	}
	switch why := cutBy(ctx); {
	case why != nil:
		x.line.code = why.code
		err = to.end(why.detail)
	case errors.Is(err, errDraining), errors.Is(err, events.ErrClosed):
		err = to.end(gatewayStops)
	}
	ended(x, err)
	return nil
}

// grown is b with room for the batch in any form.
func grown(b []byte, batch []*events.Event) []byte {
	n := 0
	for _, e := range batch {
		n += len(e.Encoded(encodeEvent))
	}
	return slices.Grow(b, n)
}

// maxPiece is how much a stream writes at one go: a client has the time of one write to take it.
const maxPiece = 64 << 10

// textStream is a stream over plain HTTP: server-sent events or JSON lines.
type textStream struct {
	x       *exchange
	control *http.ResponseController
	within  time.Duration // for one write
	sse     bool
}

// begin sends the header at once, and where the stream begins, so that also a client that saw no event can resume
// without a loss. Browsers come back after retry: those of a gateway that stopped are spread over a second.
func (s *textStream) begin(position string) error {
	s.x.out.Reset()
	if s.sse {
		s.x.out.WriteString("retry: " + strconv.Itoa(1000+rand.IntN(1000)) + "\nid: " + position + "\n\n")
	}
	return s.flush()
}

func (s *textStream) send(sub *events.Subscriber) error {
	var encoded []byte
	if s.sse {
		encoded = sub.Encoded("sse", appendSSE)
	} else {
		encoded = sub.Encoded("jsonl", appendJSONLines)
	}
	for len(encoded) > 0 {
		n := min(len(encoded), maxPiece)
		if err := s.write(encoded[:n]); err != nil {
			return err
		}
		encoded = encoded[n:]
	}
	return s.written()
}

func appendSSE(b []byte, batch []*events.Event) []byte {
	b = grown(b, batch)
	for _, e := range batch {
		b = append(b, e.Encoded(encodeEvent)...)
	}
	return b
}

func appendJSONLines(b []byte, batch []*events.Event) []byte {
	b = grown(b, batch)
	for _, e := range batch {
		b = append(b, jsonOf(e.Encoded(encodeEvent))...)
	}
	return b
}

func (s *textStream) keepalive(position string) error {
	s.x.out.Reset()
	if s.sse {
		s.x.out.WriteString(": keepalive\nid: " + position + "\n")
	}
	s.x.out.WriteByte('\n')
	return s.flush()
}

// end says goodbye where the form has a way to.
func (s *textStream) end(why string) error {
	s.x.out.Reset()
	if s.sse {
		s.x.out.WriteString(": " + why + "\n\n")
	}
	return s.flush()
}

// write hands b to net/http. The deadline holds for this write, and over HTTP/1 for the end of the answer if this was the last one.
func (s *textStream) write(b []byte) error {
	// A recorder in a test has no deadlines; on a connection this cannot fail.
	_ = s.control.SetWriteDeadline(time.Now().Add(s.within))
	_, err := s.x.Write(b)
	return err
}

// flush writes the exchange's buffer to the connection.
func (s *textStream) flush() error {
	if err := s.write(s.x.out.Bytes()); err != nil {
		return err
	}
	return s.written()
}

// written ends a write. Until the next one there is no deadline.
func (s *textStream) written() error {
	defer s.x.noDeadline()
	return s.control.Flush()
}
