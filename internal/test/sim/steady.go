package sim

import (
	"runtime"
	"runtime/debug"
)

// memory is what a run may take before the garbage collector works in spite of it: a run allocates far less.
const memory = 1 << 30

// steady makes the scheduler as predictable as it gets until end is called. When several goroutines are woken at one instant
// of virtual time, they run one after the other in the order in which they were woken, and the garbage collector, whose
// pauses send a goroutine to the end of the line, waits until the run is over. It is done here rather than around the process
// because other tests of a package gain nothing from it.
func steady() (end func()) {
	runtime.GC()
	processors := runtime.GOMAXPROCS(1)
	percent := debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(memory)
	return func() {
		runtime.GOMAXPROCS(processors)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}
