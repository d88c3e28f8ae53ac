package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The open loop: cycles become due at a steady rate, however slow the answers are. A latency counts from when its cycle was due, so
// a stall shows in every cycle that it has held up (coordinated omission is corrected).
const openClients = 64

var (
	openLoads  = []float64{0.3, 0.6, 0.9} // of the most that the side has done in a closed loop
	openSides  = []string{gatewaySide, embeddedSide, zkLockOwnSide, etcdSide}
	openPoints = []float64{50, 90, 99, 99.9, 100}
)

// openResult is one side under one load, all rounds together.
type openResult struct {
	side     string
	load     float64
	asked    float64 // cycles per second
	achieved []float64
	micros   []float64 // of processor time for one cycle, all processes
	latency  *hdrhistogram.Histogram
}

// openLoop measures latencies at a part of what each side can do.
func (b *bench) openLoop(ctx context.Context) error {
	if err := b.onOne(ctx); err != nil {
		return err
	}
	sides := only(b.sides, openSides...)
	most, err := b.compare(ctx, []line{{name: "the most", work: work{clients: openClients}, sides: sides}}, b.d)
	if err != nil {
		return err
	}
	var results []*openResult
	for _, s := range sides {
		for _, load := range openLoads {
			asked := load * over(most.rounds(0, s.name, rate)).median
			results = append(results, &openResult{side: s.name, load: load, asked: asked, latency: newHistogram()})
		}
	}
	for round := range b.rounds {
		b.progress(round + 1)
		for i := range results {
			if round%2 == 1 {
				i = len(results) - 1 - i
			}
			r := results[i]
			if err := r.turn(ctx, sides[slices.IndexFunc(sides, func(s side) bool { return s.name == r.side })], b.d); err != nil {
				return err
			}
		}
	}
	b.opened = results
	b.section("Latency in an open loop", openMarkdown(results))
	return nil
}

// newHistogram is of microseconds, up to a minute, to three digits.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

func (r *openResult) turn(ctx context.Context, s side, d time.Duration) error {
	w := work{clients: openClients, d: d}
	s.run = func(ctx context.Context, w work, begin func()) (sample, error) {
		return pacedLoop(ctx, w.lockers(s.locker), w, r.asked, r.latency, begin)
	}
	got, err := s.turn(ctx, w)
	if err != nil {
		return fmt.Errorf("open loop, %s: %w", s.name, err)
	}
	r.achieved = append(r.achieved, got.perSecond())
	r.micros = append(r.micros, allMicros(got))
	return nil
}

// pacedLoop has cycles become due at the rate, in turn for each of the lockers, and notes how long after that each had its lock.
func pacedLoop(ctx context.Context, lockers []locker, w work, rate float64, latency *hdrhistogram.Histogram, begin func()) (sample, error) {
	begin()
	begun := time.Now()
	between := time.Duration(float64(time.Second) / rate)
	clients, err := together(ctx, len(lockers), func(ctx context.Context, i int, c *client) error {
		for due := time.Duration(i) * between; due < w.d; due += time.Duration(len(lockers)) * between {
			if err := wait(ctx, due-time.Since(begun)); err != nil {
				return err
			}
			if err := lockers[i].Lock(ctx); err != nil {
				return err
			}
			c.acquires = append(c.acquires, time.Since(begun)-due)
			if err := lockers[i].Unlock(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return sample{}, err
	}
	s := sample{elapsed: max(time.Since(begun), w.d)}
	for _, c := range clients {
		s.done += len(c.acquires)
		for _, took := range c.acquires {
			if err := latency.RecordValue(took.Microseconds()); err != nil {
				return sample{}, err
			}
		}
	}
	return s, nil
}

func openMarkdown(results []*openResult) string {
	var b strings.Builder
	b.WriteString("Cycles become due at a steady rate, each of 64 clients has a lock of its own, and an acquire counts from when it was due: " +
		"coordinated omission is corrected. The load is a part of what the same side does in a closed loop.\n\n" +
		"| side | load | due per second | done per second | p50 | p90 | p99 | p99.9 | longest | µs for one cycle, all processes |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %.0f %% | %s | %s |", r.side, r.load*100, thousands(r.asked), counts(r.achieved))
		for _, p := range openPoints {
			fmt.Fprintf(&b, " %.2f ms |", float64(r.latency.ValueAtQuantile(p))/1e3)
		}
		fmt.Fprintf(&b, " %.0f |\n", over(r.micros).median)
	}
	return b.String()
}
