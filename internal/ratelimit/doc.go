// Package ratelimit bounds what one caller asks of a gateway: requests per second, and requests at the same time by the work
// that they are at. So one caller cannot use up what is there for all.
//
// # Promises
//
// A caller has a token bucket (golang.org/x/time/rate). It fills at the caller's rate, and holds what a second brings, at least
// minBurst. A request that finds it empty is refused, and costs a look-up. A refused request takes nothing.
//
// A request is at one kind of work at a time: it is answered, it waits, or it is a stream. Each kind has a bound of its own, so
// requests that wait keep no others out. A request that has waited goes on whatever the bound on active ones says.
//
// # Bounds
//
// At most maxCallers are remembered. Beyond that the one that has asked for nothing for the longest time is forgotten, unless a
// request of it is under way: a caller that is forgotten begins with a full bucket, which after a while without requests it has
// anyway.
//
// # Owners
//
// One mutex guards all, held for a few steps. Nothing is allocated for a request of a caller that is known. There is no
// goroutine and no timer.
package ratelimit
