package supervise

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

const (
	envScript  = "SUPERVISE_SCRIPT"    // what the program under test runs
	envFor     = "SUPERVISE_FOR"       // after which, from when the script is ready, the watcher kills everything
	envNoGroup = "SUPERVISE_NO_CGROUP" // set: without cgroups
	envMark    = "SUPERVISE_MARK"      // by which a test finds all processes of its program
)

func TestMain(m *testing.M) {
	Main()
	if os.Getenv(envScript) != "" {
		os.Exit(program())
	}
	os.Exit(m.Run())
}

// program is this test's binary as a program that runs a script: SIGTERM ends it, SIGKILL follows after 200 ms, and what the
// script leaves behind is killed.
func program() int {
	if !IsKeeper() {
		code, err := Watch()
		if err != nil {
			fmt.Println(err)
			return 99
		}
		return code
	}
	useCgroups = os.Getenv(envNoGroup) == ""
	k, err := Keep()
	if err != nil {
		fmt.Println(err)
		return 98
	}
	defer k.Done()
	if within, err := time.ParseDuration(os.Getenv(envFor)); err == nil {
		go func() {
			for _, err := os.Stat("ready"); err != nil; _, err = os.Stat("ready") {
				time.Sleep(time.Millisecond)
			}
			k.KillBy(Now() + within)
			_ = os.WriteFile("timed", nil, 0o600) // a test fails that waits for it in vain
		}()
	}
	p, err := k.Start(Command{Path: "/bin/sh", Args: []string{"sh", "-c", os.Getenv(envScript)}, Env: os.Environ(), Until: never})
	if err != nil {
		fmt.Println(err)
		return 97
	}
	kill := make(chan struct{}, 1)
	go func() {
		for s := range k.Signals() {
			if s != syscall.SIGTERM {
				p.Signal(s)
				continue
			}
			p.Terminate()
			time.AfterFunc(200*time.Millisecond, func() { kill <- struct{}{} })
		}
		kill <- struct{}{}
	}()
	select {
	case <-p.Ended():
	case <-kill:
	}
	if err := p.Kill(); err != nil {
		fmt.Println(err)
		return 96
	}
	return p.Status().ExitCode()
}

// run is one run of the program.
type run struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  bytes.Buffer
	mark string
	dir  string
}

func start(t *testing.T, script string, env ...string) *run {
	t.Helper()
	r := &run{t: t, mark: envMark + "=" + rand.Text(), dir: t.TempDir()}
	r.cmd = exec.Command(os.Args[0])
	r.cmd.Env = append(append(os.Environ(), env...), envScript+"="+script, r.mark)
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.Dir = &r.out, &r.out, r.dir
	r.cmd.WaitDelay = 20 * time.Second
	assert.NoError(t, r.cmd.Start())
	t.Cleanup(func() {
		for _, pid := range r.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return r
}

// processes are all that the run has started, wherever they are now.
func (r *run) processes() []int {
	var found []int
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		if text, _ := os.ReadFile(path); bytes.Contains(text, []byte(r.mark)) {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			found = append(found, pid)
		}
	}
	return found
}

// awaitFile waits until the script has written it.
func (r *run) awaitFile(name string) {
	r.t.Helper()
	testkit.Eventually(r.t, 20*time.Second, func() bool {
		_, err := os.Stat(filepath.Join(r.dir, name))
		return err == nil
	}, "the script has written %s", name)
}

func (r *run) keeper() int {
	r.t.Helper()
	children := childrenOf(r.cmd.Process.Pid)
	assert.Must(r.t, len(children) == 1, "the watcher has the children %v", children)
	return children[0]
}

// exit waits for the watcher, and gives its exit code.
func (r *run) exit() int {
	r.t.Helper()
	err := r.cmd.Wait()
	var exit *exec.ExitError
	assert.Must(r.t, err == nil || errors.As(err, &exit), "waiting: %v", err)
	return r.cmd.ProcessState.ExitCode()
}

func (r *run) assertGone(within time.Duration) {
	r.t.Helper()
	testkit.Eventually(r.t, within, func() bool { return len(r.processes()) == 0 }, "no process is left")
}

// Scripts that do all they can to stay. Each writes the file ready. What would go on for ever is bounded, for the sake of the
// machine on which a protection fails.
var tenacious = map[string]string{
	"ignores TERM":  `trap '' TERM INT HUP; touch ready; sleep 60; sleep 60`,
	"another group": `trap '' TERM; setsid sh -c 'trap "" TERM; touch ready; sleep 60' & sleep 60`,
	"daemonizes":    `(setsid sh -c '(trap "" TERM HUP; touch ready; sleep 60) &' &); while [ ! -e ready ]; do sleep 0.01; done; sleep 60`,
	"hops": `cat >hop.sh <<'X'
trap '' TERM
n=$1; [ $n -gt 60 ] && touch ready; [ $n -gt 3000 ] && exit
sh hop.sh $((n+1)) & exit
X
for i in 1 2 3; do setsid sh hop.sh 1 & done; sleep 60`,
	"comes again": `for i in $(seq 1000); do sh -c 'trap "" TERM; while :; do sleep 0.01; done' & touch ready; wait $!; done`,
}

// eachTenacious runs f with the scripts that are named, and with all of them in make test-full.
func eachTenacious(t *testing.T, names []string, f func(*testing.T, string, ...string)) {
	testkit.NotShort(t, "starts programs")
	full := os.Getenv("LOCKKEEPER_FULL") != ""
	for name, script := range tenacious {
		if full || slices.Contains(names, name) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f(t, script, envNoGroup+"=1")
			})
		}
	}
	if full || slices.Contains(names, inACgroup) {
		t.Run(inACgroup, func(t *testing.T) {
			t.Parallel()
			f(t, tenacious["hops"])
		})
	}
}

