// Package e2e holds the end-to-end tests: the real gateway binary, built once per run (with the race detector when the tests are), on a
// ZooKeeper that is started, stopped, frozen and killed by the tests, with proxies in between that cut, hold and lose what
// a test names. The ZooKeeper is the embedded one; with LOCKKEEPER_TEST_ZK=real it is Debian's, as ensembles always are.
//
// Every request goes through apitest's client, which holds each answer against openapi.yaml. Every gateway's log is
// kept: a data race or a panic in it fails the test that ran the gateway, and so does an unexpected exit code.
//
// Bounds of time are of two kinds. Those that a requirement names ("within a second") are in the tests, with room for a
// loaded machine. All others are patience: they end a test that has gone wrong and measure nothing.
package e2e
