package manager

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// Peer reports: other gateways report how their leases ended, and what their administrators do to leases of other
// gateways.
//
// A report only explains an end: it never grants, ends or keeps a lease. A report about a lease that lives here, or
// whose contender the replica still shows, is kept until the replica has lost the contender. It is dropped when it
// turns out to be wrong. A wrong, late or repeated report therefore costs at most a wrong reason, and reports come
// only from gateways (internal/fleet).
//
// The report of the gateway that ran the lease takes precedence. If that gateway only saw a deletion by another
// client, the report of the administrator's gateway counts. Without a final report, that gateway's announcement
// counts.

const (
	// maxWords bounds the reports that are kept about contenders that still exist.
	maxWords = 1 << 14
	// hopeFor is how long events are delayed for a gateway whose feed is not, or no longer, connected: it may connect
	// soon.
	hopeFor = 3 * time.Second
	// destroyWithin is how long a report of a destroyed lock waits for the replica.
	destroyWithin = time.Second
	// maxDestructions bounds the reports of destroyed locks that wait; further ones are published at once.
	maxDestructions = 256
)

// hearsay is the state of peer reports. The monitor guards it.
type hearsay struct {
	notices     notices                      // reports of this gateway
	words       map[subject]*word            // reports by other gateways about contenders that still exist
	sources     map[recipe.GatewayID]*source // gateways that may send reports
	sourcesWake chan struct{}                // closed when sources changes; nil while no reader waits
	back        back                         // delayed events

	destructions int // reports of destroyed locks that wait
}

func newHearsay() hearsay {
	return hearsay{words: map[subject]*word{}, sources: map[recipe.GatewayID]*source{}}
}

// subject is what a report is about: a lease, or the path of another program's contender.
type subject string

// word is what peers have reported about an end.
type word struct {
	ended, sure bool // ended: the lease's gateway reported end; sure: its report is final
	end         postmortem.End
	verdict     *cause        // the reason that an administrator's gateway reported
	struck      bool          // that gateway confirmed the deletion
	q           *queues.Queue // the contender's queue when the report arrived; nil: the replica had none
	name        string
}

// outcome returns why a lease ended, as far as known; own is what this gateway did to it. w may be nil.
func (w *word) outcome(own *cause) (locks.Reason, string) {
	switch {
	case w != nil && w.sure && w.end.Reason() != locks.ReasonRemoved:
		return w.end.Reason(), w.end.Words
	case own != nil:
		return own.reason, own.words
	case w != nil && w.verdict != nil:
		return w.verdict.reason, w.verdict.words
	case w != nil && w.ended:
		return w.end.Reason(), w.end.Words
	}
	return locks.ReasonUnknown, ""
}

// source is a gateway that may send reports.
type source struct {
	followed bool
	since    time.Duration // boot; start of the present value of followed
}

// Following sets whether another gateway's feed is followed now.
func (m *Manager) Following(gateway string, followed bool) {
	m.do(func() {
		if s := m.sources[recipe.GatewayID(gateway)]; s != nil {
			s.followed, s.since = followed, m.clock.Now().Boot()
		}
	})
}

// joinedSource and leftSource record registrations.
func (m *Manager) joinedSource(id recipe.GatewayID, now time.Duration) {
	if m.opt.Hearsay {
		m.sources[id] = &source{since: now}
		m.sourcesChanged()
	}
}

func (m *Manager) leftSource(id recipe.GatewayID) {
	if m.sources[id] != nil {
		delete(m.sources, id)
		m.sourcesChanged()
	}
}

// sourcesChanged wakes the readers that wait for a change of the sources.
func (m *Manager) sourcesChanged() {
	if m.sourcesWake != nil {
		m.wake(m.sourcesWake)
		m.sourcesWake = nil
	}
}

// SourcesChanged returns a channel that is closed when a gateway registers or leaves, or its address becomes known.
func (m *Manager) SourcesChanged() <-chan struct{} {
	return locked(m, func() <-chan struct{} {
		if m.sourcesWake == nil {
			m.sourcesWake = make(chan struct{})
		}
		return m.sourcesWake
	})
}

