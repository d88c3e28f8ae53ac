package record

import (
	"cmp"
	"math"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
)

// Any ZooKeeper client can write a record where the queue is open to it, of a lease that it makes up or over a
// real one. So parseRecord cuts what a record says to what the API accepts. What is kept of a record, shown of it, counted
// as text and written back is bounded by that, and every time in it lies within its bounds.

const (
	// maxRecordData is the largest data that is read as a record. Larger data is no record, as if another program
	// had written over it: restore writes the record back. The API makes at most 64 KiB, where JSON escapes
	// each byte as six.
	MaxData = 128 << 10
	// maxMoreData bounds the members of a later release, as they are read and as they are written. A lease with larger
	// ones loses them.
	MaxMore = 16 << 10

	// clockError is how far the clock of a gateway may be ahead of the ZooKeeper server's in a record's enqueued_ms.
	clockError = 24 * time.Hour
	// longestHeld is how much older than its contender a lease may say it is: a downgrade replaces the contender.
	LongestHeld = 10 * 365 * 24 * time.Hour
)

// millis is a number of milliseconds that another program may have written, as a duration within bounds.
func millis(ms int64, least, most time.Duration) time.Duration {
	switch {
	case ms <= least.Milliseconds():
		return least
	case ms >= most.Milliseconds():
		return most
	}
	return time.Duration(ms) * time.Millisecond
}

// cut brings what a record says within the bounds of the API.
func (r *Record) cut() {
	r.Owner, r.Metadata = locks.CutText(r.Owner, locks.MaxOwner), locks.CutText(r.Metadata, locks.MaxMetadata)
	r.Principal, r.Purpose = wholeName(r.Principal), locks.CutText(r.Purpose, locks.MaxReasonText)
	if v := r.Reserve; v != nil {
		v.For, v.Until = millis(v.For, 0, locks.MaxReserve).Milliseconds(), max(v.Until, 0)
	}
	r.Granted = max(r.Granted, 0)
	if r.AtOnce < 1 || r.AtOnce > math.MaxInt32+1 {
		r.AtOnce = 0
	}
	most := locks.MaxHolds
	if len(r.Holds) > 0 && r.Holds[0] == Unnamed {
		most++
	}
	r.Holds = cutNames(r.Holds, most)
	r.Released = cutNames(r.Released, locks.MaxHolds-len(Named(r.Holds)))
	if len(r.Notify) > locks.MaxNotifyURL {
		r.Notify = "" // a part of an address is another address
	}
	r.Trace = locks.TraceParent(r.Trace)
	r.TTL = millis(r.TTL, time.Millisecond, locks.MaxTTL).Milliseconds()
	switch r.LockDelay = millis(r.LockDelay, 0, locks.MaxLockDelay).Milliseconds(); {
	case r.LockDelay == 0:
		r.LockDelayOn = ""
	case r.LockDelayOn != locks.DelayAlways:
		r.LockDelayOn = locks.DelayOnExpiry
	}
	r.Once = r.Once.cut()
	r.AtLeast = millis(r.AtLeast, 0, locks.MaxAtLeast).Milliseconds()
	if r.OnDeadlock != locks.DeadlockFail {
		r.OnDeadlock = ""
	}
	if c := r.Closed; c != nil {
		c.Stays = millis(c.Stays, 0, max(locks.MaxAtLeast, locks.MaxLockDelay)).Milliseconds()
		if !c.Reason.Known() {
			c.Reason = locks.ReasonUnknown // of a newer release
		}
		c.By = wholeName(c.By)
	}
	if v := r.Revoke; v != nil {
		v.By = wholeName(v.By)
		v.Reason, v.Force = locks.CutText(v.Reason, locks.MaxReasonText), millis(v.Force, 0, locks.MaxForceAfter).Milliseconds()
	}
}

// wholeName is a principal's name, "" when it is too long: a part of a name is another name.
func wholeName(name string) string {
	if len(name) > locks.MaxPrincipal {
		return ""
	}
	return name
}

// cutNames does the same to a list of holds' names.
func cutNames(names []string, most int) []string {
	if len(names) > most {
		names = slices.Clone(names[:most])
	}
	for i, name := range names {
		names[i] = locks.CutText(name, locks.MaxHoldName)
	}
	return names
}

// EnqueuedAt is when a lease was enqueued: as its record says, or, where that cannot be, when its contender was made.
func EnqueuedAt(said, ctime int64) time.Duration {
	if said <= 0 || said < ctime-LongestHeld.Milliseconds() || said > ctime+clockError.Milliseconds() {
		said = ctime
	}
	return millis(said, 0, 1<<63-1)
}

// GrantedAt is when the lease was granted, as its record says: by Unix time, given its contender's number and when it was
// queued. known: the record says so.
//
// A gateway writes AtOnce with the create where its replica shows no contender that the new one would wait for: one more than the
// number that the directory hands out next. ZooKeeper hands out the numbers. So the new contender has that number only if no other
// one came in between, and then nothing stood before it that it had to wait for.
func (r *Record) GrantedAt(number int32, enqueued time.Duration) (at time.Duration, known bool) {
	switch {
	case r.Granted != 0:
		return max(millis(r.Granted, 0, math.MaxInt64), enqueued), true
	case r.AtOnce != 0 && (r.AtOnce == int64(number)+1 || fault.On("granted-number")):
		return enqueued, true
	}
	return 0, false
}

// Renumbered is a record for a contender that is made anew and gets another number: it says when the lease was granted by its time
// alone. number is that of the contender before.
func Renumbered(data []byte, number int32) []byte {
	r, ok := Parse(data)
	if !ok || r.AtOnce == 0 {
		return data
	}
	granted := int64(0)
	if _, known := r.GrantedAt(number, 0); known {
		granted = cmp.Or(r.Granted, r.Enqueued)
	}
	if r.plain() {
		r.Granted, r.AtOnce = granted, 0
		return r.Encode()
	}
	edited, err := Edit(data, func(_ Record, members Members) bool {
		delete(members, "at_once")
		if granted > 0 {
			members.Set("granted_ms", granted)
		}
		return true
	})
	if err != nil {
		return data
	}
	return edited
}

// TextBytes is how many bytes of clients' texts the record has.
func (r *Record) TextBytes() int64 {
	n := len(r.Owner) + len(r.Metadata) + len(r.Notify) + len(r.Purpose)
	for _, names := range [...][]string{r.Holds, r.Released} {
		for _, name := range names {
			n += len(name)
		}
	}
	return int64(n)
}
