package dashboard

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/web/templates"
)

// drawnIn is a drawing in words: its columns from the left, and its lines, with a ! for what is red.
func drawnIn(d *templates.Drawing) (parties string, lines []string) {
	mark := map[bool]string{true: "!"}
	last := -1
	for x := 0; x < d.Width; x++ {
		for y := 0; y < d.Height; y++ {
			for _, n := range d.Nodes {
				if n.X == x && n.Y == y {
					if last >= 0 && last != x {
						parties += " |"
					}
					last = x
					parties += " " + n.Who.Owner + mark[n.Bad]
				}
			}
		}
	}
	for _, w := range d.Waits {
		lines = append(lines, fmt.Sprintf("%s-%s+%d>%s%s", w.From.Owner, w.Lock, w.More, w.To.Owner, mark[w.Bad]))
	}
	return strings.TrimSpace(parties), lines
}

func TestThePartiesStandRightOfThoseForWhichTheyWait(t *testing.T) {
	for name, c := range map[string]struct {
		graph   locks.WaitGraph
		parties string
		lines   []string
	}{
		"a chain":                {graphOf("bob-orders>cron", "job-web>bob"), "cron | bob | job", []string{"job-web+0>bob", "bob-orders+0>cron"}},
		"several wait for one":   {graphOf("a-x>few", "b-y>many", "c-y>many"), "few many | a b c", []string{"b-y+0>many", "c-y+0>many", "a-x+0>few"}},
		"several locks of one":   {graphOf("a-x>ann", "a-y>ann"), "ann | a", []string{"a-x+1>ann"}},
		"holders before waiters": {graphOf("a-x>ann", "b-x>>a", "b-x>ann"), "ann | a b", []string{"a-x+0>ann", "b-x+0>ann"}},
		"a cycle":                {circle("Ann-two>Bob", "Bob-one>Ann"), "bob! | ann!", []string{"bob-one+0>ann!", "ann-two+0>bob!"}},
		"it waits for itself":    {circle("Ann-x>Ann"), "ann!", []string{"ann-x+0>ann!"}},
	} {
		d := drawingOf(&c.graph)
		parties, lines := drawnIn(d)
		assert.Equal(t, parties, c.parties, "%s", name)
		assert.Slices(t, lines, c.lines, "%s", name)
		assert.That(t, reflect.DeepEqual(d, drawingOf(&c.graph)), "%s is drawn in two ways", name)
		inside(t, name, d)
	}
	assert.That(t, drawingOf(&locks.WaitGraph{}) == nil, "nothing is drawn")
}

// inside fails when boxes overlap, or leave the drawing.
func inside(t *testing.T, name string, d *templates.Drawing) {
	t.Helper()
	for i, a := range d.Nodes {
		assert.That(t, a.X >= 0 && a.Y >= 0 && a.X+a.Width <= d.Width && a.Y+a.Height <= d.Height, "%s: a box leaves the drawing: %+v", name, a)
		for _, b := range d.Nodes[:i] {
			assert.That(t, a.X+a.Width <= b.X || b.X+b.Width <= a.X || a.Y+a.Height <= b.Y || b.Y+b.Height <= a.Y, "%s: %+v lies over %+v", name, a, b)
		}
	}
	for _, w := range d.Waits {
		assert.That(t, w.LabelX-labelWidth+6 >= 0 && w.LabelY > 0 && w.LabelX <= d.Width && w.LabelY <= d.Height, "%s: a label leaves the drawing: %+v", name, w)
	}
}

func TestADrawingIsBoundedAndHasTheCyclesFirst(t *testing.T) {
	words := []string{"Ann-two>Bob", "Bob-one>Ann"}
	for i := range 100 {
		words = append(words, fmt.Sprintf("w%d-big>many", i), fmt.Sprintf("v%d-small%d>few%d", i, i, i))
	}
	v := graphOf(words...)
	v.Cycles = []locks.Cycle{{ID: "c", Waits: v.Waits[:2], Certain: true}}
	d := drawingOf(&v)
	assert.That(t, d.Parties == drawnParties && d.AllParties == 2+101+200, "%d of %d", d.Parties, d.AllParties)
	parties, _ := drawnIn(d)
	assert.That(t, strings.Contains(parties, "ann!") && strings.Contains(parties, "bob!") && strings.Contains(parties, "many"), "%s", parties)
	inside(t, "many", d)
	r := newRig(t)
	r.fake.waits = fakeWaits{v}
	wantParts(t, r.get(t, "/graph").Body.String(), "The drawing has 60 of 303 parties: those in cycles first", "Cycles are red.", `<title id="drawing-title">60 parties that wait`, "ann waits for bob in two.")

	words = nil
	for i := range 20 {
		for j := range 20 {
			words = append(words, fmt.Sprintf("w%d-l%d>h%d", i, j, j))
		}
	}
	v = graphOf(words...)
	d = drawingOf(&v)
	assert.That(t, len(d.Waits) == drawnWaits && d.MoreWaits == 400-drawnWaits, "%d lines, %d are left out", len(d.Waits), d.MoreWaits)
	inside(t, "many lines", d)
}
