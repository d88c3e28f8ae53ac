package interop

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sys/unix"
)

// workerEnv makes this test binary a program that serves jobs with go-zookeeper's Lock and by HBase's rules.
const workerEnv = "LOCKKEEPER_INTEROP_WORKER"

// monotonic is CLOCK_MONOTONIC in nanoseconds: what Java's nanoTime and Python's monotonic_ns are on Linux.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// counter is a file with a number of twelve digits that parties change without any atomicity of their own.
type counter struct{ path string }

func newCounter(path string) (counter, error) {
	return counter{path}, os.WriteFile(path, fmt.Appendf(nil, "%012d", 0), 0o600)
}

func (c counter) read() (int, error) {
	b, err := os.ReadFile(c.path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

// raise reads, waits, writes: what comes in between is lost.
func (c counter) raise(pause time.Duration) error {
	n, err := c.read()
	if err != nil {
		return err
	}
	time.Sleep(pause) // the work that the lock is for
	f, err := os.OpenFile(c.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(fmt.Appendf(nil, "%012d", n+1), 0)
	return err
}

type foreignLock interface {
	Lock() error
	Unlock() error
}

// work is the whole of the worker: main, in other words.
func work(addr, sessionMS string) error {
	ms, err := strconv.Atoi(sessionMS)
	if err != nil {
		return err
	}
	conn, events, err := zk.Connect([]string{addr}, time.Duration(ms)*time.Millisecond, zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer conn.Close()
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	w := worker{conn: conn, stops: make(map[string]chan struct{})}
	w.say("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if words[0] == "stop" {
			close(w.stops[words[1]])
			continue
		}
		stop := make(chan struct{})
		w.stops[words[1]] = stop
		go func() {
			if err := w.job(words, stop); err != nil {
				w.say("fail", words[1], err)
				return
			}
			w.say("done", words[1])
		}()
	}
	return nil
}

type worker struct {
	conn   *zk.Conn
	stops  map[string]chan struct{} // of the goroutine that reads
	saying sync.Mutex
}

func (w *worker) say(words ...any) {
	w.saying.Lock()
	defer w.saying.Unlock()
	fmt.Println(words...)
}

func (w *worker) job(words []string, stop <-chan struct{}) error {
	verb, name, kind, path := words[0], words[1], words[2], words[3]
	var lock foreignLock
	switch kind {
	case "go-zookeeper":
		lock = zk.NewLock(w.conn, path, zk.WorldACL(zk.PermAll))
	case "hbase-write", "hbase-read":
		lock = &hbaseLock{conn: w.conn, dir: path, kind: strings.TrimPrefix(kind, "hbase-")}
	case "home-made-write":
		lock = &homeMadeLock{conn: w.conn, dir: path, letter: "W"}
	case "home-made-read":
		lock = &homeMadeLock{conn: w.conn, dir: path, letter: "R"}
	default:
		return fmt.Errorf("no such kind: %s", kind)
	}
	if verb == "hold" {
		if err := lock.Lock(); err != nil {
			return err
		}
		w.say("held", name, monotonic())
		<-stop
		return lock.Unlock()
	}
	pause, err := strconv.Atoi(words[5])
	if err != nil {
		return err
	}
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := lock.Lock(); err != nil {
			return err
		}
		begin := monotonic()
		if err := (counter{words[4]}).raise(time.Duration(pause) * time.Microsecond); err != nil {
			return err
		}
		w.say("section", name, begin, monotonic())
		if err := lock.Unlock(); err != nil {
			return err
		}
	}
}

// hbaseLock follows ZKInterProcessLockBase and its two heirs of HBase 1.x, which cannot run here.
type hbaseLock struct {
	conn    *zk.Conn
	dir     string
	kind    string // write or read
	node    string
	version int32
}

// tableLock is what HBase writes into its nodes: a magic and a protobuf TableLock {purpose = 4: "interop"}.
var tableLock = append([]byte("PBUF"), append([]byte{0x22, 7}, "interop"...)...)

func (h *hbaseLock) Lock() error {
	node, err := h.conn.Create(h.dir+"/"+h.kind+"-", tableLock, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return err
	}
	for {
		children, _, err := h.conn.Children(h.dir)
		if err != nil {
			return err
		}
		before, err := h.before(node[len(h.dir)+1:], children)
		if err != nil {
			return err
		}
		if before == "" {
			break
		}
		there, _, deleted, err := h.conn.ExistsW(h.dir + "/" + before)
		if err != nil {
			return err
		}
		if there {
			<-deleted
		}
	}
	_, stat, err := h.conn.Get(node)
	if err != nil {
		return err
	}
	h.node, h.version = node, stat.Version
	return nil
}

// before is the node that a node waits for: a writer for the next lower of all children, a reader for the nearest lower writer.
func (h *hbaseLock) before(own string, children []string) (string, error) {
	type child struct {
		name   string
		number int64
	}
	var sorted []child
	for _, name := range children {
		n, err := strconv.ParseInt(name[max(0, len(name)-10):], 10, 64)
		if err != nil {
			return "", fmt.Errorf("a child without a number: %w", err) // it is an exception there, too
		}
		sorted = append(sorted, child{name, n})
	}
	slices.SortFunc(sorted, func(a, b child) int { return int(a.number - b.number) })
	before := ""
	for _, c := range sorted {
		switch {
		case c.name == own:
			return before, nil
		case h.kind == "write" || strings.HasPrefix(c.name, "write-"):
			before = c.name
		}
	}
	return "", errors.New("its own node is gone")
}

// Unlock deletes the version that it read: another client's setData makes it fail.
func (h *hbaseLock) Unlock() error { return h.conn.Delete(h.node, h.version) }
