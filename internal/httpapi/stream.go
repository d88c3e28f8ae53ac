package httpapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/events"
)

var (
	typeSSE     = []string{"text/event-stream"}
	typeJSONL   = []string{"application/jsonl"}
	typeNDJSON  = []string{"application/x-ndjson"}
	noBuffering = []string{"no"}
)

// What clients are told at the end of a stream.
const (
	gatewayStops = "the gateway stops: go on with another one, or come back"
	readTooSlow  = "read too slowly: come back, and look at the present state"
)

// watchEvents serves events over plain HTTP.
func (x *exchange) watchEvents() {
	if x.s.events == nil {
		x.noEvents()
		return
	}
	var form watchForm
	p := x.fields(&form, 0)
	if p == nil {
		p = form.lastEventID(x.r.Header)
	}
	var leave func()
	if p == nil {
		leave, p = x.watching(&form)
	}
	if p != nil {
		x.problem(p)
		return
	}
	defer leave()
	x.ns, x.owner = form.filter.NS, form.filter.Owner
	h := x.Header()
	h["Content-Type"] = streamType(form.format, x.r.Header)
	h["X-Accel-Buffering"] = noBuffering
	if x.r.Method == http.MethodHead {
		x.WriteHeader(http.StatusOK)
		return
	}
	sub, err := x.s.events.Subscribe(form.filter, form.since)
	if err != nil {
		delete(h, "X-Accel-Buffering")
		x.problem(tooManyStreams())
		return
	}
	defer sub.Close()
	x.streamed = true
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	defer context.AfterFunc(x.s.drained, func() { cancel(errDraining) })()

	to := &textStream{x: x, control: http.NewResponseController(x.w), sse: h["Content-Type"][0] == typeSSE[0]}
	if err = to.begin(sub.Position()); err == nil {
		err = x.follow(ctx, sub, to)
	}
	if errors.Is(err, errDraining) || errors.Is(err, events.ErrClosed) {
		err = to.end(gatewayStops)
	}
	x.ended(err)
}

func (x *exchange) noEvents() {
	x.problem(&problem{code: codeRouteNotFound, detail: "this gateway tells no events"})
}

// streamType is the form of a stream: what format says, or what Accept prefers.
// Among equals it is server-sent events: curl and browsers accept everything.
func streamType(format string, h http.Header) []string {
	switch format {
	case "sse":
		return typeSSE
	case "jsonl":
		return typeJSONL
	}
	var sse, jsonl, ndjson, anyType float64
	for part := range strings.SplitSeq(strings.Join(h["Accept"], ","), ",") {
		mediaType, params, _ := strings.Cut(part, ";")
		q := quality(params)
		switch strings.ToLower(strings.TrimSpace(mediaType)) {
		case "text/event-stream", "text/*":
			sse = max(sse, q)
		case "application/jsonl", "application/*":
			jsonl = max(jsonl, q)
		case "application/x-ndjson":
			ndjson = max(ndjson, q)
		case "*/*":
			anyType = q
		}
	}
	switch {
	case max(jsonl, ndjson) <= max(sse, anyType):
		return typeSSE
	case ndjson > jsonl:
		return typeNDJSON
	}
	return typeJSONL
}

// maxPiece bounds what a stream buffers of a batch: it is kept as long as the
// stream lives, and there are thousands.
const maxPiece = 8 << 10

// textStream is a stream over plain HTTP: server-sent events or JSON lines.
type textStream struct {
	x       *exchange
	control *http.ResponseController
	sse     bool
}

// begin sends the header at once, and where the stream begins, so that also a
// client that saw no event can resume without a loss. Browsers come back after
// retry: those of a gateway that stopped are spread over a second.
func (s *textStream) begin(position string) error {
	s.x.out.Reset()
	if s.sse {
		s.x.out.WriteString("retry: " + strconv.Itoa(1000+rand.IntN(1000)) + "\nid: " + position + "\n\n")
	}
	return s.flush()
}

func (s *textStream) send(batch []*events.Event) error {
	s.x.out.Reset()
	for _, e := range batch {
		encoded := e.Encoded(encodeEvent)
		if !s.sse {
			encoded = jsonOf(encoded)
		}
		if s.x.out.Len()+len(encoded) > maxPiece {
			if err := s.write(); err != nil {
				return err
			}
		}
		s.x.out.Write(encoded)
	}
	return s.flush()
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

// write hands the buffer to net/http. The deadline holds for this write, and for
// the end of the answer if this was the last one.
func (s *textStream) write() error {
	// A recorder in a test has no deadlines; on a connection this cannot fail.
	_ = s.control.SetWriteDeadline(time.Now().Add(s.x.s.streamWrite))
	_, err := s.x.Write(s.x.out.Bytes())
	s.x.out.Reset()
	return err
}

// flush writes the buffer to the connection.
func (s *textStream) flush() error {
	if err := s.write(); err != nil {
		return err
	}
	return s.control.Flush()
}
