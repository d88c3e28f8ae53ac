package manager

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// Bounds of waits, and of what is remembered.
const (
	// answerWithin bounds how long a request waits while ZooKeeper answers no request at all.
	// The request then fails with CodeUnavailable or CodeOutcomeUnknown.
	answerWithin = term.AnswerWithin
	// settleWithin bounds how long a request waits for what ZooKeeper refuses or does not report while it answers
	// other requests.
	settleWithin = 5 * time.Second
	// retryAfter is the Retry-After of answers given while ZooKeeper is unavailable.
	retryAfter = time.Second
	keyLife    = 10 * time.Minute // of an idempotency key, after its lease ended
	endedLife  = time.Hour        // how long the reason and postmortem of an ended lease are kept
)

// What answers are made of: errors, cursors of lists, and the budget of text.
//
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

// A cursor is opaque to clients: the kind of its list and where it goes on.
const (
	leaseCursor = 'l' // a lease's id; see locks.LeaseCursor
	lockCursor  = 'k' // a lock's name
	queueCursor = 'w' // a place: a position, or a position and a number of holders with a comma between
)

func cursorOf(kind byte, at string) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{kind}, at...))
}

// cursorAt reads a cursor of that kind; "" is the front.
func cursorAt(kind byte, cursor string) (at string, err error) {
	if cursor == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) < 2 || raw[0] != kind {
		return "", locks.Invalid("cursor", "not a cursor of this list; leave it out to begin at the front")
	}
	return string(raw[1:]), nil
}

// queuePlace is where a page of a queue begins: behind so many of those who wait, and behind so many holders.
type queuePlace struct{ waiters, holders int }

func (p queuePlace) cursor() string {
	at := strconv.Itoa(p.waiters)
	if p.holders > 0 {
		at += "," + strconv.Itoa(p.holders)
	}
	return cursorOf(queueCursor, at)
}

// queuePlaceAt reads a cursor in a queue.
func queuePlaceAt(cursor string) (p queuePlace, err error) {
	at, err := cursorAt(queueCursor, cursor)
	if err != nil || at == "" {
		return queuePlace{}, err
	}
	waiters, holders, both := strings.Cut(at, ",")
	w, err := strconv.ParseUint(waiters, 10, 31)
	h := uint64(0)
	if both && err == nil {
		h, err = strconv.ParseUint(holders, 10, 31)
	}
	if err != nil {
		return queuePlace{}, locks.Invalid("cursor", "not a cursor of this list; leave it out to begin at the front")
	}
	return queuePlace{int(w), int(h)}, nil
}

func unavailable() *locks.Error {
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
		Detail: "ZooKeeper cannot be reached or does not confirm this gateway's writes; nothing was done, repeat the request"}
}

// unavailableFor is unavailable with a cause for the log.
func unavailableFor(cause error) *locks.Error {
	e := unavailable()
	e.Err = cause
	return e
}

func outcomeUnknown() *locks.Error {
	return &locks.Error{Code: locks.CodeOutcomeUnknown, RetryAfter: retryAfter,
		Detail: "ZooKeeper has not confirmed it yet: it may have been done; repeat the request (an acquire with the same Idempotency-Key)"}
}

func notFound() *locks.Error {
	return &locks.Error{Code: locks.CodeNotFound, Detail: "there is no lease with that id"}
}

func endedError(reason locks.Reason) *locks.Error {
	return &locks.Error{Code: locks.CodeEnded, Reason: reason, Detail: "the lease has ended: " + string(reason)}
}

func namespaceUnknown(field, ns string) *locks.Error {
	return &locks.Error{Code: locks.CodeNamespaceUnknown, Field: field, Detail: "there is no namespace " + ns}
}

func atBound(code locks.Code, after time.Duration, detail string, args ...any) *locks.Error {
	return &locks.Error{Code: code, RetryAfter: after, Detail: fmt.Sprintf(detail, args...)}
}

func isNoNode(err error) bool { return errors.Is(err, zk.ErrNoNode) }
