package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/web/templates"
)

// treesIn are trees in a line each: "cron 2: orders(bob: web(job))".
func treesIn(trees []templates.Tree) (lines []string) {
	for _, t := range trees {
		line := fmt.Sprintf("%s %d", t.Who.Owner, t.Behind)
		if t.Circle {
			line += " circle"
		}
		lines = append(lines, line+locksIn(t))
	}
	return lines
}

func locksIn(t templates.Tree) string {
	var parts []string
	for _, l := range t.Locks {
		var waits []string
		for _, w := range l.Waits {
			waits = append(waits, w.Who.Owner+locksIn(w.Tree))
		}
		if l.More > 0 {
			waits = append(waits, fmt.Sprintf("+%d", l.More))
		}
		parts = append(parts, l.Lock.Name+"("+strings.Join(waits, " ")+")")
	}
	if t.Shown {
		parts = append(parts, "above")
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, " ")
}

func TestThoseThatAreWaitedForAreTheRoots(t *testing.T) {
	for name, c := range map[string]struct {
		graph locks.WaitGraph
		want  []string
	}{
		"a chain":                  {graphOf("bob-orders>cron", "job-web>bob"), []string{"cron 2: orders(bob: web(job))"}},
		"the most waited for":      {graphOf("a-x>few", "b-y>many", "c-y>many"), []string{"many 2: y(b c)", "few 1: x(a)"}},
		"several locks":            {graphOf("a-x>ann", "b-y>ann"), []string{"ann 2: x(a) y(b)"}},
		"a circle, and one behind": {graphOf("Ann-two>Bob", "Bob-one>Ann", "Zoe-two>Bob"), []string{"ann 2 circle: one(bob: two(ann: above zoe))"}},
		"once, though two wait":    {graphOf("bob-x>ann", "bob-y>cyd", "eve-z>bob"), []string{"ann 2: x(bob: z(eve))", "cyd 2: y(bob: above)"}},
		"holders before waiters":   {graphOf("a-x>ann", "b-x>>a", "b-x>ann"), []string{"ann 2: x(a b)"}},
		"waiters without holders":  {graphOf("reader-x>>writer"), []string{"writer 1: x(reader)"}},
		"it waits for itself":      {graphOf("Ann-x>Ann"), []string{"ann 0 circle: x(ann: above)"}},
	} {
		trees, more := forestOf(&c.graph)
		assert.Equal(t, strings.Join(treesIn(trees), "\n"), strings.Join(c.want, "\n"), "%s", name)
		assert.Equal(t, more, 0, "%s", name)
	}
}

func TestAPageOfTheGraphIsBounded(t *testing.T) {
	var words []string
	for i := range 150 {
		words = append(words, fmt.Sprintf("a%d-x>ann", i), fmt.Sprintf("b%d-y>bob", i), fmt.Sprintf("c%d-z%d>d%d", i, i, i))
	}
	v := graphOf(words...)
	trees, more := forestOf(&v)
	assert.That(t, len(trees) == 2 && more == 150, "%d trees and %d more", len(trees), more)
	rows, left := 0, 0
	for _, tree := range trees {
		for _, l := range tree.Locks {
			rows, left = rows+len(l.Waits), left+l.More
		}
	}
	assert.That(t, rows == treeRows && left == 100, "%d rows, %d left", rows, left)
	words = nil
	for i := range 40 {
		words = append(words, fmt.Sprintf("p%d-l%d>p%d", i+1, i, i))
	}
	v = graphOf(words...)
	trees, _ = forestOf(&v)
	assert.That(t, strings.Count(treesIn(trees)[0], "(") == treeDepth && strings.Contains(treesIn(trees)[0], "above"), "%q", treesIn(trees))
}

func TestThePageOfTheGraphShowsCyclesFirst(t *testing.T) {
	r := newRig(t)
	v := circle("Alice-two>Bob", "Bob-three>Jo", "Jo-one>Alice")
	own := circle("Ann-x>Ann").Cycles[0]
	maybe := circle("Cyd-p>Dan", "Dan-q>Cyd").Cycles[0]
	own.ID, maybe.ID, maybe.Certain = "c2", "c3", false
	v.Cycles = append(v.Cycles, own, maybe)
	v.Truncated, v.Unread = true, 3
	r.fake.waits.graph = v
	html := r.get(t, "/graph").Body.String()
	last := 0
	for _, part := range []string{"Deadlock:", "Waits for itself:", "Possible deadlock:", `class="trees"`, "more waits than", "same owner name", "3 contenders"} {
		at := strings.Index(html[last:], part)
		assert.That(t, at > 0, "%s is missing, or stands before what it must follow", part)
		last += max(at, 0)
	}
	html = r.get(t, "/graph?owner="+"bob").Body.String()
	assert.That(t, strings.Contains(html, "Only the waits of bob") && strings.Contains(html, `href="/graph">Show all`), "%s", html)
	assert.Equal(t, r.get(t, "/graph?lock=%2F").Code, 422)
	reader := readerOf(t, "shop:*")
	assert.Equal(t, r.as(t, reader, "/graph?lock=bank:1").Code, 403)
	assert.Equal(t, r.as(t, reader, "/graph?ns=team").Code, 403)
	assert.Equal(t, r.as(t, reader, "/graph?lock=shop:1").Code, 200)
	assert.That(t, strings.Contains(newRig(t).get(t, "/graph").Body.String(), "Nothing waits here"), "an empty graph says nothing")
}
