package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// follow opens the event stream and hands on what comes.
func follow(t testing.TB, g *gateway, open func() (*apitest.Stream, *apitest.Answer, error)) <-chan apitest.StreamEvent {
	t.Helper()
	stream, a, err := open()
	assert.Must(t, err == nil && stream != nil, "opening the stream: %v %v", err, a)
	events := make(chan apitest.StreamEvent, 1024)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			e, err := stream.Next()
			if err != nil {
				return
			}
			events <- e
		}
	}()
	t.Cleanup(func() { stream.Close(); <-ended })
	return events
}

// nextOf waits for the next event of that type; others may come before it.
func nextOf(t testing.TB, events <-chan apitest.StreamEvent, kind string) apitest.StreamEvent {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case e := <-events:
			if string(e.Type) == kind {
				return e
			}
		case <-timer.C:
			t.Fatalf("no %s", kind)
		}
	}
}

func TestTheStreamTellsTheLifeOfLeasesWithTheirReasons(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	events := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Events(t.Context(), apitest.Query("lock=deploy"))
	})
	sockets := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Socket(t.Context(), apitest.Query("owner=second"))
	})

	first := g.hold("deploy", "ttl=1m&owner=first")
	second := g.acquiring(t.Context(), "deploy", "ttl=1s&wait=1m&owner=second")
	g.awaitLock(patience, "deploy", 1, 1)
	third := g.queue("deploy", "ttl=1m&owner=third")
	g.hold("other", "ttl=1m&owner=second")
	g.letGo(third.Token)
	g.letGo(first.Token)
	held := second.granted(patience) // and no client keeps it alive

	type step struct{ kind, lease, reason string }
	for _, want := range []step{
		{"lease.queued", first.LeaseID, ""}, {"lease.granted", first.LeaseID, ""},
		{"lease.queued", held.LeaseID, ""}, {"lease.queued", third.LeaseID, ""},
		{"lease.cancelled", third.LeaseID, "cancelled"},
		{"lease.released", first.LeaseID, "released"}, {"lease.granted", held.LeaseID, ""},
		{"lease.expired", held.LeaseID, "expired"},
	} {
		e := nextOf(t, events, want.kind)
		assert.That(t, e.LeaseID == want.lease && string(e.Reason) == want.reason && e.Lock == "deploy" && e.NS == "default",
			"want %v, got %s", want, e.JSON)
		if want.kind == "lease.granted" && e.FencingToken == 0 || want.kind == "lease.expired" && e.FencingToken != held.FencingToken {
			t.Errorf("fencing token in %s", e.JSON)
		}
	}
	for _, want := range []step{{"lease.queued", "deploy", ""}, {"lease.queued", "other", ""}, {"lease.granted", "other", ""},
		{"lease.granted", "deploy", ""}, {"lease.expired", "deploy", "expired"}} {
		e := nextOf(t, sockets, want.kind)
		assert.That(t, e.Lock == want.lease && e.Owner == "second", "over the socket: want %v, got %s", want, e.JSON)
	}
}

func TestAForeignCreateAndDeleteIsInBothStreams(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	leases := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) { return g.Events(t.Context()) })
	nodes := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Events(t.Context(), apitest.Query("type=node.*&format=jsonl"))
	})
	dir := chroot + "/lockkeeper/locks/deploy"
	if out, err := zkreal.CLI(addr, "create "+dir, "create -s "+dir+"/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock- theirs",
		"delete "+dir+"/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-0000000000"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path := "/lockkeeper/locks/deploy/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-0000000000"
	for _, kind := range []string{"lease.queued", "lease.granted", "lease.removed"} {
		e := nextOf(t, leases, kind)
		assert.That(t, e.Foreign != nil && e.Foreign.Program == "curator" && e.Znode == path && e.LeaseID == "" && e.Lock == "deploy",
			"%s: %s", kind, e.JSON)
	}
	assert.Equal(t, nextOf(t, nodes, "node.created").Path, "/lockkeeper/locks/deploy", "the directory")
	for _, kind := range []string{"node.created", "node.deleted"} {
		e := nextOf(t, nodes, kind)
		assert.That(t, e.Path == path && e.Lock == "deploy", "%s: %s", kind, e.JSON)
	}
}

// A client that was cut off goes on where it was, as long as the gateway lives; a gateway that was started again tells it
// to look anew.
func TestAStreamIsResumedOrTellsToLookAnew(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	stream, a, err := g.Events(t.Context(), apitest.Query("lock=deploy"))
	assert.Must(t, err == nil && stream != nil, "%v %v", err, a)
	lease := g.hold("deploy", "ttl=1m")
	e, err := stream.Next()
	assert.Must(t, err == nil && e.Type == "lease.queued", "%v %s", err, e.JSON)
	position := stream.Position
	stream.Close()
	g.letGo(lease.Token)

	resumed := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Events(t.Context(), apitest.Query("lock=deploy"), apitest.Header("Last-Event-ID", position))
	})
	for _, kind := range []string{"lease.granted", "lease.released"} {
		e := <-resumed
		assert.That(t, string(e.Type) == kind && e.LeaseID == lease.LeaseID, "want %s, got %s", kind, e.JSON)
	}
	g.kill()
	g.start()
	g.awaitServing()
	anew := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Socket(t.Context(), apitest.Query("since="+position))
	})
	e = <-anew
	assert.That(t, e.Type == "resync" && e.Reason != "", "after a restart: %s", e.JSON)
}

func TestStreamsEndWhenTheGatewayIsStopped(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	stream, a, err := g.Events(t.Context())
	assert.Must(t, err == nil && stream != nil, "%v %v", err, a)
	socket, a, err := g.Socket(t.Context())
	assert.Must(t, err == nil && socket != nil, "%v %v", err, a)
	ended := make(chan error, 2)
	for _, s := range []*apitest.Stream{stream, socket} {
		go func() {
			for {
				if _, err := s.Next(); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	g.terminate() // fails when it takes too long
	for range 2 {
		err := <-ended
		assert.That(t, strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "1001"), "a stream ended with %v", err)
	}
}

func TestAForgedOriginIsRefusedByEverySocketAndStream(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	for _, path := range []string{"/v1/events", "/v1/events/ws", "/ui/live?page=overview", "/ui/fragments?page=overview", "/", "/locks/deploy"} {
		a, err := g.Send(t.Context(), http.MethodGet, path, apitest.Header("Origin", "http://evil.example"), apitest.Header("Connection", "Upgrade"),
			apitest.Header("Upgrade", "websocket"), apitest.Header("Sec-WebSocket-Version", "13"), apitest.Header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="))
		expect(t, a, err, http.StatusForbidden, "cross_origin")
	}
}
