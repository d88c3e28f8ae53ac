// Command bench is "make bench": it measures what a lock costs through the gateway, on Debian's ZooKeeper and embedded, beside
// go-zookeeper's zk.Lock, Curator's InterProcessMutex, etcd's lock service and a bare HTTP handler, and prints BENCHMARKS.md's tables.
//
//	-only NAMES  run these parts alone; they are in the lists "parts" and "byName" (main.go). Those in byName run only so
//	-rounds N    how many rounds each part has, 5 unless given
//	-turn D      how long each side of a line works in a round, 1s unless given
//	-write       also write the result into BENCHMARKS.md, docs/operate/capacity.md and bench/charts
//	-base COMMIT compare with the gateway of another commit instead (base.go): make bench-base
//
// A side is one way to do the same work (sides.go). The engine has the sides of a line work in turns (engine.go) and reads, as each
// turn begins and as its time is over, processor time and counters of the side's processes (cost.go). Ratios are taken within a round.
//
// What it checks while it measures: no two clients may hold a contended lock at once, and every answer must be the one that is
// expected. A part in which anything fails runs once more with new servers, and reports no figures when it fails again.
//
// It owns the programs that it starts, which the kernel kills when it is gone, however it ends, and a directory for their data
// in .run/, which it removes: the working tree is on a disk, /tmp need not be. Chromium, for the part "page"
// (page.go), has its profile in the system's directory for temporary files. SIGINT and SIGTERM end the run.
package main
