package manager

import "lockkeeper/internal/locks"

// An answer is bounded by its text, not only by its entries: an entry has up to 4 KiB of metadata and the names of 63
// other locks, and JSON writes one byte of text in up to six.

const (
	// maxText bounds the bytes of text in one answer. A page ends before the entry that would exceed it. An answer
	// without pages shows the entries from there on without the texts of clients.
	maxText = 1 << 20
	// dryRunText is the same for a dry run, which shows at most sixteen holders.
	dryRunText = 16 << 10
	// settingsText is the same for the answer to a change of settings, which cannot be refused once it is done.
	settingsText = 8 << 10
	// entryText is what an entry counts in addition to its text: for the names of its members and for its numbers.
	entryText = 128
)

// textBudget is how many bytes of text an answer may still show.
type textBudget int

// take reports whether an entry of that many bytes fits, and counts it if it does.
func (b *textBudget) take(n int) bool {
	if n > int(*b) {
		return false
	}
	*b -= textBudget(n)
	return true
}

// trim removes the texts of clients and other programs, except the owner, from the entries beyond the budget.
func (b *textBudget) trim(list []locks.Contender) {
	for i := range list {
		b.trimOne(&list[i])
	}
}

// trimNot is trim for contenders that the request could not change.
func (b *textBudget) trimNot(list []locks.Unreached) {
	for i := range list {
		b.trimOne(&list[i].Contender)
	}
}

func (b *textBudget) trimOne(c *locks.Contender) {
	if b.take(contenderText(c)) {
		return
	}
	*b = 0 // the entries after it are trimmed, too
	c.Metadata, c.Holds, c.Group = "", nil, nil
	if f := c.Foreign; f != nil {
		c.Foreign = &locks.Foreign{Program: f.Program, Kind: f.Kind, Session: f.Session, Revocable: f.Revocable}
	}
	if r := c.Revoke; r != nil {
		c.Revoke = &locks.Revocation{Forced: r.Forced, ForceIn: r.ForceIn}
	}
}

func contenderText(c *locks.Contender) int {
	n := entryText + len(c.LeaseID) + len(c.Znode) + len(c.Owner) + len(c.Metadata) + namesText(c.Holds) + namesText(c.Group)
	if f := c.Foreign; f != nil {
		n += 2 * len(f.Data) // what it says is shown decoded, too
	}
	if c.Revoke != nil {
		n += len(c.Revoke.Reason)
	}
	return n
}

func lockText(l *locks.Lock) int {
	n := entryText + len(l.Name) + len(l.NextCursor)
	for i := range l.Holders {
		n += contenderText(&l.Holders[i])
	}
	for i := range l.Hazards {
		n += len(l.Hazards[i].Detail)
	}
	return n
}

func leaseText(l *locks.Lease) int {
	n := entryText + len(l.ID) + len(l.Lock) + len(l.Znode) + len(l.Owner) + len(l.Metadata) + len(l.Warning) + namesText(l.Holds)
	for i := range l.Locks {
		n += entryText + len(l.Locks[i].Lock) + len(l.Locks[i].Znode)
	}
	if l.Revoke != nil {
		n += len(l.Revoke.Reason)
	}
	return n
}

func namesText(names []string) (n int) {
	for _, name := range names {
		n += len(name) + 3 // quotes and a comma
	}
	return n
}
