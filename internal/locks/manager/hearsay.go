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

// What other gateways tell: how their leases ended, and what their administrators do to leases that are not theirs.
//
// It explains ends, and nothing else: no word that is heard grants a lease, ends one or keeps one alive. What is said of a
// lease that lives here, or whose contender the replica still shows, is kept until the replica has lost it, and
// is dropped when it turns out otherwise. So a word that is wrong, late or comes twice costs a wrong reason at
// most, and words come from gateways alone (internal/fleet).
//
// Who is believed: the gateway that ran the lease. When it only knows that somebody else has deleted the contender, the
// gateway whose administrator did it; and that one's announcement, when there was no time for more.

const (
	// maxWords bounds what is kept of leases that are still there.
	maxWords = 1 << 14
	// hopeFor is how long ends are held back for a gateway that is not followed, or not any more: it may be in a moment.
	hopeFor = 3 * time.Second
	// destroyWithin is how long the word of a destruction waits for the replica.
	destroyWithin = time.Second
	// maxDestructions bounds those that wait; others are told at once.
	maxDestructions = 256
)

// hearsay is what gateways tell each other. Guarded by the monitor.
type hearsay struct {
	notices     notices                      // what this one tells
	words       map[subject]*word            // what others have told of what is still there
	sources     map[recipe.GatewayID]*source // who may tell something
	sourcesWake chan struct{}                // closed when they change; nil while nobody waits
	back        back                         // events that are held back

	destructions int // words of destructions that wait for the replica
}

func newHearsay() hearsay {
	return hearsay{words: map[subject]*word{}, sources: map[recipe.GatewayID]*source{}}
}

// subject is what a word is about: a lease, or the path of another program's contender.
type subject string

// word is what has been heard of an end.
type word struct {
	ended, sure bool // by the gateway that ran the lease: end; sure: it has said all that it knows
	end         postmortem.End
	verdict     *verdict      // of an administrator's gateway
	struck      bool          // it was done
	q           *queues.Queue // where its contender was when it came; nil: nowhere
	name        string
}

