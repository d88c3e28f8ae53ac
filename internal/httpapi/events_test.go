package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/events"
	"lockkeeper/internal/httpapi/apitest"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/testkit"
)

// within bounds what should take milliseconds.
const within = 10 * time.Second

// watched is a gateway with a hub that runs.
type watched struct {
	*gateway
	hub *events.Hub
	run func() // starts the hub; waiting does not
}

func watch(t *testing.T, hub events.Options, change ...func(*Options)) *watched {
	t.Helper()
	w := watchLater(t, hub, change...)
	w.run()
	return w
}

// watchLater does not start the hub: nothing that is published wakes anybody
// until run is called.
func watchLater(t *testing.T, hub events.Options, change ...func(*Options)) *watched {
	t.Helper()
	testkit.NoLeaks(t)
	w := &watched{hub: events.New(hub)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	started := false
	w.run = func() {
		started = true
		go func() { done <- w.hub.Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		if started {
			<-done
		}
	})
	w.gateway = serve(t, append([]func(*Options){func(o *Options) { o.Events = w.hub }}, change...)...)
	return w
}

// forms are the ways to watch.
var forms = map[string]func(w *watched, options ...apitest.Option) (*apitest.Stream, *apitest.Answer, error){
	"sse": func(w *watched, options ...apitest.Option) (*apitest.Stream, *apitest.Answer, error) {
		return w.client.Events(w.ctx, options...)
	},
	"jsonl": func(w *watched, options ...apitest.Option) (*apitest.Stream, *apitest.Answer, error) {
		return w.client.Events(w.ctx, append(options, apitest.Query("format=jsonl"))...)
	},
	"socket": func(w *watched, options ...apitest.Option) (*apitest.Stream, *apitest.Answer, error) {
		return w.client.Socket(w.ctx, options...)
	},
}

// open watches in one of the forms.
func (w *watched) open(t *testing.T, form string, options ...apitest.Option) *apitest.Stream {
	t.Helper()
	s, a, err := forms[form](w, options...)
	if err != nil {
		t.Fatal(err)
	}
	if s == nil {
		t.Fatalf("%s was refused: %d %s", form, a.Status, a.Body)
	}
	t.Cleanup(s.Close)
	return s
}

// eachForm runs a test for each way to watch.
func eachForm(t *testing.T, test func(t *testing.T, form string)) {
	for form := range forms {
		t.Run(form, func(t *testing.T) { test(t, form) })
	}
}

func next(t *testing.T, s *apitest.Stream) apitest.StreamEvent {
	t.Helper()
	e, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func numbered(n int) *events.Event {
	return &events.Event{Type: events.LeaseGranted, NS: "default", Lock: "deploy", LeaseID: someID, Owner: fmt.Sprint(n), Mode: "exclusive",
		FencingToken: 1 << 33, Gateway: "g1", Dir: "/lockkeeper/locks/deploy", Name: "write-x-lock-0000000000"}
}

// expect reads the numbered events from first to last.
func expect(t *testing.T, s *apitest.Stream, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		if e := next(t, s); e.Owner != fmt.Sprint(i) {
			t.Fatalf("got the event of %q, want %d: %s", e.Owner, i, e.JSON)
		}
	}
}

func TestEveryStreamTellsAllEventsInOneOrder(t *testing.T) {
	w := watch(t, events.Options{})
	const n = 2000
	streams := map[string]*apitest.Stream{}
	for form := range forms {
		streams[form] = w.open(t, form)
	}
	go func() {
		for i := range n {
			w.hub.Publish(numbered(i))
		}
	}()
	for form, s := range streams {
		expect(t, s, 0, n-1)
		if want := map[string]string{"sse": "text/event-stream", "jsonl": "application/jsonl"}[form]; s.Header.Get("Content-Type") != want {
			t.Errorf("%s: %v", form, s.Header)
		}
		s.Close()
	}
	waitFor(t, func() bool { return w.server.streams.Load() == 0 })
}

func TestAnEventTellsWhatAppliesToItAndNothingElse(t *testing.T) {
	w := watch(t, events.Options{})
	published := []*events.Event{
		{Type: events.LeaseGranted, NS: "default", Lock: "deploy", LeaseID: someID, Owner: "me", Mode: "exclusive", FencingToken: 7, Gateway: "g1", Dir: "/l/deploy", Name: "w-1"},
		{Type: events.LeaseRemoved, NS: "default", Lock: "deploy", Foreign: true, Program: "curator", Mode: "shared", Reason: "removed", Dir: "/l/deploy", Name: "_c_1"},
		{Type: events.LeaseQueued, NS: "default", Lock: "deploy", Foreign: true, Dir: "/l/deploy", Name: "odd"},
		{Type: events.NodeDeleted, NS: "default", Lock: "deploy", Dir: "/l/deploy"},
		{Type: events.GatewayLeft, Gateway: "g2"},
		{Type: events.ZooKeeperExpired},
	}
	want := []string{
		`"type":"lease.granted","ns":"default","lock":"deploy","lease_id":"` + someID + `","owner":"me","mode":"exclusive","fencing_token":7,"gateway":"g1","znode":"/l/deploy/w-1"}`,
		`"type":"lease.removed","ns":"default","lock":"deploy","foreign":{"program":"curator"},"mode":"shared","reason":"removed","znode":"/l/deploy/_c_1"}`,
		`"type":"lease.queued","ns":"default","lock":"deploy","foreign":{},"znode":"/l/deploy/odd"}`,
		`"type":"node.deleted","ns":"default","lock":"deploy","path":"/l/deploy"}`,
		`"type":"gateway.left","gateway":"g2"}`,
		`"type":"zookeeper.expired"}`,
	}
	all := apitest.Query("type=*")
	streams := []*apitest.Stream{w.open(t, "sse", all), w.open(t, "jsonl", all), w.open(t, "socket", all)}
	for _, e := range published {
		w.hub.Publish(e)
	}
	for _, s := range streams {
		for i := range want {
			e := next(t, s)
			head := fmt.Sprintf(`{"id":"%s","time":"%s",`, e.ID, e.Time)
			if rest, ok := strings.CutPrefix(e.JSON, head); !ok || rest != want[i] {
				t.Errorf("got  %s\nwant %s%s", e.JSON, head, want[i])
			}
			if at, err := time.Parse(time.RFC3339Nano, e.Time); err != nil || time.Since(at) > time.Hour || time.Since(at) < -time.Hour {
				t.Errorf("time %q: %v", e.Time, err)
			}
		}
	}
}

func TestEveryTypeOfTheHubIsInTheSpecification(t *testing.T) {
	spec, err := apitest.Load()
	if err != nil {
		t.Fatal(err)
	}
	specified := spec.Doc.Components.Schemas["EventType"].Value.Enum
	for i, name := range specified {
		if got := events.Type(i).String(); got != name {
			t.Errorf("type %d is %s in the hub and %s in the specification", i, got, name)
		}
	}
	if extra := events.Type(len(specified)).String(); !strings.HasPrefix(extra, "type(") {
		t.Errorf("the specification lacks %s", extra)
	}
}

func TestAStreamTellsWhatItsFilterLetsThrough(t *testing.T) {
	published := func() []*events.Event {
		return []*events.Event{
			{Type: events.LeaseQueued, NS: "default", Lock: "team:a", Owner: "me"},
			{Type: events.LeaseGranted, NS: "default", Lock: "team:b", Owner: "you"},
			{Type: events.LeaseReleased, NS: "other", Lock: "team:a", Owner: "me"},
			{Type: events.NodeCreated, NS: "default", Lock: "team:a", Dir: "/x"},
			{Type: events.GatewayJoined, Gateway: "g"},
		}
	}
	for query, want := range map[string]string{
		"":                          "lease.queued lease.granted lease.released gateway.joined",
		"type=*":                    "lease.queued lease.granted lease.released node.created gateway.joined",
		"type=node.*":               "node.created",
		"type=lease.granted,node.*": "lease.granted node.created",
		"ns=default":                "lease.queued lease.granted",
		"lock=team:a":               "lease.queued lease.released",
		"lock=team:%5Bb-c%5D":       "lease.granted",
		"lock=team:*":               "lease.queued lease.granted lease.released",
		"owner=me&ns=other":         "lease.released",
	} {
		eachForm(t, func(t *testing.T, form string) {
			w := watch(t, events.Options{})
			s := w.open(t, form, apitest.Query(query))
			for _, e := range published() {
				w.hub.Publish(e)
			}
			for _, name := range strings.Fields(want) {
				if e := next(t, s); string(e.Type) != name {
					t.Errorf("%q: got %s, want %s", query, e.JSON, name)
				}
			}
			w.server.Drain() // what comes next is the end
			if e, err := s.Next(); err == nil {
				t.Errorf("%q: also %s", query, e.JSON)
			}
		})
	}
}

func TestAStreamGoesOnBehindTheLastEventThatWasSeen(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		w := watch(t, events.Options{})
		s := w.open(t, form)
		for i := range 10 {
			w.hub.Publish(numbered(i))
		}
		expect(t, s, 0, 4)
		position := s.Position
		s.Close()
		expect(t, w.open(t, form, apitest.Query("since="+position)), 5, 9)
		if form != "socket" {
			expect(t, w.open(t, form, apitest.Header("Last-Event-ID", position)), 5, 9)
			expect(t, w.open(t, form, apitest.Header("Last-Event-ID", position), apitest.Query("since="+position)), 5, 9)
		}
	})
}

