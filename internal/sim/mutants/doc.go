// Package mutants shows that the simulation notices when a protection is missing. It is a table of small changes to the
// gateway, each of which takes one protection out, and a test that compiles the simulation with each of them and runs the
// seeds of every day until one shows a broken promise. A change that no seed shows is a failure: either the simulation has
// become blind, or the protection protects from nothing.
//
// The tree is never touched: go test -overlay compiles a changed copy. The shipped code knows nothing of it. When the code
// that a change replaces has become another one, the test says which text is to be adapted.
//
// Some protections are backed by another one, so that taking out one of them changes nothing that anybody can see. Then the
// table has the pair, and says for each of the two alone that no seed shows it (Backed).
//
// What no seed shows, and what no other protection makes up for as far as is known, is Open: there the simulation is blind.
//
// The test takes minutes, because it compiles each change: make sim-mutants, or LOCKKEEPER_FULL=1, or -mutants.
package mutants
