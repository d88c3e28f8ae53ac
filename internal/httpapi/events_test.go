package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/events"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// within bounds what should take milliseconds.
const within = 30 * time.Second

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

// watchLater does not start the hub: a published event wakes no subscriber until run is called.
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
	assert.NoError(t, err)
	assert.Must(t, s != nil, "%s was refused: %+v", form, a)
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
	assert.NoError(t, err)
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
		e := next(t, s)
		assert.Must(t, e.Owner == fmt.Sprint(i), "got the event of %q, want %d: %s", e.Owner, i, e.JSON)
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
		assert.That(t, s.Header.Get("Content-Type") == map[string]string{"sse": "text/event-stream", "jsonl": "application/jsonl"}[form],
			"%s: %v", form, s.Header)
		s.Close()
	}
	waitFor(t, func() bool { return w.server.open.taken.Load() == 0 })
}

func TestAnEventTellsWhatAppliesToItAndNothingElse(t *testing.T) {
	w := watch(t, events.Options{})
	published := []*events.Event{
		{Type: events.LeaseGranted, NS: "default", Lock: "deploy", LeaseID: someID, Owner: "me", Mode: "exclusive", FencingToken: 7, Gateway: "g1", Dir: "/l/deploy", Name: "w-1"},
		{Type: events.LeaseRemoved, NS: "default", Lock: "deploy", Foreign: true, Program: "curator", Mode: "shared", Reason: "removed", Dir: "/l/deploy", Name: "_c_1"},
		{Type: events.LockDestroyed, NS: "default", Lock: "deploy", Detail: "moved \"away\"", Dir: "/l/deploy"},
		{Type: events.LockHazard, NS: "default", Lock: "deploy", Hazard: &events.Hazard{Code: "program_ignores_leases", Programs: []string{"kazoo-lock"}}, Detail: "move it", Dir: "/l/deploy"},
		{Type: events.LockHazardCleared, NS: "default", Lock: "deploy", Hazard: &events.Hazard{Code: "stray_child"}, Dir: "/l/deploy"},
		{Type: events.LeaseQueued, NS: "default", Lock: "deploy", Foreign: true, Dir: "/l/deploy", Name: "odd"},
		{Type: events.NodeDeleted, NS: "default", Lock: "deploy", Dir: "/l/deploy"},
		{Type: events.WebhookDropped, Dropped: &events.Dropped{Count: 42}, Detail: "no room", Gateway: "g1"},
		{Type: events.WebhookDropped, Dropped: &events.Dropped{Webhook: "wh_aaaabbbbccccdddd", Count: 7}, Gateway: "g1"},
		{Type: events.AuthRefused, Detail: "auth.yaml:2:1: no", Gateway: "g1"},
		{Type: events.GatewayLeft, Gateway: "g2"},
		{Type: events.ZooKeeperExpired},
	}
	want := []string{
		`"type":"lease.granted","ns":"default","lock":"deploy","lease_id":"` + someID + `","owner":"me","mode":"exclusive","fencing_token":7,"gateway":"g1","znode":"/l/deploy/w-1"}`,
		`"type":"lease.removed","ns":"default","lock":"deploy","foreign":{"program":"curator"},"mode":"shared","reason":"removed","znode":"/l/deploy/_c_1"}`,
		`"type":"lock.destroyed","ns":"default","lock":"deploy","znode":"/l/deploy","detail":"moved \"away\""}`,
		`"type":"lock.hazard","ns":"default","lock":"deploy","znode":"/l/deploy","code":"program_ignores_leases","detail":"move it","programs":["kazoo-lock"]}`,
		`"type":"lock.hazard_cleared","ns":"default","lock":"deploy","znode":"/l/deploy","code":"stray_child"}`,
		`"type":"lease.queued","ns":"default","lock":"deploy","foreign":{},"znode":"/l/deploy/odd"}`,
		`"type":"node.deleted","ns":"default","lock":"deploy","path":"/l/deploy"}`,
		`"type":"webhook.dropped","gateway":"g1","count":42,"detail":"no room"}`,
		`"type":"webhook.dropped","gateway":"g1","count":7,"webhook":"wh_aaaabbbbccccdddd"}`,
		`"type":"auth.refused","gateway":"g1","detail":"auth.yaml:2:1: no"}`,
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
			at, err := time.Parse(time.RFC3339Nano, e.Time)
			assert.That(t, err == nil && time.Since(at) <= time.Hour && time.Since(at) >= -time.Hour, "time %q: %v", e.Time, err)
		}
	}
}

func TestEveryTypeOfTheHubIsInTheSpecification(t *testing.T) {
	spec, err := apitest.Load()
	assert.NoError(t, err)
	specified := spec.Doc.Components.Schemas["EventType"].Value.Enum
	for i, name := range specified {
		if got := events.Type(i).String(); got != name {
			t.Errorf("type %d is %s in the hub and %s in the specification", i, got, name)
		}
	}
	extra := events.Type(len(specified)).String()
	assert.That(t, strings.HasPrefix(extra, "type("), "the specification lacks %s", extra)
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
				e := next(t, s)
				assert.That(t, string(e.Type) == name, "%q: got %s, want %s", query, e.JSON, name)
			}
			w.server.Drain() // what comes next is the end
			e, err := s.Next()
			assert.That(t, err != nil, "%q: also %s", query, e.JSON)
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
func TestTheLastEventIDTakesPrecedenceOverSince(t *testing.T) {
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
	assert.Must(t, len(fields) >= 2 && strings.HasPrefix(fields[0], "retry: ") && strings.HasPrefix(fields[1], "id: "),
		"the stream begins with %q", body)
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
		assert.Must(t, err == nil && ms >= 1000 && ms < 2000, "the stream begins with %q", line)
		when[ms] = true
	}
	assert.That(t, len(when) >= 5, "20 clients come back at %d moments", len(when))
}

