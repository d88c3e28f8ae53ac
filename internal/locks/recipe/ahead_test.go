package recipe

import (
	"fmt"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestEachWaiterKnowsWhatItWaitsFor(t *testing.T) {
	for queue, want := range map[string]string{ // 2/3: two permits of three; - holds, or nothing is in its way
		"x x x":                   "- first after-1w",
		"x s s":                   "- first after-0",
		"s s x s s":               "- - first after-1w after-1w",
		"s x s 1/3":               "- first after-1w after-1w",
		"2/10 3/10 6/10 1/10 x s": "- - first,5-of-10 after-1,0-of-10 after-2 after-3w",
		"1/3 s":                   "- first",
		"s 1/3":                   "- first",
		"2/3 1/9 1/3":             "- - first,0-of-3",
	} {
		var q Queue
		for i, word := range strings.Fields(queue) {
			c := &Contender{Name: fmt.Sprintf("c-%010d", i), Number: int32(i), Ours: true, LeaseID: LeaseID(rune('a' + i)), Member: 1, Members: 1}
			switch word {
			case "s":
				c.Mode = Shared
			case "x":
			default:
				c.Mode = Permit
				assert.Value(fmt.Sscanf(word, "%d/%d", &c.Permits, &c.Limit))(t)
			}
			q.Insert(c)
		}
		var ahead Ahead
		var got []string
		for _, c := range q.All() {
			position, _ := q.Position(c.Name)
			wait := ahead.Next(c, position)
			assert.That(t, (wait == nil) == q.Holds(c.Name), "%s: %s: %+v, and the queue decides otherwise", queue, c.Name, wait)
			if wait == nil {
				got = append(got, "-")
				continue
			}
			text := "first"
			if !wait.First {
				text = fmt.Sprintf("after-%d", wait.Position)
			}
			if wait.Writer && !wait.First {
				text += "w"
			}
			if wait.Permits {
				text += fmt.Sprintf(",%d-of-%d", wait.Free, c.Limit)
			}
			got = append(got, text)
		}
		assert.That(t, strings.Join(got, " ") == want, "%s: %s, want %s", queue, got, want)
	}
}
