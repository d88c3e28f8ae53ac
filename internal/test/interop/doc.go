// Package interop has no code but tests: the locks of other programs and the gateway's leases in the same queues, on
// Debian's ZooKeeper. docs/operate/interop.md is what they verify.
//
// The programs are Curator 5.4 and the WriteLock of ZooKeeper's own recipes (testdata/Worker.java), Kazoo 2.8
// (testdata/worker.py), and go-zookeeper's Lock (this test binary, started again). HBase cannot run here: the Go program
// follows the rules of its ZKInterProcessLock. The home-made recipe (homemade_test.go) is our own, of those that people
// write from ZooKeeper's page of recipes. The gateway is the real binary.
//
// A pair is a namespace's dialect and a mode of ours, and a kind of client. Both parties take the same lock again and again. Who holds
// it reads a counter from a file, waits, writes one more, and notes when it began and ended on CLOCK_MONOTONIC, which all
// processes of a machine share. No two sections may overlap, no count may be lost, and the lock has to change hands
// often, both ways: two parties that never meet would prove nothing. Pairs that do not exclude each other, as the table
// says, have to fail the same check: it can.
//
// A program says "ready", then is told on its stdin and says on its stdout, one line each:
//
//	loop JOB KIND PATH COUNTER PAUSE_US   section JOB BEGIN END, for each
//	hold JOB KIND PATH                    held JOB TIME
//	stop JOB                              done JOB
//
// or "fail JOB TEXT". One process of each program does the jobs of all pairs at the same time, each in a thread of its own;
// what is killed or frozen has a process to itself. Programs end with their stdin, and with the test.
package interop
