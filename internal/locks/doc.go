// Package locks holds the nouns of the domain: leases, locks, contenders, requests and answers, limits, error codes, and
// the one validation of what a client may ask for. It has no state and no goroutine, and imports nothing that does.
//
// The packages below it do the work: recipe has the queue rules, and manager runs the leases.
package locks