// EventSource asks for the same address again at each reconnect, with the id of
// the last event that it saw: a since in the address is older by then.
func TestTheLastEventIDIsStrongerThanSince(t *testing.T) {
	for _, form := range []string{"sse", "jsonl"} {
		w := watch(t, events.Options{})
		s := w.open(t, form)
		for i := range 10 {
			w.hub.Publish(numbered(i))
		}
		expect(t, s, 0, 2)
		since := s.Position
		expect(t, s, 3, 5)
		expect(t, w.open(t, form, apitest.Query("since="+since), apitest.Header("Last-Event-ID", s.Position)), 6, 9)
		s.Close()
	}
}

// EventSource remembers an id that came without data.
func TestAClientThatSawNoEventResumesWithoutALoss(t *testing.T) {
	w := watch(t, events.Options{})
	body := beginning(t, w, "/v1/events")
	fields := strings.Split(body, "\n")
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "retry: ") || !strings.HasPrefix(fields[1], "id: ") {
		t.Fatalf("the stream begins with %q", body)
	}
	w.hub.Publish(numbered(1))
	expect(t, w.open(t, "sse", apitest.Header("Last-Event-ID", strings.TrimPrefix(fields[1], "id: "))), 1, 1)
}

// When a gateway stops, all its streams end in one moment.
func TestNotAllComeBackInTheSameMoment(t *testing.T) {
	w := watch(t, events.Options{})
	when := map[int]bool{}
	for range 20 {
		line, _, _ := strings.Cut(beginning(t, w, "/v1/events"), "\n")
		ms, err := strconv.Atoi(strings.TrimPrefix(line, "retry: "))
		if err != nil || ms < 1000 || ms >= 2000 {
			t.Fatalf("the stream begins with %q", line)
		}
		when[ms] = true
	}
	if len(when) < 5 {
		t.Errorf("20 clients come back at %d moments", len(when))
	}
}

