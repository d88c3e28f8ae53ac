package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		assert.That(t, replaceIn(path, "new\n") != nil, "%q has a place for the result", text)
	}
}

func TestATargetIsMetByTheMedian(t *testing.T) {
	for _, c := range []struct {
		bound  bound
		rounds []float64
		met    bool
	}{{atLeast, []float64{0.5, 1, 9}, true}, {atLeast, []float64{0.5, 0.9, 9}, false}, {atMost, []float64{0.5, 1, 9}, true},
		{atMost, []float64{0.5, 1.1, 9}, false}, {atLeast, nil, false}, {atMost, nil, false}} {
		assert.Equal(t, target{"", c.bound, 1, c.rounds}.met(), c.met, "%v %s 1 is met", c.rounds, c.bound)
	}
}

// Each side of each line must come out in the table: what it does not show would be measured for nothing.
func TestEverySideIsReported(t *testing.T) {
	lines := []line{{name: "first", work: work{clients: 1}, sides: []side{{name: gatewaySide}, {name: bareSide, servers: []int{1}}}},
		{name: "second", work: work{clients: 2}, sides: []side{{name: gatewaySide, store: &store{}}, {name: etcdSide}}}}
	tab := &table{lines: lines, samples: map[slot][]sample{}}
	for i, l := range lines {
		for j, s := range l.sides {
			tab.samples[slot{i, s.name}] = samplesOf(100 + 10*i + j)
		}
	}
	text := tab.markdown()
	for _, own := range []string{"| 100 (", "| 101 (", "| 110 (", "| 111 (", "**0.99**"} {
		assert.That(t, strings.Contains(text, own), "not in the table: %s\n%s", own, text)
	}
	assert.That(t, !strings.Contains(text, "NaN") && !strings.Contains(text, "Inf"), "no figure:\n%s", text)
}
