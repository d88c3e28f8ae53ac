//go:build !linux

package client

import "time"

// bootClock goes on while the machine sleeps, as the time of day does.
func bootClock() time.Duration { return withoutBootClock.now() }
