package manager

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// A gateway reports to its peers how its own leases ended and which leases of others its administrators end. It does
// not forward peer reports, because every gateway follows every other one.
//
// The gateway reports a termination before it submits the deletion, so the lease's owner usually knows the reason when
// the contender disappears. It withdraws the report when the deletion was not done. It reports an end once it is certain.
//
// The queue of notices stays empty until a peer follows, so a single gateway pays nothing. The details of an end are
// read from the history when the notice is sent. A new follower, or one that lost its place, gets the whole history first.

const (
	// maxNotices are kept at least, and fewer than twice as many. A follower that falls further behind gets the whole
	// history again.
	maxNotices = 1 << 13
	// newsBatch bounds the notices that one call collects under the lock.
	newsBatch = 256
	// maxToldName bounds a name in a peer report, in bytes.
	maxToldName = 1024
)

// noticeKind is what a notice tells.
type noticeKind string

const (
	noticeEnded     noticeKind = "ended"     // a lease of the sender ended
	noticeVerdict   noticeKind = "verdict"   // another gateway's lease is about to be ended
	noticeAcquitted noticeKind = "acquitted" // it was not
	noticeStruck    noticeKind = "struck"    // it was
	noticeDestroyed noticeKind = "destroyed" // a lock, with everyone in its queue
)

// notice is what is kept of something that is told.
type notice struct {
	kind  noticeKind
	lease recipe.LeaseID
	at    queues.Location  // its contender, of another program's when lease is ""
	lock  postmortem.Place // with noticeDestroyed
	why   cause
	zxid  int64
}

// notices are what has been told lately.
type notices struct {
	followed bool
	line     []notice
	first    uint64        // the place of line[0]
	wake     chan struct{} // closed at the next one; nil without waiters
	over     bool          // no more notices follow
}

// tell adds a notice, if a peer follows.
func (m *Manager) tell(n notice) {
	line := &m.notices
	if !line.followed {
		return
	}
	line.line = append(line.line, n)
	if extra := len(line.line) - maxNotices; extra >= maxNotices {
		line.line = append(line.line[:0:0], line.line[extra:]...)
		line.first += uint64(extra)
	}
	m.wakeFollowers()
}

func (m *Manager) wakeFollowers() {
	if m.notices.wake != nil {
		m.wake(m.notices.wake)
		m.notices.wake = nil
	}
}

// noted is a contender as a notice tells of it.
func noted(q *queues.Queue, c *recipe.Contender) notice {
	n := notice{at: queues.Location{Queue: q, Contender: c}}
	if c.Ours {
		n.lease = c.LeaseID
	}
	return n
}

// tellVerdict reports that contenders of others are about to be ended, or the outcome.
func (m *Manager) tellVerdict(kind noticeKind, v cause, list []queues.Location) {
	if !m.notices.followed {
		return
	}
	var last recipe.LeaseID
	for _, p := range list {
		n := noted(p.Queue, p.Contender)
		if n.lease != "" && n.lease == last {
			continue // a lease of several contenders
		}
		last = n.lease
		n.kind, n.why = kind, v
		m.tell(n)
	}
}

// news is a notice as it is sent. Spans are nanoseconds; Ended is since the Unix epoch, by the teller's clock.
type news struct {
	Kind   noticeKind     `json:"kind"`
	Lease  recipe.LeaseID `json:"lease,omitempty"`
	NS     string         `json:"ns,omitempty"`
	Lock   string         `json:"lock,omitempty"`
	Name   string         `json:"name,omitempty"` // of its contender in that queue, when it is known
	Reason locks.Reason   `json:"reason,omitempty"`
	Words  string         `json:"words,omitempty"`
	// With noticeEnded. Unsure: somebody else has deleted it, who may yet tell. Stays: its place does, for its lock delay.
	Unsure bool          `json:"unsure,omitempty"`
	Stays  bool          `json:"stays,omitempty"`
	Ended  int64         `json:"ended,omitempty"`
	Mode   locks.Mode    `json:"mode,omitempty"`
	Owner  string        `json:"owner,omitempty"`
	Token  int64         `json:"token,omitempty"`
	TTL    time.Duration `json:"ttl,omitempty"`
	Waited time.Duration `json:"waited,omitempty"`
	Held   time.Duration `json:"held,omitempty"`
	Beat   time.Duration `json:"beat,omitempty"`
	Next   *nextNews     `json:"next,omitempty"`
	// With noticeDestroyed: what a replica has to contain before it is told.
	Zxid int64 `json:"zxid,omitempty"`
}

// nextNews is the next holder of the lock.
type nextNews struct {
	Lease recipe.LeaseID `json:"lease,omitempty"`
	Name  string         `json:"name"`
	Owner string         `json:"owner,omitempty"`
	Token int64          `json:"token,omitempty"`
	After time.Duration  `json:"after"`
}

