// Package record has what Lockkeeper writes into znodes: the record of a lease in its contender, revocations in it, the
// records of idempotency keys, and the tokens and node names that are made of the fleet's secret.
//
// Every program that reaches ZooKeeper can write a record, so Parse cuts what it says to the bounds of the API. Members
// that only a later release knows are kept and written back. Nothing here has state, waits or reads.
package record
