package standalone

import (
	"math/rand/v2"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// backedUp is what a backup tells of a store.
type backedUp struct {
	base, zxid int64
	written    time.Time
}

func TestTokensRiseWhicheverBackupsAreRestoredInWhichOrder(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, choose := range map[string]func(random *rand.Rand, of []backedUp) backedUp{
		"the newest":  func(_ *rand.Rand, of []backedUp) backedUp { return of[len(of)-1] },
		"the oldest":  func(_ *rand.Rand, of []backedUp) backedUp { return of[0] },
		"any of them": func(random *rand.Rand, of []backedUp) backedUp { return of[random.IntN(len(of))] },
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			now, base, zxid := start, int64(0), int64(0)
			backups := []backedUp{{base, zxid, now}}
			greatest := int64(0)
			for life := range 200 {
				// From a moment to six days, with up to a million transactions in a second.
				lasts := time.Duration(random.Int64N(int64(time.Second) << random.IntN(20)))
				for range 2 {
					now = now.Add(lasts / 2)
					zxid += random.Int64N(int64(lasts/2/time.Microsecond) + 1)
					backups = append(backups, backedUp{base, zxid, now})
				}
				zxid += random.Int64N(1000)
				now = now.Add(time.Millisecond)
				greatest = max(greatest, base+zxid)

				b := choose(random, backups)
				base, zxid = fenceBase(b.base, b.zxid, b.written, now), b.zxid
				next := base + zxid + 1
				assert.Must(t, next > greatest, "life %d begins with token %d, and %d was given", life, next, greatest)
			}
			assert.That(t, greatest < 1<<53, "a token of %d", greatest)
		})
	}
}

func TestTokensRiseAlsoWhenTheClockWasSetBack(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, clock := range map[string]time.Time{"a year": now.AddDate(-1, 0, 0), "to its beginning": time.UnixMilli(0), "not at all": now} {
		base := fenceBase(0, 1000, now, now)
		again := fenceBase(base, 2000, now.Add(time.Second), clock)
		// A lease that has been held since the first transaction is above what may have been given last.
		given := base + 2000 + 1e6
		assert.That(t, again+1 > given, "set back %s: %d, and %d was given", name, again, given)
	}
}
