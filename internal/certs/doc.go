// Package certs keeps certificates as their files have them: one pair of a certificate and its key, files of
// authorities, or both.
//
// # What it promises
//
// Load fails unless every file can be used. Run reads the files every 5 s and takes over what has changed; a new connection
// is made with what is in force at that moment, and open connections stay. It compares contents: Kubernetes swaps symbolic
// links, and a clock that was set back makes new files look old.
//
// A change that cannot be used changes nothing. What was in force stays, one line in the log says why, and
// the metric lockkeeper_certificate_reload_failed is 1 until the files can be used. A certificate that has expired
// cannot replace one that has not.
//
// The log warns before a certificate expires: when less than a sixth of its time is left, or 14 days if that is less, and
// each day from then on.
//
// # What it refuses
//
// Key files that others can read. TLS below 1.2. Everything else is Go's default.
//
// # Ownership
//
// Run owns a goroutine of its caller. What is in force is one immutable value behind an atomic pointer.
package certs
