// Package httpapi is the HTTP side of the gateway: openapi.yaml served over a
// lock manager.
//
// # What it promises
//
// Every route of the specification is served, and no other: the route table is
// generated. A request is decoded completely before the manager hears of it,
// and whatever it holds that the specification does not name is refused by
// name. Every answer carries a request id and is never stored; every refusal is
// an RFC 9457 problem of one catalogue (problems.go), written in one place. A
// success that gives a client time (a grant, a heartbeat, a verification, a
// current fencing token) is encoded first and written only if the manager's
// fence is open at that moment.
// One log line tells about one request; it holds no token and no key.
//
// # What a shell or a terminal is given
//
// Where shell lines are asked for, every answer is shell lines (shell.go): values of
// harmless characters, all names always there, and the command false at the end of
// a failure. JSON is inert (inert.go): $, the backtick, controls and invisible
// characters are escaped, also in what another gateway has answered. Other people's
// words are in JSON and in text tables only, never in shell lines.
//
// # What it refuses
//
// Cross-origin requests, and Hosts that are no address, localhost or an allowed
// name, on every route: there is no authentication, and a page in somebody's
// browser must not reach a gateway on loopback. Whoever else reaches it may also
// break, revoke, reap, destroy and configure. What would end everyone when a
// field is forgotten has to be said: a reap's age, a released hold's name.
//
// # Forward-auth
//
// /v1/check-fence answers proxies about requests of their clients. What the
// client got wrong is 403, which proxies pass on; what the proxy's configuration
// got wrong is another status, which they take for a failure. A client's header
// never overrides what the configuration says in the query.
//
// # Streams
//
// /v1/events and /v1/events/ws tell what a subscriber of the hub
// (internal/events) is told, in that order, until the client goes away, takes
// longer than 10 s for one write, lags behind the hub's ring, or the server
// drains. Something is sent every 15 s. An event is encoded once for all who are
// sent it, inert like every JSON.
//
// # Webhooks
//
// A secret is shown in the answer that makes it, the value of a header never; a header
// does not go along when a webhook's address becomes another receiver's, for that would show it.
// What became of messages is known in parts, by the gateways that deliver them: whoever is asked
// asks the others, for 3 s at most, and names those that did not answer (webhooks_fleet.go).
//
// # Pages
//
// The dashboard's handler has paths of its own (pages.go) behind the same guard
// and in the same log. It sets its own headers, and may hijack the connection:
// the request's context then ends with the drain.
//
// # Bounds
//
// Bodies (64 KiB, bulk heartbeats 256 KiB), headers (16 KiB), the time to read
// a request and to write an answer, the number of requests that wait (429
// too_many_waiting at the bound) and of streams (429 too_many_streams). A request that waits has no deadline of its
// own but its wait: it ends when its client goes away or the server drains
// (503 draining, Retry-After: 0).
//
// # Who owns what
//
// net/http owns the goroutines of requests. The package starts one for each
// WebSocket, which reads it and ends before its request does. An exchange
// belongs to its request's goroutine and is reused after it, unless its
// connection was hijacked.
package httpapi

//go:generate go tool oapi-codegen -config oapi-codegen.yaml ../../openapi.yaml