// outcome is why a lease has ended, as far as that has been heard; own is what this gateway has done to it itself. w may be nil.
func (w *word) outcome(own *verdict) (locks.Reason, string) {
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

// source is a gateway that may tell something.
type source struct {
	followed bool
	since    time.Duration // boot: since then, or since then not
}

// Following is told that another gateway is followed now, or is not any more.
func (m *Manager) Following(gateway string, followed bool) {
	m.do(func() {
		if s := m.sources[recipe.GatewayID(gateway)]; s != nil {
			s.followed, s.since = followed, m.clock.Now().Boot()
		}
	})
}

// joinedSource and leftSource note registrations.
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

// sourcesChanged tells whoever follows that there are others now.
func (m *Manager) sourcesChanged() {
	if m.sourcesWake != nil {
		m.wake(m.sourcesWake)
		m.sourcesWake = nil
	}
}

// SourcesChanged returns a channel that is closed when a gateway comes or goes, or its address becomes known.
func (m *Manager) SourcesChanged() <-chan struct{} {
	return locked(m, func() <-chan struct{} {
		if m.sourcesWake == nil {
			m.sourcesWake = make(chan struct{})
		}
		return m.sourcesWake
	})
}

// hopes reports whether another gateway may yet tell something.
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

// Hear takes what another gateway tells, in its order. What makes no sense is passed over: it may be a newer release's.
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

// check reports whether news can be shown to people: everything has the bounds that requests have.
func (n *news) check() bool {
	if len(n.Owner) > locks.MaxOwner || len(n.Words) > locks.MaxReasonText || len(n.Name) > maxToldName || len(n.NS) > maxToldName || len(n.Lock) > maxToldName ||
		!utf8.ValidString(n.Owner) || !utf8.ValidString(n.Words) || n.Waited < 0 || n.Held < 0 || n.Beat < 0 || n.TTL < 0 {
		return false
	}
	if n.Next != nil && (len(n.Next.Owner) > locks.MaxOwner || len(n.Next.Name) > maxToldName || n.Next.After < 0) {
		return false
	}
	switch n.Mode {
	case "", locks.Exclusive, locks.Shared, locks.Semaphore:
	default:
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
		if id, err := recipe.ParseLeaseID(string(n.Lease)); err != nil || id.Fleet() != m.fleet {
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
			return // another program's, and gone: its end has been told
		}
		about = subject(q.Path + "/" + n.Name)
	}
	switch n.Kind {
	case noticeEnded:
		m.hearEnd(n, q, c)
	case noticeVerdict, noticeStruck:
		v := verdict{reason: n.Reason, words: n.Words}
		ends := v.ends() // else it is told for whoever has seen no more of it than its end
		if p, known := m.history.Get(n.Lease); known && n.Lease != "" {
			if ends {
				m.hearTooLate(n, p)
			}
			return
		}
		if n.Kind == noticeStruck && n.Lease != "" && c == nil && m.leases[n.Lease] == nil {
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
		if l := m.leases[n.Lease]; l != nil && l.phase == ending && l.reason() == locks.ReasonRemoved {
			l.rare().words, l.why = n.Words, postmortem.CauseOf(n.Reason) // a part of it is gone
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

// contenderOf is the contender that news are about, when the replica shows it.
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
	look := 256 // it was told long ago, or it has another name since; it is at the front, or gone
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

// wordOn is where what is heard of something is kept: nil when there is no use for it, or no room.
func (m *Manager) wordOn(about subject, q *queues.Queue, c *recipe.Contender) *word {
	if w := m.words[about]; w != nil {
		return w
	}
	if c == nil && m.leases[recipe.LeaseID(about)] == nil && !m.back.waits(recipe.LeaseID(about)) || len(m.words) >= maxWords {
		return nil
	}
	w := &word{q: q}
	if c != nil {
		w.name = strings.Clone(c.Name)
	}
	m.words[about] = w
	return w
}

// hearEnd takes another gateway's word that a lease of its own has ended.
func (m *Manager) hearEnd(n *news, q *queues.Queue, c *recipe.Contender) {
	if m.leases[n.Lease] != nil || m.delays.byID[n.Lease] != nil {
		return // it is this gateway's by now, which knows better
	}
	p := m.pastOf(n)
	if known, ok := m.history.Get(n.Lease); ok {
		if !known.Struck {
			return
		}
		// This gateway has ended it; the one that ran it knows what it was like, and whether somebody was quicker.
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

// heardOf tells what waited for a word, when it is the last one.
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

// hearTooLate takes a verdict about a lease that has ended here.
func (m *Manager) hearTooLate(n *news, p postmortem.End) {
	if p.Struck || p.Reason() != locks.ReasonRemoved || n.Kind != noticeStruck && !m.back.waits(n.Lease) {
		return // it has ended otherwise, whatever was meant to happen
	}
	// The contender was gone, nobody knew why, and this is why.
	p.Why, p.Words = postmortem.CauseOf(n.Reason), n.Words
	m.history.Revise(n.Lease, p)
	if w := m.wordOn(subject(n.Lease), nil, nil); w != nil {
		w.verdict = &verdict{reason: n.Reason, words: n.Words}
		m.heardOf(n.Lease, w)
		return
	}
	m.tell(notice{kind: noticeEnded, lease: n.Lease})
}

// heardClosed tells the end of another gateway's lease whose place stays for its lock delay: there is no deletion to wait for.
func (m *Manager) heardClosed(q *queues.Queue, c *recipe.Contender, w *word) {
	s := m.replica.Observed(c)
	if !s.Holds || s.SuppressEvents {
		return // the replica has yet to come to it
	}
	if m.telling() {
		e := m.contenderEvent(endType(w.end.Reason()), q, c)
		e.Reason, e.Detail, e.FencingToken = string(w.end.Reason()), w.end.Words, w.end.FencingToken
		if e.Owner == "" {
			e.Owner = w.end.Owner
		}
		if c.Groups <= 1 {
			e.Mode = string(viewMode(w.end.Mode)) // this may still be the contender from before a downgrade
		}
		m.publish(e)
	}
	s.SuppressEvents = true
	m.replica.Observe(c, s)
	if queues.Leads(c) {
		m.witnessed.AddOrRevise(c.LeaseID, w.end, func(postmortem.End) bool { return true })
	}
	m.replica.Touch(q)
}

// hearDestroyed tells that a lock was destroyed elsewhere, once the replica has lost everybody who was in it.
func (m *Manager) hearDestroyed(n *news) {
	s := m.replica.Namespaces[n.NS]
	if s == nil || n.Lock == "" || strings.Contains(n.Lock, "/") {
		return
	}
	req := locks.DestroyRequest{NS: n.NS, Lock: n.Lock, Reason: n.Words}
	switch {
	case m.life.Err() != nil:
		return
	case m.destructions == maxDestructions:
		m.tellDestroyed(&req)
		return
	}
	m.destructions++
	m.errands.Add(1)
	m.effect(func() {
		go func() { // for destroyWithin at most; Run waits for it
			defer m.errands.Done()
			ctx, cancel := context.WithTimeout(m.life, destroyWithin)
			defer cancel()
			_ = m.port.Watcher.Reached(ctx, n.Zxid) // it is told all the same
			m.do(func() {
				m.destructions--
				m.tellDestroyed(&req)
			})
		}()
	})
}

// pastOf is an end as news tell it.
func (m *Manager) pastOf(n *news) postmortem.End {
	now := m.clock.Now()
	p := postmortem.End{Why: postmortem.CauseOf(n.Reason), NS: n.NS, Lock: n.Lock, FencingToken: n.Token, TTL: n.TTL, Mode: recipeMode(n.Mode), Owner: m.owners.one(n.Owner), Words: n.Words,
		Waited: n.Waited, Held: n.Held, Beat: n.Beat, Heard: true}
	// By the wall clock of the gateway that ran it: it is the same time wherever it is asked for.
	p.At = min(now.Boot()-(now.Wall()-time.Duration(n.Ended)), now.Boot())
	if n.Next != nil {
		p.Next = &postmortem.Next{Lease: n.Next.Lease, Name: n.Next.Name, Owner: m.owners.one(n.Next.Owner), Token: n.Next.Token, After: n.Next.After}
	}
	return p
}

// takenBy is why a contender of this gateway's lease is gone that this gateway did not delete: what an administrator of
// another one has announced, else only that it was removed.
func (m *Manager) takenBy(l *lease) locks.Reason {
	w := m.words[subject(l.id())]
	if w == nil || w.verdict == nil {
		return locks.ReasonRemoved
	}
	l.rare().words = w.verdict.words
	return w.verdict.reason
}

// unexplained forgets the word on a lease once its end has been told, unless its contender is still there. Of an own
// lease the others are told what came of it.
func (m *Manager) unexplained(id recipe.LeaseID) {
	w := m.words[subject(id)]
	p, mine := m.history.Get(id)
	if mine && !p.Struck {
		m.tell(notice{kind: noticeEnded, lease: id})
	}
	if w != nil && m.leases[id] == nil && (w.q == nil || w.q.Contenders.Get(w.name) == nil) {
		delete(m.words, subject(id))
	}
}

// wordGone forgets the word on a contender that has left the replica, unless its lease lives or has other contenders, or its end
// waits for more.
func (m *Manager) wordGone(q *queues.Queue, c *recipe.Contender) {
	switch {
	case len(m.words) == 0:
	case !c.Ours || c.LeaseID == "":
		delete(m.words, subject(q.Path+"/"+c.Name))
	case !m.back.waits(c.LeaseID) && m.leases[c.LeaseID] == nil && m.replica.Group(c.LeaseID) == nil:
		if w := m.words[subject(c.LeaseID)]; w != nil && w.name != c.Name && w.q == q && q.Contenders.Get(w.name) != nil {
			return // another one has taken its place
		}
		delete(m.words, subject(c.LeaseID))
	}
}

// tellLoss tells that the replica is about to lose a contender that is no lease of this gateway's: at once when it is known
// why, else when it is. e says what is known here.
func (m *Manager) tellLoss(e *events.Event, path string, c *recipe.Contender, own *verdict) {
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
	if c.Ours && c.LeaseID != "" && !certain && m.hopes() && !fault.On("hearsay") {
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
	m.publish(e)
}

// unwitness forgets that a contender had gone which is back, or which the replica has only now come to. What its gateway
// has told of its end stays for when the replica loses it.
func (m *Manager) unwitness(q *queues.Queue, c *recipe.Contender) {
	p, seen := m.witnessed.Get(c.LeaseID)
	if !seen {
		return
	}
	m.witnessed.Drop(c.LeaseID)
	if !p.Heard || m.leases[c.LeaseID] != nil {
		return
	}
	if w := m.wordOn(subject(c.LeaseID), q, c); w != nil && !w.ended {
		p.Next = nil
		w.ended, w.sure, w.end = true, true, p
	}
}

// heardGone is the answer to who asks for a lease of a gateway that this one has succeeded, or that is gone, and that is not
// there any more: with the reason, when that gateway has told it.
func (m *Manager) heardGone(id recipe.LeaseID) *locks.Error {
	if p, ok := m.witnessed.Get(id); ok && p.Heard {
		return endedError(p.Reason()).Because(p.Words)
	}
	return endedError(locks.ReasonUnknown)
}
