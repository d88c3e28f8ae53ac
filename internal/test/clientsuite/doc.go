// Package clientsuite holds each client to the contract of docs/clients.md: the Go package, and those in clients/. It is a test
// and nothing else: no part of the gateway imports it.
//
// # Drivers
//
// Each language has a small program, its driver, that runs guarded work with the client as it is told. One JSON command is a line
// of its standard input, one JSON event a line of its standard output: see Lock and Event. Many calls run at once in one driver,
// each with an id. When its standard input ends, a driver cancels what runs, releases, and exits with 0.
//
// The work of a driver appends lines to a file, one write(2) each: the time by CLOCK_MONOTONIC in nanoseconds, the process, the
// id, the fencing token, and start, step or end. Before each step it looks whether its lease is held. What the lines must be is
// decided by the package check.
//
// # What is held against a client
//
//   - Transcripts: gateways that a test plays (scene), request by request. Each paragraph of the contract has cases, which are
//     written once and run for each client, all beside each other in one driver.
//   - A live fleet: gateways that are killed, leases that an administrator breaks.
//   - Seeds: workers at one lock of a fleet whose gateways and ZooKeeper are killed and frozen, while they themselves are killed,
//     frozen, cut off and slowed. What happens to the workers is a function of the seed; when it happens is up to the machine.
//
// Mutants of the Go client, each without one of its protections, show that the suite notices.
//
// # Ownership
//
// A driver has one goroutine that reads its events and hands each to the call that it belongs to. A scene's handlers hand
// requests to the one goroutine of its test. Whatever is started ends with the test that started it.
package clientsuite
