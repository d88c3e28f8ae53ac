package httpapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

func TestADrainEndsEveryStreamAtOnce(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		w := watch(t, events.Options{})
		s := w.open(t, form)
		waitFor(t, func() bool { return w.server.open.taken.Load() == 1 })
		w.server.Drain()
		_, err := s.Next()
		var closed *websocket.CloseError
		switch {
		case form == "socket" && (!errors.As(err, &closed) || closed.Code != websocket.CloseGoingAway || closed.Text != gatewayStops):
			t.Errorf("the socket ended with %v", err)
		case form != "socket" && err != io.EOF:
			t.Errorf("%s ended with %v", form, err)
		case form == "sse" && s.Comment != gatewayStops:
			t.Errorf("the last comment is %q", s.Comment)
		}
		ctx, cancel := context.WithTimeout(w.ctx, within)
		defer cancel()
		assert.Nil(t, w.server.Wait(ctx))
		if _, a, err := forms[form](w); err != nil || a == nil || a.Status != 503 || a.Code() != "draining" {
			t.Errorf("a new one: %v %+v", err, a)
		}
	})
}

func TestAStreamEndsWithItsHub(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		hub := events.New(events.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- hub.Run(ctx) }()
		w := &watched{gateway: serve(t, func(o *Options) { o.Events = hub }), hub: hub}
		s := w.open(t, form)
		cancel()
		if e, err := s.Next(); err == nil {
			t.Errorf("got %s", e.JSON)
		} else if form == "socket" && !websocket.IsCloseError(err, websocket.CloseGoingAway) {
			t.Errorf("ended with %v", err)
		}
		<-done
	})
}

func TestTheNumberOfStreamsIsBounded(t *testing.T) {
	for name, bound := range map[string]func() (events.Options, func(*Options)){
		"ours": func() (events.Options, func(*Options)) {
			return events.Options{}, func(o *Options) { o.MaxStreams = 2 }
		},
		"the hub": func() (events.Options, func(*Options)) { return events.Options{MaxSubscribers: 2}, func(*Options) {} },
	} {
		t.Run(name, func(t *testing.T) {
			hub, change := bound()
			w := watch(t, hub, change)
			a, b := w.open(t, "sse"), w.open(t, "socket")
			for form := range forms {
				if _, a, err := forms[form](w); err != nil || a == nil || a.Status != 429 || a.Code() != "too_many_streams" || a.Header.Get("Retry-After") != "1" {
					t.Errorf("%s beyond the bound: %v %+v", form, err, a)
				}
			}
			a.Close()
			b.Close()
			waitFor(t, func() bool { return w.server.open.taken.Load() == 0 })
			w.hub.Publish(numbered(1))
			w.open(t, "jsonl")
			w.open(t, "socket")
		})
	}
}

func TestTheHeadOfAStreamIsItsHeader(t *testing.T) {
	w := watch(t, events.Options{})
	for path, want := range map[string]string{"/v1/events": "text/event-stream", "/v1/events?format=jsonl": "application/jsonl"} {
		a := w.send(t, "HEAD", path)
		if a.Status != 200 || a.Header.Get("Content-Type") != want || a.Header.Get("X-Accel-Buffering") != "no" || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", path, a.Status, a.Header)
		}
	}
	w.expect(t, 422, "", "HEAD", "/v1/events?type=nonsense")
	a := w.send(t, "POST", "/v1/events")
	assert.That(t, a.Status == 405 && a.Header.Get("Allow") == "GET, HEAD, OPTIONS", "POST: %d %v", a.Status, a.Header)
	w.expect(t, 405, "", "POST", "/v1/events/ws")
	waitFor(t, func() bool { return w.server.open.taken.Load() == 0 })
}

func TestAGatewayWithoutEventsSaysSo(t *testing.T) {
	g := serve(t)
	for _, path := range []string{"/v1/events", "/v1/events/ws"} {
		g.expect(t, 404, "route_not_found", "GET", path)
	}
}

