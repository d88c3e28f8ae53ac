// Package connlimit bounds the connections of an HTTP server, in all and for each address, so that clients that keep
// connections open cannot keep others out.
//
// At a bound a newcomer takes the place of the connection that has been quiet for the longest time: of its own
// address at the bound for each address, else of all. A connection is quiet after an answer, before its first request,
// while a request's header arrives, and while a request's body has not been read to its end. So a request whose body
// never comes does not keep its place, also when it was answered and net/http waits for the body. A connection without a
// request yet, or with a body that is awaited, counts as quiet only after a grace of a second, or newcomers would take
// each other's place before they can ask. When no connection is quiet, the newcomer itself is closed. That is counted,
// and logged at most once a minute.
//
// A client whose quiet connection is closed opens another one with its next request. A request that arrives at that very
// moment is not begun: the client sees a closed connection, and repeats it as after any other. The same holds for a
// request whose body ends at that moment: the handler that reads the body gets an error in place of its end.
//
// A hijacked connection (a WebSocket) counts until it is closed, and is never quiet. The gateways of a fleet are
// clients like all others here.
//
// An address is an IPv4 address, or the first 64 bits of an IPv6 one: a single machine commonly has all of the rest. At a
// Unix socket it is a user. Addresses that Share names stand for many clients, so only the bound on all holds for them.
//
// Over TLS the connection below is counted, from before its handshake: one that is not shaken hands with counts as one without a
// request.
//
// # What a request costs
//
// A connection spares net/http the deadlines of a request that is answered at once, and the read that notices a client that goes
// away (lazy.go). Deadlines are kept as without it. A request of HTTP/1 that takes longer than 20 ms is watched from then on, 40 ms after
// it arrived at the latest. Its context ends when its client goes away. With TLS, and with HTTP/2, net/http watches from the start.
//
// # Owners
//
// All counts are guarded by one lock that is held for a few steps: when a connection comes or goes, and when a request
// begins, has arrived or ends. No allocation is made for a request. A timer looks for long requests while there are requests.
// A watch is a goroutine: it ends with its connection, or when net/http reads from that again.
package connlimit
