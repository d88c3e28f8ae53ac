package zk

import (
	"math/rand/v2"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// machine is a kernel under the test's control.
type machine struct {
	mono, slept, set time.Duration // how long it has run and slept, and by how much its wall clock was set forward
	reads            int           // of the boot clock
	slow, late       func()        // called once in the next check, before and after it reads the boot clock
}

const bornAt = 1_800_000_000 * time.Second

func (m *machine) cheap() (mono, wall time.Duration) {
	return m.mono, bornAt + m.mono + m.slept + m.set
}

func (m *machine) boot() time.Duration {
	m.reads++
	once(&m.slow)
	at := m.truth()
	once(&m.late)
	return at
}

func once(f *func()) {
	if do := *f; do != nil {
		*f = nil
		do()
	}
}

func (m *machine) truth() time.Duration { return time.Hour + m.mono + m.slept }

// exact holds a reading against what the boot clock itself says.
func (m *machine) exact(t *testing.T, c *bootClock, what string) {
	t.Helper()
	before := m.truth()
	got := c.now()
	assert.That(t, got.Boot() >= before && got.Boot() <= m.truth()+mostSpread, "%s: the reading is %v, the boot clock %v", what, got.Boot(), m.truth())
	_, wall := m.cheap()
	assert.That(t, got.Wall() <= wall, "%s: the wall clock's reading is %v, want %v", what, got.Wall(), wall)
}

func TestTheBootClockIsRarelyRead(t *testing.T) {
	m := &machine{}
	c := newBootClock(m)
	for range 100_000 {
		m.mono += time.Microsecond
		m.exact(t, c, "a machine at work")
	}
	assert.That(t, m.reads >= 99 && m.reads <= 101, "%d readings of the boot clock in 100 ms", m.reads)
}

func TestASleepShowsInTheNextReading(t *testing.T) {
	m := &machine{}
	c := newBootClock(m)
	m.exact(t, c, "at the start")
	for _, slept := range []time.Duration{mostDrift, time.Second, 10 * time.Hour} {
		m.slept += slept
		m.exact(t, c, "after a sleep")
	}
}

func TestASleepThatTheWallClockHidesShowsWithinAMillisecond(t *testing.T) {
	m := &machine{}
	c := newBootClock(m)
	m.exact(t, c, "at the start")
	m.slept, m.set = time.Hour, -time.Hour
	m.mono += bootCheckEvery
	m.exact(t, c, "after a sleep, with the wall clock set back")
}

func TestASetWallClockDoesNotMoveTheBootClock(t *testing.T) {
	m := &machine{}
	c := newBootClock(m)
	before := c.now()
	for _, set := range []time.Duration{time.Hour, -time.Hour, 1, -1} {
		m.set = set
		got := c.now()
		assert.Equal(t, got.Boot(), before.Boot())
		assert.Equal(t, got.Wall()-before.Wall(), set)
	}
}

func TestASleepInTheMiddleOfACheckIsNotMissed(t *testing.T) {
	m := &machine{}
	c := newBootClock(m)
	m.slow = func() { m.slept += time.Hour }
	m.exact(t, c, "asleep before the boot clock is read")
	m.exact(t, c, "afterwards")
	m.mono += bootCheckEvery
	m.late = func() { m.slept += time.Hour }
	before := m.truth()
	got := c.now() // of the moment before the sleep
	assert.That(t, got.Boot() >= before, "asleep after the boot clock was read: %v, want %v", got.Boot(), before)
	m.exact(t, c, "afterwards")
}

func TestReadingsWithoutASleepBetweenDifferByTheMonotonicClock(t *testing.T) {
	m := &machine{}
	c := newBootClock(m)
	m.slow = func() { m.mono += mostSpread / 2 }
	first := c.now() // as exact as this check
	start := m.mono - mostSpread/2
	for i := range 1000 {
		m.mono += bootCheckEvery / 3
		m.slow = func() { m.mono += time.Duration(i%3) * mostSpread / 3 }
		at := m.mono
		assert.Equal(t, c.now().Boot()-first.Boot(), at-start)
	}
}

func TestACheckThatWasInterruptedIsNotKept(t *testing.T) {
	m := &machine{}
	c := newBootClock(m)
	first := c.now()
	m.mono += bootCheckEvery
	m.slow = func() { m.mono += 10 * mostSpread }
	m.exact(t, c, "in the check")
	m.exact(t, c, "afterwards")
	got := c.now()
	assert.Equal(t, got.Boot()-first.Boot(), bootCheckEvery+10*mostSpread)
}

// Whatever the machine does, a reading is the boot clock's, and none is less than an earlier one. Left out is what doc.go leaves out.
func TestEveryReadingIsTheBootClocks(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		span := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
		m := &machine{}
		c := newBootClock(m)
		var last time.Duration
		for range 1000 {
			switch r.IntN(9) {
			case 0:
				m.slept += mostDrift + span(time.Hour)
			case 1:
				m.set += span(2*time.Hour) - time.Hour
			case 2:
				m.slow = func() { m.slept += mostDrift + span(time.Minute) }
			case 3:
				m.late = func() { m.slept += mostDrift + span(time.Minute) }
			case 4:
				m.slow = func() { m.mono += span(2 * mostSpread) }
			case 5: // the sleep is hidden, and time goes by
				slept := span(time.Hour)
				m.slept, m.set, m.mono = m.slept+slept, m.set-slept, m.mono+bootCheckEvery
			default:
				m.mono += span(bootCheckEvery / 4)
			}
			before := m.truth()
			got := c.now().Boot()
			assert.Must(t, got >= before && got <= m.truth()+mostSpread, "seed %d: the reading is %v, the boot clock was between %v and %v", seed, got, before, m.truth())
			assert.Must(t, got >= last-mostSpread, "seed %d: %v after %v", seed, got, last)
			last = got
		}
	}
}

func TestTheSystemsClockIsTheKernels(t *testing.T) {
	var k kernelClocks
	for range 10_000 {
		before := k.boot()
		got := SystemClock{}.Now()
		after := k.boot()
		assert.Must(t, before-mostSpread <= got.Boot() && got.Boot() <= after+mostSpread, "%v is not between %v and %v", got.Boot(), before, after)
	}
	wall := time.Duration(time.Now().UnixNano())
	assert.That(t, SystemClock{}.Now().Wall()-wall < time.Minute, "the wall clock differs")
}

func BenchmarkSystemClock(b *testing.B) {
	for b.Loop() {
		_ = SystemClock{}.Now()
	}
}
