package check

import (
	"fmt"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// A history is lines with commas between them: time, process, call, fencing token, what.
func TestAHistoryIsJudged(t *testing.T) {
	frozen := []Freeze{{PID: 1, From: 15, To: 50}}
	for _, c := range []struct {
		name, history string
		freezes       []Freeze
		rules         string // of the violations, in their order
	}{
		{name: "one after the other", history: "10 1 1 7 start, 12 1 1 7 step, 14 1 1 7 end, 15 2 1 8 start, 16 2 1 8 end"},
		{name: "one ends when the other starts", history: "10 1 1 7 start, 14 1 1 7 end, 14 2 1 8 start"},
		{name: "a work that was killed has stopped with its last line", history: "10 1 1 7 start, 12 1 1 7 step, 13 2 1 8 start, 20 2 1 8 end"},
		{name: "two at once", history: "10 1 1 7 start, 12 2 1 8 start, 13 2 1 8 end, 14 1 1 7 end", rules: "overlap"},
		{name: "two calls of one process at once", history: "10 1 1 7 start, 12 1 2 8 start, 13 1 2 8 end, 14 1 1 7 end", rules: "overlap"},
		{name: "a step that is late", history: "10 1 1 7 start, 12 2 1 8 start, 13 1 1 7 step, 14 2 1 8 end", rules: "overlap"},
		{name: "an end that is late", history: "10 1 1 7 start, 12 2 1 8 start, 13 1 1 7 end, 14 2 1 8 end", rules: "overlap"},
		{name: "a line that comes late in the file has its time", history: "10 1 1 7 start, 13 2 1 8 start, 12 1 1 7 end, 14 2 1 8 end"},
		{name: "three of which the first goes on", history: "10 1 1 7 start, 12 2 1 8 start, 13 2 1 8 end, 14 3 1 9 start, 15 1 1 7 end", rules: "overlap overlap"},
		{name: "a token that is not higher", history: "10 1 1 7 start, 11 1 1 7 end, 12 2 1 7 start, 13 2 1 7 end", rules: "fencing"},
		{name: "a work that begins with a step", history: "10 1 1 7 step, 11 1 1 7 end", rules: "form"},
		{name: "a work that goes on after its end", history: "10 1 1 7 start, 11 1 1 7 end, 12 1 1 7 step", rules: "form"},
		{name: "a work whose times go back", history: "10 1 1 7 start, 9 1 1 7 step", rules: "form"},
		{name: "a work whose token changes", history: "10 1 1 7 start, 11 1 1 8 step", rules: "form"},

		{name: "a frozen work ends when it goes on", freezes: frozen, history: "10 1 1 7 start, 30 2 1 8 start, 51 1 1 7 end, 60 2 1 8 end"},
		{name: "a frozen work takes one step", freezes: frozen, history: "10 1 1 7 start, 30 2 1 8 start, 51 1 1 7 step, 52 1 1 7 end, 60 2 1 8 end"},
		{name: "a frozen work takes one step and is killed", freezes: frozen, history: "10 1 1 7 start, 30 2 1 8 start, 51 1 1 7 step, 60 2 1 8 end"},
		{name: "a work that was about to start", freezes: frozen, history: "30 2 1 8 start, 51 1 1 7 start, 52 1 1 7 end, 60 2 1 8 end"},
		{name: "a frozen work takes two steps, one after the other", freezes: frozen, history: "10 1 1 7 start, 30 2 1 8 start, 51 1 1 7 step, 20000000 1 1 7 step, 30000000 2 1 8 end", rules: "overlap"},
		{name: "a frozen work takes the step under way and the one that is due", freezes: frozen, history: "10 1 1 7 start, 30 2 1 8 start, 51 1 1 7 step, 52 1 1 7 step, 60 2 1 8 end"},
		{name: "a work that was about to start takes a step", freezes: frozen, history: "30 2 1 8 start, 51 1 1 7 start, 52 1 1 7 step, 60 2 1 8 end", rules: "overlap fencing"},
		{name: "another process was frozen", freezes: []Freeze{{PID: 2, From: 15, To: 50}}, history: "10 1 1 7 start, 30 2 1 8 start, 51 1 1 7 end, 60 2 1 8 end", rules: "overlap"},
		{name: "a step before the freeze counts", freezes: frozen, history: "10 1 1 7 start, 12 2 1 8 start, 14 1 1 7 step, 51 1 1 7 end, 60 2 1 8 end", rules: "overlap"},
		{name: "a frozen work goes on with its lease", freezes: frozen, history: "10 1 1 7 start, 51 1 1 7 step, 52 1 1 7 step, 53 1 1 7 end, 60 2 1 8 start"},
		{name: "frozen twice, one step each time", freezes: append([]Freeze{{PID: 1, From: 52, To: 70}}, frozen...),
			history: "10 1 1 7 start, 30 2 1 8 start, 51 1 1 7 step, 71 1 1 7 step, 72 1 1 7 end, 80 2 1 8 end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines, err := Parse([]byte(strings.ReplaceAll(c.history, ", ", "\n") + "\n"))
			assert.NoError(t, err)
			found := Check(lines, c.freezes)
			var rules []string
			for _, v := range found {
				rules = append(rules, v.Rule)
			}
			assert.Equal(t, strings.Join(rules, " "), c.rules, fmt.Sprint(found))
		})
	}
}

func TestWhatIsNoLineIsAnError(t *testing.T) {
	for _, text := range []string{"10 1 1 7", "10 1 1 7 stop", "a 1 1 7 start", "10 1 1 7 start more"} {
		_, err := Parse([]byte(text + "\n"))
		assert.That(t, err != nil, "%q must be refused", text)
	}
}
