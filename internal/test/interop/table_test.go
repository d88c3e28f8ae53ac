package interop

import (
	"os"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// tablePath is the page whose table these tests verify: each cell is a pair.
const tablePath = "../../../docs/operate/interop.md"

// pair is a namespace's dialect and a mode of ours, a kind of client, and what the table says of the two.
type pair struct {
	ns, mode string
	kind     string
	word     string // excludes, deadlocks, shares, no
}

func (p pair) String() string { return p.ns + "," + p.mode + " " + p.kind }

// lock is a name for the pair's lock.
func (p pair) lock() string { return p.mode + "-" + p.kind }

// readTable reads the pairs from the page: the table whose first column is "client". A column is a dialect,
// or a dialect and a mode: "all, shared".
func readTable(t testing.TB) (pairs []pair) {
	t.Helper()
	page := assert.Value(os.ReadFile(tablePath))(t)
	var columns []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`*")
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = nil
		case cells[0] == "client":
			columns = cells
		case columns == nil || strings.HasPrefix(cells[0], "---"):
		case len(cells) != len(columns):
			t.Fatalf("%d cells: %s", len(cells), line)
		default:
			for i := 2; i < len(cells); i++ { // the second column tells which recipe it is
				ns, mode, shared := strings.Cut(columns[i], ", ")
				if !shared {
					mode = "exclusive"
				}
				pairs = append(pairs, pair{ns, mode, cells[0], cells[i]})
			}
		}
	}
	return pairs
}

// withWord are the table's pairs of which it says the word.
func withWord(t testing.TB, word string) (pairs []pair) {
	t.Helper()
	for _, p := range readTable(t) {
		if p.word == word {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

func TestTheTableHasACellForEachDialectModeAndClient(t *testing.T) {
	kinds := []string{"curator-mutex", "curator-leader", "curator-latch", "curator-write", "curator-read", "kazoo-lock", "kazoo-election",
		"kazoo-lock-extra", "kazoo-lock-named", "kazoo-write", "kazoo-read", "go-zookeeper", "zookeeper-writelock", "hbase-write", "hbase-read"}
	got := make(map[string]string)
	for _, p := range readTable(t) {
		assert.That(t, slices.Contains([]string{"excludes", "deadlocks", "shares", "no"}, p.word), "%v: %q", p, p.word)
		got[p.String()] = p.word
	}
	columns := make(map[string][]string) // of each kind
	for _, kind := range kinds {
		columns[kind] = dialects
	}
	columns["home-made-write"], columns["home-made-read"] = []string{custom}, []string{custom}
	for kind, spaces := range columns {
		for _, ns := range spaces {
			for _, mode := range []string{"exclusive", "shared"} {
				p := pair{ns: ns, mode: mode, kind: kind}
				word := got[p.String()]
				assert.That(t, (strings.HasSuffix(kind, "-read") && mode == "shared") == (word == "shares") && word != "",
					"%v: %q", p, word)
				if (ns == "all" || ns == custom) && mode == "exclusive" && word != "excludes" && word != "deadlocks" && kind != "curator-latch" {
					t.Errorf("%v: %q; the dialect is for every program", p, word)
				}
				delete(got, p.String())
			}
		}
	}
	for p := range got {
		t.Errorf("no test expects %s", p)
	}
}
