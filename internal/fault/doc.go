// Package fault names the protections of the gateway that a test can take out.
//
// A fail point stands where its protection stands:
//
//	if s.seen && !fault.On("early-end") {
//
// With the point on, the gateway does without the protection. Several points of one name are one protection in several places.
//
// On is a constant false unless the build tag faults is set: the compiler drops the branch, and no name is in the
// binary. With the tag, the environment variable LOCKKEEPER_FAULTS chooses points by their names, separated by commas, when
// the program starts:
//
//	LOCKKEEPER_FAULTS=trust-window,freshness go test -tags faults ./internal/test/sim
//
// A name that is not in Names ends the program. internal/test/sim/mutants says what each point takes out, runs the simulation
// without it, and checks that Names, its table and the code have the same points.
package fault
