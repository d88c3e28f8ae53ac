package client

import "time"

// wallClock is the time of day. It goes on while the machine sleeps, and jumps when it is set.
func wallClock() time.Duration { return time.Duration(time.Now().UnixNano()) }
