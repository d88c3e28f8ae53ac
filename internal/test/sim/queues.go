package sim

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The rules of the queues once more, as plainly as they can be written: the names decide who holds. The gateway's own are
// in internal/locks/recipe, and are quicker.

// mode is how a client wants a lock.
type mode string

const (
	exclusive mode = "exclusive"
	shared    mode = "shared"
	semaphore mode = "semaphore"
)

// claim is what a client wants of one lock: with semaphore some permits of a limit.
type claim struct {
	mode           mode
	permits, limit int
}

// meets reports whether the two may not be held at one time, with any number of permits.
func (c claim) meets(other claim) bool { return c.mode != other.mode || c.mode == exclusive }

// contender is a place in the queue of a lock, from its creation on. A downgrade changes the node and keeps the place.
type contender struct {
	claim
	lock, path string
	lease      string // its path, when it is no gateway's
	number     string // its last ten characters: order, as long as nothing overflows
	// Of a lease of several locks: the how manieth it is of how many. Of a lock with several contenders for one lease: the same.
	group, groups, member, members int
	ephemeral                      bool
	glimpsed                       bool  // ephemeral: events may have shown it as first while its session's end was told
	first                          int64 // czxid in the name, of what it replaces; 0 for none
	czxid                          int64 // of its first node
	made                           time.Time
	replaced                       time.Time // when it was downgraded
	closed                         time.Time // when it was written that its lease has ended
	gone                           time.Time // zero while it is there
	led                            time.Time // when it came to hold by the names of its queue, zero before
	held                           time.Time // when its lease came to hold, in all its queues
	data                           string
	by                             int64     // the session that made it
	written                        time.Time // when another program first overwrote its data
	endOverwritten                 bool      // it did so when its record said that its lease has ended
	closedFor                      string    // why, as its record says
	endedBy                        string    // the gateway whose transaction ended its lease; "" for another hand
	endedAt                        int64     // that transaction's zxid
}

// ended is when the lease ended: its place may stay.
func (c *contender) ended() time.Time {
	if !c.closed.IsZero() && (c.gone.IsZero() || c.closed.Before(c.gone)) {
		return c.closed
	}
	return c.gone
}

// endedByGateway reports whether a gateway's transaction has ended a lease that is not ephemeral: receivers are told of it.
func (c *contender) endedByGateway() bool { return !c.there() && !c.ephemeral && c.endedBy != "" }

// there reports whether the lease lives.
func (c *contender) there() bool { return c.ended().IsZero() }

var ourName = regexp.MustCompile(`^(?:(write|read|permit)-)?v1\.([a-z0-9]+)(\.e)?(?:\.m(\d+)of(\d+))?(?:\.g(\d+)of(\d+))?(?:\.f(\d+))?(?:-(\d+)of(\d+))?(-lock-|-__WRIT__|-__READ__|__lock__|__rlock__)`)

// read takes from the name of a gateway's contender what it says.
func (c *contender) read() {
	m := ourName.FindStringSubmatch(c.path[strings.LastIndexByte(c.path, '/')+1:])
	if m == nil {
		return
	}
	number := func(s string) int {
		n, _ := strconv.Atoi(s) // "" is 0
		return n
	}
	c.lease, c.ephemeral = m[2], m[3] != ""
	c.member, c.members = max(number(m[4]), 1), max(number(m[5]), 1)
	c.group, c.groups = max(number(m[6]), 1), max(number(m[7]), 1)
	c.first, _ = strconv.ParseInt(m[8], 10, 64) // the same
	switch {
	case m[1] == "read", m[11] == "__rlock__":
		c.mode = shared
	case m[1] == "permit":
		c.claim = claim{semaphore, number(m[9]), number(m[10])}
	}
}

// complete reports whether these are all the contenders of a lease.
func complete(places []*contender) bool {
	for group := 1; group <= places[0].groups; group++ {
		members, want := 0, 1
		for _, c := range places {
			if c.group == group {
				members++
				want = c.members
			}
		}
		if members != want {
			return false
		}
	}
	return true
}

// before sums up what stands before a contender.
type before struct {
	exclusive, shared bool
	permits           int
}

func (b *before) add(c *contender) {
	switch c.mode {
	case shared:
		b.shared = true
	case semaphore:
		b.permits += c.permits
	default:
		b.exclusive = true
	}
}

func (b *before) admits(c claim) bool {
	switch c.mode {
	case shared:
		return !b.exclusive && b.permits == 0
	case semaphore:
		return !b.exclusive && !b.shared && b.permits+c.permits <= c.limit
	default:
		return !b.exclusive && !b.shared && b.permits == 0
	}
}

// holders are those that hold by the names of a queue, which is in order.
func holders(queue []*contender) []*contender {
	var hold []*contender
	for i, c := range queue {
		var b before
		for _, other := range queue[:i] {
			if other.lease != c.lease { // the other names of a lease stand beside it
				b.add(other)
			}
		}
		if b.admits(c.claim) {
			hold = append(hold, c)
		}
	}
	return hold
}

// inTheWay is the first contender that keeps another one of its queue from holding; nil when it holds.
func inTheWay(queue []*contender, c *contender) *contender {
	var b before
	for _, other := range queue[:max(slices.Index(queue, c), 0)] {
		if other.lease == c.lease {
			continue
		}
		if b.add(other); !b.admits(c.claim) {
			return other
		}
	}
	return nil
}
