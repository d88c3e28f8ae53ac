package quota

import (
	"math"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestDefaultsFollowTheMemory(t *testing.T) {
	for _, test := range []struct {
		name   string
		set    Limits
		memory int64
		want   Limits
	}{
		{"one GiB", Limits{}, GiB, Limits{40_000, 20_000, 64 << 20, 160_000, 200_000, 10_000}},
		{"two and a half", Limits{}, 5 * GiB / 2, Limits{100_000, 50_000, 160 << 20, 400_000, 500_000, 25_000}},
		{"a sixteenth", Limits{}, GiB / 16, Limits{2500, 1250, 4 << 20, 10_000, 12_500, 625}},
		{"nearly nothing", Limits{}, 1, Limits{1, 1, 1, 1, 1, 1}},
		{"what is set stays", Limits{Leases: 10, Settings: 3}, GiB, Limits{10, 5, 64 << 20, 160_000, 200_000, 3}},
		{"tickets follow the leases", Limits{Leases: 1}, GiB, Limits{1, 1, 64 << 20, 160_000, 200_000, 10_000}},
		{"tickets may be all leases", Limits{Leases: 8, Tickets: 8}, GiB, Limits{8, 8, 64 << 20, 160_000, 200_000, 10_000}},
	} {
		assert.Equal(t, test.set.For(test.memory), test.want, "%s", test.name)
	}
	for b, n := range (Limits{}).For(math.MaxInt64) {
		assert.That(t, n > 0, "with all the memory there can be, the bound on %s is %d", Bound(b), n)
	}
}

func TestLimitsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, test := range []struct {
		is   Limits
		says string // "": it is accepted
	}{
		{Limits{}, ""},
		{Limits{Leases: 5, Tickets: 5}, ""},
		{Limits{Tickets: 5}, ""},
		{Limits{Leases: 5, Tickets: 6}, "tickets"},
		{Limits{Leases: -1}, "leases"},
		{Limits{Settings: -1}, "settings"},
	} {
		err := test.is.Check()
		assert.That(t, (err == nil) == (test.says == "") && (err == nil || strings.Contains(err.Error(), test.says)),
			"%v: %v, which should tell of %q", test.is, err, test.says)
	}
}

func TestABoundRefusesWhatIsNewAndNothingElse(t *testing.T) {
	q := New(Limits{Leases: 2, Tickets: 1, MetadataBytes: 100, Keys: 3, Settings: 2})
	is := func(b Bound, n int64, fits bool) {
		t.Helper()
		if q.Fits(b, n) != fits {
			t.Errorf("%d more %s, with %d of %d: %v expected", n, b, q.Used(b), q.Limit(b), fits)
		}
	}
	is(MetadataBytes, 100, true)
	is(MetadataBytes, 101, false)
	q.Add(MetadataBytes, 60)
	is(MetadataBytes, 40, true)
	is(MetadataBytes, 41, false)
	q.Add(MetadataBytes, 140) // adopted: nothing refuses it
	is(MetadataBytes, 1, false)
	is(MetadataBytes, 0, true)
	is(MetadataBytes, -1, true)
	q.Add(MetadataBytes, -200)
	is(MetadataBytes, 100, true)

	q.Set(Settings, 2)
	is(Settings, 1, false)
	assert.That(t, q.FitsTimes(Settings, 2, 2) && !q.FitsTimes(Settings, 3, 2), "twice the bound is not twice the bound")
	is(Leases, 2, true)
	for _, s := range q.States() {
		want := map[Bound]uint64{MetadataBytes: 3, Settings: 2}[s.Bound]
		assert.That(t, s.Refused == want, "%d refusals for %s, there were %d", s.Refused, s.Bound, want)
	}
}

func TestMoreGoneThanCameIsADefect(t *testing.T) {
	defer func() { assert.That(t, recover() != nil, "it goes on") }()
	q := New(Limits{Tickets: 1})
	q.Add(Tickets, 1)
	q.Add(Tickets, -2)
}

func TestCountingAllocatesNothing(t *testing.T) {
	q := New(Limits{}.For(GiB))
	if n := testing.AllocsPerRun(100, func() {
		q.Set(Leases, 1)
		q.Add(Tickets, 1)
		q.Fits(Leases, 1)
		q.Fits(MetadataBytes, 1<<40)
		q.Add(Tickets, -1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
