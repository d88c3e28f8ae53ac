package manager

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

const (
	clientsTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	acquireSpan  = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
)

// spans collects what is exported.
type spans struct {
	mu   sync.Mutex
	list []string
	last *locks.LeaseSpan
}

func (s *spans) LeaseWaited(l *locks.LeaseSpan) { s.add("wait", l) }
func (s *spans) LeaseHeld(l *locks.LeaseSpan)   { s.add("hold", l) }

func (s *spans) add(what string, l *locks.LeaseSpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("%s %s of %s %v %s", what, strings.Join(l.Locks, "+"), l.Owner, l.Ended.Sub(l.Started).Round(time.Second), l.Reason)
	if l.TakenOver {
		text += " taken over"
	}
	s.list, s.last = append(s.list, text), l
}

// take is what has come since the last call.
func (s *spans) take() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return strings.Join(list, ", ")
}

// tracing is a scene whose gateways export.
func tracing(t *testing.T, f func(t *testing.T, s *fakeStore, to *spans)) {
	scene(t, func(t *testing.T, s *fakeStore) {
		to := new(spans)
		s.traces = to
		f(t, s, to)
	})
}

func (g *gate) tracedAcquire(trace locks.Trace, req locks.AcquireRequest) (locks.Lease, error) {
	res, err := g.m.Acquire(locks.WithTrace(g.t.Context(), trace), req)
	synctest.Wait()
	return res.Lease, err
}

func (g *gate) mustTrace(trace locks.Trace, req locks.AcquireRequest) locks.Lease {
	g.t.Helper()
	l := assert.Value(g.tracedAcquire(trace, req))(g.t)
	return l
}

// recordedTrace is what the record of a lease says of its trace.
func recordedTrace(t *testing.T, s *fakeStore, l locks.Lease) string {
	t.Helper()
	var r struct{ Trace string }
	assert.NoError(t, json.Unmarshal(s.node(l.Znode).data, &r))
	return r.Trace
}

var carried = locks.Trace{Parent: clientsTrace, Request: acquireSpan}

func TestAWaitAndAHoldAreSpansOfTheAcquiresTrace(t *testing.T) {
	tracing(t, func(t *testing.T, s *fakeStore, to *spans) {
		g := s.gateway(t)
		first := g.mustTrace(carried, locks.AcquireRequest{Lock: "deploy", Owner: "one", TTL: time.Minute})
		assert.Equal(t, to.take(), "wait deploy of one 0s granted")
		pass(3 * time.Second)
		second := g.mustTrace(locks.Trace{Request: acquireSpan}, locks.AcquireRequest{Lock: "deploy", Owner: "two", TTL: time.Minute, Async: true})
		pass(5 * time.Second)
		assert.Equal(t, to.take(), "", "nothing is over")
		g.mustRelease(first)
		assert.Equal(t, to.take(), "hold deploy of one 8s released, wait deploy of two 5s granted")
		assert.Equal(t, to.last.Trace, locks.Trace{Request: acquireSpan})
		assert.Equal(t, recordedTrace(t, s, second), "", "it carried none")
		pass(35 * time.Second)
		assert.Equal(t, to.take(), "hold deploy of two 30s unclaimed")
		assert.That(t, to.last.FencingToken == second.FencingToken+to.last.FencingToken && to.last.FencingToken != 0 && to.last.LeaseID == second.ID && to.last.Gateway != "" && to.last.Mode == locks.Exclusive && to.last.NS == "default", "%+v", to.last)
	})
}

func TestAWaitThatEndsWithoutAGrantSaysWhy(t *testing.T) {
	tracing(t, func(t *testing.T, s *fakeStore, to *spans) {
		g := s.gateway(t)
		g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		_, err := g.tracedAcquire(carried, locks.AcquireRequest{Lock: "deploy", Owner: "two", TTL: time.Minute, Wait: 4 * time.Second})
		wantCode(t, err, locks.CodeWaitElapsed)
		assert.Equal(t, to.take(), "wait deploy of two 4s wait_elapsed")
		_, err = g.tracedAcquire(carried, locks.AcquireRequest{Lock: "deploy", Owner: "two", TTL: time.Minute})
		wantCode(t, err, locks.CodeHeldByOther)
		assert.Equal(t, to.take(), "", "it did not wait")
	})
}

func TestAnAcquireThatIsNotTracedHasNoSpan(t *testing.T) {
	tracing(t, func(t *testing.T, s *fakeStore, to *spans) {
		g := s.gateway(t)
		for _, trace := range []locks.Trace{{}, {Parent: clientsTrace}, {Parent: clientsTrace, Request: acquireSpan[:54] + "0"}} {
			l := g.mustTrace(trace, locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
			assert.Equal(t, recordedTrace(t, s, l), "")
			g.mustRelease(l)
			assert.Equal(t, to.take(), "", "%+v", trace)
		}
	})
}

func TestAGatewayThatExportsNothingWritesNoTrace(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustTrace(carried, locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		assert.Equal(t, recordedTrace(t, s, l), "")
	})
}

func TestTheLeaseOfSeveralLocksHasOneSpan(t *testing.T) {
	tracing(t, func(t *testing.T, s *fakeStore, to *spans) {
		g := s.gateway(t)
		l := g.mustTrace(carried, locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, Owner: "one", TTL: time.Minute})
		g.mustRelease(l)
		assert.Equal(t, to.take(), "wait a+b of one 0s granted, hold a+b of one 0s released")
	})
}

// The lease of a gateway that was killed goes on at another one, and its spans end there. A gateway in between that exports
// nothing keeps of which trace it is.
func TestTheSuccessorExportsTheSpansOfALeaseThatItTakesOver(t *testing.T) {
	tracing(t, func(t *testing.T, s *fakeStore, to *spans) {
		one := s.gateway(t)
		l := one.mustTrace(carried, locks.AcquireRequest{Lock: "deploy", Owner: "one", TTL: time.Minute})
		waiter := one.mustTrace(carried, locks.AcquireRequest{Lock: "deploy", Owner: "two", TTL: time.Minute, Async: true})
		assert.Equal(t, recordedTrace(t, s, l), clientsTrace)
		to.take()
		s.traces = nil
		two := s.gateway(t)
		one.crash()
		pass(15 * time.Second)
		metadata := "written anew"
		_, err := two.m.Update(t.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Metadata: &metadata})
		assert.NoError(t, err)
		assert.Equal(t, recordedTrace(t, s, l), clientsTrace)
		assert.Value(two.heartbeat(waiter))(t)
		s.traces = to
		three := s.gateway(t)
		two.crash()
		pass(15 * time.Second)
		assert.Value(three.heartbeat(waiter))(t)
		assert.Equal(t, to.take(), "", "nothing is over")
		three.mustRelease(l)
		got := to.take()
		assert.That(t, strings.HasPrefix(got, "hold deploy of one ") && strings.HasSuffix(got, "released taken over, wait deploy of two 30s granted taken over"), "%s", got)
		assert.Equal(t, to.last.Trace, locks.Trace{Parent: clientsTrace})
		assert.Equal(t, to.last.Gateway, three.session().id)
	})
}

func TestALeaseThatWasNeverMadeHasNoSpan(t *testing.T) {
	tracing(t, func(t *testing.T, s *fakeStore, to *spans) {
		g := s.gateway(t)
		s.set(func() { s.refuse = refusing(writeTo("deploy"), 0, zk.ErrNoAuth) })
		_, err := g.tracedAcquire(carried, locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		wantCode(t, err, locks.CodeUnavailable)
		assert.Equal(t, to.take(), "")
	})
}