// beginning is what a stream says before anything happens.
func beginning(t *testing.T, w *watched, path string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", w.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var b strings.Builder
	buf := make([]byte, 1)
	for !strings.HasSuffix(b.String(), "\n\n") {
		if _, err := io.ReadFull(response.Body, buf); err != nil {
			t.Fatal(err)
		}
		b.Write(buf)
	}
	return b.String()
}

func TestWhatCannotBeToldAnyMoreIsAResync(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		w := watch(t, events.Options{Ring: 4})
		first := w.open(t, form)
		w.hub.Publish(numbered(0))
		expect(t, first, 0, 0)
		for i := range 10 {
			w.hub.Publish(numbered(i))
		}
		for since, reason := range map[string]string{"0badc0de-7": events.ReasonUnknownPosition, "nonsense": events.ReasonUnknownPosition, first.Position: events.ReasonTooOld} {
			s := w.open(t, form, apitest.Query("since="+since+"&type=gateway.left"))
			if e := next(t, s); e.Type != "resync" || e.Reason != reason {
				t.Errorf("since %s: %s", since, e.JSON)
			}
			w.hub.Publish(&events.Event{Type: events.GatewayLeft})
			if e := next(t, s); e.Type != "gateway.left" {
				t.Errorf("after the resync: %s", e.JSON)
			}
			again := w.open(t, form, apitest.Query("type=lease.*&since="+s.Position))
			w.hub.Publish(numbered(77))
			if e := next(t, again); e.Owner != "77" {
				t.Errorf("resumed behind the resync: %s", e.JSON)
			}
		}
	})
}

