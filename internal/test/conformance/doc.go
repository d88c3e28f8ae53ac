// Package conformance holds what a lock service has to do as scripts, each written once against one small interface, Service.
// They run on the lock manager itself, and through the generated client, HTTP and the server, where Remote turns answers and
// problems back into the domain's words; on the embedded ZooKeeper and on Debian's. GoClient runs them with the Go client where its
// interface has what they ask for, and names the rest. It is test support.
//
// What it promises: a script passes on a service that does what its name says, however slow the machine, and fails on one
// that does not. A script leaves nothing behind and has locks of its own, so all of them run at once on one service. None
// sleeps: what takes time is waited for, in long polls and by looking again, and a request is repeated when ZooKeeper was too
// slow for its answer; where a span of time is the requirement itself (an expiry, a delay) the shortest one that the API allows
// is used.
//
// What is not here: gateways that die, networks that fail and clocks that jump (internal/test/e2e, internal/test/sim), the form of
// requests and answers (internal/httpapi) and what only one of the two ways in has, such as streams of events.
package conformance
