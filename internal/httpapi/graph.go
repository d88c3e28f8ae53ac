package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

type graphInput struct {
	locks.GraphRequest
	format string // "json", "dot" or "mermaid"
}

var getGraph = operation[graphInput]{fields: []field[graphInput]{
	{name: "ns", in: inQuery, to: func(g *graphInput) any { return &g.NS }},
	{name: "lock", in: inQuery, to: func(g *graphInput) any { return (*lockName)(&g.Lock) }},
	{name: "owner", in: inQuery, to: func(g *graphInput) any { return &g.Owner }},
	{name: "cycles", in: inQuery, to: func(g *graphInput) any { return &g.Cycles }},
	{name: "limit", in: inQuery, to: func(g *graphInput) any { return &g.Limit }},
	{name: "format", in: inQuery, to: func(g *graphInput) any { return oneOf{&g.format, []string{"json", "dot", "mermaid"}} }},
}}

// getGraph answers the wait-for graph.
func (q *queues) getGraph(x *exchange) error {
	in := graphInput{GraphRequest: locks.GraphRequest{Principal: x.principal(), Limit: locks.DefaultEdges}}
	if err := decode(x, &getGraph, &in); err != nil {
		return err
	}
	v, err := q.locks.Graph(x.r.Context(), in.GraphRequest)
	if err != nil {
		return err
	}
	x.open = true
	write, contentType := writeDot, typeDot
	switch in.format + graphType(in.format, x.r.Header) {
	case "dot":
	case "mermaid":
		write, contentType = writeMermaid, typeMermaid
	default:
		return x.answer(graphShape(&v))
	}
	x.out.Reset()
	write(&x.out, &v)
	return x.send(http.StatusOK, contentType)
}

var (
	typeDot     = []string{"text/vnd.graphviz; charset=utf-8"}
	typeMermaid = []string{"text/vnd.mermaid; charset=utf-8"}
)

// graphType is the form that the Accept header asks for, where no format is given: "" for JSON, also among equals.
func graphType(format string, h http.Header) (form string) {
	if format != "" {
		return ""
	}
	best := 0.0
	accepted(h, func(mediaType string, q float64) {
		of, known := map[string]string{"text/vnd.graphviz": "dot", "text/vnd.mermaid": "mermaid", "application/json": "", "application/*": "", "*/*": ""}[mediaType]
		if known && (q > best || q == best && of == "") {
			best, form = q, of
		}
	})
	return form
}

func graphShape(v *locks.WaitGraph) *api.Graph {
	return &api.Graph{Nodes: each(v.Parties, nodeShape), Edges: each(v.Waits, edgeShape), Cycles: each(v.Cycles, cycleShape), Truncated: v.Truncated, Unread: v.Unread}
}

func nodeShape(p *locks.Party) api.GraphNode {
	return api.GraphNode{ID: p.ID, Kind: api.GraphNodeKind(p.Kind), Owner: p.Owner, Program: p.Program, Label: p.Label, Stuck: p.Stuck}
}

func edgeShape(w *locks.GraphWait) api.GraphEdge {
	shape := api.GraphEdge{From: w.From, To: w.To, Lock: w.Lock, NS: w.NS, Mode: api.Mode(w.Mode), Needs: "all", Waiter: standingShape(&w.Waiter), Blocker: standingShape(&w.Blocker)}
	if w.Any {
		shape.Needs = "any"
	}
	return shape
}

func standingShape(s *locks.Standing) api.GraphContender {
	return api.GraphContender{LeaseID: s.LeaseID, Znode: s.Znode, Position: s.Position}
}

func cycleShape(c *locks.Cycle) api.GraphCycle {
	shape := api.GraphCycle{ID: c.ID, Kind: "possible", Waits: each(c.Waits, edgeShape), Hidden: c.Hidden}
	if c.Certain {
		shape.Kind = "certain"
	}
	if c.Youngest >= 0 && c.Youngest < len(c.Waits) {
		w := &c.Waits[c.Youngest]
		shape.Youngest = new(standingShape(&w.Waiter))
		shape.Advice = "end the youngest wait, that of " + w.From + " in " + w.Lock + ": its client releases it, or an administrator breaks it"
		if w.Waiter.LeaseID != "" {
			shape.Advice += ", with POST /v1/leases/" + w.Waiter.LeaseID + "/break"
		}
	}
	return shape
}

// inCycle are the edges of certain cycles.
func inCycle(v *locks.WaitGraph) map[locks.GraphWait]bool {
	in := map[locks.GraphWait]bool{}
	for i := range v.Cycles {
		for _, w := range v.Cycles[i].Waits {
			in[w] = in[w] || v.Cycles[i].Certain
		}
	}
	return in
}

// nodeText is what a drawing shows of a party.
func nodeText(p *locks.Party) string {
	switch {
	case p.Kind == locks.PartyOwner:
		return printable(p.Owner)
	case p.Owner != "":
		return printable(p.Owner + " " + p.ID)
	}
	return printable(strings.TrimSpace(p.Program + " " + p.Label + " " + p.ID))
}

// edgeText is what a drawing shows of a wait.
func edgeText(w *locks.GraphWait) string {
	s := w.Lock
	if w.NS != locks.DefaultNamespace {
		s = w.NS + "/" + s
	}
	if w.Any {
		s += " (any)"
	}
	if w.Blocker.Position > 0 {
		s += " (behind)"
	}
	return printable(s)
}

// writeDot writes the graph in the language of Graphviz. Waits of certain cycles are red.
func writeDot(w io.Writer, v *locks.WaitGraph) {
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	in, number := inCycle(v), numbers(v)
	fmt.Fprintln(w, "digraph waits {")
	for i := range v.Parties {
		style := ""
		if v.Parties[i].Stuck {
			style = ", color=red"
		}
		fmt.Fprintf(w, "  n%d [label=\"%s\"%s];\n", i, quoted.Replace(nodeText(&v.Parties[i])), style)
	}
	for i := range v.Waits {
		e := &v.Waits[i]
		style := ""
		if in[*e] {
			style = ", color=red"
		}
		fmt.Fprintf(w, "  n%d -> n%d [label=\"%s\"%s];\n", number[e.From], number[e.To], quoted.Replace(edgeText(e)), style)
	}
	fmt.Fprintln(w, "}")
}

// writeMermaid writes the graph in the language of Mermaid. Waits of certain cycles are thick.
func writeMermaid(w io.Writer, v *locks.WaitGraph) {
	quoted := strings.NewReplacer(`"`, "#quot;", "#", "#35;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;", "|", "#124;", "%", "#37;") // %%{...}%% anywhere would be a directive
	in, number := inCycle(v), numbers(v)
	fmt.Fprintln(w, "flowchart LR")
	for i := range v.Parties {
		fmt.Fprintf(w, "  n%d[\"%s\"]\n", i, quoted.Replace(nodeText(&v.Parties[i])))
	}
	for i := range v.Waits {
		e := &v.Waits[i]
		arrow := "-->"
		if in[*e] {
			arrow = "==>"
		}
		fmt.Fprintf(w, "  n%d %s|\"%s\"| n%d\n", number[e.From], arrow, quoted.Replace(edgeText(e)), number[e.To])
	}
}

// numbers are the places of the parties in the list, by their ids.
func numbers(v *locks.WaitGraph) map[string]int {
	number := make(map[string]int, len(v.Parties))
	for i := range v.Parties {
		number[v.Parties[i].ID] = i
	}
	return number
}
