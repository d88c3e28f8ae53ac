// Command rundriver is a driver of internal/test/clientsuite that runs guarded work with lockctl run: each work is a process, or
// several. It runs itself as the command of lockctl: "rundriver work ..." is the work.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"lockkeeper/internal/test/childproc"
)

// command is one line of standard input, as far as lockctl run has a flag for it.
type command struct {
	ID    int    `json:"id"`
	Do    string `json:"do"`
	URL   string `json:"url"`
	Locks []struct {
		Lock, NS string
	} `json:"locks"`
	TTL      int64  `json:"ttl_ms"`
	Wait     *int64 `json:"wait_ms"`
	OncePer  *int64 `json:"once_per_ms"`
	Period   string `json:"period"`
	DoneOn   string `json:"done_on"`
	Metadata string `json:"metadata"` // the kind of the work, unless it is the next one's turn
	Work     struct {
		Log  string `json:"log"`
		Step int64  `json:"step_ms"`
		For  *int64 `json:"for_ms"`
	} `json:"work"`
}

// kinds are the works, one after the other.
var kinds = []string{plain, stubborn, forks, daemonizes}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "work" {
		work(os.Args[2:])
		return
	}
	d := driver{lockctl: os.Args[1], running: make(map[int]*childproc.Process)}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		switch c.Do {
		case "lock":
			d.lock(c)
		case "cancel":
			d.interrupt(c.ID)
		}
	}
	for id := range d.running {
		d.interrupt(id)
	}
	d.all.Wait()
}

type driver struct {
	lockctl string
	all     sync.WaitGroup

	mu      sync.Mutex // guards what follows, and standard output
	running map[int]*childproc.Process
}

func (d *driver) say(id int, event string, more map[string]any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := map[string]any{"id": id, "event": event}
	for k, v := range more {
		line[k] = v
	}
	_ = json.NewEncoder(os.Stdout).Encode(line) // without a reader the line is lost, as it may be
}

// interrupt is Ctrl-C.
func (d *driver) interrupt(id int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if proc := d.running[id]; proc != nil {
		proc.Signal(syscall.SIGINT)
	}
}

func (d *driver) lock(c command) {
	args := []string{"run", "-q", "--ttl", fmt.Sprintf("%dms", c.TTL), "--leftovers", "wait"}
	if c.Wait != nil && *c.Wait == 0 {
		args = append(args, "-n")
	} else if c.Wait != nil {
		args = append(args, "-w", fmt.Sprintf("%dms", *c.Wait))
	}
	if c.OncePer != nil {
		args = append(args, "--once-per", fmt.Sprintf("%dms", *c.OncePer), "--period", c.Period, "--done-on", cmp.Or(c.DoneOn, "grant"))
	}
	for _, l := range c.Locks {
		args = append(args, l.Lock)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err) // Linux has it
	}
	length := int64(24 * 60 * 60 * 1000)
	if c.Work.For != nil {
		length = *c.Work.For
	}
	args = append(args, "--", self, "work", cmp.Or(c.Metadata, kinds[c.ID%len(kinds)]), cmp.Or(c.Work.Log, os.DevNull),
		strconv.Itoa(c.ID), strconv.FormatInt(cmp.Or(c.Work.Step, 10), 10), strconv.FormatInt(length, 10))
	cmd := exec.Command(d.lockctl, args...)
	cmd.Env = os.Environ()
	if c.URL != "" {
		cmd.Env = append(cmd.Env, "LOCKKEEPER_URL="+c.URL)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.Stdout = told(func(line string) {
		var fence uint64
		var lease string
		if _, err := fmt.Sscanf(line, "started %d %s", &fence, &lease); err == nil {
			d.say(c.ID, "started", map[string]any{"fence": fence, "lease_id": lease})
		} else {
			d.say(c.ID, "stopped", nil)
		}
	})
	proc, err := childproc.Start(cmd)
	if err != nil {
		d.say(c.ID, "failed", map[string]any{"error": "Invalid", "detail": err.Error()})
		return
	}
	d.mu.Lock()
	d.running[c.ID] = proc
	d.mu.Unlock()
	d.all.Go(func() {
		err := proc.Wait()
		d.mu.Lock()
		delete(d.running, c.ID)
		d.mu.Unlock()
		d.ended(c.ID, err, said.String())
	})
}

// told is called with what the work prints: one line with each write.
type told func(string)

func (f told) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		f(string(line))
	}
	return len(b), nil
}

// ended tells how lockctl ended: by its exit code.
func (d *driver) ended(id int, err error, said string) {
	var exit *exec.ExitError
	failed := map[string]any{"detail": said}
	switch {
	case err == nil:
		d.say(id, "done", nil)
		return
	case !errors.As(err, &exit):
		failed["error"] = "Invalid"
	case exit.Sys().(syscall.WaitStatus).Signaled():
		failed["error"] = "Cancelled" // by a fault, or by Ctrl-C
	default:
		failed["error"] = map[int]string{75: "NotAcquired", 76: "LeaseLost", 69: "Other", 130: "Cancelled", 137: "Other", 143: "Cancelled"}[exit.ExitCode()]
		if failed["error"] == nil {
			failed["error"], failed["detail"] = "Invalid", fmt.Sprintf("exit code %d: %s", exit.ExitCode(), said)
		}
	}
	d.say(id, "failed", failed)
}
