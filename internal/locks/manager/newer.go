package manager

import (
	"lockkeeper/internal/locks"
)

// A name of this fleet in a format of a later release is a contender like any: it
// stands in the queue, counts as exclusive, and is shown. Its clock is for those who
// understand it. This gateway may nonetheless come to own it, by succeeding the
// later release's gateway with everything that it had; then it does nothing about it, and
// does not say that it has ended. Whoever of that release succeeds this gateway adopts it, with
// takeover + promise window + TTL.

// needsNewer is the answer to who asks for such a lease.
func needsNewer() *locks.Error {
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
		Detail: "a later release made this lease, and this gateway, which has taken it over, does not understand it; it stays until a gateway of that release succeeds this one: upgrade this one"}
}
