package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/ratelimit"
)

// DefaultMaxStreams is the bound on event streams at the same time.
const DefaultMaxStreams = events.DefaultMaxSubscribers

// streams are the operations that tell events as they come. Each span has its value from newStreams, except in tests.
type streams struct {
	s         *Server
	hub       *events.Hub   // nil: they are 404 (Server.mount)
	open      places        // streams at the same time
	share     *share        // of the processors
	keepalive time.Duration // between signs of life: below the 60 s at which proxies cut
	write     time.Duration // for one write: a client that takes longer does not read
	pong      time.Duration // from a ping
}

func newStreams(s *Server, hub *events.Hub, most int) *streams {
	return &streams{s: s, hub: hub, open: places{limit: orDefault(int64(most), DefaultMaxStreams)}, share: newShare(&s.begun),
		keepalive: 15 * time.Second, write: 10 * time.Second, pong: 10 * time.Second}
}

// watchInput selects the events of a stream, and its beginning.
type watchInput struct {
	filter      events.Filter
	since, seen string
	format      string // "sse" or "jsonl"
}

var watchSocket = operation[watchInput]{fields: []field[watchInput]{
	{name: "ns", in: inQuery, to: func(w *watchInput) any { return &w.filter.NS }},
	{name: "lock", in: inQuery, to: func(w *watchInput) any { return lockPattern{&w.filter} }},
	{name: "type", in: inQuery, to: func(w *watchInput) any { return eventTypes{&w.filter} }},
	{name: "owner", in: inQuery, to: func(w *watchInput) any { return &w.filter.Owner }},
	{name: "acquire_reason", in: inQuery, to: func(w *watchInput) any { return &w.filter.Purpose }},
	{name: "since", in: inQuery, to: func(w *watchInput) any { return (*revision)(&w.since) }},
}}

var watchEvents = operation[watchInput]{fields: append([]field[watchInput]{
	// With it browsers resume. EventSource asks for the same address at each reconnect, so a since in it is where the page
	// began, and the header what it has seen: the header takes precedence.
	{name: "Last-Event-ID", in: inHeader, to: func(w *watchInput) any { return (*revision)(&w.seen) }},
	{name: "format", in: inQuery, to: func(w *watchInput) any { return oneOf{&w.format, []string{"sse", "jsonl"}} }},
}, watchSocket.fields...)}

// lockPattern is the name of a lock, or a pattern of names.
type lockPattern struct{ filter *events.Filter }

