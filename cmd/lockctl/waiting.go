package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"lockkeeper/client"
)

// waitLine says on standard error where a run stands in the queue, who holds the lock and since when. On a terminal it is one
// line that is drawn again; elsewhere a line when something changes, and no more than one in logsAt.
type waitLine struct {
	names    []string
	ns       string
	client   *client.Client
	out      io.Writer
	terminal *os.File // nil: draw no line again
	position chan int // the newest one
	stop     context.CancelFunc
	done     chan struct{}

	// Of the goroutine.
	at      int
	holder  string
	held    time.Time // since when the holder has the lock
	trouble string    // why the queue could not be asked
	last    string    // the line that was logged, without times
	logged  time.Time
	drawn   bool
}

const (
	drawsAt    = time.Second
	logsAt     = 10 * time.Second
	asksAt     = 10 * time.Second // for the holder
	quietFirst = 2 * time.Second  // in which a gateway answers, or something is said
)

func newWaitLine(a *app, c *client.Client, names []string, ns string, quiet bool) *waitLine {
	ctx, stop := context.WithCancel(context.Background())
	w := &waitLine{names: names, ns: ns, client: c, out: a.stderr, position: make(chan int, 1), stop: stop, done: make(chan struct{})}
	if isTerminal(a.stderr) {
		w.terminal = a.stderr.(*os.File)
	}
	if quiet {
		close(w.done)
	} else {
		go w.run(ctx)
	}
	return w
}

// queued is called with the place in the queue. It does not block.
func (w *waitLine) queued(position int) {
	for {
		select {
		case w.position <- position:
			return
		case <-w.position:
		}
	}
}

// close takes the line away, and returns when nothing is written any more.
func (w *waitLine) close() {
	w.stop()
	<-w.done
}

func (w *waitLine) run(ctx context.Context) {
	defer close(w.done)
	defer w.clear()
	draw := time.NewTicker(drawsAt)
	defer draw.Stop()
	begun, asked := time.Now(), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case w.at = <-w.position:
			asked = time.Time{}
		case <-draw.C:
		}
		if time.Since(asked) >= asksAt && (w.at > 0 || time.Since(begun) > quietFirst) {
			w.ask(ctx)
			asked = time.Now()
		}
		if ctx.Err() == nil {
			w.show()
		}
	}
}

// ask looks up the holders of the first lock that is held.
func (w *waitLine) ask(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	for _, name := range w.names {
		r := client.Request{Path: "/v1/locks/" + url.PathEscape(name) + "?limit=1"}
		if w.ns != "" {
			r.Path += "&ns=" + url.QueryEscape(w.ns)
		}
		var lock lockView
		if err := w.client.Call(ctx, r, &lock); err != nil {
			w.trouble = plain(err)
			return
		}
		w.trouble, w.holder = "", ""
		if len(lock.Holders) > 0 {
			h := &lock.Holders[0]
			w.holder, w.held = h.name(), time.Now().Add(-time.Duration(h.Held)*time.Millisecond)
			if len(w.names) > 1 {
				w.holder = name + " is held by " + w.holder
			} else {
				w.holder = "held by " + w.holder
			}
			if lock.HolderCount > 1 {
				w.holder += fmt.Sprintf(" and %d more", lock.HolderCount-1)
			}
			return
		}
	}
}

// show writes the line: on a terminal each time, elsewhere when it says something new.
func (w *waitLine) show() {
	var text string
	switch {
	case w.at > 0:
		text = fmt.Sprintf("waiting for %s: %s in the queue", strings.Join(w.names, ", "), ordinal(w.at))
		if w.holder != "" {
			text += ", " + w.holder
		}
	case w.trouble != "":
		text = "no gateway answers yet: " + w.trouble
	default:
		return
	}
	if w.redraws() {
		if w.at > 0 && w.holder != "" {
			text += " for " + time.Since(w.held).Round(time.Second).String()
		}
		w.draw(visible(text))
		return
	}
	if text == w.last || time.Since(w.logged) < logsAt {
		return
	}
	w.last, w.logged = text, time.Now()
	if w.at > 0 && w.holder != "" {
		text += " since " + w.held.Format(time.DateTime)
	}
	fmt.Fprintln(w.out, "lockctl: "+visible(text))
}

// redraws says whether standard error is a terminal in whose foreground this program is. In the background it would write over
// what the user does.
func (w *waitLine) redraws() bool {
	if w.terminal == nil {
		return false
	}
	foreground, err := unix.IoctlGetInt(int(w.terminal.Fd()), unix.TIOCGPGRP)
	watchers, _ := syscall.Getpgid(os.Getppid())
	return err == nil && foreground == watchers
}

func (w *waitLine) draw(text string) {
	if columns, _, err := term.GetSize(int(w.terminal.Fd())); err == nil && columns > 1 {
		if runes := []rune(text); len(runes) >= columns {
			text = string(runes[:columns-2]) + "…"
		}
	}
	fmt.Fprint(w.out, "\r\x1b[K"+text)
	w.drawn = true
}

func (w *waitLine) clear() {
	if w.drawn {
		fmt.Fprint(w.out, "\r\x1b[K")
	}
}

func ordinal(n int) string {
	suffix := "th"
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		suffix = "st"
	case n%10 == 2:
		suffix = "nd"
	case n%10 == 3:
		suffix = "rd"
	}
	return fmt.Sprint(n) + suffix
}
