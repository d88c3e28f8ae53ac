package e2e

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"

	"lockkeeper/internal/test/assert"
)

// look is how a page is shown.
type look struct {
	window
	scheme string
}

// everyLook is each window in each scheme of colours.
var everyLook = []look{{desktop, "light"}, {phone, "dark"}, {desktop, "dark"}, {phone, "light"}}

// looks has each window and each scheme of colours; with LOCKKEEPER_FULL, each of one with each of the other.
func looks() []look {
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		return everyLook
	}
	return everyLook[:2]
}

func (l look) String() string { return fmt.Sprintf("%s-%d", l.scheme, l.width) }

// eachLook gives the window each look and calls f.
func (b *tab) eachLook(f func(look string)) {
	b.t.Helper()
	for _, l := range looks() {
		b.resize(l.window, l.scheme)
		f(l.String())
	}
}

//go:embed testdata/axe-core/axe.min.js
var axe string

// violation is what axe-core finds.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		Target         []any
		FailureSummary string
	}
}

// violations is what axe-core finds in the page as it is.
func (b *tab) violations() []violation {
	b.t.Helper()
	eval[*int](b, axe+"; null")
	raw := eval[string](b, `axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations))`)
	var found []violation
	assert.NoError(b.t, json.Unmarshal([]byte(raw), &found))
	eval[int](b, "(delete window.axe, 1)")
	return found
}

// flawless requires that axe-core finds nothing.
func (b *tab) flawless(what string) {
	b.t.Helper()
	for _, v := range b.violations() {
		for _, n := range v.Nodes {
			b.t.Errorf("%s: %s (%s): %s\n%s\n%s", what, v.ID, v.Impact, v.Help, n.HTML, n.FailureSummary)
		}
	}
}