func TestAStreamThatLagsIsToldSoAndEnded(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		w := watchLater(t, events.Options{Ring: 8})
		s := w.open(t, form)
		waitFor(t, func() bool { return w.server.streams.Load() == 1 })
		for i := range 100 { // nobody is woken by it
			w.hub.Publish(numbered(i))
		}
		w.run()
		e := next(t, s)
		if e.Type != "resync" || e.Reason != events.ReasonLagged {
			t.Fatalf("got %s", e.JSON)
		}
		_, err := s.Next()
		var closed *websocket.CloseError
		if form == "socket" {
			if !errors.As(err, &closed) || closed.Code != websocket.CloseTryAgainLater || closed.Text == "" {
				t.Errorf("ended with %v", err)
			}
		} else if err != io.EOF {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestAStreamWithoutEventsGivesSignsOfLife(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		w := watch(t, events.Options{})
		w.server.keepalive = 5 * time.Millisecond
		s := w.open(t, form)
		event := make(chan apitest.StreamEvent, 1)
		go func() {
			defer close(event)
			if e, err := s.Next(); err != nil {
				t.Error(err)
			} else {
				event <- e
			}
		}()
		waitFor(t, func() bool { return s.Keepalives.Load() >= 3 })
		w.hub.Publish(numbered(1)) // and goes on
		if e := testkit.Receive(t, within, event, "the event"); e.Owner != "1" {
			t.Errorf("got %s", e.JSON)
		}
	})
}

