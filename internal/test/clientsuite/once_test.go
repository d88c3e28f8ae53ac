package clientsuite

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/clientsuite/check"
)

// How often work runs in one period, by processes of each language. One language after the other: ten virtual machines are enough.
func TestWorkOfAPeriodRunsOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for _, l := range append(languages[:len(languages):len(languages)], lockctl...) {
		argv := l.make(t, t.TempDir())
		t.Run("ten-processes/"+l.name, func(t *testing.T) { tenProcesses(t, f, l, argv) })
		t.Run("crash/"+l.name, func(t *testing.T) {
			afterACrash(t, f, argv, "crash-release-"+l.name, "release", true)
			afterACrash(t, f, argv, "crash-grant-"+l.name, "", false)
		})
	}
}

// once asks for a lock whose work is done once in a period.
func once(doneOn string, length *int64) func(*Lock) {
	return func(l *Lock) {
		l.OncePer, l.Period, l.DoneOn, l.Work.For = new(int64(86_400_000)), "today", doneOn, length
	}
}

// tenProcesses ask for the same work at the same moment.
func tenProcesses(t *testing.T, f *fleet, l language, argv []string) {
	log := filepath.Join(t.TempDir(), "log")
	drivers := make([]*Driver, 10)
	for i := range drivers {
		drivers[i] = driverT(t, argv)
	}
	scenes := make([]*scene, len(drivers))
	for i, d := range drivers {
		scenes[i] = live(t, d, f, func(k *Lock) {
			once("release", new(int64(50)))(k)
			k.Owner, k.Work.Log = "w", log
		}, Wanted{Lock: "daily-" + l.name})
	}
	ran := 0
	for _, s := range scenes {
		if e := s.event("done"); s.count("started") > 0 {
			ran++
			s.must(!e.Already, "work that ran was done already: %v", e)
		} else if !l.tree { // lockctl tells its exit code alone
			s.must(e.Already && e.Period == "today" && e.By == "w", "work that did not run ended with %v", e)
			_, err := time.Parse(time.RFC3339, e.DoneAt)
			s.must(err == nil, "it was done at %q", e.DoneAt)
		}
	}
	assert.Equal(t, ran, 1, "how often the work ran")
	lines := assert.Value(check.Parse(assert.Value(os.ReadFile(log))(t)))(t)
	assert.Equal(t, check.Works(lines), 1, "works that wrote")
}

// afterACrash kills a process under its work: whether the work runs again is up to done_on.
func afterACrash(t *testing.T, f *fleet, argv []string, lock, doneOn string, again bool) {
	crashed := assert.Value(startDriver(argv))(t)
	one := live(t, crashed, f, func(l *Lock) { once(doneOn, nil)(l); l.TTL = 2000 }, Wanted{Lock: lock})
	one.event("started")
	for _, pid := range descendants(crashed.proc.PID()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	crashed.kill()

	d := driverT(t, argv)
	for _, wanted := range []bool{again, false} { // afterwards it has run, or counts as such
		next := live(t, d, f, once(doneOn, new(int64(50))), Wanted{Lock: lock})
		next.done()
		assert.Equal(t, next.count("started") > 0, wanted, "done_on=%q: that the work ran after the crash", doneOn)
	}
}
