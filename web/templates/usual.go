package templates

import "time"

// Usual is for how long a lock is held, as a rule.
type Usual struct {
	Held   time.Duration // the median
	Of     int           // of so many holds
	Window string        // that ended in this time: "24 hours"
}

// Expected is how long a waiter may have to wait, by how long the lock is usually held.
type Expected struct {
	Before int // holders and waiters before it
	Usual  *Usual
	At     time.Time // when it may be granted; zero: the holder has held for longer than usual
	// AtLeast is, when the holder has held for longer than usual, how long those between it and the waiter usually take.
	AtLeast time.Duration
}

func (u Usual) title() string {
	return "the median of " + counted(u.Of, "hold") + " that ended in the last " + u.Window
}

// basis is what an expectation rests on.
func (e Expected) basis() string {
	text := count(e.Before) + " before it, usually held " + rough(e.Usual.Held)
	if e.At.IsZero() {
		text += "; the holder has held longer"
	}
	return text
}

// least is what can be said when the holder has held for longer than usual.
func (e Expected) least() string {
	if e.AtLeast <= 0 {
		return "soon, or not: the holder has held longer than usual"
	}
	return "over " + rough(e.AtLeast)
}
