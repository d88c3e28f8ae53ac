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
	// feedBatch bounds the notices that one call collects under the lock.
	feedBatch = 256
	// maxReportedName bounds a name in a peer report, in bytes.
	maxReportedName = 1024
)

// noticeKind is what a notice tells.
type noticeKind string

const (
	noticeEnded       noticeKind = "ended"       // a lease of the sender ended
	noticeTermination noticeKind = "termination" // another gateway's lease is about to be ended
	noticeWithdrawn   noticeKind = "withdrawn"   // it was not
	noticeConfirmed   noticeKind = "confirmed"   // it was
	noticeDestroyed   noticeKind = "destroyed"   // a lock was destroyed
)

// notice is an entry of the feed.
type notice struct {
	kind  noticeKind
	lease recipe.LeaseID
	at    queues.Location  // its contender, of another program's when lease is ""
	lock  postmortem.Place // with noticeDestroyed
	why   cause
	zxid  int64
}

// notices are the latest entries of the feed.
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

// noticeOf is a notice about a contender.
func noticeOf(q *queues.Queue, c *recipe.Contender) notice {
	n := notice{at: queues.Location{Queue: q, Contender: c}}
	if c.Ours {
		n.lease = c.LeaseID
	}
	return n
}

// announce reports that contenders of others are about to be ended, or the outcome.
func (m *Manager) announce(kind noticeKind, v cause, list []queues.Location) {
	if !m.notices.followed {
		return
	}
	var last recipe.LeaseID
	for _, p := range list {
		n := noticeOf(p.Queue, p.Contender)
		if n.lease != "" && n.lease == last {
			continue // a lease of several contenders
		}
		last = n.lease
		n.kind, n.why = kind, v
		m.tell(n)
	}
}

// endReport is a notice as it is sent. Spans are nanoseconds; Ended is since the Unix epoch, by the sender's clock.
type endReport struct {
	Kind   noticeKind     `json:"kind"`
	Lease  recipe.LeaseID `json:"lease,omitempty"`
	NS     string         `json:"ns,omitempty"`
	Lock   string         `json:"lock,omitempty"`
	Name   string         `json:"name,omitempty"` // of its contender in that queue, when it is known
	Reason locks.Reason   `json:"reason,omitempty"`
	Words  string         `json:"words,omitempty"`
	// With noticeEnded. Unsure: another client has deleted the contender, and its gateway may report the reason. Stays: the
	// place stays for a lock delay.
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
	Next   *nextReport   `json:"next,omitempty"`
	// With noticeDestroyed: the replica must contain this zxid before the event is published.
	Zxid int64 `json:"zxid,omitempty"`
}

// nextReport is the next holder of the lock.
type nextReport struct {
	Lease recipe.LeaseID `json:"lease,omitempty"`
	Name  string         `json:"name"`
	Owner string         `json:"owner,omitempty"`
	Token int64          `json:"token,omitempty"`
	After time.Duration  `json:"after"`
}

// News returns the reports after a place that an earlier call returned, "" for all that are remembered; at is the place
// after them. Without lines there are none now, and more is closed when there may be. more is nil when no more follow,
// because this gateway stops.
func (m *Manager) News(since string) (lines [][]byte, at string, more <-chan struct{}) {
	var list []endReport
	m.do(func() { list, at, more = m.feedSince(since) })
	for i := range list {
		line, err := json.Marshal(&list[i])
		if err != nil {
			panic("encoding news: " + err.Error()) // strings and integers only
		}
		lines = append(lines, line)
	}
	return lines, at, more
}

// follower is a place in the feed: at seq in the line and, while the history comes first, at past in the history.
type follower struct {
	seq, past uint64
	telling   bool // the history comes first
}

