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
func (pr *peerReports) tell(n notice) {
	line := &pr.notices
	if !line.followed {
		return
	}
	line.line = append(line.line, n)
	if extra := len(line.line) - maxNotices; extra >= maxNotices {
		line.line = append(line.line[:0:0], line.line[extra:]...)
		line.first += uint64(extra)
	}
	pr.wakeFollowers()
}

func (pr *peerReports) wakeFollowers() {
	if pr.notices.wake != nil {
		pr.monitor.wake(pr.notices.wake)
		pr.notices.wake = nil
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
func (pr *peerReports) announce(kind noticeKind, v cause, list []queues.Location) {
	if !pr.notices.followed {
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
		pr.tell(n)
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
func (pr *peerReports) News(since string) (lines [][]byte, at string, more <-chan struct{}) {
	var list []endReport
	pr.monitor.do(func() { list, at, more = pr.feedSince(since) })
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

func (pr *peerReports) feedSince(since string) (list []endReport, at string, more <-chan struct{}) {
	line := &pr.notices
	line.followed = true
	f, ok := pr.placeOf(since)
	if !ok {
		f = follower{seq: line.first + uint64(len(line.line)), telling: true}
	}
	if f.telling {
		ids, next := pr.history.From(f.past, feedBatch)
		for _, id := range ids {
			list = append(list, pr.endReportOf(id))
		}
		if f.telling = next != f.past && len(ids) > 0; f.telling {
			f.past = next
			return list, pr.placeAt(f), nil
		}
	}
	for ; f.seq-line.first < uint64(len(line.line)) && len(list) < feedBatch; f.seq++ {
		if n, ok := pr.reportOf(&line.line[f.seq-line.first]); ok {
			list = append(list, n)
		}
	}
	if len(list) > 0 || line.over {
		return list, pr.placeAt(f), nil
	}
	if line.wake == nil {
		line.wake = make(chan struct{})
	}
	return nil, pr.placeAt(f), line.wake
}

// placeAt writes a place down, and placeOf reads it. One of another process, or one that is too old, is none.
func (pr *peerReports) placeAt(f follower) string {
	at := pr.leases.nonce + "." + strconv.FormatUint(f.seq, 10)
	if f.telling {
		at += "." + strconv.FormatUint(f.past, 10)
	}
	return at
}

func (pr *peerReports) placeOf(at string) (f follower, ok bool) {
	parts := strings.Split(at, ".")
	if len(parts) < 2 || len(parts) > 3 || parts[0] != pr.leases.nonce {
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
	line := &pr.notices
	return f, f.seq >= line.first && f.seq <= line.first+uint64(len(line.line))
}

// reportOf is a notice as it is sent; false when what it is about has been forgotten.
func (pr *peerReports) reportOf(n *notice) (endReport, bool) {
	switch n.kind {
	case noticeEnded, noticeConfirmed:
		if !pr.history.Has(n.lease) {
			break
		}
		told := pr.endReportOf(n.lease)
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
func (pr *peerReports) endReportOf(id recipe.LeaseID) endReport {
	p, _ := pr.history.Get(id)
	now := pr.clock.Now()
	n := endReport{Kind: noticeEnded, Lease: id, NS: p.NS, Lock: p.Lock, Reason: p.Reason(), Words: p.Words, Mode: locks.ModeOf(p.Mode), Owner: p.Owner,
		Token: p.FencingToken, TTL: p.TTL, Waited: p.Waited, Held: p.Held, Beat: p.Beat, Ended: int64(now.Wall() - (now.Boot() - p.At)),
		Unsure: pr.back.waits(id), Stays: p.Stays || pr.delays.byID[id] != nil}
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
func (pr *peerReports) Following(gateway string, followed bool) {
	pr.monitor.do(func() {
		if s := pr.feeds[recipe.GatewayID(gateway)]; s != nil {
			s.followed, s.since = followed, pr.clock.Now().Boot()
		}
	})
}

// feedJoined and feedLeft record registrations.
func (pr *peerReports) feedJoined(id recipe.GatewayID, now time.Duration) {
	if pr.follows {
		pr.feeds[id] = &peerFeed{since: now}
		pr.feedsChanged()
	}
}

func (pr *peerReports) feedLeft(id recipe.GatewayID) {
	if pr.feeds[id] != nil {
		delete(pr.feeds, id)
		pr.feedsChanged()
	}
}

// feedsChanged wakes the readers that wait for a change of the sources.
func (pr *peerReports) feedsChanged() {
	if pr.feedsWake != nil {
		pr.monitor.wake(pr.feedsWake)
		pr.feedsWake = nil
	}
}

// PeersChanged returns a channel that is closed when a gateway registers or leaves, or its address becomes known.
func (pr *peerReports) PeersChanged() <-chan struct{} {
	var changed <-chan struct{}
	pr.monitor.do(func() {
		if pr.feedsWake == nil {
			pr.feedsWake = make(chan struct{})
		}
		changed = pr.feedsWake
	})
	return changed
}

// peerMayExplain reports whether another gateway may still report something.
func (pr *peerReports) peerMayExplain() bool {
	for id := range pr.feeds {
		if pr.mayExplain(id) {
			return true
		}
	}
	return false
}

func (pr *peerReports) mayExplain(id recipe.GatewayID) bool {
	s := pr.feeds[id]
	if s == nil {
		return false
	}
	if pr.members.IsOwn(id) {
		return false
	}
	return s.followed || pr.clock.Now().Boot()-s.since < connectWithin
}