// hopes reports whether another gateway may still report something.
func (m *Manager) hopes() bool {
	for id := range m.sources {
		if m.hopesFor(id) {
			return true
		}
	}
	return false
}

func (m *Manager) hopesFor(id recipe.GatewayID) bool {
	s := m.sources[id]
	if s == nil {
		return false
	}
	if m.members.IsOwn(id) {
		return false
	}
	return s.followed || m.clock.Now().Boot()-s.since < hopeFor
}

// Hear applies another gateway's reports in their order. It skips invalid ones: a newer release may have sent them.
func (m *Manager) Hear(from string, lines [][]byte) {
	list := make([]news, 0, len(lines))
	for _, line := range lines {
		var n news
		if err := json.Unmarshal(line, &n); err == nil && n.check() {
			list = append(list, n)
		}
	}
	m.do(func() {
		if m.members.IsOwn(recipe.GatewayID(from)) {
			return
		}
		for i := range list {
			m.hear(&list[i])
		}
	})
}

// check reports whether a report may be shown to users: its fields have the same bounds as in requests.
func (n *news) check() bool {
	if len(n.Owner) > locks.MaxOwner || len(n.Words) > locks.MaxReasonText || len(n.Name) > maxToldName || len(n.NS) > maxToldName || len(n.Lock) > maxToldName ||
		!utf8.ValidString(n.Owner) || !utf8.ValidString(n.Words) || n.Waited < 0 || n.Held < 0 || n.Beat < 0 || n.TTL < 0 {
		return false
	}
	if n.Next != nil && (len(n.Next.Owner) > locks.MaxOwner || len(n.Next.Name) > maxToldName || n.Next.After < 0) {
		return false
	}
	if n.Mode != "" && !n.Mode.Known() {
		return false
	}
	if !n.Reason.Known() {
		n.Reason = locks.ReasonUnknown
	}
	return true
}

func (m *Manager) hear(n *news) {
	about := subject(n.Lease)
	if n.Lease != "" {
		if id, err := recipe.ParseLeaseID(string(n.Lease)); err != nil || id.Fleet() != m.fleet.id {
			return
		}
	}
	q, c := m.contenderOf(n)
	if n.Kind == noticeDestroyed {
		m.hearDestroyed(n)
		return
	}
	if about == "" {
		if q == nil {
			return // another program's contender, already gone: its end is published
		}
		about = subject(q.Path + "/" + n.Name)
	}
	switch n.Kind {
	case noticeEnded:
		m.hearEnd(n, q, c)
	case noticeVerdict, noticeStruck:
		v := cause{reason: n.Reason, words: n.Words}
		ends := v.ends() // else: for peers that have seen only the end
		if p, known := m.history.Get(n.Lease); known && n.Lease != "" {
			if ends {
				m.hearTooLate(n, p)
			}
			return
		}
		if n.Kind == noticeStruck && n.Lease != "" && c == nil && m.leases.byID[n.Lease] == nil {
			m.witnessed.AddOrRevise(n.Lease, m.pastOf(n), func(p postmortem.End) bool {
				return p.Reason() == locks.ReasonUnknown || p.Reason() == locks.ReasonRemoved
			})
		}
		if !ends {
			return
		}
		w := m.wordOn(about, q, c)
		if w == nil {
			return
		}
		w.verdict, w.struck = &v, w.struck || n.Kind == noticeStruck
		if l := m.leases.byID[n.Lease]; l != nil && l.phase == ending && l.reason() == locks.ReasonRemoved {
			l.rare().words, l.why = n.Words, postmortem.CauseOf(n.Reason) // one of its contenders is gone
		}
		m.heardOf(n.Lease, w)
	case noticeAcquitted:
		if w := m.words[about]; w != nil && !w.struck {
			if w.verdict = nil; !w.ended {
				delete(m.words, about)
			}
		}
	}
}

