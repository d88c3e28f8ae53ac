// Package check decides whether the lines that guarded work has written are those of work that a lock protects. It shares no code
// with clients or gateway and imports nothing but the standard library.
//
// # What it is given
//
// The lines of one lock, each written by one write(2): the time by CLOCK_MONOTONIC, which all processes of a machine share, the
// process, the call, the fencing token, and start, step or end. And the times for which processes were frozen (SIGSTOP to
// SIGCONT). A process that was killed stops writing; that needs no telling.
//
// # Rules
//
//	form     a work writes start, steps, end, with times that do not go back, and nothing after its end
//	overlap  a work starts, steps or ends between the first and the last line of another
//	fencing  a work that starts later has a higher fencing token; no two works have the same
//
// Overlap says both that no two work at one time, and that work whose lease is lost has stopped before the next starts: the end
// of a work is its last line.
//
// # The one exemption
//
// A process that stands still cannot act. What it does when it goes on may be what it was about to do: the first line that a work
// writes after SIGCONT, a start or one step, is exempt, and so is the end that follows it or comes in its place. A second step
// is not, for before it the work has looked whether it holds its lease: then all of its lines count.
package check
