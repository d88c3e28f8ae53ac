// Package traces exports spans with OTLP: one for each request, lock.wait for the time that a lease waits, lock.hold for the
// time that it is held. It connects OpenTelemetry's SDK with the gateway; a nil *Tracer records nothing and costs nothing.
//
// No request waits for the collector. A span that has ended goes into a queue of MaxQueued; one that finds it full is dropped
// and counted. Spans that the collector has not taken after the SDK's retries are lost and counted.
//
// A span has names of locks, ids of leases and owners. It has no token, no query, no path as it was sent, no metadata and no
// header of a request. What is logged about a failed export has no value of a header that is sent with it.
//
// Who owns what: the SDK's batch processor has one goroutine, from New until Shutdown, which flushes the queue within the time
// that its context has.
package traces
