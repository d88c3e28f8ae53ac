package authtest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

func TestEachRouteAnswersEachCallerAsItsRowSaysAndARefusalChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, tableRules)
		callers, root := tableCallers(t, w)
		p := &play{t: t, w: w, root: root, served: w.Gateways[0].API.Routes()}
		for _, r := range rows() {
			for _, c := range callers {
				for _, g := range w.Gateways {
					p.cell(&r, c, g)
				}
			}
			p.over()
		}
	})
}

// play plays the rows of the table.
type play struct {
	t      *testing.T
	w      *World
	root   *Caller
	served []string
	scene  *Scene // nil: the last one was changed
	scenes int
}

// over ends the scene.
func (p *play) over() {
	if p.scene != nil {
		p.w.End(p.root, p.scene)
		p.scene = nil
	}
}

// cell is one request of one caller to one gateway. The lease's owner is the first gateway.
func (p *play) cell(r *row, c tableCaller, g *Gateway) {
	if p.scene == nil {
		p.scenes++
		p.scene = p.w.NewScene(p.root, p.scenes)
	}
	methods := []string{r.method()}
	if slices.Contains(p.served, "HEAD "+r.pattern()) && methods[0] == http.MethodGet && !strings.HasPrefix(r.pattern(), "/v1/events") {
		methods = append(methods, http.MethodHead)
	}
	for _, method := range methods {
		about := fmt.Sprintf("%s %s of %s (%s) at %s", method, r.path(p.scene), c.Name, c.column, g.name)
		nodes, lists := p.w.Tree.Snapshot(), p.w.Lists()
		a := p.ask(r, c, g, method)
		if c.column == unheard {
			assert.That(p.t, a.Err != nil && a.Status == 0, "%s: %+v", about, a)
		} else {
			want := r.wanted(c.column)
			assert.That(p.t, strconv.Itoa(a.Status) == want, "%s: %d, want %s: %s %v", about, a.Status, want, a.Body[:min(len(a.Body), 300)], a.Err)
		}
		if a.Status >= 200 && a.Status < 300 && !r.reads() {
			p.over()
			return
		}
		p.w.Settle()
		same(p.t, about, nodes, p.w.Tree.Snapshot())
		same(p.t, about, lists, p.w.Lists())
	}
}

func (p *play) ask(r *row, c tableCaller, g *Gateway, method string) *Answer {
	var options []apitest.Option
	if r.with != nil {
		options = r.with(p.scene)
	}
	if !r.socket {
		return p.w.Send(g, c.Caller, method, r.path(p.scene), options...)
	}
	conn, a := p.w.Socket(g, c.Caller, r.path(p.scene), options...)
	if conn != nil {
		_ = conn.Close()
	}
	return a
}

// same compares what there was before a request with what there is after it.
func same(t *testing.T, about string, before, after map[string]string) {
	t.Helper()
	for name, was := range before {
		is, there := after[name]
		assert.That(t, there, "%s: %s is gone", about, name)
		assert.That(t, !there || was == is, "%s: %s was\n%s\nand is\n%s", about, name, was, is)
	}
	for name, is := range after {
		_, there := before[name]
		assert.That(t, there, "%s: %s is new: %s", about, name, is)
	}
}

func TestEachRouteHasARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, tableRules)
		served := map[string]bool{}
		for _, route := range w.Gateways[0].API.Routes() {
			served[route] = true
		}
		without := maps.Clone(served)
		for _, r := range rows() {
			assert.That(t, served[r.route], "%s has a row and is not served", r.route)
			delete(without, r.route)
			if path, get := strings.CutPrefix(r.route, "GET "); get {
				delete(without, "HEAD "+path)
			}
		}
		assert.That(t, len(without) == 0, "without a row: write one in rows.go:\n%s", strings.Join(slices.Sorted(maps.Keys(without)), "\n"))
	})
}

func TestEachOperationOfTheSpecificationHasARow(t *testing.T) {
	spec := assert.Value(apitest.Load())(t)
	named := map[string]bool{}
	for _, r := range rows() {
		named[r.route] = true
	}
	for path, item := range spec.Doc.Paths.Map() {
		for method, operation := range item.Operations() {
			assert.That(t, named[method+" "+path], "%s %s (%s) has no row: write one in rows.go", method, path, operation.OperationID)
		}
	}
}
