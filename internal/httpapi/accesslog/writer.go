package accesslog

import (
	"context"
	"io"
	"sync"
	"time"
)

const (
	// flushAfter is how long a line waits for others, to be written with them.
	flushAfter = 10 * time.Millisecond
	// flushAt is the size at which they are written without delay.
	flushAt = 64 << 10
	// mostBuffered is the size of what waits; a line beyond it is dropped.
	mostBuffered = 4 << 20
	// mostKept is the size of a buffer that is used again; a larger one was for a burst.
	mostKept = 256 << 10
)

// Writer collects lines and writes them in the background. Make one with NewWriter, and let Run work.
type Writer struct {
	out     io.Writer
	dropped func(lines int)
	some    chan struct{} // holds a token when a line has come into an empty buffer
	many    chan struct{} // holds a token when the buffer has reached flushAt

	mu     sync.Mutex // guards what follows
	lines  []byte     // whole lines
	count  int
	second int64  // since the epoch, of date
	date   []byte // "2006-01-02T15:04:05" of the newest line's second
}

// NewWriter makes a Writer. dropped is told how many lines were dropped, each time that some are; nil: nothing is.
func NewWriter(out io.Writer, dropped func(lines int)) *Writer {
	if dropped == nil {
		dropped = func(int) {}
	}
	return &Writer{out: out, dropped: dropped, some: make(chan struct{}, 1), many: make(chan struct{}, 1)}
}

// add puts a line that ends with its line break into the buffer, and the time into the line: behind its first so many bytes.
func (w *Writer) add(line []byte, before int, at time.Time) {
	at = at.UTC()
	w.mu.Lock()
	if len(w.lines)+len(line) > mostBuffered {
		w.mu.Unlock()
		w.dropped(1)
		return
	}
	first, below := w.count == 0, len(w.lines) < flushAt
	w.lines = append(w.lines, line[:before]...)
	w.lines = w.appendTime(w.lines, at)
	w.lines = append(w.lines, line[before:]...)
	w.count++
	reached := below && len(w.lines) >= flushAt
	w.mu.Unlock()
	if first {
		signal(w.some)
	}
	if reached {
		signal(w.many)
	}
}

// signal leaves a token, unless Run has not taken the last one yet: then it will take this line with it.
func signal(tokens chan struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// appendTime appends a time with milliseconds. mu is held.
func (w *Writer) appendTime(b []byte, at time.Time) []byte {
	if second := at.Unix(); second != w.second || w.date == nil {
		w.second, w.date = second, at.AppendFormat(w.date[:0], "2006-01-02T15:04:05")
	}
	millis := at.Nanosecond() / 1e6
	b = append(b, w.date...)
	return append(b, '.', byte('0'+millis/100), byte('0'+millis/10%10), byte('0'+millis%10), 'Z')
}

// Run writes until ctx ends, and then what is left. No line may be added afterwards.
func (w *Writer) Run(ctx context.Context) {
	var spare []byte
	pause := time.NewTimer(flushAfter)
	defer pause.Stop()
	for {
		select {
		case <-w.some:
		case <-ctx.Done():
			w.flush(spare)
			return
		}
		pause.Reset(flushAfter)
		select {
		case <-pause.C:
		case <-w.many:
		case <-ctx.Done():
		}
		spare = w.flush(spare)
	}
}

// flush writes what the buffer holds and leaves spare in its place. It returns what it has written, to be used again.
func (w *Writer) flush(spare []byte) []byte {
	w.mu.Lock()
	lines, count := w.lines, w.count
	w.lines, w.count = spare[:0], 0
	w.mu.Unlock()
	if count == 0 {
		return lines
	}
	if _, err := w.out.Write(lines); err != nil {
		w.dropped(count)
	}
	if cap(lines) > mostKept {
		return nil
	}
	return lines
}
