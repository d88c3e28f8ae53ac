// Package audit writes who did what: a line of JSON for each change that a client asked for, for each refusal, for each lease that
// ended without a request, and for each change of an API token.
//
// # Promises
//
// A request never waits for the audit log: Add copies a line into memory. Lines come out whole and in the order in which they were added,
// within some 10 ms. When the gateway stops in good order, every line is written. A crash loses the lines of the last moment.
// Reopen loses none: each goes to the file that was moved away, or to the new one.
//
// No line has a secret: neither a token, nor a query, nor a body.
//
// # Bounds
//
// At most mostWaiting lines wait. Further ones, and those that the output refuses, are lost: they are counted (Options.Lost), and the
// next line that can be written says how many there were (event audit.lost). The gateway's log says so at most once a minute.
//
// # Ownership
//
// Run owns the output. A mutex guards the lines that wait; it is held while a line is copied.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	flushAfter  = 10 * time.Millisecond
	mostWaiting = 16 << 10
	fileMode    = 0o600
	// logEvery bounds how often the log says that lines are lost.
	logEvery = time.Minute
)

// Line is one line. Fields that do not apply are left out.
type Line struct {
	Time           time.Time `json:"time"`
	Event          string    `json:"event"`               // request, lease.expired and the like, token.created, auth.loaded, audit.lost
	Operation      string    `json:"operation,omitempty"` // of a request, as in openapi.yaml
	Result         string    `json:"result,omitempty"`    // of a request: ok, refused (401, 403, 429) or failed
	Status         int       `json:"status,omitempty"`
	Code           string    `json:"code,omitempty"`
	Principal      string    `json:"principal,omitempty"`
	Credential     string    `json:"credential,omitempty"` // which one of the principal's: the id of a token, a part of a JWT's hash
	Address        string    `json:"address,omitempty"`
	NS             string    `json:"ns,omitempty"`
	Lock           string    `json:"lock,omitempty"`
	LeaseID        string    `json:"lease_id,omitempty"`
	Owner          string    `json:"owner,omitempty"`
	LeasePrincipal string    `json:"lease_principal,omitempty"` // of the end of a lease: who took it
	Reason         string    `json:"reason,omitempty"`
	Token          string    `json:"token_id,omitempty"`
	Name           string    `json:"token_name,omitempty"`
	Admin          bool      `json:"admin,omitempty"`
	File           string    `json:"file,omitempty"` // of auth.loaded and auth.refused
	FileLine       int       `json:"line,omitempty"` // at fault, in File
	Lost           int       `json:"lost,omitempty"`
	RequestID      string    `json:"request_id,omitempty"`
	ForwardedTo    string    `json:"forwarded_to,omitempty"`
	ForwardedBy    string    `json:"forwarded_by,omitempty"`
}

// Options of a Log.
type Options struct {
	// Path is a file that lines are appended to, with mode 0600 when it is made here; "": Output is written to.
	Path   string
	Output io.Writer
	Lost   func(lines int) // counts lines that are lost; nil: nothing does
	Log    *slog.Logger
}

// Log is an audit log. The methods of nil do nothing.
type Log struct {
	opt    Options
	file   *os.File // with Path; Run's
	out    io.Writer
	torn   bool     // the last write ended within a line
	logged struct { // what the log was told of lines that are lost; Run's
		at    time.Time
		since int // further ones
	}
	some   chan struct{}
	reopen chan struct{}

	mu      sync.Mutex
	waiting []Line
	lost    int // since the last line that said so
}

// Open opens the output.
func Open(o Options) (*Log, error) {
	if o.Lost == nil {
		o.Lost = func(int) {}
	}
	l := &Log{opt: o, out: o.Output, some: make(chan struct{}, 1), reopen: make(chan struct{}, 1)}
	return l, l.open()
}

func (l *Log) open() error {
	if l.opt.Path == "" {
		return nil
	}
	file, err := os.OpenFile(l.opt.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	if l.file != nil {
		_ = l.file.Close() // each write told its error
	}
	l.file, l.out, l.torn = file, file, false
	return nil
}

// Add adds a line. It returns at once.
func (l *Log) Add(line Line) {
	if l == nil {
		return
	}
	if line.Time.IsZero() {
		line.Time = time.Now()
	}
	line.Time = line.Time.UTC().Truncate(time.Millisecond)
	l.mu.Lock()
	full := len(l.waiting) >= mostWaiting
	if full {
		l.lost++
	} else {
		l.waiting = append(l.waiting, line)
	}
	l.mu.Unlock()
	if full {
		l.opt.Lost(1)
	}
	signal(l.some)
}

// Reopen has the file opened again by its name, after it was moved away.
func (l *Log) Reopen() {
	if l != nil {
		signal(l.reopen)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run writes until ctx ends, and then what is left. No line may be added afterwards.
func (l *Log) Run(ctx context.Context) {
	var spare []Line
	pause := time.NewTimer(flushAfter)
	defer pause.Stop()
	for ctx.Err() == nil {
		select {
		case <-l.some:
			pause.Reset(flushAfter) // others come with it
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		case <-l.reopen:
			if err := l.open(); err != nil {
				l.opt.Log.Error("the audit log cannot be opened again; lines go to the file that is open", "path", l.opt.Path, "err", err)
			}
		case <-ctx.Done():
		}
		spare = l.flush(spare)
	}
	l.flush(spare) // what came while the last lines were written
	if l.file != nil {
		_ = l.file.Close() // each write told its error
	}
}

// flush writes what waits, and leaves spare in its place. It returns what it has written, to be used again.
func (l *Log) flush(spare []Line) []Line {
	l.mu.Lock()
	lines, lost := l.waiting, l.lost
	l.waiting, l.lost = spare[:0], 0
	l.mu.Unlock()
	if len(lines) == 0 && lost == 0 {
		return lines
	}
	var text bytes.Buffer
	if l.torn {
		text.WriteByte('\n')
	}
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if lost > 0 {
		_ = e.Encode(Line{Time: time.Now().UTC().Truncate(time.Millisecond), Event: "audit.lost", Lost: lost}) // a buffer refuses nothing
	}
	told := text.Len() // so many bytes are written when it is told how many were lost
	ends := make([]int, len(lines))
	for i := range lines {
		_ = e.Encode(&lines[i])
		ends[i] = text.Len()
	}
	n, err := l.out.Write(text.Bytes())
	if n > 0 {
		l.torn = text.Bytes()[n-1] != '\n'
	}
	if err != nil {
		more := 0
		for _, end := range ends {
			if end > n {
				more++
			}
		}
		if n >= told {
			lost = 0
		}
		l.mu.Lock()
		l.lost += lost + more
		l.mu.Unlock()
		l.opt.Lost(more)
		l.complain(more, err)
	}
	clear(lines)
	return lines
}

// complain logs that lines are lost, unless it has done so within the last minute: a full disk refuses every write.
func (l *Log) complain(lines int, err error) {
	l.logged.since += lines
	if now := time.Now(); l.logged.at.IsZero() || now.Sub(l.logged.at) >= logEvery {
		l.opt.Log.Error("lines of the audit log are lost", "lines", l.logged.since, "err", err)
		l.logged.at, l.logged.since = now, 0
	}
}