func TestTheFormOfAStreamIsWhatIsPreferred(t *testing.T) {
	for accept, want := range map[string]string{
		"": "text/event-stream", "*/*": "text/event-stream", "text/event-stream": "text/event-stream", "text/html": "text/event-stream",
		"application/jsonl": "application/jsonl", "application/x-ndjson": "application/x-ndjson", "Application/JSONL;q=0.9": "application/jsonl",
		"application/jsonl, */*;q=0.1": "application/jsonl", "application/jsonl, */*": "text/event-stream", "application/jsonl;q=0.5, text/event-stream": "text/event-stream",
		"application/jsonl;q=0.5, application/x-ndjson": "application/x-ndjson", "application/jsonl;q=0": "text/event-stream",
	} {
		h := http.Header{}
		if accept != "" {
			h.Set("Accept", accept)
		}
		assert.Equal(t, streamType("", h)[0], want, "Accept: %s is answered with", accept)
		assert.That(t, streamType("jsonl", h)[0] == "application/jsonl", "format is weaker than Accept: %s", accept)
		assert.That(t, streamType("sse", h)[0] == "text/event-stream", "format is weaker than Accept: %s", accept)
	}
}

func TestWhatNoStreamCanBeMadeOfIsRefusedByName(t *testing.T) {
	w := watch(t, events.Options{})
	for _, c := range []struct {
		query       string
		status      int
		code, field string
		detail      string
	}{
		{"type=lease.lost", 422, "invalid_field", "type", "lease.granted"},
		{"type=", 422, "invalid_field", "type", ""},
		{"type=lease.granted,", 422, "invalid_field", "type", ""},
		{"type=no*", 422, "invalid_field", "type", ""},
		{"lock=%5B", 422, "invalid_field", "lock", "range"},
		{"lock=", 422, "invalid_field", "lock", "empty"},
		{"lock=a%1Bb", 422, "invalid_field", "lock", "control"},
		{"lock=" + strings.Repeat("x", 1025), 422, "invalid_field", "lock", ""},
		{"owner=", 422, "invalid_field", "owner", "empty"},
		{"owner=" + someToken, 422, "invalid_field", "owner", ""},
		{"ns=a/b", 422, "invalid_field", "ns", ""},
		{"since=", 422, "invalid_field", "since", ""},
		{"since=a%20b", 422, "invalid_field", "since", ""},
		{"since=" + strings.Repeat("x", 129), 422, "invalid_field", "since", ""},
		{"since=a&since=a", 422, "repeated_field", "since", ""},
		{"locks=a", 422, "unknown_field", "locks", "since"},
		{"format=xml", 422, "", "format", ""},
	} {
		for _, path := range []string{"/v1/events", "/v1/events/ws"} {
			a := w.send(t, "GET", path+"?"+c.query)
			code := c.code
			if c.field == "format" {
				code = map[bool]string{true: "invalid_field", false: "unknown_field"}[path == "/v1/events"]
			}
			if a.Status != c.status || a.Code() != code || a.Problem.Field != c.field || !strings.Contains(a.Problem.Detail, c.detail) || a.Problem.Detail == "" {
				t.Errorf("%s?%s: %d %s", path, c.query, a.Status, a.Body)
			}
		}
	}
	for what, c := range map[string]struct {
		options []apitest.Option
		code    string
	}{
		"two ids":            {opt(twice("Last-Event-Id", "a-1")), "repeated_field"},
		"an empty id":        {opt(apitest.Header("Last-Event-ID", "")), "invalid_field"},
		"an id with a blank": {opt(apitest.Header("Last-Event-ID", "a 1")), "invalid_field"},
	} {
		a := w.send(t, "GET", "/v1/events", c.options...)
		assert.That(t, a.Status == 422 && a.Code() == c.code && a.Problem.Field == "Last-Event-ID", "%s: %d %s", what, a.Status, a.Body)
	}
	calls := w.asked()
	assert.That(t, len(calls) <= 0, "the manager was asked: %q", calls)
	w.locks = func(f locks.LockFilter) (locks.LockPage, error) {
		assert.That(t, recipe.CheckLockName(f.Prefix) != nil && f.Prefix != "",
			"a stream looks for locks that begin with %q, to learn whether there is a namespace", f.Prefix)
		return locks.LockPage{}, &locks.Error{Code: locks.CodeNamespaceUnknown, Detail: "there is no namespace " + f.NS}
	}
	for form := range forms {
		if _, a, err := forms[form](w, apitest.Query("ns=prod")); err != nil || a == nil || a.Status != 404 || a.Code() != "namespace_unknown" {
			t.Errorf("%s of an unknown namespace: %v %+v", form, err, a)
		}
	}
	// A stream is wanted most when ZooKeeper is away.
	w.locks = func(locks.LockFilter) (locks.LockPage, error) {
		return locks.LockPage{}, &locks.Error{Code: locks.CodeUnavailable}
	}
	w.open(t, "sse", apitest.Query("ns=default"))
}