// contenderOf returns the contender that a report is about, when the replica shows it.
func (m *Manager) contenderOf(n *news) (*queues.Queue, *recipe.Contender) {
	s := m.replica.Namespaces[n.NS]
	if s == nil || n.Lock == "" {
		return nil, nil
	}
	q := s.Find(n.Lock)
	if q == nil {
		return nil, nil
	}
	if n.Name != "" {
		if c := q.Contenders.Get(n.Name); c != nil {
			return q, c
		}
	}
	if n.Lease == "" {
		return nil, nil
	}
	look := 256 // reported long ago, or renamed since: it is at the front, or gone
	for _, c := range q.Contenders.All() {
		if c.Ours && c.LeaseID == n.Lease {
			return q, c
		}
		if look--; look == 0 {
			break
		}
	}
	return nil, nil
}

// wordOn returns the entry for reports about a subject: nil when it has no use, or there is no room.
func (m *Manager) wordOn(about subject, q *queues.Queue, c *recipe.Contender) *word {
	if w := m.words[about]; w != nil {
		return w
	}
	if c == nil && m.leases.byID[recipe.LeaseID(about)] == nil && !m.back.waits(recipe.LeaseID(about)) || len(m.words) >= maxWords {
		return nil
	}
	w := &word{q: q}
	if c != nil {
		w.name = strings.Clone(c.Name)
	}
	m.words[about] = w
	return w
}

// hearEnd applies another gateway's report that one of its leases ended.
func (m *Manager) hearEnd(n *news, q *queues.Queue, c *recipe.Contender) {
	if m.leases.byID[n.Lease] != nil || m.delays.byID[n.Lease] != nil {
		return // this gateway runs it now and knows better
	}
	p := m.pastOf(n)
	if known, ok := m.history.Get(n.Lease); ok {
		if !known.Struck {
			return
		}
		// This gateway ended the lease. The gateway that ran it knows its details, and whether another end came first.
		if p.Struck = true; n.Unsure || p.Reason() == locks.ReasonRemoved {
			p.Why, p.Words = known.Why, known.Words
		}
		m.history.Revise(n.Lease, p)
	} else if c == nil {
		m.witnessed.AddOrRevise(n.Lease, p, func(old postmortem.End) bool {
			return p.Reason() != locks.ReasonRemoved || old.Reason() == locks.ReasonUnknown
		})
	}
	w := m.wordOn(subject(n.Lease), q, c)
	if w == nil {
		return
	}
	w.ended, w.sure, w.end = true, w.sure || !n.Unsure, p
	if n.Stays && c != nil {
		m.heardClosed(q, c, w)
	}
	m.heardOf(n.Lease, w)
}

// heardOf publishes the events that waited for reports about a lease, when no further report is expected.
func (m *Manager) heardOf(id recipe.LeaseID, w *word) {
	if id == "" || !m.back.waits(id) {
		return
	}
	p, known := m.history.Get(id)
	mine := known && !p.Struck
	runner, _ := m.members.OwnerOf(id.Gateway())
	if w.sure || w.verdict != nil && (mine || w.struck && !m.hopesFor(runner)) {
		m.releaseOf(id)
	}
}

// hearTooLate applies a report of an administrator's action about a lease that has already ended here.
func (m *Manager) hearTooLate(n *news, p postmortem.End) {
	if p.Struck || p.Reason() != locks.ReasonRemoved || n.Kind != noticeStruck && !m.back.waits(n.Lease) {
		return // it ended otherwise, whatever the action was
	}
	// The contender had been removed for an unknown reason, which this report gives.
	p.Why, p.Words = postmortem.CauseOf(n.Reason), n.Words
	m.history.Revise(n.Lease, p)
	if w := m.wordOn(subject(n.Lease), nil, nil); w != nil {
		w.verdict = &cause{reason: n.Reason, words: n.Words}
		m.heardOf(n.Lease, w)
		return
	}
	m.tell(notice{kind: noticeEnded, lease: n.Lease})
}

