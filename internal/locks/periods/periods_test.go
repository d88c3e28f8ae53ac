package periods

import (
	"strconv"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func TestALeaseIsGrantedForItsPeriodOrLearnsWhyNot(t *testing.T) {
	const path, now = "/lockkeeper/periods/default,deploy", int64(1_000_000)
	once := Once{Per: time.Hour, Period: "p1", On: locks.DoneOnGrant}
	own := once.Entry("mine", "me", "", now, true)
	assert.Equal(t, own.Until, now+(24*time.Hour).Milliseconds(), "kept for")

	none := NoNode(path)
	made := none.Decide(own, now)
	assert.That(t, !made.Admitted && made.Write.Kind == zk.OpCreate && made.Write.Path == path, "without a record: %+v", made)

	read, err := NodeOf(path, made.Write.Data, 7)
	assert.NoError(t, err)
	assert.That(t, read.Decide(own, now).Admitted, "its own entry")
	other := once.Entry("other", "you", "", now, true)
	done := read.Decide(other, now)
	assert.That(t, done.Done != nil && done.Done.LeaseID == "mine" && done.Write.Data == nil, "done by another lease: %+v", done)

	running := read.Without("p1")
	running, _ = running.With(once.Entry("mine", "me", "", now, false), now)
	read.Record = running
	next := read.Decide(other, now)
	assert.That(t, next.Done == nil && next.Write.Kind == zk.OpSetData && next.Write.Version == 7, "not done: %+v", next)

	for i := range locks.MaxPeriods {
		read.Periods = append(read.Periods, Period{Name: "q" + strconv.Itoa(i), LeaseID: "other", Done: true, Until: now + 1})
	}
	read.Record = read.Without("p1")
	assert.That(t, read.Decide(own, now).Full, "as many as may be kept")
	assert.That(t, !read.Decide(own, now+1).Full, "they may be forgotten")

	_, err = NodeOf(path, []byte("something else"), 1)
	assert.Equal(t, err, ErrNoRecord)
}

func TestAReleaseThatMayHaveMarkedIsOpenUntilItIsSettled(t *testing.T) {
	var k Mark
	assert.That(t, !k.Tried() && !k.Open() && !k.Missed(), "before: %+v", k)
	k.Try()
	assert.That(t, k.Tried() && k.Open() && k.Attempt() == 1, "under way: %+v", k)
	k.Settle(false)
	assert.That(t, !k.Tried() && !k.Open() && k.Missed(), "not done: %+v", k)
	k.Try()
	assert.That(t, k.Open() && !k.Missed() && k.Attempt() == 2, "again: %+v", k)
	k.Settle(true)
	assert.That(t, k.Tried() && !k.Open() && !k.Missed(), "done: %+v", k)
}
