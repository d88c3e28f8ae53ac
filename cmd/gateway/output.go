package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// stalledWithin is how long the output may take nothing before the end of the process waits for it no longer.
const stalledWithin = 2 * time.Second

// errStalled is the error of a write that was given up.
var errStalled = errors.New("the output takes nothing, and the process ends")

// sharedOutput lets the log, the access log and the audit log write to one output, one at a time. A write waits until the
// output has taken it. When the process has been told to end and the output, a pipe that nothing reads, takes nothing for
// stalledWithin, that write and all later ones are given up: the handover goes on.
//
// A goroutine writes until stop is called. Where the output stands still, it ends with the process.
type sharedOutput struct {
	lines   chan line
	stopped chan struct{} // closed by stop
	given   chan struct{} // closed when writes are given up
	made    time.Time
	writing atomic.Int64 // since when one is under way, from made on; 0: none is
}

type line struct {
	text  []byte
	taken chan taken
}

// taken is what an output has taken of a line.
type taken struct {
	n   int
	err error
}

func newSharedOutput(to io.Writer) *sharedOutput {
	o := &sharedOutput{lines: make(chan line), stopped: make(chan struct{}), given: make(chan struct{}), made: time.Now()}
	go o.write(to)
	return o
}

func (o *sharedOutput) write(to io.Writer) {
	for {
		select {
		case l := <-o.lines:
			o.writing.Store(int64(max(time.Since(o.made), 1)))
			n, err := to.Write(l.text)
			o.writing.Store(0)
			l.taken <- taken{n, err}
		case <-o.stopped:
			return
		}
	}
}

// stop ends the goroutine. What is written afterwards is lost.
func (o *sharedOutput) stop() { close(o.stopped) }

// Write writes all of b, or says why it did not. b may be used again afterwards.
func (o *sharedOutput) Write(b []byte) (int, error) {
	l := line{bytes.Clone(b), make(chan taken, 1)}
	select {
	case o.lines <- l:
	case <-o.given:
		return 0, errStalled
	case <-o.stopped:
		return 0, io.ErrClosedPipe
	}
	select {
	case t := <-l.taken:
		return t.n, t.err
	case <-o.given:
		return 0, errStalled
	}
}

// end lets no write hold up the end of the process from when ctx ends, until over is called.
func (o *sharedOutput) end(ctx context.Context) (over func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-done:
			return
		}
		look := time.NewTicker(stalledWithin / 4)
		defer look.Stop()
		for {
			select {
			case <-look.C:
			case <-done:
				return
			}
			if since := o.writing.Load(); since != 0 && time.Since(o.made)-time.Duration(since) >= stalledWithin {
				close(o.given)
				return
			}
		}
	}()
	return func() { close(done) }
}
