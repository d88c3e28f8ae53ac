package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// render writes the tables.
func render(about string, r *results, own *ownStore, h *hooks, w *watching, o *overview) string {
	var b strings.Builder
	b.WriteString(about)
	r.throughput(&b)
	r.handOver(&b)
	r.latency(&b)
	r.heartbeats(&b)
	r.costs(&b)
	own.render(&b)
	h.render(&b)
	w.render(&b)
	o.render(&b)
	return b.String()
}

func (r *results) throughput(b *strings.Builder) {
	b.WriteString("\n### Lock cycles (acquire and release) per second\n\n" +
		"| | clients | gateway over HTTP | `zk.Lock`, one connection | `zk.Lock`, own connections | gateway ÷ better `zk.Lock` |\n|---|---|---|---|---|---|\n")
	for i, s := range r.scenarios {
		if s.kind != ownLocks && s.kind != hotLock {
			continue
		}
		what := "each client its own lock"
		if s.kind == hotLock {
			what = "all clients one lock"
		}
		ours := r.rounds(i, gatewaySide, rate)
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s |\n", what, s.clients, counts(ours),
			counts(r.rounds(i, sharedSide, rate)), counts(r.rounds(i, ownSide, rate)), times(ratios(ours, r.best(i, rate, true))))
	}
}

const latencyHead = "| | clients | | gateway over HTTP | better `zk.Lock` | gateway ÷ `zk.Lock` |\n|---|---|---|---|---|---|\n"

func (r *results) latencyRows(b *strings.Builder, scenario int, name, what string) {
	for _, p := range []int{50, 99} {
		f := percentileOf(what, p)
		ours, theirs := r.rounds(scenario, gatewaySide, f), r.best(scenario, f, false)
		fmt.Fprintf(b, "| %s | %d | p%d | %s | %s | %s |\n", name, r.scenarios[scenario].clients, p, waits(ours), waits(theirs), times(ratios(ours, theirs)))
	}
}

func (r *results) handOver(b *strings.Builder) {
	b.WriteString("\n### Hand-over: from the moment a release is sent until the next client has its grant\n\n" + latencyHead)
	for i, s := range r.scenarios {
		switch s.kind {
		case heldHotLock:
			r.latencyRows(b, i, fmt.Sprintf("each holder keeps the lock for %v", holdFor), handing)
		case hotLock:
			r.latencyRows(b, i, "as fast as it goes", handing)
		}
	}
}

func (r *results) latency(b *strings.Builder) {
	b.WriteString("\n### Latency of one client alone\n\n" + latencyHead)
	for i, s := range r.scenarios {
		if s.kind == ownLocks && s.clients == 1 {
			r.latencyRows(b, i, "acquire", acquiring)
			r.latencyRows(b, i, "release", releasing)
		}
	}
}

func (r *results) heartbeats(b *strings.Builder) {
	b.WriteString("\n### Heartbeats per second, beside the same server's `/healthz`\n\n" +
		"| clients | heartbeats | `/healthz` | heartbeats ÷ `/healthz` | heartbeat p50 | p99 |\n|---|---|---|---|---|---|\n")
	for i, s := range r.scenarios {
		if s.kind == heartbeats {
			ours, theirs := r.rounds(i, gatewaySide, rate), r.rounds(i, healthSide, rate)
			fmt.Fprintf(b, "| %d | %s | %s | %s | %s | %s |\n", s.clients, counts(ours), counts(theirs), times(ratios(ours, theirs)),
				waits(r.rounds(i, gatewaySide, percentileOf(answering, 50))), waits(r.rounds(i, gatewaySide, percentileOf(answering, 99))))
		}
	}
}

func (r *results) costs(b *strings.Builder) {
	b.WriteString("\n### What one cycle (one heartbeat) costs\n\n" +
		"| | clients | side | ZooKeeper transactions | fsyncs | requests to ZooKeeper | µs of processor: ZooKeeper | gateway | load generator |\n|---|---|---|---|---|---|---|---|---|\n")
	cpu := func(part func(cpuTime) time.Duration) func(i int, side string) string {
		return func(i int, side string) string {
			return fmt.Sprintf("%.0f", over(r.rounds(i, side, micros(part))).median)
		}
	}
	zk := cpu(func(c cpuTime) time.Duration { return c.zooKeeper })
	gateway := cpu(func(c cpuTime) time.Duration { return c.gateway })
	load := cpu(func(c cpuTime) time.Duration { return c.load })
	for i, s := range r.scenarios {
		if s.kind == heldHotLock {
			continue // mostly waiting
		}
		for _, side := range s.sides {
			if side.name == healthSide {
				continue
			}
			count := func(part func(cost) float64) string {
				return fmt.Sprintf("%.2f", over(r.rounds(i, side.name, each(part))).median)
			}
			fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s | %s | %s | %s |\n", s.kind, s.clients, strings.ReplaceAll(side.name, "zk.Lock", "`zk.Lock`"),
				count(func(c cost) float64 { return c.transactions }), count(func(c cost) float64 { return c.fsyncs }),
				count(func(c cost) float64 { return c.requests }), zk(i, side.name), gateway(i, side.name), load(i, side.name))
		}
	}
}

// counts, times and waits write a figure as its median with the least and the greatest round.

func counts(rounds []float64) string {
	if len(rounds) == 0 {
		return "–"
	}
	s := over(rounds)
	return fmt.Sprintf("%s (%s–%s)", thousands(s.median), thousands(s.least), thousands(s.greatest))
}

func times(rounds []float64) string {
	s := over(rounds)
	return fmt.Sprintf("**%.2f** (%.2f–%.2f)", s.median, s.least, s.greatest)
}

func waits(rounds []float64) string {
	s := over(rounds)
	return fmt.Sprintf("%.2f ms (%.2f–%.2f)", s.median*1e3, s.least*1e3, s.greatest*1e3)
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1e3) }

// thousands writes 12345.6 as 12,346.
func thousands(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// The lines of a file between which the result of a run stands. The text around them is written by hand.
const (
	beginMark = "<!-- bench -->"
	endMark   = "<!-- /bench -->"
)

// replaceable is nil when replaceIn has a place in the file.
func replaceable(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("where to write the result: %w", err)
	}
	_, err = replaced(string(text), "")
	return err
}

// replaceIn writes report between the marks of the file.
func replaceIn(path, report string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	updated, err := replaced(string(text), report)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(updated), 0o644); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func replaced(text, report string) (string, error) {
	before, rest, begins := strings.Cut(text, beginMark+"\n")
	_, after, ends := strings.Cut(rest, endMark)
	if !begins || !ends {
		return "", fmt.Errorf("the file has no lines %s and %s with a place for the result between them", beginMark, endMark)
	}
	return before + beginMark + "\n" + report + endMark + after, nil
}