const inACgroup = "in a cgroup"

func TestASignalEndsTheCommandWithAllDescendants(t *testing.T) {
	eachTenacious(t, []string{"another group", "comes again"}, func(t *testing.T, script string, env ...string) {
		r := start(t, script, env...)
		r.awaitFile("ready")
		assert.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
		r.exit()
		assert.That(t, len(r.processes()) == 0, "%d processes are left", len(r.processes()))
	})
}

func TestTheDeathOfTheWatcherEndsAll(t *testing.T) {
	eachTenacious(t, []string{"daemonizes", inACgroup}, func(t *testing.T, script string, env ...string) {
		r := start(t, script, env...)
		r.awaitFile("ready")
		assert.NoError(t, r.cmd.Process.Kill())
		r.assertGone(10 * time.Second)
	})
}

func TestTheDeathOfTheKeeperEndsAll(t *testing.T) {
	eachTenacious(t, []string{"hops"}, func(t *testing.T, script string, env ...string) {
		r := start(t, script, env...)
		r.awaitFile("ready")
		assert.NoError(t, syscall.Kill(r.keeper(), syscall.SIGKILL))
		assert.Equal(t, r.exit(), 99)
		assert.That(t, strings.Contains(r.out.String(), ErrKeeperFailed.Error()), "it says: %s", r.out.String())
		assert.That(t, len(r.processes()) == 0, "%d processes are left", len(r.processes()))
	})
}

func TestAKeeperThatStandsStillIsKilledWithAllInTime(t *testing.T) {
	eachTenacious(t, []string{"ignores TERM", "daemonizes"}, func(t *testing.T, script string, env ...string) {
		r := start(t, script, append(env, envFor+"=1s")...)
		r.awaitFile("timed")
		assert.NoError(t, syscall.Kill(r.keeper(), syscall.SIGSTOP))
		assert.Equal(t, r.exit(), 99)
		assert.That(t, strings.Contains(r.out.String(), ErrKeeperStood.Error()), "it says: %s", r.out.String())
		assert.That(t, len(r.processes()) == 0, "%d processes are left", len(r.processes()))
	})
}

func TestAWatcherThatStandsStillKeepsNothingFromEnding(t *testing.T) {
	testkit.NotShort(t, "starts programs")
	t.Parallel()
	r := start(t, `touch ready; while [ ! -e go ]; do sleep 0.01; done; setsid sleep 600 & touch went`)
	r.awaitFile("ready")
	assert.NoError(t, r.cmd.Process.Signal(syscall.SIGSTOP))
	assert.NoError(t, os.WriteFile(filepath.Join(r.dir, "go"), nil, 0o600))
	r.awaitFile("went")
	testkit.Eventually(t, 10*time.Second, func() bool { return len(r.processes()) == 1 }, "the watcher alone is left")
	assert.NoError(t, r.cmd.Process.Signal(syscall.SIGCONT))
	assert.Equal(t, r.exit(), 0)
}

// The kernel kills the command when both are gone in one moment.
func TestTheCommandDiesWithBothProcesses(t *testing.T) {
	testkit.NotShort(t, "starts programs")
	t.Parallel()
	r := start(t, `trap '' TERM; echo $$ >pid; touch ready; sleep 60`)
	r.awaitFile("ready")
	text, err := os.ReadFile(filepath.Join(r.dir, "pid"))
	assert.NoError(t, err)
	command, err := strconv.Atoi(strings.TrimSpace(string(text)))
	assert.NoError(t, err)
	keeper := r.keeper()
	assert.NoError(t, r.cmd.Process.Signal(syscall.SIGSTOP)) // it shall not see the keeper's death
	assert.NoError(t, syscall.Kill(keeper, syscall.SIGKILL))
	testkit.Eventually(t, 10*time.Second, func() bool { return !slices.Contains(r.processes(), command) }, "the command is dead")
	assert.NoError(t, r.cmd.Process.Kill())
}

