package dashboard

import "time"

// sameTime is how far apart two readings of one moment may be. They differ by
// the time between the answer of the lock manager and our look at the clock.
const sameTime = 250 * time.Millisecond

// steady remembers the moments that were shown. The lock manager tells spans
// (held for 3 s, expires in 10 s), a page shows moments: now minus, or plus,
// the span. Each reading would give a moment a little apart from the last, and
// so a fragment that differs though nothing has changed. A nil steady remembers
// nothing. It belongs to one goroutine.
type steady struct {
	shown, next map[moment]time.Time
}

// moment names one: of what (a znode, a lock), and which of its moments.
type moment struct {
	of    string
	which byte
}

const (
	queuedAt  = 'q'
	heldAt    = 'h'
	expiresAt = 'x'
	forcedAt  = 'f'
)

// at is t, or what was shown for it if that is the same moment.
func (s *steady) at(of string, which byte, t time.Time) time.Time {
	t = t.UTC()
	if s == nil {
		return t
	}
	key := moment{of, which}
	if old, ok := s.shown[key]; ok && t.Sub(old).Abs() < sameTime {
		t = old
	}
	s.keep(key, t)
	return t
}

// past is a moment that is over: what was shown for it if that is over too,
// else now.
func (s *steady) past(of string, which byte, now time.Time) time.Time {
	now = now.UTC()
	if s == nil {
		return now
	}
	key := moment{of, which}
	if old, ok := s.shown[key]; ok && old.Before(now) {
		now = old
	}
	s.keep(key, now)
	return now
}

func (s *steady) keep(key moment, t time.Time) {
	if s.next == nil {
		s.next = map[moment]time.Time{}
	}
	s.next[key] = t
}

// turn forgets what was not shown since the last turn.
func (s *steady) turn() {
	s.shown, s.next = s.next, s.shown
	clear(s.next)
}
