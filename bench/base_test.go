package main

import (
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

func TestAGatewayThatIsWorseThanTheBaseIsNoticed(t *testing.T) {
	of := func(cycles int, micros time.Duration) []sample {
		return []sample{{done: cycles, elapsed: time.Second, cost: cost{cpu: cpuTime{server: time.Duration(cycles) * micros * time.Microsecond}}}}
	}
	base := strings.Repeat("b", 40)
	for name, c := range map[string]struct {
		cycles int
		micros time.Duration
		worse  string
	}{
		"the same":              {1000, 100, ""},
		"within the tolerance":  {860, 114, ""},
		"fewer cycles":          {840, 100, "cycles must be at least 0.85"},
		"more processor time":   {1000, 117, "processor time for one cycle must be at most 1.15"},
		"better in both":        {2000, 50, ""},
		"faster but more costs": {2000, 200, "must be at most 1.15"},
	} {
		t.Run(name, func(t *testing.T) {
			tab := &table{lines: []line{{name: "a line"}}, samples: map[slot][]sample{{0, baseSide}: of(1000, 100), {0, hereSide}: of(c.cycles, c.micros)}}
			err := tab.judgeBase(base)
			assert.That(t, (err == nil) == (c.worse == ""), "judged: %v", err)
			assert.That(t, err == nil || strings.Contains(err.Error(), c.worse), "judged: %v", err)
		})
	}
}
