//go:build race

package chaos

// race says that the tests, and so the gateways too, are built with the race detector.
const race = true
