// Package access says who may do what with which lock.
//
// A role's grants name namespaces and locks by globs, and give verbs for them. New compiles the grants of all roles of one
// principal into Rules. Rules are immutable and safe for concurrent use. A decision allocates nothing.
//
// The package fails closed: nil *Rules and the zero value of Rules give no verb. What no grant gives is refused; a grant
// never takes away what another one gives.
//
// It promises that two Rules with equal keys decide alike, so what is filtered by one may be shown to a holder of the other.
// The lock manager decides by these rules, because it alone knows the lock of a lease. The package is pure: it has no clock
// and no goroutine.
package access