// beginning is what a stream says before anything happens.
func beginning(t *testing.T, w *watched, path string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", w.url+path, nil)
	assert.NoError(t, err)
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	assert.NoError(t, err)
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
			e := next(t, s)
			assert.That(t, e.Type == "resync" && e.Reason == reason, "since %s: %s", since, e.JSON)
			w.hub.Publish(&events.Event{Type: events.GatewayLeft})
			assert.Equal(t, next(t, s).Type, "gateway.left", "after the resync")
			again := w.open(t, form, apitest.Query("type=lease.*&since="+s.Position))
			w.hub.Publish(numbered(77))
			assert.Equal(t, next(t, again).Owner, "77", "resumed behind the resync")
		}
	})
}

func TestAStreamThatLagsIsToldSoAndEnded(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		w := watchLater(t, events.Options{Ring: 8})
		s := w.open(t, form)
		waitFor(t, func() bool { return w.server.open.taken.Load() == 1 })
		for i := range 1000 { // no subscriber is woken by it
			w.hub.Publish(numbered(i))
		}
		w.run()
		e := next(t, s)
		for e.Type == "lease.granted" { // its first look may come while they are published
			e = next(t, s)
		}
		assert.Must(t, e.Type == "resync" && e.Reason == events.ReasonLagged, "got %s", e.JSON)
		_, err := s.Next()
		var closed *websocket.CloseError
		if form == "socket" {
			assert.That(t, errors.As(err, &closed) && closed.Code == websocket.CloseTryAgainLater && closed.Text != "",
				"ended with %v", err)
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
		assert.Equal(t, testkit.Receive(t, within, event, "the event").Owner, "1")
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
			assert.NoError(t, s.NextKeepalive())
		}
	}
	w.hub.Publish(&events.Event{Type: events.GatewayJoined})
	assert.Equal(t, next(t, w.open(t, "sse", apitest.Query("type=gateway.*&since="+s.Position))).Type, "gateway.joined",
		"resuming at the position of a keepalive")
}

// newest is the id of the last event.
func newest(t *testing.T, hub *events.Hub) string {
	t.Helper()
	sub, err := hub.Subscribe(events.Filter{Rules: access.Everything()}, "")
	assert.NoError(t, err)
	defer sub.Close()
	return sub.Position()
}

func TestD19AStreamFromAnUnknownPlaceHasNoUnderflowedID(t *testing.T) {
	hub := events.New(events.Options{})
	sub, err := hub.Subscribe(events.Filter{Rules: access.Everything()}, "zzz")
	assert.NoError(t, err)
	defer sub.Close()
	g := serve(t, func(o *Options) { o.Events = hub })
	req, _ := http.NewRequestWithContext(t.Context(), "GET", g.url+"/v1/events?since=zzz", nil)
	response, err := http.DefaultClient.Do(req)
	assert.NoError(t, err)
	defer response.Body.Close()
	begin := make([]byte, 40)
	n, err := io.ReadAtLeast(response.Body, begin, 30)
	if id := sub.Position(); err != nil || strings.Contains(string(begin[:n]), "-1844") || !strings.Contains(string(begin[:n]), "id: ") || strings.Contains(id, "-1844") {
		t.Errorf("%q %v, position %s", begin[:n], err, id)
	}
	again, err := hub.Subscribe(events.Filter{Rules: access.Everything()}, sub.Position())
	assert.NoError(t, err)
	defer again.Close()
	if batch, err := again.Next(t.Context()); err != nil || len(batch) != 1 || batch[0].Type != events.Resync {
		t.Errorf("resuming there gives %v %v", batch, err)
	}
}

func TestD16TheHistoryOfALockIsItsLastEventsTheNewestFirst(t *testing.T) {
	hub := events.New(events.Options{})
	g := serve(t, func(o *Options) { o.Events = hub })
	for i, lock := range []string{"x", "x%2A", "y", "x", "x"} {
		hub.Publish(&events.Event{Type: events.LeaseQueued, NS: "default", Lock: lock, LeaseID: string(rune('a' + i))})
	}
	hub.Publish(&events.Event{Type: events.LeaseQueued, NS: "other", Lock: "x"})
	for path, want := range map[string]string{"/v1/locks/x/history": "eda", "/v1/locks/x/history?limit=2": "ed", "/v1/locks/x%252A/history": "b", "/v1/locks/z/history": ""} {
		got := ""
		for _, e := range read[api.EventList](t, g.send(t, "GET", path)).Items {
			got += e.LeaseID
		}
		assert.That(t, got == want, "%s: %q, want %q", path, got, want)
	}
	g.expect(t, 422, "invalid_field", "GET", "/v1/locks/x/history?limit=1001")
}
