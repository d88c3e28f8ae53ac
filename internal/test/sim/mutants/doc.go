// Package mutants shows that the simulation notices when a protection is missing. It is a table of fail points (package
// fault), each of which takes one protection out, and a test that looks for a broken promise with each of them on. It runs
// the scenario that the table names (Scenario), or else the seeds of every day until one shows it, and then all scenarios. A
// point that neither shows is a failure: either the simulation has become blind, or the protection protects from nothing.
//
// The test compiles the simulation once, with the build tag faults. The points stand in the code where the protections
// do; another test compares the table with them.
//
// Some protections are backed by another one, so that taking out one of them changes nothing that a client can see. Then
// the table has the pair, and says for each of the two alone that no seed shows it (Backed).
//
// What no seed shows, and what no other protection makes up for as far as is known, is Open: there the simulation is blind.
//
// The test takes minutes: make sim-mutants, or LOCKKEEPER_FULL=1, or -mutants.
package mutants
