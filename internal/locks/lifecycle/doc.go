// Package lifecycle has the state of one lease as explicit enums: State for the lease, Presence for each of its contenders.
// An enum has a table: for each value, the values that may follow. A second table has the values that may stand together in
// each phase.
//
// The package is passive. It starts nothing, reads no clock and writes nothing. Only the methods of State and Presence make
// transitions. They make one that its table does not have, too, and report it to the Ledger: the lease goes on, and the
// owner of the leases finds the defect in its log and its checks.
package lifecycle
