package clients

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/testkit"
)

const (
	startWithin    = 60 * time.Second  // from the start of a program to its list of scenarios
	scenarioWithin = 120 * time.Second // bounds for a loaded machine, not expectations; waits inside a scenario are shorter
	dumpWithin     = 5 * time.Second   // for the stacks of a program that hangs
	keptOutput     = 64 << 10          // what is kept of a program's log
)

// program is one run of a program in testdata: it lists its scenarios, runs those that it is told and says how each ended.
type program struct {
	proc      *childproc.Process
	stdin     *os.File
	scenarios chan []string // its list, once
	log       tail

	mu      sync.Mutex
	partial []byte                    // a line that has not ended yet
	waiting map[string]chan<- verdict // by scenario
}

// verdict is how a scenario ended; an empty trace is success.
type verdict struct{ trace string }

// startT runs argv until the test ends. When that has failed, the end of the program's log is in the test's output.
func startT(t *testing.T, argv ...string) *program {
	t.Helper()
	r, w, err := os.Pipe()
	assert.NoError(t, err)
	defer r.Close()
	p := &program{stdin: w, scenarios: make(chan []string, 1), waiting: make(map[string]chan<- verdict)}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, p, &p.log
	if p.proc, err = childproc.Start(cmd); err != nil {
		w.Close()
		t.Fatalf("%v\nhint: scripts/setup test installs what these tests need", err)
	}
	t.Cleanup(func() {
		w.Close()
		p.proc.Kill()
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", argv[0], p.log.String())
		}
	})
	return p
}

// list waits for the names of the program's scenarios.
func (p *program) list(t *testing.T) []string {
	t.Helper()
	select {
	case names := <-p.scenarios:
		return names
	case <-p.proc.Done():
		t.Fatalf("the program ended before it had told its scenarios: %v", p.proc.Wait())
	case <-time.After(startWithin):
		t.Fatalf("the program has not told its scenarios within %v", startWithin)
	}
	return nil
}

// run runs one scenario. It may be called from several tests at a time.
func (p *program) run(t *testing.T, name string) {
	t.Helper()
	verdicts := make(chan verdict, 1)
	p.mu.Lock()
	p.waiting[name] = verdicts
	p.mu.Unlock()
	assert.Value(p.stdin.WriteString(name+"\n"))(t, "the program is not there")
	select {
	case v := <-verdicts:
		assert.That(t, v.trace == "", "%v", v.trace)
	case <-p.proc.Done():
		t.Errorf("the program ended before the scenario: %v", p.proc.Wait())
	case <-time.After(scenarioWithin):
		p.proc.Signal(syscall.SIGQUIT)
		testkit.Eventually(t, dumpWithin, p.log.dumped, "no stacks of a program that hangs")
		t.Errorf("not ended after %v; stacks are in the program's log", scenarioWithin)
	}
}

// finish tells the program that there is no more to do and waits until it has ended.
func (p *program) finish(t *testing.T) {
	t.Helper()
	p.stdin.Close()
	testkit.Closed(t, startWithin, p.proc.Done(), "the program goes on after all scenarios have ended")
	assert.Nil(t, p.proc.Wait(), "the program")
}

// Write gets what the program prints.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.partial = append(p.partial, b...)
	for {
		line, rest, whole := bytes.Cut(p.partial, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		p.partial = rest
		p.line(string(line))
	}
}

func (p *program) line(line string) {
	verb, rest, _ := strings.Cut(line, " ")
	name, trace, _ := strings.Cut(rest, " ")
	verdicts := p.waiting[name]
	switch {
	case verb == "scenarios":
		select {
		case p.scenarios <- strings.Fields(rest):
		default: // it has told already
		}
	case verdicts != nil && verb == "ok":
		delete(p.waiting, name)
		verdicts <- verdict{}
	case verdicts != nil && verb == "fail":
		delete(p.waiting, name)
		var text string
		if err := json.Unmarshal([]byte(trace), &text); err != nil {
			text = trace
		}
		verdicts <- verdict{"failed:\n" + text}
	default:
		_, _ = p.log.Write([]byte(line + "\n")) // a tail takes everything
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (l *tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	l.text = l.text[max(0, len(l.text)-keptOutput):]
	return len(b), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// dumped says whether the stacks that SIGQUIT asks for are there: Python's begin so, the JVM's end so.
func (l *tail) dumped() bool {
	s := l.String()
	return strings.Contains(s, "Current thread 0x") || strings.Contains(s, "JNI global refs")
}

func TestVerdictsAreReadFromWhatAProgramPrints(t *testing.T) {
	p := &program{scenarios: make(chan []string, 1), waiting: make(map[string]chan<- verdict)}
	good, bad := make(chan verdict, 1), make(chan verdict, 1)
	p.waiting["good"], p.waiting["bad-one"] = good, bad
	printed := "scenarios good bad-one\nnot for us\nok good\nfail bad-one \"Traceback\\n  line \\u00e4\"\nok stranger\nend without"
	for chunk := range strings.SplitSeq(printed, "o") { // it comes in any pieces
		assert.Value(p.Write([]byte(chunk)))(t)
		assert.Value(p.Write([]byte("o")))(t)
	}
	names := testkit.Receive(t, startWithin, p.scenarios, "no list")
	assert.That(t, len(names) == 2 && names[1] == "bad-one", "scenarios %q", names)
	assert.Equal(t, testkit.Receive(t, startWithin, good, "no verdict").trace, "", "what went well has the trace")
	assert.Equal(t, testkit.Receive(t, startWithin, bad, "no verdict").trace, "failed:\nTraceback\n  line ä", "trace")
	assert.Equal(t, p.log.String(), "not for us\nok stranger\n", "log")
}

func TestOnlyTheEndOfALogIsKept(t *testing.T) {
	var l tail
	for range 10 {
		assert.Value(l.Write([]byte(strings.Repeat("x", keptOutput/4) + "y")))(t)
	}
	s := l.String()
	assert.That(t, len(s) == keptOutput && strings.HasSuffix(s, "y"), "%d bytes are kept, want the last %d", len(s), keptOutput)
}
