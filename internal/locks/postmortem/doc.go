// Package postmortem remembers ended leases: why each one ended, what it was like, and which contender was granted its
// lock next. A Log keeps the ends of an hour, at most MaxEnds of them; beyond that it forgets the oldest.
//
// A Log keeps ends in flat storage, numbers in entries and texts in blocks of bytes, so that the garbage collector follows
// no pointer of any of them. Get makes an End of an entry. An index of eight bytes for each finds it by its lease.
//
// A Log is passive and not safe for concurrent use; it is given the time and never reads a clock.
package postmortem
