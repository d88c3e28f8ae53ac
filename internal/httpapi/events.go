package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// DefaultMaxStreams is the bound on event streams at the same time.
const DefaultMaxStreams = events.DefaultMaxSubscribers

// What every stream keeps to. A Server has the spans as fields so that tests
// need not wait for them.
const (
	streamKeepalive = 15 * time.Second // below the 60 s at which proxies cut
	streamWrite     = 10 * time.Second // for one write: who takes longer does not read
)

// maxLockPattern bounds the pattern of a stream's locks. Those of other programs may have long names.
const maxLockPattern = 1024

// watchForm is the fields of a stream.
type watchForm struct {
	filter events.Filter
	since  string
	format string
	socket bool // which has no format
}

func (f *watchForm) names() []string {
	names := []string{"ns", "lock", "type", "owner", "since", "format"}
	if f.socket {
		return names[:5]
	}
	return names
}

func (f *watchForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "ns":
		f.filter.NS, p = namespace(v)
	case "lock":
		if f.filter.Lock, p = someText(name, v, maxLockPattern); p == nil {
			if parsed, err := recipe.ParseLockName(f.filter.Lock); err == nil && !strings.ContainsAny(f.filter.Lock, `*?[\`) {
				f.filter.Lock = parsed
			}
			if err := f.filter.Check(); err != nil {
				p = invalid(name, err.Error())
			}
		}
	case "type":
		var list string
		if list, p = someText(name, v, 512); p == nil {
			var err error
			if f.filter.Types, err = events.ParseTypes(list); err != nil {
				p = invalid(name, err.Error())
			}
		}
	case "owner":
		f.filter.Owner, p = someText(name, v, locks.MaxOwner)
	case "since":
		f.since, p = opaque(name, v, 128)
	case "format":
		if f.socket {
			return false, nil
		}
		f.format, p = choice(name, v, "sse", "jsonl")
	default:
		return false, nil
	}
	return true, p
}

// lastEventID reads the header with which browsers resume. It is stronger than
// since: EventSource asks for the same address at each reconnect, so a since in
// it is where the page began, and the header what it has seen.
func (f *watchForm) lastEventID(h http.Header) *problem {
	const name = "Last-Event-ID"
	id, given, p := single(h, http.CanonicalHeaderKey(name))
	if p != nil {
		p.field = name
		return p
	}
	if !given {
		return nil
	}
	if id, p = opaque(name, value{text: id}, 128); p != nil {
		return p
	}
	f.since = id
	return nil
}

// watching takes one of the bounded places and refuses what no stream can be
// made of. leave must be called when the stream is over.
func (x *exchange) watching(form *watchForm) (leave func(), p *problem) {
	s := x.s
	if form.filter.NS != "" {
		// A namespace that does not exist would be a stream that stays silent. No
		// name begins like this, so no lock is looked at to learn it.
		_, err := s.locks.Locks(x.r.Context(), locks.LockFilter{Principal: locks.Anonymous, NS: form.filter.NS, Prefix: "~", Limit: 1})
		if p := problemOf(err); err != nil && p.code == code(locks.CodeNamespaceUnknown) {
			return nil, p
		}
	}
	if s.drained.Err() != nil {
		return nil, draining()
	}
	if s.streams.Add(1) > s.maxStreams {
		s.streams.Add(-1)
		return nil, tooManyStreams()
	}
	return func() { s.streams.Add(-1) }, nil
}

func tooManyStreams() *problem {
	return &problem{code: codeTooManyStreams, detail: "ask again later, or another gateway: they tell the same story"}
}

// stream is one way to write events to a client.
type stream interface {
	// send writes a batch, at one go.
	send(batch []*events.Event) error
	// keepalive says that there was nothing else to say.
	keepalive(position string) error
}

// Why a stream ends, apart from the client's going away.
var errKeepalive = errors.New("time for a sign of life")

// follow gives the stream what the subscriber is given, until ctx ends (then
// the error is its cause), the subscription does, or the client takes no more.
// Something is written at least every keepalive span.
func (x *exchange) follow(ctx context.Context, sub *events.Subscriber, to stream) error {
	for {
		// One timer for many batches: a burst has hundreds in a second.
		span, cancel := context.WithTimeoutCause(ctx, x.s.keepalive, errKeepalive)
		err := x.relay(span, sub, to)
		cancel()
		if err != errKeepalive {
			return err
		}
		if err := to.keepalive(sub.Position()); err != nil {
			return err
		}
	}
}

func (x *exchange) relay(ctx context.Context, sub *events.Subscriber, to stream) error {
	for {
		batch, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		if err := to.send(batch); err != nil {
			return err
		}
		x.events += len(batch)
	}
}

// ended notes for the log why a stream is over, when that is no daily business.
func (x *exchange) ended(err error) {
	var slow net.Error // the WebSocket library hides os.ErrDeadlineExceeded
	if errors.Is(err, events.ErrLagged) || errors.As(err, &slow) && slow.Timeout() {
		x.cause = err
	}
}

// encodeEvent is an event as server-sent event. The same bytes serve the other
// forms: see jsonOf.
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
		LeaseID: e.LeaseID, Owner: e.Owner, Mode: api.Mode(e.Mode), FencingToken: e.FencingToken, Reason: e.Reason, Count: e.Count, Webhook: e.Webhook, Detail: e.Detail, Gateway: e.Gateway,
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
