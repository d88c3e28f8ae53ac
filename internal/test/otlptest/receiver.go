// Package otlptest is an OpenTelemetry collector for tests: it takes OTLP over HTTP, and shows the spans that have come.
package otlptest

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// maxBody is far above what a gateway sends at once.
const maxBody = 16 << 20

// Receiver is a collector.
type Receiver struct {
	URL string // for --otlp

	// Refuse, when it is set, answers instead of the receiver.
	refuse http.HandlerFunc

	mu      sync.Mutex
	spans   []Span
	raw     []byte // every body, decompressed
	headers []http.Header
	more    chan struct{} // closed when spans come
}

// Span is one span as it came.
type Span struct {
	*tracepb.Span
	Service string // the resource's service.name
}

// Start starts a collector that runs until the test ends.
func Start(t testing.TB) *Receiver {
	return StartWith(t, nil)
}

// StartWith starts one that answers with refuse, where that is not nil, instead of taking spans.
func StartWith(t testing.TB, refuse http.HandlerFunc) *Receiver {
	r := &Receiver{refuse: refuse, more: make(chan struct{})}
	server := httptest.NewServer(r)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	r.URL = server.URL
	return r
}

// ServeHTTP takes an export.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.refuse != nil {
		r.refuse(w, req)
		return
	}
	if err := r.take(req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (r *Receiver) take(req *http.Request) error {
	if req.Method != http.MethodPost || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		return fmt.Errorf("%s %s of type %q is no export", req.Method, req.URL.Path, req.Header.Get("Content-Type"))
	}
	var from io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(req.Body)
		if err != nil {
			return err
		}
		from = unzipped
	}
	body, err := io.ReadAll(io.LimitReader(from, maxBody))
	if err != nil {
		return err
	}
	var export collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &export); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw, r.headers = append(r.raw, body...), append(r.headers, req.Header)
	for _, resource := range export.ResourceSpans {
		service := ""
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, Span{s, service})
			}
		}
	}
	close(r.more)
	r.more = make(chan struct{})
	return nil
}

// Raw is all that was exported, as bytes.
func (r *Receiver) Raw() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.raw)
}

// Headers are those of the last export.
func (r *Receiver) Headers() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.headers) == 0 {
		return nil
	}
	return r.headers[len(r.headers)-1]
}

// Spans are the spans that have come so far and are as asked.
func (r *Receiver) Spans(is func(Span) bool) (list []Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if is(s) {
			list = append(list, s)
		}
	}
	return list
}

// patience is for a loaded machine, and measures nothing.
const patience = 30 * time.Second

// Await waits for a span that is as asked.
func (r *Receiver) Await(t testing.TB, what string, is func(Span) bool) Span {
	t.Helper()
	over := time.After(patience)
	for {
		r.mu.Lock()
		more := r.more
		r.mu.Unlock()
		if found := r.Spans(is); len(found) > 0 {
			return found[0]
		}
		select {
		case <-more:
		case <-over:
			t.Fatalf("no span comes: %s. These have come:\n%s", what, r)
		}
	}
}

// String lists the spans.
func (r *Receiver) String() string {
	var b strings.Builder
	for _, s := range r.Spans(func(Span) bool { return true }) {
		fmt.Fprintf(&b, "%s %s/%s below %q:", s.Name, s.Trace(), s.ID(), s.Parent())
		for _, a := range s.Attributes {
			fmt.Fprintf(&b, " %s=%s", a.Key, s.Attr(a.Key))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Named is a condition on a span: its name, and attributes as pairs of key and value.
func Named(name string, attributes ...string) func(Span) bool {
	return func(s Span) bool {
		for i := 0; i+1 < len(attributes); i += 2 {
			if s.Attr(attributes[i]) != attributes[i+1] {
				return false
			}
		}
		return s.Name == name
	}
}

// Attr is an attribute's value as text; "" when the span does not have it.
func (s Span) Attr(key string) string {
	for _, a := range s.Attributes {
		if a.Key != key {
			continue
		}
		switch v := a.Value; {
		case v.GetArrayValue() != nil:
			var list []string
			for _, one := range v.GetArrayValue().Values {
				list = append(list, one.GetStringValue())
			}
			return strings.Join(list, ",")
		case v.GetStringValue() != "":
			return v.GetStringValue()
		case v.GetIntValue() != 0:
			return fmt.Sprint(v.GetIntValue())
		default:
			return fmt.Sprint(v.GetBoolValue())
		}
	}
	return ""
}

// Trace is the trace's id in hexadecimal digits.
func (s Span) Trace() string { return hex.EncodeToString(s.TraceId) }

// ID is the span's.
func (s Span) ID() string { return hex.EncodeToString(s.SpanId) }

// Parent is its parent's; "" for a root.
func (s Span) Parent() string { return hex.EncodeToString(s.ParentSpanId) }

// LinkIDs are the ids of the spans to which it is linked.
func (s Span) LinkIDs() (ids []string) {
	for _, l := range s.Links {
		ids = append(ids, hex.EncodeToString(l.SpanId))
	}
	return ids
}
