package dashboard

import (
	"bytes"
	"slices"

	"lockkeeper/web/templates"
)

// fragment is an element of a page with an id of its own, and the rows in it, at one moment. It is immutable.
type fragment struct {
	id string
	templates.Parted
	since uint64   // seq of the first snapshot that has these bytes around the rows, and these rows in this order
	rows  []uint64 // the same of each row's bytes
}

// fragmentAfter is a fragment that was rendered for the snapshot seq. What is as it was in last keeps its age, and shares its bytes.
func fragmentAfter(last *fragment, id string, p templates.Parted, seq uint64) fragment {
	f := fragment{id: id, Parted: p, since: seq, rows: make([]uint64, len(p.Rows))}
	var at map[string]int
	if last != nil {
		if sameShell(last.Parted, p) {
			f.since, f.Around = last.since, last.Around
		}
		at = make(map[string]int, len(last.Rows))
		for i, row := range last.Rows {
			at[row.ID] = i
		}
	}
	for i, row := range p.Rows {
		f.rows[i] = seq
		if old, known := at[row.ID]; known && bytes.Equal(last.Rows[old].HTML, row.HTML) {
			f.rows[i], f.Rows[i] = last.rows[old], last.Rows[old]
		}
	}
	return f
}

// sameShell reports whether two renderings differ in the bytes of rows alone.
func sameShell(a, b templates.Parted) bool {
	return slices.EqualFunc(a.Around, b.Around, bytes.Equal) &&
		slices.EqualFunc(a.Rows, b.Rows, func(x, y templates.Row) bool { return x.ID == y.ID })
}

// appendSince appends what a page needs that has shown this fragment as it was at seen: nothing, the rows that changed, or, when
// something else has changed, all of it, with a mark in the place of each row that the page has as it is.
func (f *fragment) appendSince(b []byte, seen uint64) []byte {
	switch {
	case seen == 0:
		return f.AppendWhole(b)
	case f.since <= seen:
		for i, row := range f.Rows {
			if f.rows[i] > seen {
				b = row.AppendAlone(b)
			}
		}
		return b
	}
	for i, row := range f.Rows {
		b = append(b, f.Around[i]...)
		if f.rows[i] > seen {
			b = append(b, row.HTML...)
		} else {
			b = row.AppendSame(b)
		}
	}
	return append(b, f.Around[len(f.Rows)]...)
}
