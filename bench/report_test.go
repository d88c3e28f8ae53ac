package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for want, v := range map[string]float64{"0": 0.4, "999": 999, "1,000": 999.6, "12,346": 12345.6, "1,234,567": 1234567} {
		assert.Equal(t, thousands(v), want, "%v is written", v)
	}
}

func TestTheResultStandsBetweenTheMarksAndNothingElseChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "B.md")
	write := func(text string) { assert.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("before\n" + beginMark + "\nold\n" + endMark + "\nafter\n")
	assert.NoError(t, replaceIn(path, "new\n"))
	got := assert.Value(os.ReadFile(path))(t)
	assert.That(t, string(got) == ("before\n"+beginMark+"\nnew\n"+endMark+"\nafter\n"), "the file is\n%s", got)
	for _, text := range []string{"", "no marks", beginMark + "\nno end", endMark + "\n" + beginMark + "\n"} {
		write(text)
		assert.That(t, replaceable(path) != nil, "%q has a place for the result", text)
	}
}

// Every line of the plan must come out in the tables: a scenario that render does not know would be measured for nothing.
func TestEveryScenarioIsReported(t *testing.T) {
	r := &results{scenarios: plan(), slice: time.Second, samples: map[slot][]sample{}}
	for i, s := range r.scenarios {
		assert.That(t, s.sides[0].name == gatewaySide && s.clients <= maxClients,
			"%s, %d clients: the gateway comes first, and %d clients are the most", s.kind, s.clients, maxClients)
		for _, side := range s.sides {
			r.samples[slot{i, side.name}] = []sample{{done: 100 + i, elapsed: time.Second,
				latency: map[string][]time.Duration{acquiring: {1}, releasing: {1}, answering: {1}, handing: {time.Duration(100+i) * time.Millisecond}}}}
		}
	}
	w := &watching{crowds: crowds(watchers)}
	for i := range w.crowds {
		w.turns = append(w.turns, []watched{{sample: sample{done: 700 + i, elapsed: time.Second}, delivered: 800 + float64(i)}})
	}
	o := &overview{locks: 4321, filled: time.Second}
	for i := range pages {
		o.latency = append(o.latency, []time.Duration{time.Duration(900+i) * time.Millisecond})
	}
	own := &ownStore{leases: 5432, filled: time.Second, answered: time.Second}
	for i := range ownLines {
		own.embedded = append(own.embedded, []sample{{done: 600 + i, elapsed: time.Second}})
		own.debian = append(own.debian, []sample{{done: 300 + i, elapsed: time.Second}})
	}
	h := &hooks{}
	for i := range hookLines {
		h.without = append(h.without, []sample{{done: 1000, elapsed: time.Second}})
		h.with = append(h.with, []hooked{{after: time.Duration(40+i) * time.Millisecond, sample: sample{done: 510 + i, elapsed: time.Second,
			latency: map[string][]time.Duration{telling: {time.Duration(20+i) * time.Millisecond, time.Duration(30+i) * time.Millisecond}}}}})
	}
	text := render("", r, own, h, w, o)
	for i := range hookLines {
		want := fmt.Sprintf("| 1,000 (1,000–1,000) | %[1]d (%[1]d–%[1]d) | **0.51** (0.51–0.51) | %[2]d.00 ms (%[2]d.00–%[2]d.00) | %[3]d.00 ms (%[3]d.00–%[3]d.00) | %[4]d.00 ms (", 510+i, 20+i, 30+i, 40+i)
		assert.That(t, strings.Contains(text, want), "line %d of the webhooks is not in the tables: %s", i, want)
	}
	for _, own := range []string{"| 600 (", "| 303 (", "5,432 held", "| 700 (", "| 804 (", "900.00 ms", "903.00 ms", "4,321 held"} {
		assert.That(t, strings.Contains(text, own), "not in the tables: %s", own)
	}
	for i, s := range r.scenarios {
		var figures []string
		if s.kind != heldHotLock {
			figures = append(figures, counts([]float64{float64(100 + i)}))
		}
		if s.kind == hotLock || s.kind == heldHotLock {
			figures = append(figures, waits([]float64{0.1 + float64(i)/1000}))
		}
		for _, own := range figures {
			assert.That(t, strings.Contains(text, own), "%s, %d clients is not in the tables: %s", s.kind, s.clients, own)
		}
	}
	for line := range strings.Lines(text) {
		assert.That(t, !strings.Contains(line, "NaN") && !strings.Contains(line, "Inf"), "no figure: %s", line)
	}
}
