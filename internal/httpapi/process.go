package httpapi

import (
	"net/http"

	"lockkeeper/internal/docsite"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
)

// process are the operations that tell of this gateway and its fleet.
type process struct {
	locks       Locks
	s           *Server
	exposition  http.Handler // of the metrics; nil when they are elsewhere
	version     string
	mode        api.InfoMode
	openapi     []byte
	openapiTag  string
	docs        *docsite.Site    // empty when the gateway serves no documentation
	connections connlimit.Limits // as Options has it
}

// documents are the paths that the specification names and does not list: browsers and scrapers read them.
func documents() []route {
	return []route{
		{operation: "Metrics", method: http.MethodGet, pattern: "/metrics", handle: (*handlers).metrics, bare: true},
		{operation: "GetOpenAPI", method: http.MethodGet, pattern: "/openapi.yaml", handle: (*handlers).getOpenAPI, bare: true},
		{operation: "GetProblem", method: http.MethodGet, pattern: problemPath + "{code}", handle: (*handlers).getProblem},
	}
}

var statusOK = api.Status{Status: "ok"}

func (p *process) getInfo(x *exchange) error {
	info := p.locks.Info(x.r.Context()).For(x.principal())
	shape := infoShape(&info, x.counts(), p.version, p.mode, int(p.s.waiting.limit), int(p.s.streams.open.limit), p.connections)
	shape.History = p.s.remembered.status(x.counts())
	return x.answer(&shape)
}

// counts reports whether the caller is told totals: they count locks that it may not read.
func (x *exchange) counts() bool { return x.principal().Rules.MayAll(access.Read) }

func (p *process) listNamespaces(x *exchange) error {
	list, err := p.locks.Namespaces(x.r.Context(), x.principal())
	return answerWith(x, namespaceList, list, err)
}

func namespaceList(list *[]locks.NamespaceInfo) *api.NamespaceList {
	return &api.NamespaceList{Items: each(*list, namespaceShape)}
}

func namespaceShape(ns *locks.NamespaceInfo) api.NamespaceInfo {
	shape := api.NamespaceInfo{NS: ns.Name, Root: ns.Root, Dialect: ns.Dialect, Ready: ns.Ready, Problem: ns.Problem, Swept: ns.Swept, Locks: ns.Locks}
	if n := ns.Names; n.Exclusive != "" {
		shape.Names = &api.CustomNames{Exclusive: n.Exclusive, Shared: n.Shared, ForeignShared: n.ForeignShared}
	}
	return shape
}

func (p *process) healthz(x *exchange) error {
	if err := p.locks.Alive(); err != nil {
		return &problem{code: codeNotAlive, detail: "restart the gateway", cause: err}
	}
	return x.answer(statusOK)
}

func (p *process) readyz(x *exchange) error {
	if p.s.drained.Err() != nil {
		return draining()
	}
	if err := p.locks.Ready(); err != nil {
		return &problem{code: codeNotReady, detail: "the queues are not read yet, or this gateway is cut off from ZooKeeper or cannot write to its own store, or it drains", cause: err}
	}
	return x.answer(statusOK)
}

func (p *process) metrics(x *exchange) error {
	if p.exposition == nil {
		return &problem{code: codeRouteNotFound, detail: "metrics have an address of their own (--metrics-listen)"}
	}
	p.exposition.ServeHTTP(x, x.r)
	return nil
}

func (p *process) getOpenAPI(x *exchange) error {
	x.keep(p.openapiTag)
	x.raw(p.openapi)
	return x.send(http.StatusOK, typeYAML)
}
