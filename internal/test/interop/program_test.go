package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
)

const (
	startWithin = 60 * time.Second // bounds for a loaded machine, not expectations
	patience    = 60 * time.Second
	keptOutput  = 32 << 10 // what is kept of a program's log
)

// program is one process of other people's clients; doc.go has what it understands.
type program struct {
	proc  *childproc.Process
	stdin *os.File
	ready chan struct{}

	mu      sync.Mutex
	partial []byte
	log     []byte
	jobs    map[string]chan said
}

// said is one line about a job.
type said struct {
	verb string
	at   interval // of a section; of held, the time is in begin
	text string   // of fail
}

// startT runs argv until the test ends. A program that has failed a test leaves its log there.
func startT(t testing.TB, argv ...string) *program {
	t.Helper()
	r, w, err := os.Pipe()
	assert.NoError(t, err)
	defer r.Close()
	p := &program{stdin: w, ready: make(chan struct{}), jobs: make(map[string]chan said)}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), workerEnv+"=1") // for the one that is this binary
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, p, &logOf{p}
	if p.proc, err = childproc.Start(cmd); err != nil {
		w.Close()
		t.Fatalf("%v\nhint: scripts/setup test installs what these tests need", err)
	}
	t.Cleanup(func() {
		w.Close()
		p.proc.Kill()
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("the end of the log of %s:\n%s", argv[0], p.log)
		}
	})
	select {
	case <-p.ready:
	case <-p.proc.Done():
		t.Fatalf("%s ended: %v", argv[0], p.proc.Wait())
	case <-time.After(startWithin):
		t.Fatalf("%s is not ready within %v", argv[0], startWithin)
	}
	return p
}

// start gives the program a job and returns what it will say of it. The channel has room for more than a test leaves unread.
func (p *program) start(verb, job string, args ...string) (<-chan said, error) {
	lines := make(chan said, 1<<15)
	p.mu.Lock()
	p.jobs[job] = lines
	p.mu.Unlock()
	return lines, p.tell(verb + " " + job + " " + strings.Join(args, " "))
}

func (p *program) stop(job string) error { return p.tell("stop " + job) }

func (p *program) tell(line string) error {
	_, err := p.stdin.WriteString(line + "\n")
	return err
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
		p.line(string(line))
		p.partial = rest
	}
}

func (p *program) line(line string) {
	w := strings.SplitN(line, " ", 3)
	if w[0] == "ready" {
		close(p.ready)
		return
	}
	if len(w) < 2 || p.jobs[w[1]] == nil {
		p.keep(line + "\n")
		return
	}
	s := said{verb: w[0]}
	if len(w) == 3 {
		s.text = w[2]
		begin, end, _ := strings.Cut(w[2], " ")
		s.at.begin, _ = strconv.ParseInt(begin, 10, 64) // zero where the text is no number
		s.at.end, _ = strconv.ParseInt(end, 10, 64)
	}
	select {
	case p.jobs[w[1]] <- s:
	default:
		p.keep("unread: " + line + "\n")
	}
}

func (p *program) keep(text string) {
	p.log = append(p.log, text...)
	p.log = p.log[max(0, len(p.log)-keptOutput):]
}

// logOf is a program's stderr.
type logOf struct{ p *program }

func (l *logOf) Write(b []byte) (int, error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.keep(string(b))
	return len(b), nil
}

// await reads what a program says of a job until the verb comes; "fail" is an error, as is silence.
func await(p *program, lines <-chan said, verb string, within time.Duration) (said, error) {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		select {
		case s := <-lines:
			if s.verb == verb {
				return s, nil
			}
			if s.verb == "fail" {
				return s, fmt.Errorf("the program failed: %s", s.text)
			}
		case <-p.proc.Done():
			return said{}, fmt.Errorf("the program ended: %v", p.proc.Wait())
		case <-late.C:
			p.proc.Signal(syscall.SIGQUIT) // stacks go to its log
			return said{}, fmt.Errorf("no %q within %v", verb, within)
		}
	}
}
