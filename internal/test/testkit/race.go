//go:build race

package testkit

// Race says that the tests are built with the race detector.
const Race = true
