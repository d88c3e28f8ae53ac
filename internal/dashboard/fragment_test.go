package dashboard

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/web/templates"
)

// parted is a fragment whose rows say their ids and what they are given.
func parted(head string, rows ...string) templates.Parted {
	p := templates.Parted{Around: [][]byte{[]byte(`<section id="list" hx-swap-oob="outerMorph">` + head + `<ul>`)}}
	for i, text := range rows {
		id, _, _ := strings.Cut(text, "=")
		p.Rows = append(p.Rows, templates.Row{ID: id, HTML: fmt.Appendf(nil, `<li id="%s" data-row>%s</li>`, id, text)})
		if i+1 < len(rows) {
			p.Around = append(p.Around, []byte("\n"))
		}
	}
	return templates.Parted{Around: append(p.Around, []byte("</ul></section>"))[:len(rows)+1], Rows: p.Rows}
}

var (
	aloneIn = regexp.MustCompile(`<hx-partial id="([^"]*)" hx-swap="outerMorph">(.*?)</hx-partial>`)
	sameIn  = regexp.MustCompile(`<li id="([^"]*)" data-same></li>`)
	rowIn   = regexp.MustCompile(`<li id="([^"]*)" data-row>.*?</li>`)
)

// apply does to what a page shows what a browser does with a message.
func apply(t *testing.T, shown, message string) string {
	t.Helper()
	rows := map[string]string{}
	for _, m := range rowIn.FindAllStringSubmatch(shown, -1) {
		rows[m[1]] = m[0]
	}
	rest := aloneIn.ReplaceAllStringFunc(message, func(partial string) string {
		m := aloneIn.FindStringSubmatch(partial)
		assert.Must(t, rows[m[1]] != "", "a row alone that the page does not have: %s", m[1])
		shown = strings.Replace(shown, rows[m[1]], m[2], 1)
		rows[m[1]] = m[2]
		return ""
	})
	if rest == "" {
		return shown
	}
	return sameIn.ReplaceAllStringFunc(rest, func(same string) string {
		id := sameIn.FindStringSubmatch(same)[1]
		assert.Must(t, rows[id] != "", "a row that stays, and the page does not have: %s", id)
		return rows[id]
	})
}

// Rows come, go, change and move; whatever of it a page has missed, the messages lead to what is rendered now, byte for byte.
func TestTheChangesOfAllSnapshotsGiveTheWholeRendering(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var rows []string
		var last *fragment
		renderings := []string{""} // by seq
		type viewer struct {
			seen  uint64
			shown string
		}
		viewers := make([]viewer, 5)
		next := 0
		for seq := uint64(1); seq < 40; seq++ {
			for range random.IntN(4) {
				switch at := random.IntN(len(rows) + 1); random.IntN(5) {
				case 0:
					next++
					rows = slices.Insert(rows, at, fmt.Sprintf("r%d=new", next))
				case 1:
					if at < len(rows) {
						rows = slices.Delete(rows, at, at+1)
					}
				case 2:
					random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
				case 3: // one that was there before comes back
					next = max(next, 1)
					if id := fmt.Sprintf("r%d=", 1+random.IntN(max(next, 1))); !slices.ContainsFunc(rows, func(r string) bool { return strings.HasPrefix(r, id) }) {
						rows = slices.Insert(rows, at, id+"new")
					}
				default:
					if at < len(rows) {
						id, _, _ := strings.Cut(rows[at], "=")
						rows[at] = fmt.Sprintf("%s=%d", id, random.IntN(3))
					}
				}
			}
			p := parted(fmt.Sprint("head", random.IntN(2)), rows...)
			f := fragmentAfter(last, "list", p, seq)
			last = &f
			renderings = append(renderings, string(p.AppendWhole(nil)))
			for i := range viewers {
				v := &viewers[i]
				if random.IntN(3) == 0 {
					continue // it skips this one
				}
				message := string(f.appendSince(nil, v.seen))
				assert.That(t, renderings[seq] != renderings[v.seen] || v.seen != seq-1 || message == "", "seed %d: a message although nothing changed: %s", seed, message)
				if message != "" {
					v.shown = apply(t, v.shown, message)
				}
				v.seen = seq
				assert.Must(t, v.shown == renderings[seq], "seed %d, snapshot %d:\nshown %s\nwant  %s", seed, seq, v.shown, renderings[seq])
			}
		}
	}
}

func TestOnlyRowsThatChangedAreSent(t *testing.T) {
	first := fragmentAfter(nil, "list", parted("h", "a=1", "b=1", "c=1"), 1)
	for name, c := range map[string]struct {
		p    templates.Parted
		want string
	}{
		"a row":          {parted("h", "a=1", "b=2", "c=1"), `<hx-partial id="b" hx-swap="outerMorph"><li id="b" data-row>b=2</li></hx-partial>`},
		"nothing":        {parted("h", "a=1", "b=1", "c=1"), ""},
		"one that goes":  {parted("h", "a=1", "c=1"), `<section id="list" hx-swap-oob="outerMorph">h<ul><li id="a" data-same></li>` + "\n" + `<li id="c" data-same></li></ul></section>`},
		"one that comes": {parted("h", "a=1", "b=1", "c=1", "d=1"), `<section id="list" hx-swap-oob="outerMorph">h<ul><li id="a" data-same></li>` + "\n" + `<li id="b" data-same></li>` + "\n" + `<li id="c" data-same></li>` + "\n" + `<li id="d" data-row>d=1</li></ul></section>`},
	} {
		f := fragmentAfter(&first, "list", c.p, 2)
		assert.Equal(t, string(f.appendSince(nil, 1)), c.want, "%s", name)
	}
}

// A viewer that skips much of what happens costs a message of its own; many of them share one.
func TestTheMessagesOfASnapshotAreBounded(t *testing.T) {
	s := &snapshot{seq: 100, fragments: []fragment{{id: statusID, Parted: templates.Parted{Around: [][]byte{[]byte("S")}}, since: 100, rows: nil}}}
	list := fragmentAfter(nil, "list", parted("h", "a=1"), 100)
	s.fragments = append(s.fragments, list)
	for seen := range uint64(50) {
		m, err := s.rest(seen)
		assert.That(t, err == nil && m != nil, "seen %d: %v", seen, err)
		again, _ := s.rest(seen)
		assert.That(t, again == m || len(s.prepared) > maxPrepared, "seen %d: the message was made twice", seen)
	}
	assert.That(t, len(s.prepared) <= maxPrepared+1, "%d messages are kept", len(s.prepared))
}
