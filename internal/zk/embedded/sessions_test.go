package embedded

import (
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
)

func ids(ended []*session) (ids []int64) {
	for _, s := range ended {
		ids = append(ids, s.id)
	}
	return ids
}

func newTestSessions() *sessions { return newSessions(500, []byte("0123456789abcdef"), newestIDs{}, 0) }

func TestASessionEndsAtTheFirstTickAfterItsTimeout(t *testing.T) {
	for _, c := range []struct{ touched, timeout, ends int64 }{
		{0, 1000, 1500}, // exactly on a tick is rounded up, as in ExpiryQueue
		{1, 1000, 1500},
		{499, 1000, 1500},
		{500, 1000, 2000},
		{0, 999, 1000},
		{1234, 4321, 6000},
	} {
		table := newTestSessions()
		s := table.open(c.touched, c.timeout, false)
		assert.That(t, len(table.due(c.ends-1)) == 0, "touched at %d, timeout %d: over before %d", c.touched, c.timeout, c.ends)
		ended := table.due(c.ends)
		assert.That(t, len(ended) == 1 && ended[0] == s, "touched at %d, timeout %d: not over at %d", c.touched, c.timeout, c.ends)
		assert.That(t, len(table.byID) == 0 && len(table.buckets) == 0, "something is left: %v, %v", table.byID, table.buckets)
	}
}

func TestTouchedSessionsStayAndOthersEndInOrder(t *testing.T) {
	table := newTestSessions()
	for range 4 {
		table.open(0, 1000, false)
	}
	first := table.nextID.remote - 4
	kept, removed := table.byID[first+1], table.byID[first+2]
	late := table.open(600, 1000, false)
	for now := int64(100); now < 10_000; now += 300 {
		table.touch(kept, now)
		if now == 700 {
			table.remove(removed)
		}
		got := ids(table.due(now))
		var want []int64
		switch now {
		case 1600:
			want = []int64{first, first + 3}
		case 2200:
			want = []int64{late.id}
		}
		assert.Must(t, slices.Equal(got, want), "at %d: ended %v, want %v", now, got, want)
	}
	assert.That(t, len(table.byID) == 1 && len(table.buckets) == 1,
		"left: %d sessions in %d buckets, want 1 in 1", len(table.byID), len(table.buckets))
}

func TestASessionMayGetAShorterTimeout(t *testing.T) {
	table := newTestSessions()
	s := table.open(0, 60_000, false)
	s.timeout = 1000
	table.touch(s, 100)
	assert.Must(t, len(table.due(1500)) == 1, "the old timeout still counts")
	assert.Must(t, len(table.due(120_000)) == 0, "ended twice")
}

func TestTimeInWhichTheServerStoodStillIsForgivenUpToAWholeTimeout(t *testing.T) {
	table := newTestSessions()
	quiet, heard := table.open(0, 3000, false), table.open(0, 3000, false)
	table.touch(heard, 60_900) // read only when the server went on
	table.forgive(60_000, 61_000)
	assert.That(t, quiet.deadline == 3500+60_500, "a quiet session's deadline is %d, want 60 s later, rounded up", quiet.deadline)
	assert.That(t, heard.deadline == 64_500, "deadline %d, want a whole timeout from now on and no more", heard.deadline)
	if ended := table.due(63_999); len(ended) != 0 {
		t.Errorf("%v ended", ids(ended))
	}
	assert.Slices(t, ids(table.due(65_000)), []int64{quiet.id, heard.id}, "ended")
}

func TestIdsGoOnAfterEveryIDThatWasGiven(t *testing.T) {
	const now = 1_795_283_000_000
	first := newSessions(500, nil, newestIDs{}, now).open(0, 1000, false).id
	assert.That(t, first>>56 == 1 && first&0xffff == 0, "first id 0x%x", first)
	next := newSessions(500, nil, newestIDs{}, now+1).open(0, 1000, false).id
	assert.That(t, next-first == 1<<16, "a millisecond later: 0x%x after 0x%x", next, first)
	assert.Equal(t, newSessions(500, nil, newestIDs{remote: first + 7}, now-1000).open(0, 1000, false).id, first+8,
		"behind a clock that was set back: 0x")
}

func TestPasswordsDependOnIDAndSecret(t *testing.T) {
	a, b := newSessions(500, []byte("0123456789abcdef"), newestIDs{}, 0), newSessions(500, []byte("0123456789abcdeF"), newestIDs{}, 0)
	s := a.open(0, 1000, false)
	assert.That(t, a.find(s.id, a.password(s.id)) == s, "not found by its password")
	for name, password := range map[string][]byte{
		"none": nil, "zeros": make([]byte, 16), "another session's": a.password(s.id + 1), "another store's": b.password(s.id),
		"too short": a.password(s.id)[:15], "too long": append(a.password(s.id), 0),
	} {
		assert.That(t, a.find(s.id, password) == nil, "found by a password that is %s", name)
	}
	assert.That(t, a.find(s.id+1, a.password(s.id+1)) == nil, "found a session that is not there")
}

// A reader may be held up between the time that it takes and the handing over: what it brings is then older than the ticks
// that were looked at.
func TestASessionThatWasHeardOfLongAgoEndsAllTheSame(t *testing.T) {
	table := newTestSessions()
	known := table.open(0, 60_000, false)
	table.due(5_000)
	fresh := table.open(100, 1000, false)
	known.timeout = 1000 // a new connection asked for less
	table.touch(known, 100)
	if ended := table.due(5_499); len(ended) != 0 {
		t.Errorf("%v ended between ticks", ids(ended))
	}
	got := ids(table.due(5_500))
	assert.That(t, slices.Equal(got, []int64{known.id, fresh.id}), "ended %v at the next tick, want %v", got, []int64{known.id, fresh.id})
	if table.due(120_000); len(table.byID)+len(table.buckets) != 0 {
		t.Errorf("left for ever: %d sessions", len(table.byID))
	}
}
