// Package httpapi is the HTTP side of the gateway: openapi.yaml served over a lock manager.
//
// # Promises
//
// Every route of the specification is served, and no other: the route table is generated. Each operation declares its fields
// in a table (field.go); a request is decoded completely before the manager hears of it, and what the specification does not
// name is refused by name. What a value may be is the domain's to say (internal/locks): this package turns text into values.
//
// The protocols of other programs (Options.Compat) are no part of the specification: OpenAPI 3 has no methods LOCK and UNLOCK. Their
// clients keep no lease token and send no heartbeats, so a request finds the lease by its metadata, and acts for it only when its
// principal has taken it, or has the verb operate (compat.go).
//
// Every answer carries a request id. None is stored but the specification, the documentation and the pages of problems, which are
// asked about each time. Every refusal is an RFC 9457 problem of one catalogue (catalogue.go), written in one place. A success that gives a client time (a grant, a heartbeat, a verification, a current fencing token) is
// encoded first and written only if the manager's trust window is open at that moment. There is one log line for one request;
// it holds no token and no key, and no request waits for it (accesslog).
//
// Where shell lines are asked for, every answer is shell lines (shell.go): values of harmless characters, all names always
// there, and the command false at the end of a failure. JSON is inert (inert.go): $, the backtick, controls and invisible
// characters are escaped, also in what another gateway has answered. Texts of clients are in JSON and in text tables only,
// never in shell lines.
//
// /v1/check-fence answers proxies about requests of their clients. A mistake of the client is 403, which proxies pass on; a
// mistake of the proxy's configuration is another status, which they take for a failure. A client's header never overrides
// what the configuration says in the query.
//
// A webhook's secret is shown in the answer that makes it, the value of a header never; a header does not go along when a
// webhook's address becomes another receiver's, for that would show it.
//
// # Refusals
//
// Cross-origin requests, and Hosts that are no address, localhost or an allowed name, are refused on every route: there is no
// authentication, and a page in a browser must not reach a gateway on loopback. Any other client may also break, revoke, reap,
// destroy and configure. What would end every lease when a field is forgotten has to be said: a reap's age, a released hold's
// name.
//
// # Bounds
//
// Bodies (64 KiB, bulk heartbeats and lists of contenders 256 KiB), headers (16 KiB), the time to read a request and to write
// an answer, the number of requests that wait (429 too_many_waiting) and of streams (429 too_many_streams), the bytes of large
// answers under way (429 too_many_answers). A request that waits has no deadline of its own but its wait: it ends when its
// client goes away or the server drains (503 draining, Retry-After: 0).
//
// A stream has the events of a subscriber of the hub (internal/events), in that order, until the client goes away, takes
// longer than 10 s for one write, lags behind the hub's ring, or the server drains. Something is sent every 15 s. A batch is
// encoded once for all streams that are at the same place with the same filter, and leaves in one write; each stream gets at
// most 20 a second. While requests come in, streams take a fixed share of the processors (share.go): those that want more
// fall behind, and lag in the end.
//
// # Failure
//
// A request about a lease that another gateway runs is sent there, once (forward.go). When that gateway does not answer, the
// problem says whether the request may have been done; a heartbeat is renewed in its place. What became of a webhook's
// messages is known in parts, by the gateways that deliver them: the one that is asked asks the others, for 3 s at most, and
// names those that did not answer. A panic is a problem, or cuts the connection when half an answer is out.
//
// # What an answer that comes at once costs
//
// An acquire, a release and a heartbeat take no timer, no deadline and no context of their own (queueing.go). They do not go through the router
// (direct.go), and their answers are encoded without reflection (hotshapes.go). BenchmarkCycle counts what is left.
//
// # Owners
//
// net/http owns the goroutines of requests. The package starts one for each WebSocket, which reads it, one for a request that
// waits at another gateway, and some for requests to several gateways; each ends before its request does. An exchange belongs
// to its request's goroutine and is reused after it, unless its connection was hijacked. Handlers are grouped by what they are
// about (handlers), and each group has the part of the manager's interface that it uses (locks.go).
package httpapi

//go:generate go tool oapi-codegen -config oapi-codegen.yaml ../../openapi.yaml