// News is what has been told behind a place that an earlier call gave, "" for everything that is remembered; at
// is the place behind it. Without lines there is nothing now: more is closed when
// there may be. It is nil when there will never be more, because this gateway is going.
func (m *Manager) News(since string) (lines [][]byte, at string, more <-chan struct{}) {
	var list []news
	m.do(func() { list, at, more = m.newsSince(since) })
	for i := range list {
		line, err := json.Marshal(&list[i])
		if err != nil {
			panic("encoding news: " + err.Error()) // strings and integers only
		}
		lines = append(lines, line)
	}
	return lines, at, more
}

// follower is a place in what is told: at seq in the line, and, while the history is being told first, at which of the ends
// there.
type follower struct {
	seq, past uint64
	telling   bool
}

func (m *Manager) newsSince(since string) (list []news, at string, more <-chan struct{}) {
	line := &m.notices
	line.followed = true
	f, ok := m.placeOf(since)
	if !ok {
		f = follower{seq: line.first + uint64(len(line.line)), telling: true}
	}
	if f.telling {
		ids, next := m.history.From(f.past, newsBatch)
		for _, id := range ids {
			list = append(list, m.newsOfEnd(id))
		}
		if f.telling = next != f.past && len(ids) > 0; f.telling {
			f.past = next
			return list, m.placeAt(f), nil
		}
	}
	for ; f.seq-line.first < uint64(len(line.line)) && len(list) < newsBatch; f.seq++ {
		if n, ok := m.newsOf(&line.line[f.seq-line.first]); ok {
			list = append(list, n)
		}
	}
	if len(list) > 0 || line.over {
		return list, m.placeAt(f), nil
	}
	if line.wake == nil {
		line.wake = make(chan struct{})
	}
	return nil, m.placeAt(f), line.wake
}

// placeAt writes a place down, and placeOf reads it. One of another process, or one that is too old, is none.
func (m *Manager) placeAt(f follower) string {
	at := m.leases.nonce + "." + strconv.FormatUint(f.seq, 10)
	if f.telling {
		at += "." + strconv.FormatUint(f.past, 10)
	}
	return at
}

func (m *Manager) placeOf(at string) (f follower, ok bool) {
	parts := strings.Split(at, ".")
	if len(parts) < 2 || len(parts) > 3 || parts[0] != m.leases.nonce {
		return f, false
	}
	var err error
	if f.seq, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return f, false
	}
	if f.telling = len(parts) == 3; f.telling {
		if f.past, err = strconv.ParseUint(parts[2], 10, 64); err != nil {
			return f, false
		}
	}
	line := &m.notices
	return f, f.seq >= line.first && f.seq <= line.first+uint64(len(line.line))
}

// newsOf is a notice as it is sent; false when what it is about has been forgotten.
func (m *Manager) newsOf(n *notice) (news, bool) {
	switch n.kind {
	case noticeEnded, noticeStruck:
		if !m.history.Has(n.lease) {
			break
		}
		told := m.newsOfEnd(n.lease)
		if n.at.Contender != nil {
			told.Name = n.at.Contender.Name
		}
		return told, true
	case noticeDestroyed:
		return news{Kind: n.kind, NS: n.lock.NS, Lock: n.lock.Lock, Words: n.why.words, Zxid: n.zxid}, true
	}
	if n.at.Queue == nil {
		return news{}, false
	}
	return news{Kind: n.kind, Lease: n.lease, NS: n.at.Queue.Namespace.Name, Lock: n.at.Queue.Name(), Name: n.at.Contender.Name, Reason: n.why.reason, Words: n.why.words}, true
}

// newsOfEnd is what is remembered of an end, as it is sent.
func (m *Manager) newsOfEnd(id recipe.LeaseID) news {
	p, _ := m.history.Get(id)
	now := m.clock.Now()
	n := news{Kind: noticeEnded, Lease: id, NS: p.NS, Lock: p.Lock, Reason: p.Reason(), Words: p.Words, Mode: locks.ModeOf(p.Mode), Owner: p.Owner,
		Token: p.FencingToken, TTL: p.TTL, Waited: p.Waited, Held: p.Held, Beat: p.Beat, Ended: int64(now.Wall() - (now.Boot() - p.At)),
		Unsure: m.back.waits(id), Stays: p.Stays || m.delays.byID[id] != nil}
	if p.Struck {
		n.Kind, n.Unsure = noticeStruck, false
	}
	// Another program's name of any length would keep all of it from being heard (check), or make a line too long to be read.
	if p.Next != nil && len(p.Next.Name) <= maxToldName && len(p.Next.Owner) <= locks.MaxOwner {
		n.Next = &nextNews{Lease: p.Next.Lease, Name: p.Next.Name, Owner: p.Next.Owner, Token: p.Next.Token, After: p.Next.After}
	}
	return n
}
