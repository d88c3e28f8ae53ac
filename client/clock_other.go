//go:build !linux

package client

import "time"

// bootClock is the wall clock where the time that a machine sleeps is not told otherwise.
func bootClock() time.Duration { return wallClock() }