func (m *Manager) feedSince(since string) (list []endReport, at string, more <-chan struct{}) {
	line := &m.notices
	line.followed = true
	f, ok := m.placeOf(since)
	if !ok {
		f = follower{seq: line.first + uint64(len(line.line)), telling: true}
	}
	if f.telling {
		ids, next := m.history.From(f.past, feedBatch)
		for _, id := range ids {
			list = append(list, m.endReportOf(id))
		}
		if f.telling = next != f.past && len(ids) > 0; f.telling {
			f.past = next
			return list, m.placeAt(f), nil
		}
	}
	for ; f.seq-line.first < uint64(len(line.line)) && len(list) < feedBatch; f.seq++ {
		if n, ok := m.reportOf(&line.line[f.seq-line.first]); ok {
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

// reportOf is a notice as it is sent; false when what it is about has been forgotten.
func (m *Manager) reportOf(n *notice) (endReport, bool) {
	switch n.kind {
	case noticeEnded, noticeConfirmed:
		if !m.history.Has(n.lease) {
			break
		}
		told := m.endReportOf(n.lease)
		if n.at.Contender != nil {
			told.Name = n.at.Contender.Name
		}
		return told, true
	case noticeDestroyed:
		return endReport{Kind: n.kind, NS: n.lock.NS, Lock: n.lock.Lock, Words: n.why.words, Zxid: n.zxid}, true
	}
	if n.at.Queue == nil {
		return endReport{}, false
	}
	return endReport{Kind: n.kind, Lease: n.lease, NS: n.at.Queue.Namespace.Name, Lock: n.at.Queue.Name(), Name: n.at.Contender.Name, Reason: n.why.reason, Words: n.why.words}, true
}

// endReportOf is what is remembered of an end, as it is sent.
func (m *Manager) endReportOf(id recipe.LeaseID) endReport {
	p, _ := m.history.Get(id)
	now := m.clock.Now()
	n := endReport{Kind: noticeEnded, Lease: id, NS: p.NS, Lock: p.Lock, Reason: p.Reason(), Words: p.Words, Mode: locks.ModeOf(p.Mode), Owner: p.Owner,
		Token: p.FencingToken, TTL: p.TTL, Waited: p.Waited, Held: p.Held, Beat: p.Beat, Ended: int64(now.Wall() - (now.Boot() - p.At)),
		Unsure: m.back.waits(id), Stays: p.Stays || m.delays.byID[id] != nil}
	if p.Terminated {
		n.Kind, n.Unsure = noticeConfirmed, false
	}
	// A longer name of another program would make the peer drop the report (check).
	if p.Next != nil && len(p.Next.Name) <= maxReportedName && len(p.Next.Owner) <= locks.MaxOwner {
		n.Next = &nextReport{Lease: p.Next.Lease, Name: p.Next.Name, Owner: p.Next.Owner, Token: p.Next.Token, After: p.Next.After}
	}
	return n
}

// peerFeed is a gateway that may send reports.
type peerFeed struct {
	followed bool
	since    time.Duration // boot; start of the present value of followed
}

// Following sets whether another gateway's feed is followed now.
func (m *Manager) Following(gateway string, followed bool) {
	m.do(func() {
		if s := m.feeds[recipe.GatewayID(gateway)]; s != nil {
			s.followed, s.since = followed, m.clock.Now().Boot()
		}
	})
}

// feedJoined and feedLeft record registrations.
func (m *Manager) feedJoined(id recipe.GatewayID, now time.Duration) {
	if m.opt.PeerReports {
		m.feeds[id] = &peerFeed{since: now}
		m.feedsChanged()
	}
}

func (m *Manager) feedLeft(id recipe.GatewayID) {
	if m.feeds[id] != nil {
		delete(m.feeds, id)
		m.feedsChanged()
	}
}

// feedsChanged wakes the readers that wait for a change of the sources.
func (m *Manager) feedsChanged() {
	if m.feedsWake != nil {
		m.wake(m.feedsWake)
		m.feedsWake = nil
	}
}

// PeersChanged returns a channel that is closed when a gateway registers or leaves, or its address becomes known.
func (m *Manager) PeersChanged() <-chan struct{} {
	return locked(m, func() <-chan struct{} {
		if m.feedsWake == nil {
			m.feedsWake = make(chan struct{})
		}
		return m.feedsWake
	})
}

// peerMayExplain reports whether another gateway may still report something.
func (m *Manager) peerMayExplain() bool {
	for id := range m.feeds {
		if m.mayExplain(id) {
			return true
		}
	}
	return false
}

func (m *Manager) mayExplain(id recipe.GatewayID) bool {
	s := m.feeds[id]
	if s == nil {
		return false
	}
	if m.members.IsOwn(id) {
		return false
	}
	return s.followed || m.clock.Now().Boot()-s.since < connectWithin
}