// heardClosed publishes the end of another gateway's lease whose contender stays for its lock delay: no deletion
// follows.
func (m *Manager) heardClosed(q *queues.Queue, c *recipe.Contender, w *word) {
	s := m.replica.Observed(c)
	if !s.Holds || s.SuppressEvents {
		return // the replica has not reached it yet
	}
	if m.publisher.enabled() {
		e := m.publisher.contenderEvent(endType(w.end.Reason()), q, c)
		e.Reason, e.Detail, e.FencingToken = string(w.end.Reason()), w.end.Words, w.end.FencingToken
		if e.Owner == "" {
			e.Owner = w.end.Owner
		}
		if c.Groups <= 1 {
			e.Mode = string(locks.ModeOf(w.end.Mode)) // this may still be the contender before a downgrade
		}
		m.publisher.publish(e)
	}
	s.SuppressEvents = true
	m.replica.Observe(c, s)
	if queues.Leads(c) {
		m.witnessed.AddOrRevise(c.LeaseID, w.end, func(postmortem.End) bool { return true })
	}
	m.replica.Touch(q)
}

// hearDestroyed publishes that another gateway destroyed a lock, once the replica has lost the lock's contenders.
func (m *Manager) hearDestroyed(n *news) {
	s := m.replica.Namespaces[n.NS]
	if s == nil || n.Lock == "" || strings.Contains(n.Lock, "/") {
		return
	}
	req := locks.DestroyRequest{NS: n.NS, Lock: n.Lock, Reason: n.Words}
	switch {
	case m.life.ctx.Err() != nil:
		return
	case m.destructions == maxDestructions:
		m.publisher.destroyed(&req)
		return
	}
	m.destructions++
	m.life.errands.Add(1)
	m.effect(func() {
		go func() { // for at most destroyWithin; Run waits for it
			defer m.life.errands.Done()
			ctx, cancel := context.WithTimeout(m.life.ctx, destroyWithin)
			defer cancel()
			_ = m.port.Watcher.Reached(ctx, n.Zxid) // it is published in any case
			m.do(func() {
				m.destructions--
				m.publisher.destroyed(&req)
			})
		}()
	})
}

// pastOf returns the end record of a report.
func (m *Manager) pastOf(n *news) postmortem.End {
	now := m.clock.Now()
	p := postmortem.End{Why: postmortem.CauseOf(n.Reason), NS: n.NS, Lock: n.Lock, FencingToken: n.Token, TTL: n.TTL, Mode: n.Mode.Recipe(), Owner: m.leases.owners.one(n.Owner), Words: n.Words,
		Waited: n.Waited, Held: n.Held, Beat: n.Beat, Heard: true}
	// At comes from the wall clock of the gateway that ran the lease, so it is the same time on every gateway.
	p.At = min(now.Boot()-(now.Wall()-time.Duration(n.Ended)), now.Boot())
	if n.Next != nil {
		p.Next = &postmortem.Next{Lease: n.Next.Lease, Name: n.Next.Name, Owner: m.leases.owners.one(n.Next.Owner), Token: n.Next.Token, After: n.Next.After}
	}
	return p
}

// takenBy returns why a contender of this gateway's lease is gone that this gateway did not delete. The reason is what
// another gateway's administrator announced, else ReasonRemoved.
func (m *Manager) takenBy(l *lease) locks.Reason {
	w := m.words[subject(l.id())]
	if w == nil || w.verdict == nil {
		return locks.ReasonRemoved
	}
	l.rare().words = w.verdict.words
	return w.verdict.reason
}

// unexplained drops the reports about a lease once its end is published, unless its contender still exists. For its
// own lease this gateway reports the outcome to its peers.
func (m *Manager) unexplained(id recipe.LeaseID) {
	w := m.words[subject(id)]
	p, mine := m.history.Get(id)
	if mine && !p.Struck {
		m.tell(notice{kind: noticeEnded, lease: id})
	}
	if w != nil && m.leases.byID[id] == nil && (w.q == nil || w.q.Contenders.Get(w.name) == nil) {
		delete(m.words, subject(id))
	}
}

