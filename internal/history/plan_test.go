package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

// A search for a lock or an owner must look at its rows alone, and one for a moment at long rows before it: SQLite has no
// figures of its own to choose by.
func TestEachSearchGoesByAnIndex(t *testing.T) {
	_, w := filled(t, "", 100)
	mid := time.Now().Add(-80 * time.Hour)
	for name, c := range map[string]struct {
		q    Query
		want [4]string // an index of each part; "" for the rows in their order
	}{
		"a lock":   {Query{NS: "default", Lock: "team-7:deploy"}, [4]string{"rows_early", "rows_place", "rows_place", "long_place"}},
		"an owner": {Query{Owner: "ci-7@build-7"}, [4]string{"rows_early", "rows_owner", "rows_owner", "long_owner"}},
		"a host":   {Query{Host: "build-7"}, [4]string{"rows_early", "rows_owner", "rows_owner", "long_owner"}},
		"all":      {Query{}, [4]string{"rows_early", "", "", "long_all"}},
	} {
		c.q.Rules, c.q.Kinds, c.q.From, c.q.To = access.Everything(), Holds, mid, mid
		f := assert.Value(filterOf(t.Context(), w.s.read, &c.q))(t)
		for n, p := range f.parts() {
			rows := assert.Value(w.s.read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+selectRow+p.by+joinNames+p.where+f.where+" ORDER BY r.id DESC", slices.Concat(p.args, f.args)...))(t)
			plan := ""
			for rows.Next() {
				var id, parent, unused int
				var step string
				assert.NoError(t, rows.Scan(&id, &parent, &unused, &step))
				plan += step + "\n"
			}
			assert.NoError(t, rows.Err())
			want := "SEARCH r USING INTEGER PRIMARY KEY (rowid"
			if c.want[n] != "" {
				want = fmt.Sprintf("SEARCH r USING INDEX %s (", c.want[n])
			}
			assert.That(t, strings.Contains(plan, want), "%s, part %d: %s", name, n, plan)
		}
	}
}

// A search that ends in the midst of a part knows nothing of earlier rows: the next page begins there, and not behind rows that another part has.
func TestASearchThatWasCutShortLeavesOutNoRow(t *testing.T) {
	_, w := filled(t, "", 5000)
	mid := time.Now().Add(-80 * time.Hour)
	q := Query{Rules: access.Everything(), Kinds: Holds, From: mid, To: mid.Add(time.Hour), Limit: MaxLimit}
	f := assert.Value(filterOf(t.Context(), w.s.read, &q))(t)
	for n, p := range f.parts() {
		var rows []stored
		assert.NoError(t, eachItem(t.Context(), w.s.read, p.by, p.where+f.where, " ORDER BY r.id DESC", slices.Concat(p.args, f.args), func(i *stored) bool {
			rows = append(rows, *i)
			return true
		}))
		for _, i := range rows {
			assert.That(t, i.id < p.below, "part %d has the row %d, which is not below %d", n, i.id, p.below)
		}
		assert.Equal(t, p.cutAt(nil), p.below)
		if len(rows) > 1 {
			assert.Equal(t, p.cutAt(rows[:2]), rows[1].id)
		}
		if n > 1 {
			assert.Equal(t, p.below, mid.UnixMicro(), "part %d is behind what began in the time", n)
		}
	}
}
