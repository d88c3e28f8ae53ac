package paging

import "lockkeeper/internal/locks"

// The budgets of answers.
const (
	// MaxText bounds the bytes of text in one answer. A page ends before the entry that would exceed it. An answer
	// without pages shows the entries from there on without the texts of clients.
	MaxText Budget = 1 << 20
	// DryRunText is the same for a dry run, which shows at most sixteen holders.
	DryRunText Budget = 16 << 10
	// SettingsText is the same for the answer to a change of settings, which cannot be refused once it is done.
	SettingsText Budget = 8 << 10
	// entryText is what an entry counts in addition to its text: for the names of its members and for its numbers.
	entryText = 128
)

// Budget is how many bytes of text an answer may still show.
type Budget int

// take reports whether an entry of that many bytes fits, and counts it if it does.
func (b *Budget) take(n int) bool {
	if n > int(*b) {
		return false
	}
	*b -= Budget(n)
	return true
}

// TakeContender reports whether a contender fits, and counts it if it does.
func (b *Budget) TakeContender(c *locks.Contender) bool { return b.take(contenderText(c)) }

// TakeLock reports whether a lock fits, and counts it if it does.
func (b *Budget) TakeLock(l *locks.Lock) bool {
	n := entryText + len(l.Name) + len(l.NextCursor)
	for i := range l.Holders {
		n += contenderText(&l.Holders[i])
	}
	for i := range l.Hazards {
		n += len(l.Hazards[i].Detail)
	}
	return b.take(n)
}

// TakeLease reports whether a lease fits, and counts it if it does.
func (b *Budget) TakeLease(l *locks.Lease) bool {
	n := entryText + len(l.ID) + len(l.Lock) + len(l.Znode) + len(l.Owner) + len(l.Principal) + len(l.Metadata) + len(l.Purpose) + len(l.Warning) + namesText(l.Holds)
	for i := range l.Locks {
		n += entryText + len(l.Locks[i].Lock) + len(l.Locks[i].Znode)
	}
	if l.Revoke != nil {
		n += len(l.Revoke.Reason)
	}
	return b.take(n)
}

// Trim removes the texts of clients and other programs, except the owner, from the entries beyond the budget.
func (b *Budget) Trim(list []locks.Contender) {
	for i := range list {
		b.TrimOne(&list[i])
	}
}

// TrimUnreached is Trim for contenders that the request could not change.
func (b *Budget) TrimUnreached(list []locks.Unreached) {
	for i := range list {
		b.TrimOne(&list[i].Contender)
	}
}

// TrimOne is Trim for one entry. Once an entry is beyond the budget, all later ones are.
func (b *Budget) TrimOne(c *locks.Contender) {
	if b.TakeContender(c) {
		return
	}
	*b = 0
	c.Metadata, c.Purpose, c.Holds, c.Group = "", "", nil, nil
	if f := c.Foreign; f != nil {
		c.Foreign = &locks.Foreign{Program: f.Program, Kind: f.Kind, Session: f.Session, Revocable: f.Revocable}
	}
	if r := c.Revoke; r != nil {
		c.Revoke = &locks.Revocation{Forced: r.Forced, ForceIn: r.ForceIn}
	}
}

func contenderText(c *locks.Contender) int {
	n := entryText + len(c.LeaseID) + len(c.Znode) + len(c.Owner) + len(c.Principal) + len(c.Metadata) + len(c.Purpose) + namesText(c.Holds) + namesText(c.Group)
	if f := c.Foreign; f != nil {
		n += 2 * len(f.Data) // what it says is shown decoded, too
	}
	if c.Revoke != nil {
		n += len(c.Revoke.Reason) + len(c.Revoke.By)
	}
	return n
}

func namesText(names []string) (n int) {
	for _, name := range names {
		n += len(name) + 3 // quotes and a comma
	}
	return n
}