// wordGone drops the reports about a contender that has left the replica. They stay while its lease lives or has other
// contenders, or its end waits for more reports.
func (m *Manager) wordGone(q *queues.Queue, c *recipe.Contender) {
	switch {
	case len(m.words) == 0:
	case !c.Ours || c.LeaseID == "":
		delete(m.words, subject(q.Path+"/"+c.Name))
	case !m.back.waits(c.LeaseID) && m.leases.byID[c.LeaseID] == nil && m.replica.Group(c.LeaseID) == nil:
		if w := m.words[subject(c.LeaseID)]; w != nil && w.name != c.Name && w.q == q && q.Contenders.Get(w.name) != nil {
			return // another contender has replaced it
		}
		delete(m.words, subject(c.LeaseID))
	}
}

// tellLoss publishes that the replica is about to lose a contender that is not a lease of this gateway. When the
// reason is not known yet, the event is delayed. e has what this gateway knows.
func (m *Manager) tellLoss(e *events.Event, path string, c *recipe.Contender, own *cause) {
	about := subject(c.LeaseID)
	if !c.Ours || c.LeaseID == "" {
		about = subject(path)
	}
	w := m.words[about]
	if p, ok := m.witnessed.Get(c.LeaseID); w == nil && ok && p.Heard {
		w = &word{ended: true, sure: true, end: p}
	}
	runner, _ := m.members.OwnerOf(c.LeaseID.Gateway())
	certain := w != nil && w.sure || (own != nil || w != nil && w.verdict != nil) && !m.hopesFor(runner)
	if c.Ours && c.LeaseID != "" && !certain && m.hopes() && !fault.On("end-report") {
		m.holdEnd(e, c.LeaseID, own, c.Ephemeral)
		return
	}
	if reason, words := w.outcome(own); reason != locks.ReasonUnknown {
		e.Type, e.Reason, e.Detail = endType(reason), string(reason), words
	}
	if w != nil && w.ended && e.Owner == "" {
		e.Owner = w.end.Owner
	}
	if w != nil && w.ended && e.FencingToken == 0 {
		e.FencingToken = w.end.FencingToken
	}
	m.publisher.publish(e)
}

// unwitness drops the observed end of a contender that the replica shows again, or only now. Its gateway's report of
// the end stays until the replica loses the contender.
func (m *Manager) unwitness(q *queues.Queue, c *recipe.Contender) {
	p, seen := m.witnessed.Get(c.LeaseID)
	if !seen {
		return
	}
	m.witnessed.Drop(c.LeaseID)
	if !p.Heard || m.leases.byID[c.LeaseID] != nil {
		return
	}
	if w := m.wordOn(subject(c.LeaseID), q, c); w != nil && !w.ended {
		p.Next = nil
		w.ended, w.sure, w.end = true, true, p
	}
}

// heardGone is the answer about a lease that no longer exists, whose gateway is gone or was taken over by this one. It
// has the reason when that gateway reported it.
func (m *Manager) heardGone(id recipe.LeaseID) *locks.Error {
	if p, ok := m.witnessed.Get(id); ok && p.Heard {
		return endedError(p.Reason()).Because(p.Words)
	}
	return endedError(locks.ReasonUnknown)
}

// ends reports whether an administrator's end has that reason. Others decide how a lease ends: what time ends, for
// example, a heartbeat may revive.
func (c *cause) ends() bool {
	return c.reason == locks.ReasonRevoked || c.reason == locks.ReasonDestroyed
}

// orderedByPeer returns the end that an administrator of another gateway ordered, as far as that gateway has told; nil:
// none.
func (m *Manager) orderedByPeer(about subject) *cause {
	if w := m.words[about]; w != nil {
		return w.verdict
	}
	return nil
}
