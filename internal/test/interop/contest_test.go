package interop

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
)

// interval is one section on CLOCK_MONOTONIC, in nanoseconds.
type interval struct{ begin, end int64 }

// verdict is what the sections of two parties and their counter show.
type verdict struct {
	toTheirs, toOurs int // hand-overs
	overlaps         int // sections that began before an earlier one had ended
	lost             int // sections that the counter does not know
}

// judge looks at all sections of both parties.
func judge(ours, theirs []interval, counted int) verdict {
	type section struct {
		interval
		ours bool
	}
	all := make([]section, 0, len(ours)+len(theirs))
	for _, i := range ours {
		all = append(all, section{i, true})
	}
	for _, i := range theirs {
		all = append(all, section{i, false})
	}
	slices.SortFunc(all, func(a, b section) int { return cmp.Compare(a.begin, b.begin) })
	v := verdict{lost: len(all) - counted}
	last := int64(0) // the latest end so far
	for i, s := range all {
		if i > 0 && s.begin < last {
			v.overlaps++
		}
		last = max(last, s.end)
		if i > 0 && s.ours != all[i-1].ours {
			if s.ours {
				v.toOurs++
			} else {
				v.toTheirs++
			}
		}
	}
	return v
}

func (v verdict) handovers() int { return v.toTheirs + v.toOurs }

// unsafe tells what excludes that the two parties excluded each other; nil when nothing does.
func (v verdict) unsafe(wanted int) error {
	var why []error
	if v.overlaps > 0 {
		why = append(why, fmt.Errorf("%d sections overlap", v.overlaps))
	}
	if v.lost != 0 {
		why = append(why, fmt.Errorf("%d counts are lost", v.lost))
	}
	if v.handovers() < wanted {
		why = append(why, fmt.Errorf("%d hand-overs, want %d", v.handovers(), wanted))
	}
	return errors.Join(why...)
}

func TestSectionsAreJudged(t *testing.T) {
	for what, c := range map[string]struct {
		ours, theirs []interval
		counted      int
		want         verdict
	}{
		"one after the other":     {[]interval{{1, 2}, {5, 6}}, []interval{{3, 4}, {7, 8}}, 4, verdict{toTheirs: 2, toOurs: 1}},
		"each in turn, then both": {[]interval{{1, 2}, {5, 8}}, []interval{{3, 4}, {7, 9}}, 3, verdict{toTheirs: 2, toOurs: 1, overlaps: 1, lost: 1}},
		"one within another":      {[]interval{{1, 9}, {5, 6}}, []interval{{2, 3}}, 3, verdict{toTheirs: 1, toOurs: 1, overlaps: 2}},
		"two of the same party":   {[]interval{{1, 4}, {3, 6}}, []interval{{7, 8}}, 3, verdict{toTheirs: 1, overlaps: 1}},
		"a count too many":        {[]interval{{1, 2}}, []interval{{3, 4}}, 3, verdict{toTheirs: 1, lost: -1}},
	} {
		assert.Equal(t, judge(c.ours, c.theirs, c.counted), c.want, "%s", what)
	}
	assert.Nil(t, (verdict{toTheirs: 2, toOurs: 1}).unsafe(3))
	for _, bad := range []verdict{{overlaps: 1, toOurs: 3}, {lost: 1, toOurs: 3}, {lost: -1, toOurs: 3}, {toOurs: 2}} {
		assert.That(t, bad.unsafe(3) != nil, "%+v passes", bad)
	}
}
