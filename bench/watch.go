package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// What watching costs. Clients acquire and release while subscribers are connected to /v1/events/ws. The subscribers are in this
// program, so their work is on the same processors and counts as the clients'.
const (
	watchers     = 1000
	watchClients = 16
	settleFor    = 500 * time.Millisecond
	comeAgain    = time.Second // after which a subscriber that was told to come again does so
)

// audience is a number of subscribers that all ask for the same.
type audience struct {
	name    string
	size    int
	query   func(i int) string // of subscriber i
	rates   []float64          // cycles per second
	micros  []float64          // of the gateway's processor time for one cycle
	frames  []float64          // that came, each second, at all of them
	bytes   []float64
	dropped int64 // times that one was told to come again
}

// watch measures cycles beside subscribers that watch one quiet lock each, and beside as many that watch everything.
func (b *bench) watch(ctx context.Context) error {
	if err := b.onOne(ctx); err != nil {
		return err
	}
	size := watchers
	if b.small {
		size = 20
	}
	many := thousands(float64(size)) + " watch "
	audiences := []*audience{{name: "none"},
		{name: many + "one quiet lock each", size: size, query: func(i int) string { return "?lock=quiet-" + strconv.Itoa(i) }},
		{name: many + "everything", size: size, query: func(int) string { return "" }}}
	for round := range b.rounds + 1 {
		b.progress(round)
		for i := range audiences {
			if round%2 == 1 {
				i = len(audiences) - 1 - i
			}
			a := audiences[i]
			if err := a.turn(ctx, b.single.gateway, 2*b.d, round > 0); err != nil {
				return fmt.Errorf("%s: %w\nthe end of the gateway's log:\n%s", a.name, err, b.single.gateway.logTail())
			}
		}
	}
	var text strings.Builder
	text.WriteString("16 clients with locks of their own acquire and release beside subscribers on WebSockets.\n\n" +
		"| subscribers | cycles/s | ÷ none | gateway's µs for one cycle | frames per second, all together | MB per second | told to come again |\n|---|---|---|---|---|---|---|\n")
	for _, a := range audiences {
		fmt.Fprintf(&text, "| %s | %s | %s | %.0f | %s | %.0f | %d |\n", a.name, counts(a.rates), times(ratios(a.rates, audiences[0].rates)), over(a.micros).median,
			thousands(over(a.frames).median), over(a.bytes).median/1e6, a.dropped)
	}
	b.section("Watching", text.String())
	b.target("1,000 subscribers to one quiet lock each: cycles ÷ without", atLeast, 0.95, ratios(audiences[1].rates, audiences[0].rates))
	b.target("1,000 subscribers to everything: cycles ÷ without", atLeast, 0.6, ratios(audiences[2].rates, audiences[0].rates))
	return nil
}

func (a *audience) turn(ctx context.Context, g *gateway, d time.Duration, counts bool) error {
	here, err := gather(ctx, g.http.base, a)
	if err != nil {
		return err
	}
	defer here.leave()
	if err := wait(ctx, settleFor); err != nil { // what connecting has cost is over
		return err
	}
	side := g.side(a.name)
	frames, bytes := here.frames.Load(), here.bytes.Load()
	s, err := side.turn(ctx, work{clients: watchClients, d: d})
	if err != nil {
		return err
	}
	if counts {
		a.rates, a.micros = append(a.rates, rate(s)), append(a.micros, serverMicros(s))
		a.frames = append(a.frames, float64(here.frames.Load()-frames)/d.Seconds())
		a.bytes = append(a.bytes, float64(here.bytes.Load()-bytes)/d.Seconds())
		a.dropped += here.dropped.Load()
	}
	here.mu.Lock()
	defer here.mu.Unlock()
	return here.failed
}

// subscribers are an audience that is there.
type subscribers struct {
	ctx     context.Context
	leave   func()
	reading sync.WaitGroup
	frames  atomic.Int64
	bytes   atomic.Int64
	dropped atomic.Int64
	mu      sync.Mutex
	failed  error
}

// gather connects an audience, and returns once all are there.
func gather(ctx context.Context, base string, a *audience) (*subscribers, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &subscribers{ctx: ctx}
	s.leave = func() {
		cancel()
		s.reading.Wait()
	}
	for i := range a.size {
		url := "ws" + strings.TrimPrefix(base, "http") + "/v1/events/ws" + a.query(i)
		conn, err := dialEvents(ctx, url)
		if err != nil {
			s.leave()
			return nil, fmt.Errorf("subscriber %d: %w", i, err)
		}
		s.reading.Go(func() { s.read(conn, url) })
	}
	return s, nil
}

func dialEvents(ctx context.Context, url string) (*websocket.Conn, error) {
	dialer := websocket.Dialer{HandshakeTimeout: readyWithin, ReadBufferSize: 16 << 10}
	conn, _, err := dialer.DialContext(ctx, url, nil)
	return conn, err
}

// read counts frames until the audience leaves. Their text is looked at no further: a reader that decoded JSON would measure itself.
func (s *subscribers) read(conn *websocket.Conn, url string) {
	for {
		err := s.readAll(conn)
		var closed *websocket.CloseError
		if errors.As(err, &closed) && closed.Code == websocket.CloseTryAgainLater && wait(s.ctx, comeAgain) == nil {
			s.dropped.Add(1)
			conn, err = dialEvents(s.ctx, url)
			if err == nil {
				continue
			}
		}
		if s.ctx.Err() == nil {
			s.mu.Lock()
			s.failed = errors.Join(s.failed, fmt.Errorf("a subscriber: %w", err))
			s.mu.Unlock()
		}
		return
	}
}

// readAll returns when the connection or the audience has ended.
func (s *subscribers) readAll(conn *websocket.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(s.ctx, func() { _ = conn.Close() })()
	for {
		_, frame, err := conn.NextReader()
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, frame)
		if err != nil {
			return err
		}
		s.frames.Add(1)
		s.bytes.Add(n)
	}
}
