package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// waits is a graph of a cycle and of another program that waits for it, with names that mean something to Graphviz or Mermaid.
func waits() locks.WaitGraph {
	ab := locks.GraphWait{From: "owner:a", To: "owner:b", NS: "default", Lock: "two", Mode: locks.Exclusive,
		Waiter: locks.Standing{LeaseID: "l1", Znode: "/z/1", Position: 1}, Blocker: locks.Standing{LeaseID: "l2", Znode: "/z/2"}}
	ba := ab
	ba.From, ba.To, ba.Lock, ba.Waiter, ba.Blocker = "owner:b", "owner:a", "one", locks.Standing{LeaseID: "l3", Znode: "/z/3", Position: 1}, locks.Standing{LeaseID: "l4", Znode: "/z/4"}
	sa := ab
	sa.From, sa.To, sa.NS, sa.Mode, sa.Any, sa.Waiter, sa.Blocker = "session:0x1", "owner:a", "legacy", locks.Semaphore, true, locks.Standing{Znode: "/z/5", Position: 2}, locks.Standing{LeaseID: "l1", Znode: "/z/1", Position: 1}
	return locks.WaitGraph{
		Parties: []locks.Party{{ID: "owner:a", Kind: locks.PartyOwner, Owner: "a\"\\\n|<b>\u202e", Stuck: true}, {ID: "owner:b", Kind: locks.PartyOwner, Owner: "b%%{init}%%", Stuck: true},
			{ID: "session:0x1", Kind: locks.PartySession, Program: "curator", Label: "10.0.0.7"}},
		Waits: []locks.GraphWait{ab, ba, sa}, Cycles: []locks.Cycle{{ID: "0123456789abcdef", Certain: true, Youngest: 1, Waits: []locks.GraphWait{ab, ba}}}, Unread: 3, Truncated: true,
	}
}

func TestTheGraphIsShownInEachForm(t *testing.T) {
	g := serve(t)
	var got locks.GraphRequest
	g.graph = func(r locks.GraphRequest) (locks.WaitGraph, error) { got = r; return waits(), nil }
	a := g.send(t, http.MethodGet, "/v1/graph?ns=default&lock=two&owner=a&cycles=true&limit=7")
	assert.That(t, got == locks.GraphRequest{Principal: locks.Anonymous, NS: "default", Lock: "two", Owner: "a", Cycles: true, Limit: 7}, "asked %+v", got)
	var v api.Graph
	assert.NoError(t, json.Unmarshal(a.Body, &v))
	assert.That(t, len(v.Nodes) == 3 && v.Nodes[0].Stuck && len(v.Edges) == 3 && v.Edges[0].Needs == "all" && v.Edges[2].Needs == "any" && v.Unread == 3 && v.Truncated, "%s", a.Body)
	c := v.Cycles[0]
	assert.That(t, c.Kind == "certain" && len(c.Waits) == 2 && c.Youngest.LeaseID == "l3" && strings.Contains(c.Advice, "/v1/leases/l3/break"), "%s", a.Body)
	for _, form := range []struct{ query, accept, contentType, begins, has string }{
		{"?format=dot", "", "text/vnd.graphviz; charset=utf-8", "digraph waits {\n", `label="a\"\\ |<b>?", color=red`},
		{"", "text/vnd.graphviz", "text/vnd.graphviz; charset=utf-8", "digraph waits {\n", `n2 -> n0 [label="legacy/two (any) (behind)"];`},
		{"?format=mermaid", "text/vnd.graphviz", "text/vnd.mermaid; charset=utf-8", "flowchart LR\n", `n0["a#quot;\ #124;#lt;b#gt;?"]`},
		{"?format=mermaid", "", "text/vnd.mermaid; charset=utf-8", "flowchart LR\n", `n1["b#37;#37;{init}#37;#37;"]`},
		{"", "text/vnd.mermaid, application/json;q=0.5", "text/vnd.mermaid; charset=utf-8", "flowchart LR\n", `n0 ==>|"two"| n1`},
		{"", "text/vnd.mermaid, */*", "application/json", `{"nodes":[`, `"from":"owner:a"`},
		{"?format=json", "text/vnd.mermaid", "application/json", `{"nodes":[`, `"from":"owner:a"`},
	} {
		a := g.send(t, http.MethodGet, "/v1/graph"+form.query, apitest.Header("Accept", form.accept))
		assert.That(t, a.Header.Get("Content-Type") == form.contentType && strings.HasPrefix(string(a.Body), form.begins) && strings.Contains(string(a.Body), form.has), "%+v: %s\n%s", form, a.Header.Get("Content-Type"), a.Body)
	}
	assert.That(t, g.send(t, http.MethodGet, "/v1/graph?format=svg").Status == 422, "format=svg is taken")
}

func TestARefusalOfADeadlockHasTheCycle(t *testing.T) {
	g := serve(t)
	var got locks.AcquireRequest
	g.acquire = func(_ context.Context, r locks.AcquireRequest) (locks.AcquireResult, error) {
		got = r
		return locks.AcquireResult{}, &locks.Error{Code: locks.CodeWouldDeadlock, Detail: "why", Cycle: &waits().Cycles[0]}
	}
	a := g.send(t, http.MethodPost, "/v1/locks/two/leases?deadlock=fail&owner=a&wait=1s")
	var p api.Problem
	assert.NoError(t, json.Unmarshal(a.Body, &p))
	assert.That(t, got.Deadlock == locks.DeadlockFail && a.Status == 409 && p.Code == "would_deadlock" && p.Cycle != nil && len(p.Cycle.Waits) == 2, "%+v: %d %s", got, a.Status, a.Body)
}
