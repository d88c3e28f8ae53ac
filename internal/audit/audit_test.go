package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// output is where lines go. While held is not closed, writes wait.
type output struct {
	held chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
	err  error
	part int // with err: so many bytes are written all the same
}

func (o *output) Write(b []byte) (int, error) {
	if o.held != nil {
		<-o.held
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		o.text.Write(b[:min(o.part, len(b))])
		return min(o.part, len(b)), o.err
	}
	return o.text.Write(b)
}

func (o *output) fails(err error, part int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err, o.part = err, part
}

// lines are those that are whole; a torn one is left out.
func (o *output) lines() (all []Line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return parse(o.text.String())
}

func parse(text string) (all []Line) {
	for line := range strings.Lines(text) {
		var l Line
		if json.Unmarshal([]byte(line), &l) == nil {
			all = append(all, l)
		}
	}
	return all
}

func running(t *testing.T, o Options) (l *Log, lost *int, stop func()) {
	lost = new(int)
	var mu sync.Mutex
	o.Lost = func(n int) { mu.Lock(); *lost += n; mu.Unlock() }
	o.Log = slog.New(slog.DiscardHandler)
	l = assert.Value(Open(o))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	return l, lost, func() { cancel(); <-done }
}

func TestLinesComeOutInOrderAndTheEndWritesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o output
		l, lost, stop := running(t, Options{Output: &o})
		l.Add(Line{Event: "request", Operation: "Acquire", Lock: "<deploy>", Principal: "token:ci"})
		time.Sleep(flushAfter)
		synctest.Wait()
		assert.That(t, strings.Contains(o.text.String(), `"lock":"<deploy>"`) && strings.Contains(o.text.String(), `"time":"2000-01-01T00:00:00Z"`), "written: %s", o.text.String())
		for i := range 1000 {
			l.Add(Line{Event: "request", Status: i})
		}
		stop()
		lines := o.lines()
		assert.MustEqual(t, len(lines), 1001)
		for i, line := range lines[1:] {
			assert.Equal(t, line.Status, i)
		}
		assert.Equal(t, *lost, 0)
	})
	var none *Log
	none.Add(Line{})
	none.Reopen()
}

func TestAnOutputThatStandsStillLosesLinesAndSaysHowMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := output{held: make(chan struct{})}
		l, lost, stop := running(t, Options{Output: &o})
		l.Add(Line{Event: "request"})
		time.Sleep(flushAfter)
		synctest.Wait() // it is being written
		for range mostWaiting + 500 {
			l.Add(Line{Event: "request"})
		}
		assert.Equal(t, *lost, 500)
		close(o.held)
		stop()
		told := 0
		for _, line := range o.lines() {
			told += line.Lost
		}
		assert.That(t, told == 500 && len(o.lines()) == 1+mostWaiting+1, "told %d of 500, %d lines", told, len(o.lines()))
	})
}

func TestWhatAnOutputRefusesIsCountedAndToldWhenItWritesAgain(t *testing.T) {
	for _, part := range []int{0, 10, 75} {
		synctest.Test(t, func(t *testing.T) {
			var o output
			l, lost, stop := running(t, Options{Output: &o})
			o.fails(errors.New("disk full"), part)
			added := 0
			for round := range 3 {
				for range round + 2 {
					l.Add(Line{Event: "request", Lock: fmt.Sprint(added)})
					added++
				}
				time.Sleep(2 * flushAfter)
				synctest.Wait()
			}
			o.fails(nil, 0)
			l.Add(Line{Event: "request", Lock: "last"})
			stop()
			lines, written, told := o.lines(), 0, 0
			for _, line := range lines {
				if told += line.Lost; line.Event == "request" {
					written++
				}
			}
			assert.That(t, written+*lost == added+1 && told == *lost && lines[len(lines)-1].Lock == "last", "%d bytes pass: %d lines of %d, lost %d, told %d:\n%s", part, written, added+1, *lost, told, o.text.String())
		})
	}
}

func TestADiskThatIsFullForLongFillsNoOtherLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o output
		var said bytes.Buffer
		o.fails(errors.New("disk full"), 0)
		l := assert.Value(Open(Options{Output: &o, Log: slog.New(slog.NewTextHandler(&said, nil))}))(t)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		for range 90 {
			l.Add(Line{Event: "request"})
			time.Sleep(time.Second)
		}
		stop()
		<-done
		assert.That(t, strings.Count(said.String(), "lines=1 ") == 1 && strings.Count(said.String(), "lines=60 ") == 1 && strings.Count(said.String(), "\n") == 2,
			"the log:\n%s", said.String())
	})
}

func TestRotationUnderLoadLosesNoLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, lost, stop := running(t, Options{Path: path})
	info, err := os.Stat(path)
	assert.That(t, err == nil && info.Mode() == fileMode, "%v, mode %v", err, info.Mode())
	const writers, each = 4, 3000
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				l.Add(Line{Event: "request", Lock: fmt.Sprint(w), Status: i})
				if i%16 == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
	files := []string{path}
	for i := range 10 {
		moved := fmt.Sprint(path, ".", i)
		assert.NoError(t, os.Rename(path, moved))
		files = append(files, moved)
		l.Reopen()
		for _, err := os.Stat(path); err != nil; _, err = os.Stat(path) {
			time.Sleep(time.Millisecond)
		}
	}
	all.Wait()
	stop()
	n := 0
	for _, file := range files {
		n += len(parse(string(assert.Value(os.ReadFile(file))(t))))
	}
	assert.That(t, n == writers*each && *lost == 0, "%d lines of %d, %d lost", n, writers*each, *lost)
	_, err = Open(Options{Path: t.TempDir()})
	assert.That(t, err != nil, "a directory was opened")
}

func TestAddAllocatesNothing(t *testing.T) {
	l := &Log{opt: Options{Lost: func(int) {}}, some: make(chan struct{}, 1), waiting: make([]Line, 0, mostWaiting)}
	line := Line{Time: time.Now(), Event: "request", Lock: "deploy"}
	assert.Equal(t, testing.AllocsPerRun(1000, func() { l.Add(line) }), 0.0)
}