// No process acts on the death of another one: what reads from a pipe does not take the death of the writer for the end of its
// input, and go on to the next step.
func TestNothingGoesOnWhileDescendantsAreKilled(t *testing.T) {
	testkit.NotShort(t, "starts programs")
	for _, env := range [][]string{nil, {envNoGroup + "=1"}} {
		r := start(t, `for i in $(seq 20); do mkfifo f$i; done
for i in $(seq 20); do sleep 600 >f$i & done
for i in $(seq 20); do sh -c 'read x; : >next-step' <f$i & done
touch ready; wait`, env...)
		r.awaitFile("ready")
		testkit.Eventually(t, 20*time.Second, func() bool { return len(r.processes()) >= 43 }, "all steps are running")
		time.Sleep(100 * time.Millisecond)      // a fifo is open when both sides are there
		assert.NoError(t, r.cmd.Process.Kill()) // the keeper kills at once
		r.assertGone(10 * time.Second)
		_, err := os.Stat(filepath.Join(r.dir, "next-step"))
		assert.That(t, errors.Is(err, os.ErrNotExist), "a process went on after another one was killed (%v)", env)
	}
}

func TestTheExitCodeIsTheCommandsAndSignalsArePassedOn(t *testing.T) {
	testkit.NotShort(t, "starts programs")
	for script, code := range map[string]int{
		`exit 7`:     7,
		`kill -9 $$`: 137,
		`trap 'exit 3' USR1; touch ready; while :; do sleep 0.01; done`: 3,
	} {
		r := start(t, script)
		if strings.Contains(script, "ready") {
			r.awaitFile("ready")
			assert.NoError(t, r.cmd.Process.Signal(syscall.SIGUSR1))
		}
		assert.Equal(t, r.exit(), code)
	}
}

// nohup, and shells that start a job in the background, ignore signals for what they start.
func TestTheCommandInheritsWhatIsIgnoredAndNothingElse(t *testing.T) {
	testkit.NotShort(t, "starts programs")
	const tell = "grep -E 'Sig(Ign|Blk)' /proc/self/status"
	told := func(script string, argv ...string) string {
		r := &run{t: t}
		r.cmd = exec.Command(argv[0], argv[1:]...)
		r.cmd.Env = append(os.Environ(), script)
		r.cmd.Stdout = &r.out
		assert.NoError(t, r.cmd.Run())
		return strings.Join(strings.Fields(r.out.String()), " ")
	}
	for _, before := range []string{"", "trap '' HUP TTOU; "} { // what runs the tests may ignore signals, too
		under := told(envScript+"="+tell+"; env | grep ^LOCKCTL; exit 0", "sh", "-c", before+`exec "$0"`, os.Args[0])
		assert.Equal(t, under, told("", "sh", "-c", before+tell))
	}
}

func TestACommandThatIsLateDoesNotBegin(t *testing.T) {
	testkit.NotShort(t, "starts programs")
	ours, theirs, err := socketpair()
	assert.NoError(t, err)
	pid, err := again(partStart, os.Environ(), os.Args[:1], nil, theirs)
	assert.NoError(t, err)
	theirs.Close()
	file := filepath.Join(t.TempDir(), "begun")
	err = awaitStart(ours, startOrder{Path: "/bin/sh", Args: []string{"sh", "-c", "touch " + file}, Until: Now()})
	assert.That(t, errors.Is(err, ErrLate), "the error is %v", err)
	_, err = syscall.Wait4(pid, nil, 0, nil)
	assert.NoError(t, err)
	_, err = os.Stat(file)
	assert.That(t, errors.Is(err, os.ErrNotExist), "the command has begun")
}

func TestChildrenAreFoundWithoutTheKernelsList(t *testing.T) {
	testkit.NotShort(t, "starts programs")
	r := start(t, `sleep 600 & touch ready; wait`)
	r.awaitFile("ready")
	keeper := r.keeper()
	assert.That(t, slices.Equal(childrenByScan(r.cmd.Process.Pid), []int{keeper}), "the scan finds %v, not %d", childrenByScan(r.cmd.Process.Pid), keeper)
	assert.That(t, slices.Equal(childrenByScan(keeper), childrenOf(keeper)), "the scan finds %v, not %v", childrenByScan(keeper), childrenOf(keeper))
}

func TestWhatCannotBeKilledIsNamed(t *testing.T) {
	err := survivors([]int{1}, map[int]error{1: syscall.EPERM})
	assert.That(t, strings.HasPrefix(err.Error(), "could not be killed: 1 (") && strings.HasSuffix(err.Error(), "): operation not permitted"), "%v", err)
	assert.NoError(t, survivors(nil, nil))
}

// A look every 100 ms would be later than the margin of a lease of 1 s allows.
func TestTheWatcherLooksAgainWhenTheTimeIsOver(t *testing.T) {
	memory, err := sharedMemory()
	assert.NoError(t, err)
	defer memory.Close()
	killBy, err := newSharedTime(memory)
	assert.NoError(t, err)
	w := &watcher{tree: newTree(), killBy: killBy}
	killBy.set(never)
	assert.Equal(t, w.watch(), looksAt)
	killBy.set(Now() + 30*time.Millisecond)
	again := w.watch()
	assert.That(t, again <= 30*time.Millisecond, "it looks again after %v", again)
	assert.That(t, !w.stood, "it has killed before the time")
}