// What another program calls its nodes must not reach a terminal or a page as it is.
func TestNothingInAnEventIsObeyedByATerminalOrAPage(t *testing.T) {
	const hostile = "$(id)`id`\x1b[2J<script>alert(1)</script>\u009b31m\u202etxt.exe\x7f\r\ndata: forged\n\n\xff\u2028&\U000e0001é"
	eachForm(t, func(t *testing.T, form string) {
		w := watch(t, events.Options{})
		s := w.open(t, form, apitest.Query("type=*"))
		w.hub.Publish(&events.Event{Type: events.NodeCreated, Dir: "/locks", Name: hostile})
		w.hub.Publish(&events.Event{Type: events.LeaseQueued, Foreign: true, Lock: hostile, Owner: hostile, Dir: "/locks", Name: hostile})
		clean := strings.ToValidUTF8(hostile, "\ufffd")
		if e := next(t, s); e.Path != "/locks/"+clean {
			t.Errorf("the path is %q", e.Path)
		} else if want := `"path":"/locks/\u0024(id)\u0060id\u0060\u001b[2J\u003cscript\u003ealert(1)\u003c/script\u003e\u009b31m\u202etxt.exe\u007f\r\ndata: forged\n\n\ufffd\u2028\u0026\udb40\udc01é"}`; !strings.HasSuffix(e.JSON, want) {
			t.Errorf("got  %s\nwant %s", e.JSON, want)
		}
		e := next(t, s)
		assert.That(t, e.Znode == "/locks/"+clean && e.Lock == clean && e.Owner == clean, "got %s", e.JSON)
		for _, r := range e.JSON {
			assert.That(t, r >= ' ' && (r < 0x7f || r >= 0xa0) && !strings.ContainsRune("$`<>&\u202e\u2028\U000e0001", r),
				"%U is there as it is", r)
		}
	})
}

func TestTheLogTellsHowManyEventsAStreamWasSent(t *testing.T) {
	for form, operation := range map[string]string{"sse": "WatchEvents", "jsonl": "WatchEvents", "socket": "WatchEventsSocket"} {
		log := new(lines)
		w := watch(t, events.Options{}, logTo(t, log, slog.LevelInfo))
		s := w.open(t, form, apitest.Query("owner=1"))
		w.hub.Publish(numbered(1))
		expect(t, s, 1, 1)
		assert.Equal(t, log.text(), "", "%s: a line before the end", form)
		s.Close()
		line := log.next(t)
		status := map[bool]float64{true: 101, false: 200}[form == "socket"]
		if line["operation"] != operation || line["events"] != 1.0 || line["status"] != status || line["owner"] != "1" || line["error"] != nil || line["level"] != "INFO" {
			t.Errorf("%s: %v", form, line)
		}
	}
}