func TestAKeepaliveMovesThePositionOn(t *testing.T) {
	w := watch(t, events.Options{Ring: 8})
	w.server.keepalive = 5 * time.Millisecond
	s := w.open(t, "sse", apitest.Query("type=gateway.*"))
	for range 4 {
		for i := range 8 { // held back by the filter; in the end more than the ring holds
			w.hub.Publish(numbered(i))
		}
		for newest := newest(t, w.hub); s.Position != newest; {
			if err := s.NextKeepalive(); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.hub.Publish(&events.Event{Type: events.GatewayJoined})
	if e := next(t, w.open(t, "sse", apitest.Query("type=gateway.*&since="+s.Position))); e.Type != "gateway.joined" {
		t.Errorf("resuming at the position of a keepalive: %s", e.JSON)
	}
}

// newest is the id of the last event.
func newest(t *testing.T, hub *events.Hub) string {
	t.Helper()
	sub, err := hub.Subscribe(events.Filter{}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	return sub.Position()
}

func TestADrainEndsEveryStreamAtOnce(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		w := watch(t, events.Options{})
		s := w.open(t, form)
		waitFor(t, func() bool { return w.server.streams.Load() == 1 })
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
		if err := w.server.Wait(ctx); err != nil {
			t.Error(err)
		}
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
			waitFor(t, func() bool { return w.server.streams.Load() == 0 })
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
	if a := w.send(t, "HEAD", "/v1/events?type=nonsense"); a.Status != 422 {
		t.Errorf("%d", a.Status)
	}
	if a := w.send(t, "POST", "/v1/events"); a.Status != 405 || a.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", a.Status, a.Header)
	}
	if a := w.send(t, "POST", "/v1/events/ws"); a.Status != 405 {
		t.Errorf("POST: %d %v", a.Status, a.Header)
	}
	waitFor(t, func() bool { return w.server.streams.Load() == 0 })
}

func TestAGatewayWithoutEventsSaysSo(t *testing.T) {
	g := serve(t)
	for _, path := range []string{"/v1/events", "/v1/events/ws"} {
		if a := g.send(t, "GET", path); a.Status != 404 || a.Code() != "route_not_found" {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
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
		if got := streamType("", h)[0]; got != want {
			t.Errorf("Accept: %s is answered with %s, want %s", accept, got, want)
		}
		if got := streamType("jsonl", h)[0]; got != "application/jsonl" {
			t.Errorf("format is weaker than Accept: %s", accept)
		}
		if got := streamType("sse", h)[0]; got != "text/event-stream" {
			t.Errorf("format is weaker than Accept: %s", accept)
		}
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
		{"lock=" + strings.Repeat("x", 201), 422, "invalid_field", "lock", ""},
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
		if a := w.send(t, "GET", "/v1/events", c.options...); a.Status != 422 || a.Code() != c.code || a.Problem.Field != "Last-Event-ID" {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
		}
	}
	if calls := w.asked(); len(calls) > 0 {
		t.Errorf("the manager was asked: %q", calls)
	}
	w.locks = func(f locks.LockFilter) (locks.LockPage, error) {
		if recipe.CheckLockName(f.Prefix) == nil || f.Prefix == "" {
			t.Errorf("a stream looks for locks that begin with %q, to learn whether there is a namespace", f.Prefix)
		}
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

// What another program calls its nodes must not reach a terminal or a page as
// it is.
func TestNothingInAnEventIsObeyedByATerminalOrAPage(t *testing.T) {
	const hostile = "\x1b[2J<script>alert(1)</script>\u009b31m\u202etxt.exe\x7f\r\ndata: forged\n\n\xff\u2028&\U000e0001é"
	eachForm(t, func(t *testing.T, form string) {
		w := watch(t, events.Options{})
		s := w.open(t, form, apitest.Query("type=*"))
		w.hub.Publish(&events.Event{Type: events.NodeCreated, Dir: "/locks", Name: hostile})
		w.hub.Publish(&events.Event{Type: events.LeaseQueued, Foreign: true, Lock: hostile, Owner: hostile, Dir: "/locks", Name: hostile})
		clean := strings.ToValidUTF8(hostile, "\ufffd")
		if e := next(t, s); e.Path != "/locks/"+clean {
			t.Errorf("the path is %q", e.Path)
		} else if want := `"path":"/locks/\u001b[2J\u003cscript\u003ealert(1)\u003c/script\u003e\u009b31m\u202etxt.exe\u007f\r\ndata: forged\n\n\ufffd\u2028\u0026\udb40\udc01é"}`; !strings.HasSuffix(e.JSON, want) {
			t.Errorf("got  %s\nwant %s", e.JSON, want)
		}
		e := next(t, s)
		if e.Znode != "/locks/"+clean || e.Lock != clean || e.Owner != clean {
			t.Errorf("got %s", e.JSON)
		}
		for _, r := range e.JSON {
			if r < ' ' || r >= 0x7f && r < 0xa0 || strings.ContainsRune("<>&\u202e\u2028\U000e0001", r) {
				t.Errorf("%U is there as it is", r)
			}
		}
	})
}

func TestTheLogTellsHowManyEventsAStreamWasSent(t *testing.T) {
	for form, operation := range map[string]string{"sse": "WatchEvents", "jsonl": "WatchEvents", "socket": "WatchEventsSocket"} {
		log := new(lines)
		w := watch(t, events.Options{}, func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
		s := w.open(t, form, apitest.Query("owner=1"))
		w.hub.Publish(numbered(1))
		expect(t, s, 1, 1)
		if text := log.text(); text != "" {
			t.Errorf("%s: a line before the end: %s", form, text)
		}
		s.Close()
		line := log.next(t)
		status := map[bool]float64{true: 101, false: 200}[form == "socket"]
		if line["operation"] != operation || line["events"] != 1.0 || line["status"] != status || line["owner"] != "1" || line["error"] != nil || line["level"] != "INFO" {
			t.Errorf("%s: %v", form, line)
		}
	}
}