func (l lockPattern) read(name string, v value) error {
	err := assign(name, false, v, &l.filter.Lock)
	if err == nil {
		err = locks.CheckText(name, l.filter.Lock, locks.MaxPattern)
	}
	if err != nil {
		return err
	}
	if parsed, err := recipe.ParseLockName(l.filter.Lock); err == nil && !strings.ContainsAny(l.filter.Lock, `*?[\`) {
		l.filter.Lock = parsed
	}
	if err := l.filter.Check(); err != nil {
		return invalid(name, err.Error())
	}
	return nil
}

// eventTypes are types of events with commas between, or patterns of them.
type eventTypes struct{ filter *events.Filter }

func (e eventTypes) read(name string, v value) (err error) {
	var list string
	if err = assign(name, false, v, &list); err != nil {
		return err
	}
	if err = locks.CheckText(name, list, 512); err != nil {
		return err
	}
	if e.filter.Types, err = events.ParseTypes(list); err != nil {
		return invalid(name, err.Error())
	}
	return nil
}

// enter takes one of the bounded places and refuses what no stream can be made of. leave must be called when the stream is
// over.
func (s *streams) enter(x *exchange, in *watchInput) (leave func(), err error) {
	if err := locks.CheckText("owner", in.filter.Owner, locks.MaxOwner); err != nil {
		return nil, err
	}
	if err := locks.CheckText("acquire_reason", in.filter.Purpose, locks.MaxReasonText); err != nil {
		return nil, err
	}
	if in.filter.NS != "" {
		// A stream of a namespace that does not exist would stay silent.
		if err := s.namespaceKnown(x, in.filter.NS); err != nil {
			return nil, err
		}
	}
	if s.s.drained.Err() != nil {
		return nil, draining()
	}
	from := x.from
	if !s.s.behind.take(from) {
		return nil, tooManyStreams()
	}
	if !s.open.take() {
		s.s.behind.give(from)
		return nil, tooManyStreams()
	}
	if err := x.moveTo(ratelimit.Stream); err != nil {
		s.open.give()
		s.s.behind.give(from)
		return nil, err
	}
	in.filter.Rules = x.principal().Rules
	x.line.in(in.filter.NS)
	x.line.by(in.filter.Owner)
	return func() {
		s.open.give()
		s.s.behind.give(from)
	}, nil
}

// namespaceKnown refuses a namespace that does not exist. No lock's name begins as the prefix does, so none is looked at.
func (s *streams) namespaceKnown(x *exchange, ns string) error {
	_, err := s.s.locks.Locks(x.r.Context(), locks.LockFilter{Principal: x.principal(), NS: ns, Prefix: "~", Limit: 1})
	if e, ok := errors.AsType[*locks.Error](err); ok && (e.Code == locks.CodeNamespaceUnknown || e.Code == locks.CodeInvalid || e.Code == locks.CodeForbidden) {
		return err
	}
	return nil
}

func tooManyStreams() *problem {
	return &problem{code: codeTooManyStreams, detail: "ask again later, or another gateway: its streams have the same events"}
}

// eventWriter is one way to write events to a client.
type eventWriter interface {
	// send writes the subscriber's last batch, at one go.
	send(sub *events.Subscriber) error
	// keepalive says that there was nothing else to say.
	keepalive(position string) error
}

// Why a stream ends, apart from the client's going away.
var errKeepalive = errors.New("time for a sign of life")

// follow gives the writer what the subscriber is given, until ctx ends (then the error is its cause), the subscription does,
// or the client takes no more. Something is written at least every keepalive span.
func (s *streams) follow(ctx context.Context, x *exchange, sub *events.Subscriber, to eventWriter) error {
	for {
		// One timer for many batches: a burst has hundreds in a second.
		span, cancel := context.WithTimeoutCause(ctx, s.keepalive, errKeepalive)
		err := s.relay(span, x, sub, to)
		cancel()
		if err != errKeepalive {
			return err
		}
		if err := to.keepalive(sub.Position()); err != nil {
			return err
		}
	}
}

func (s *streams) relay(ctx context.Context, x *exchange, sub *events.Subscriber, to eventWriter) error {
	for {
		if err := sub.Await(ctx); err != nil {
			return err
		}
		err := s.share.take(ctx, func() error {
			batch := sub.Read()
			if len(batch) == 0 {
				return nil
			}
			x.line.events += len(batch)
			return to.send(sub)
		})
		if err != nil {
			return err
		}
	}
}

// ended records for the log why a stream is over, when it lagged or did not read.
func ended(x *exchange, err error) {
	var slow net.Error // the WebSocket library hides os.ErrDeadlineExceeded
	if errors.Is(err, events.ErrLagged) || errors.As(err, &slow) && slow.Timeout() {
		x.line.cause = err
	}
}

// encodeEvent is an event as server-sent event. The same bytes serve the other forms: see jsonOf.
func encodeEvent(e *events.Event) []byte {
	shape := eventShape(e)
	doc, err := json.Marshal(&shape)
	if err != nil {
		panic(fmt.Errorf("encoding an event: %w", err)) // our own type; only a defect gets here
	}
	b := make([]byte, 0, len(doc)+64)
	b = append(b, "id: "...)
	b = append(b, shape.ID...)
	b = append(b, "\nevent: "...)
	b = append(b, shape.Type...)
	b = append(b, beforeJSON...)
	b = appendInert(b, doc)
	return append(b, "\n\n"...)
}

const beforeJSON = "\ndata: "

// jsonOf is the JSON in an encoded event, with the line's end.
func jsonOf(encoded []byte) []byte {
	return encoded[bytes.Index(encoded, []byte(beforeJSON))+len(beforeJSON) : len(encoded)-1]
}

// eventTime has a fixed width, so that times can be compared as text.
const eventTime = "2006-01-02T15:04:05.000000Z"

func eventShape(e *events.Event) api.Event {
	shape := api.Event{
		ID: e.ID(), Time: e.Time.UTC().Format(eventTime), Type: api.EventType(e.Type.String()), NS: e.NS, Lock: e.Lock,
		LeaseID: e.LeaseID, Owner: e.Owner, Principal: e.Principal, AcquireReason: e.Purpose, Mode: api.Mode(e.Mode), FencingToken: e.FencingToken, Reason: e.Reason, By: e.By, Detail: e.Detail, Gateway: e.Gateway, Cycle: e.Cycle,
	}
	if d := e.Dropped; d != nil {
		shape.Count, shape.Webhook = d.Count, d.Webhook
	}
	if h := e.Hazard; h != nil {
		shape.Code, shape.Programs = api.HazardCode(h.Code), h.Programs
	}
	if e.Foreign {
		shape.Foreign = &api.EventForeign{Program: e.Program}
	}
	if e.Type.IsNode() {
		shape.Path = e.Path()
	} else {
		shape.Znode = e.Path()
	}
	return shape
}
