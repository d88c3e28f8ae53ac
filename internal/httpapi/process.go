package httpapi

import (
	"net/http"

	"lockkeeper/internal/httpapi/api"
)

// bare refuses any field, for operations that have none. It reports whether the
// request may go on.
func (x *exchange) bare() bool {
	p := x.fields(nothing{}, 0)
	if p != nil {
		x.problem(p)
	}
	return p == nil
}

func (x *exchange) getInfo() {
	if !x.bare() {
		return
	}
	info := x.s.locks.Info(x.r.Context())
	shape := infoShape(&info, x.s.version, x.s.mode, int(x.s.maxWaiting), int(x.s.maxStreams), x.s.connections)
	x.answer(http.StatusOK, &shape)
}

func (x *exchange) listGateways() {
	if !x.bare() {
		return
	}
	info := x.s.locks.Info(x.r.Context())
	x.answer(http.StatusOK, gatewayList(x.s.locks.Peers(), &info))
}

func (x *exchange) listNamespaces() {
	if !x.bare() {
		return
	}
	list, err := x.s.locks.Namespaces(x.r.Context())
	if err != nil {
		x.fail(err)
		return
	}
	shape := api.NamespaceList{Items: make([]api.NamespaceInfo, len(list))}
	for i, ns := range list {
		shape.Items[i] = api.NamespaceInfo{NS: ns.Name, Root: ns.Root, Dialect: ns.Dialect, Ready: ns.Ready, Problem: ns.Problem, Swept: ns.Swept, Locks: ns.Locks}
		if n := ns.Names; n.Exclusive != "" {
			shape.Items[i].Names = &api.CustomNames{Exclusive: n.Exclusive, Shared: n.Shared, ForeignShared: n.ForeignShared}
		}
	}
	x.answer(http.StatusOK, &shape)
}

func (x *exchange) healthz() {
	if !x.bare() {
		return
	}
	if err := x.s.locks.Alive(); err != nil {
		x.problem(&problem{code: codeNotAlive, detail: "restart the gateway", cause: err})
		return
	}
	x.answer(http.StatusOK, statusOK)
}

func (x *exchange) readyz() {
	if !x.bare() {
		return
	}
	if x.s.drained.Err() != nil {
		x.problem(draining())
		return
	}
	if err := x.s.locks.Ready(); err != nil {
		x.problem(&problem{code: codeNotReady, detail: "the queues are not read yet, or this gateway is cut off from ZooKeeper or cannot write to its own store, or it drains", cause: err})
		return
	}
	x.answer(http.StatusOK, statusOK)
}

func (x *exchange) metrics() {
	if !x.bare() {
		return
	}
	if x.s.exposition == nil {
		x.problem(&problem{code: codeRouteNotFound, detail: "metrics have an address of their own (--metrics-listen)"})
		return
	}
	x.s.exposition.ServeHTTP(x, x.r)
}

func (x *exchange) getOpenAPI() {
	if !x.bare() {
		return
	}
	x.out.Reset()
	x.out.Write(x.s.openapi)
	x.send(http.StatusOK, typeYAML)
}
