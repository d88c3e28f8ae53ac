package recipe

// Wait describes what blocks a waiter, from the whole queue before it.
type Wait struct {
	// First: all contenders before it hold the lock, or would if their leases did not wait for another lock.
	First bool
	// Permits: only permits are before it, and they leave Free of its limit.
	Permits bool
	Free    int
	// Position is that of the last waiter before it that is not shared; 0 for none. Writer: that waiter is exclusive.
	Position int
	Writer   bool
}

// Ahead walks an ordered queue from the front and says what each contender waits for.
type Ahead struct {
	before, sum tally
	last        *Contender
	behind      Wait // Position and Writer of the last waiter that is not shared
	blocked     bool // an earlier contender is kept from holding
}

// Next takes the next contender and its position, 0 for a holder. It returns nil when no contender before it blocks it.
func (a *Ahead) Next(c *Contender, position int) *Wait {
	if a.last == nil || join(a.last, c) == 0 {
		a.before = a.sum
	}
	a.sum.add(c)
	a.last = c
	wait := a.behind
	if c.Mode != Shared {
		a.behind = Wait{Position: position, Writer: position > 0 && c.Mode == Exclusive}
	}
	if a.before.admits(c) {
		return nil
	}
	wait.First, a.blocked = !a.blocked, true
	if c.Mode == Permit && !a.before.exclusive && !a.before.shared {
		wait.Permits, wait.Free = true, max(int(int64(c.Limit)-a.before.permits), 0)
	}
	return &wait
}

// Closed reports whether no contender behind those that were taken can hold, but for one that belongs to the entry of the last.
// noPermits: they leave no permit.
func (a *Ahead) Closed(noPermits bool) bool {
	t := &a.sum
	return t.exclusive || t.shared && t.permits > 0 || t.permits > 0 && noPermits
}
