package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// line is one line of a comparison: the same work, done by each side in turn.
type line struct {
	name  string
	work  work
	sides []side
}

// table holds the samples of each side of each line, by round.
type table struct {
	lines   []line
	samples map[slot][]sample
}

type slot struct {
	line int
	side string
}

const (
	betweenTurns = 50 * time.Millisecond
	hangsAfter   = 30 * time.Second
)

// compare runs the lines: a warm-up that counts for nothing (a JVM compiles while it runs), then the rounds, every other one
// backwards. What disturbs the machine for a while disturbs the neighbours in a round alike, and ratios are taken within it.
func (b *bench) compare(ctx context.Context, lines []line, d time.Duration) (*table, error) {
	type turn struct {
		line int
		side side
	}
	var turns []turn
	for i, l := range lines {
		for _, s := range l.sides {
			turns = append(turns, turn{i, s})
		}
	}
	t := &table{lines: lines, samples: map[slot][]sample{}}
	for round := range b.rounds + 1 {
		b.progress(round)
		for _, turn := range turns {
			w := lines[turn.line].work
			w.d = d
			s, err := turn.side.turn(ctx, w)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w\nthe end of its log:\n%s", lines[turn.line].name, turn.side.name, err, turn.side.log.logTail())
			}
			if round > 0 {
				at := slot{turn.line, turn.side.name}
				t.samples[at] = append(t.samples[at], s)
				b.noise = append(b.noise, s.others)
			}
		}
		slices.Reverse(turns)
	}
	return t, nil
}

// compareClosely is compare with three times as many rounds, for a ratio that is closer to its bound than a round is exact.
func (b *bench) compareClosely(ctx context.Context, lines []line, d time.Duration) (*table, error) {
	defer func(rounds int) { b.rounds = rounds }(b.rounds)
	b.rounds *= 3
	return b.compare(ctx, lines, d)
}

// turn has one side work, with what it cost from its begin until its time was over. zk.Lock cannot be cancelled: one that hangs is
// left behind, and the run has failed.
func (s *side) turn(ctx context.Context, w work) (sample, error) {
	if err := s.log.forgetLog(); err != nil {
		return sample{}, err
	}
	if err := wait(ctx, betweenTurns); err != nil {
		return sample{}, err
	}
	type outcome struct {
		sample sample
		err    error
	}
	var (
		before, after     cost
		unread, afterward error
		over              <-chan time.Time
		begun             = make(chan struct{})
		ended             = make(chan outcome, 1)
		hangs             = time.After(w.d + hangsAfter)
	)
	go func() {
		got, err := s.run(ctx, w, func() {
			before, unread = s.spent()
			close(begun)
		})
		ended <- outcome{got, err}
	}()
	for {
		select {
		case <-begun:
			begun, over = nil, time.After(w.d)
		case <-over: // clients that wait for the hot lock have their turn after this
			after, afterward = s.spent()
		case o := <-ended:
			if o.err != nil {
				return sample{}, o.err
			}
			if after.at.IsZero() {
				after, afterward = s.spent()
			}
			o.sample.cost = after.minus(before)
			o.sample.others = o.sample.cost.others(before.at)
			return o.sample, errors.Join(unread, afterward)
		case <-hangs:
			return sample{}, fmt.Errorf("hangs: not over %v after its time", hangsAfter)
		case <-s.log.Done():
			return sample{}, fmt.Errorf("a program has ended: %w", s.log.Wait())
		case <-ctx.Done():
			return sample{}, ctx.Err()
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rounds is a figure of each round of one side; nil for a side that the line does not have.
func (t *table) rounds(line int, side string, f figure) []float64 {
	var all []float64
	for _, s := range t.samples[slot{line, side}] {
		all = append(all, f(s))
	}
	return all
}

// best is the side of several that has the greatest median of cycles.
func (t *table) best(line int, sides ...string) string {
	return slices.MaxFunc(sides, func(a, b string) int {
		return cmp.Compare(over(t.rounds(line, a, rate)).median, over(t.rounds(line, b, rate)).median)
	})
}

// against are the ratios of cycles of one side to those of another, round by round.
func (t *table) against(line int, side, other string) []float64 {
	return ratios(t.rounds(line, side, rate), t.rounds(line, other, rate))
}

// find is the line with this work; -1 when it was not measured.
func (t *table) find(clients int, hot bool) int {
	return slices.IndexFunc(t.lines, func(l line) bool { return l.work.clients == clients && l.work.hot == hot })
}
