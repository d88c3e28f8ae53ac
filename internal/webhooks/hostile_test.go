package webhooks

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// A receiver that answers 101 and stays on the line has the bare connection, which no context ends: four
// such messages would block the receiver for ever, and a hundred and twenty-eight all receivers.
func TestAReceiverThatSwitchesProtocolsIsGivenUp(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: forever\r\n\r\n")
		_, _ = conn.Read(make([]byte, 1)) // until the other end hangs up
	}))
	s := newSender(t, everywhere(t))
	answer := make(chan Attempt, 1)
	go func() {
		answer <- s.Send(t.Context(), &Subscription{URL: server.URL, Secrets: []Secret{NewSecret()}}, testMessage())
	}()
	select {
	case a := <-answer:
		server.Close()
		assert.That(t, a.Result == Failed && a.Status == http.StatusSwitchingProtocols && a.Error != "", "attempt: %+v", a)
	case <-time.After(attemptTimeout + 5*time.Second):
		server.CloseClientConnections()
		t.Error("the attempt does not end")
	}
}

// Several subscriptions may have one host, and a proxy has all of them: who hangs there takes no connections away from the others.
func TestAPathThatHangsHoldsUpNoOtherOfItsHost(t *testing.T) {
	hangs, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			hangs <- struct{}{}
			<-release
		}
	}))
	defer server.Close()
	s := newSender(t, everywhere(t))
	const slow = 8 * perReceiver
	done := make(chan struct{}, slow)
	for range slow {
		go func() {
			s.Send(t.Context(), &Subscription{URL: server.URL + "/hangs", Secrets: []Secret{NewSecret()}}, testMessage())
			done <- struct{}{}
		}()
	}
	for n := range slow {
		select {
		case <-hangs:
		case <-time.After(10 * time.Second): // less than an attempt takes
			t.Errorf("of %d messages for one host only %d are on their way", slow, n)
			close(release)
			return
		}
	}
	a := s.Send(t.Context(), &Subscription{URL: server.URL + "/well", Secrets: []Secret{NewSecret()}}, testMessage())
	assert.That(t, a.Result == Delivered, "attempt: %+v", a)
	close(release)
	for range slow {
		<-done
	}
}

func TestTheLargestEndFitsIntoItsTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFleet(t, 1)
		b.full()
		end := &End{Entry: EntryOf(strings.Repeat("l", 45)), TraceParent: testMessage().TraceParent}
		for i := range 64 {
			lock := fmt.Sprintf("%03d", i) + strings.Repeat("k", 197)
			end.Events = append(end.Events, Event{Type: Revoked, Time: time.Now(), NS: strings.Repeat("n", 64), Lock: lock, LeaseID: end.Entry, Znode: "/" + strings.Repeat("r", 200) + "/" + lock + "/" + strings.Repeat("z", 120),
				Owner: strings.Repeat("<", 128), Mode: "exclusive", FencingToken: 1 << 62, Reason: "revoked", Detail: strings.Repeat("<", 256), Gateway: strings.Repeat("g", 16)})
		}
		ops, entry, ready := b.services[0].Ending(false, func() *End { return end })
		if !ready || len(ops) != 2 || len(ops[1].Data) > maxEntry {
			t.Fatalf("ready: %v, %d operations, %d bytes", ready, len(ops), len(ops[len(ops)-1].Data))
		}
		if n := entry.Notices[63]; n.Event.Lock != end.Events[63].Lock || n.Event.FencingToken != 1<<62 || len(n.To) != MaxSubscriptions {
			t.Errorf("it tells %+v", n)
		}
	})
}
