package clientsuite

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
)

// Lock is the command that takes locks and runs guarded work. The members without a value are not sent.
type Lock struct {
	ID int    `json:"id"`
	Do string `json:"do"` // "lock"

	// With a URL the driver makes a client of its own for this call; without, one is made from the environment.
	URL       string `json:"url,omitempty"`
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"token_file,omitempty"`

	Locks     []Wanted `json:"locks"`
	TTL       int64    `json:"ttl_ms"`
	Wait      *int64   `json:"wait_ms,omitempty"` // without: as long as it takes; 0 tries
	Margin    *int64   `json:"margin_ms,omitempty"`
	LockDelay *int64   `json:"lock_delay_ms,omitempty"`
	Owner     string   `json:"owner,omitempty"`
	Metadata  string   `json:"metadata,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	AtLeast   *int64   `json:"at_least_ms,omitempty"`
	OncePer   *int64   `json:"once_per_ms,omitempty"`
	Period    string   `json:"period,omitempty"`
	DoneOn    string   `json:"done_on,omitempty"` // release, or the client's default
	Work      Work     `json:"work"`
}

// Wanted is one of the locks.
type Wanted struct {
	Lock    string `json:"lock"`
	NS      string `json:"ns,omitempty"`
	Mode    string `json:"mode,omitempty"`
	Permits int    `json:"permits,omitempty"`
	Limit   int    `json:"limit,omitempty"`
}

// Work is what the guarded work does: a step now and then, until For is over, or a command or the end of the lease ends it.
type Work struct {
	Log  string `json:"log,omitempty"`
	Step int64  `json:"step_ms,omitempty"`
	For  *int64 `json:"for_ms,omitempty"`
}

// Event is what a driver tells. At is when this process has read it.
type Event struct {
	ID    int    `json:"id"`
	Event string `json:"event"` // queued, started, revoke, stopped; last: done or failed

	Already bool   `json:"already,omitempty"` // of done: the work was not run, because it is done in this period, by By
	Period  string `json:"period,omitempty"`
	DoneAt  string `json:"done_at,omitempty"` // RFC 3339

	Position int    `json:"position"`
	Fence    uint64 `json:"fence"`
	LeaseID  string `json:"lease_id"`
	T        int64  `json:"t"`
	Reason   string `json:"reason"`

	Error       string   `json:"error"` // LeaseLost, NotAcquired, Problem, Cancelled, Work, Invalid, Other
	By          string   `json:"by"`
	Detail      string   `json:"detail"`
	Lock        string   `json:"lock"`
	Holders     []Holder `json:"holders"`
	QueueLength int      `json:"queue_length"`
	Status      int      `json:"status"`
	Code        string   `json:"code"`
	Field       string   `json:"field"`

	At time.Time `json:"-"`
}

// Holder is one of the holders of a NotAcquired.
type Holder struct {
	Owner   string `json:"owner"`
	LeaseID string `json:"lease_id"`
	Fence   uint64 `json:"fencing_token"`
}

// last says that no event of the call follows.
func (e Event) last() bool { return e.Event == "done" || e.Event == "failed" }

func (e Event) String() string {
	text, _ := json.Marshal(e)
	return string(text)
}

// Driver is a running driver.
type Driver struct {
	proc   *childproc.Process
	stdin  io.WriteCloser
	stderr *tail
	read   chan struct{} // closed when the events have ended

	writing sync.Mutex // of commands

	mu     sync.Mutex
	lastID int
	calls  map[int]*Call
	wrong  error // a line that is no event
	ended  bool  // its end was asked for
}

// Call is one call of the client. The channel has room for the events of a test.
type Call struct {
	driver *Driver
	ID     int
	Events chan Event // closed after the last event, or when the driver has ended
}

// startDriver starts a driver; env is what it finds in its environment besides the test's own.
func startDriver(argv []string, env ...string) (*Driver, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	d := &Driver{stderr: &tail{}, read: make(chan struct{}), calls: make(map[int]*Call)}
	cmd.Stderr = d.stderr
	cmd.WaitDelay = 2 * time.Second // for a child of the driver that holds its standard error
	var err error
	if d.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Not StdoutPipe: Wait would close it before the last events are read.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	d.proc, err = childproc.Start(cmd)
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	go d.events(r)
	return d, nil
}

// driverT starts a driver for one test, and ends it in good order.
func driverT(t testing.TB, argv []string, env ...string) *Driver {
	t.Helper()
	d := assert.Value(startDriver(argv, env...))(t, "the driver")
	t.Cleanup(func() { assert.Nil(t, d.close(), "the driver") })
	return d
}

func (d *Driver) events(r io.ReadCloser) {
	defer close(d.read)
	defer r.Close()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e := Event{At: time.Now()}
		err := json.Unmarshal(lines.Bytes(), &e)
		d.mu.Lock()
		if c := d.calls[e.ID]; err != nil || c == nil {
			fmt.Fprintln(d.stderr, lines.Text())
			d.wrong = fmt.Errorf("%q on standard output is no event of a call: %w", lines.Text(), err)
		} else {
			c.Events <- e
			if e.last() {
				close(c.Events)
				delete(d.calls, e.ID)
			}
		}
		d.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, c := range d.calls {
		close(c.Events)
		delete(d.calls, id)
	}
}

// lock begins a call.
func (d *Driver) lock(l Lock) *Call {
	d.mu.Lock()
	d.lastID++
	l.ID, l.Do = d.lastID, "lock"
	c := &Call{driver: d, ID: l.ID, Events: make(chan Event, 1000)}
	d.calls[c.ID] = c
	d.mu.Unlock()
	d.send(l)
	return c
}

func (c *Call) cancel() { c.driver.send(map[string]any{"id": c.ID, "do": "cancel"}) }
func (c *Call) finish() { c.driver.send(map[string]any{"id": c.ID, "do": "finish"}) }
func (c *Call) fail()   { c.driver.send(map[string]any{"id": c.ID, "do": "fail"}) }

// send writes a command. A driver that has ended reads none: the channel of each call tells.
func (d *Driver) send(command any) {
	line, err := json.Marshal(command)
	if err != nil {
		panic(err)
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	_, _ = d.stdin.Write(append(line, '\n'))
}

// endWithin is how long a driver may take to cancel, release and exit: seconds, and more on a machine that is busy.
const endWithin = 45 * time.Second

// close lets the driver end in good order, and says what it left undone.
func (d *Driver) close() error {
	if d.ended {
		return d.wrong
	}
	d.ended = true
	_ = d.stdin.Close() // it may have ended
	late := time.NewTimer(endWithin)
	defer late.Stop()
	select {
	case <-d.proc.Done():
	case <-late.C:
		d.proc.Kill()
		<-d.read
		return fmt.Errorf("it did not end within %v of the end of its standard input\n%s", endWithin, d.stderr)
	}
	<-d.read
	if err := d.proc.Wait(); err != nil {
		return fmt.Errorf("it ended with %w\n%s", err, d.stderr)
	}
	return d.wrong
}

// kill ends the driver at once.
func (d *Driver) kill() {
	d.ended = true
	d.proc.Kill()
	_ = d.stdin.Close()
	<-d.read
}

// tail keeps the end of what a process prints.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 32 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if len(t.b) > 2*tailSize {
		t.b = append(t.b[:0], t.b[len(t.b)-tailSize:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}
