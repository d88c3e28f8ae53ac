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
	// maxReports bounds the reports that are kept about contenders that still exist.
	maxReports = 1 << 14
	// connectWithin is how long events are delayed for a gateway whose feed is not, or no longer, connected: it may connect
	// soon.
	connectWithin = 3 * time.Second
	// destroyWithin is how long a report of a destroyed lock waits for the replica.
	destroyWithin = time.Second
	// maxDestructions bounds the reports of destroyed locks that wait; further ones are published at once.
	maxDestructions = 256
)

func newPeerReports(m *Manager) peerReports {
	return peerReports{reports: map[leaseOrPath]*report{}, feeds: map[recipe.GatewayID]*peerFeed{},
		monitor: &m.monitor, follows: m.opt.PeerReports, clock: m.clock, port: m.port, life: &m.life, timers: &m.timers, fleet: &m.fleet,
		members: m.members, replica: m.replica, leases: m.leases, delays: &m.delays, history: &m.history, observedEnds: &m.observedEnds, publisher: &m.publisher}
}

// Receive applies another gateway's reports in their order. It skips invalid ones: a newer release may have sent them.
func (pr *peerReports) Receive(from string, lines [][]byte) {
	list := make([]endReport, 0, len(lines))
	for _, line := range lines {
		var n endReport
		if err := json.Unmarshal(line, &n); err == nil && n.check() {
			list = append(list, n)
		}
	}
	pr.monitor.do(func() {
		if pr.members.IsOwn(recipe.GatewayID(from)) {
			return
		}
		for i := range list {
			pr.receive(&list[i])
		}
	})
}

// check reports whether a report may be shown to users: its fields have the same bounds as in requests.
func (n *endReport) check() bool {
	if len(n.Owner) > locks.MaxOwner || len(n.Words) > locks.MaxReasonText || len(n.Name) > maxReportedName || len(n.NS) > maxReportedName || len(n.Lock) > maxReportedName ||
		!utf8.ValidString(n.Owner) || !utf8.ValidString(n.Words) || n.Waited < 0 || n.Held < 0 || n.Beat < 0 || n.TTL < 0 {
		return false
	}
	if n.Next != nil && (len(n.Next.Owner) > locks.MaxOwner || len(n.Next.Name) > maxReportedName || n.Next.After < 0) {
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

func (pr *peerReports) receive(n *endReport) {
	about := leaseOrPath(n.Lease)
	if n.Lease != "" {
		if id, err := recipe.ParseLeaseID(string(n.Lease)); err != nil || id.Fleet() != pr.fleet.id {
			return
		}
	}
	q, c := pr.contenderOf(n)
	if n.Kind == noticeDestroyed {
		pr.receiveDestroyed(n)
		return
	}
	if about == "" {
		if q == nil {
			return // another program's contender, already gone: its end is published
		}
		about = leaseOrPath(q.Path + "/" + n.Name)
	}
	switch n.Kind {
	case noticeEnded:
		pr.receiveEnd(n, q, c)
	case noticeTermination, noticeConfirmed:
		v := cause{reason: n.Reason, words: n.Words}
		ends := v.ends() // else: for peers that have seen only the end
		if p, known := pr.history.Get(n.Lease); known && n.Lease != "" {
			if ends {
				pr.receiveLate(n, p)
			}
			return
		}
		if n.Kind == noticeConfirmed && n.Lease != "" && c == nil && pr.leases.byID[n.Lease] == nil {
			pr.observedEnds.AddOrRevise(n.Lease, pr.endOf(n), func(p postmortem.End) bool {
				return p.Reason() == locks.ReasonUnknown || p.Reason() == locks.ReasonRemoved
			})
		}
		if !ends {
			return
		}
		w := pr.reportOn(about, q, c)
		if w == nil {
			return
		}
		w.termination, w.confirmed = &v, w.confirmed || n.Kind == noticeConfirmed
		if l := pr.leases.byID[n.Lease]; l != nil && l.Ending() && l.reason() == locks.ReasonRemoved {
			l.rare().words, l.why = n.Words, postmortem.CauseOf(n.Reason) // one of its contenders is gone
		}
		pr.explained(n.Lease, w)
	case noticeWithdrawn:
		if w := pr.reports[about]; w != nil && !w.confirmed {
			if w.termination = nil; !w.ended {
				delete(pr.reports, about)
			}
		}
	}
}

// contenderOf returns the contender that a report is about, when the replica shows it.
func (pr *peerReports) contenderOf(n *endReport) (*queues.Queue, *recipe.Contender) {
	s := pr.replica.Namespaces[n.NS]
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

// reportOn returns the entry for reports about a subject: nil when it has no use, or there is no room.
func (pr *peerReports) reportOn(about leaseOrPath, q *queues.Queue, c *recipe.Contender) *report {
	if w := pr.reports[about]; w != nil {
		return w
	}
	if c == nil && pr.leases.byID[recipe.LeaseID(about)] == nil && !pr.back.waits(recipe.LeaseID(about)) || len(pr.reports) >= maxReports {
		return nil
	}
	w := &report{q: q}
	if c != nil {
		w.name = strings.Clone(c.Name)
	}
	pr.reports[about] = w
	return w
}

// receiveEnd applies another gateway's report that one of its leases ended.
func (pr *peerReports) receiveEnd(n *endReport, q *queues.Queue, c *recipe.Contender) {
	if pr.leases.byID[n.Lease] != nil || pr.delays.byID[n.Lease] != nil {
		return // this gateway runs it now and knows better
	}
	p := pr.endOf(n)
	if known, ok := pr.history.Get(n.Lease); ok {
		if !known.Terminated {
			return
		}
		// This gateway ended the lease. The gateway that ran it knows its details, and whether another end came first.
		if p.Terminated = true; n.Unsure || p.Reason() == locks.ReasonRemoved {
			p.Why, p.Words = known.Why, known.Words
		}
		pr.history.Revise(n.Lease, p)
	} else if c == nil {
		pr.observedEnds.AddOrRevise(n.Lease, p, func(old postmortem.End) bool {
			return p.Reason() != locks.ReasonRemoved || old.Reason() == locks.ReasonUnknown
		})
	}
	w := pr.reportOn(leaseOrPath(n.Lease), q, c)
	if w == nil {
		return
	}
	w.ended, w.sure, w.end = true, w.sure || !n.Unsure, p
	if n.Stays && c != nil {
		pr.publishClosed(q, c, w)
	}
	pr.explained(n.Lease, w)
}

// explained publishes the events that waited for reports about a lease, when no further report is expected.
func (pr *peerReports) explained(id recipe.LeaseID, w *report) {
	if id == "" || !pr.back.waits(id) {
		return
	}
	p, known := pr.history.Get(id)
	mine := known && !p.Terminated
	runner, _ := pr.members.OwnerOf(id.Gateway())
	if w.sure || w.termination != nil && (mine || w.confirmed && !pr.mayExplain(runner)) {
		pr.releaseOf(id)
	}
}

// receiveLate applies a report of an administrator's action about a lease that has already ended here.
func (pr *peerReports) receiveLate(n *endReport, p postmortem.End) {
	if p.Terminated || p.Reason() != locks.ReasonRemoved || n.Kind != noticeConfirmed && !pr.back.waits(n.Lease) {
		return // it ended otherwise, whatever the action was
	}
	// The contender had been removed for an unknown reason, which this report gives.
	p.Why, p.Words = postmortem.CauseOf(n.Reason), n.Words
	pr.history.Revise(n.Lease, p)
	if w := pr.reportOn(leaseOrPath(n.Lease), nil, nil); w != nil {
		w.termination = &cause{reason: n.Reason, words: n.Words}
		pr.explained(n.Lease, w)
		return
	}
	pr.tell(notice{kind: noticeEnded, lease: n.Lease})
}

// publishClosed publishes the end of another gateway's lease whose contender stays for its lock delay: no deletion
// follows.
func (pr *peerReports) publishClosed(q *queues.Queue, c *recipe.Contender, w *report) {
	s := pr.replica.Observed(c)
	if !s.Holds || s.SuppressEvents {
		return // the replica has not reached it yet
	}
	if pr.publisher.enabled() {
		e := pr.publisher.contenderEvent(endType(w.end.Reason()), q, c)
		e.Reason, e.Detail, e.FencingToken = string(w.end.Reason()), w.end.Words, w.end.FencingToken
		if e.Owner == "" {
			e.Owner = w.end.Owner
		}
		if c.Groups <= 1 {
			e.Mode = string(locks.ModeOf(w.end.Mode)) // this may still be the contender before a downgrade
		}
		pr.publisher.publish(e)
	}
	s.SuppressEvents = true
	pr.replica.Observe(c, s)
	if queues.Leads(c) {
		pr.observedEnds.AddOrRevise(c.LeaseID, w.end, func(postmortem.End) bool { return true })
	}
	pr.replica.Touch(q)
}

// receiveDestroyed publishes that another gateway destroyed a lock, once the replica has lost the lock's contenders.
func (pr *peerReports) receiveDestroyed(n *endReport) {
	s := pr.replica.Namespaces[n.NS]
	if s == nil || n.Lock == "" || strings.Contains(n.Lock, "/") {
		return
	}
	req := locks.DestroyRequest{NS: n.NS, Lock: n.Lock, Reason: n.Words}
	switch {
	case pr.life.ctx.Err() != nil:
		return
	case pr.destructions == maxDestructions:
		pr.publisher.destroyed(&req)
		return
	}
	pr.destructions++
	pr.life.errands.Add(1)
	pr.monitor.effect(func() {
		go func() { // for at most destroyWithin; Run waits for it
			defer pr.life.errands.Done()
			ctx, cancel := context.WithTimeout(pr.life.ctx, destroyWithin)
			defer cancel()
			_ = pr.port.Watcher.Reached(ctx, n.Zxid) // it is published in any case
			pr.monitor.do(func() {
				pr.destructions--
				pr.publisher.destroyed(&req)
			})
		}()
	})
}

// endOf returns the end record of a report.
func (pr *peerReports) endOf(n *endReport) postmortem.End {
	now := pr.clock.Now()
	p := postmortem.End{Why: postmortem.CauseOf(n.Reason), NS: n.NS, Lock: n.Lock, FencingToken: n.Token, TTL: n.TTL, Mode: n.Mode.Recipe(), Owner: pr.leases.owners.one(n.Owner), Words: n.Words,
		Waited: n.Waited, Held: n.Held, Beat: n.Beat, Reported: true}
	// At comes from the wall clock of the gateway that ran the lease, so it is the same time on every gateway.
	p.At = min(now.Boot()-(now.Wall()-time.Duration(n.Ended)), now.Boot())
	if n.Next != nil {
		p.Next = &postmortem.Next{Lease: n.Next.Lease, Name: n.Next.Name, Owner: pr.leases.owners.one(n.Next.Owner), Token: n.Next.Token, After: n.Next.After}
	}
	return p
}

// removedBy returns why a contender of this gateway's lease is gone that this gateway did not delete. The reason is what
// another gateway's administrator announced, else ReasonRemoved.
func (pr *peerReports) removedBy(l *lease) locks.Reason {
	w := pr.reports[leaseOrPath(l.id())]
	if w == nil || w.termination == nil {
		return locks.ReasonRemoved
	}
	l.rare().words = w.termination.words
	return w.termination.reason
}

// dropReport drops the reports about a lease once its end is published, unless its contender still exists. For its
// own lease this gateway reports the outcome to its peers.
func (pr *peerReports) dropReport(id recipe.LeaseID) {
	w := pr.reports[leaseOrPath(id)]
	p, mine := pr.history.Get(id)
	if mine && !p.Terminated {
		pr.tell(notice{kind: noticeEnded, lease: id})
	}
	if w != nil && pr.leases.byID[id] == nil && (w.q == nil || w.q.Contenders.Get(w.name) == nil) {
		delete(pr.reports, leaseOrPath(id))
	}
}

// reportGone drops the reports about a contender that has left the replica. They stay while its lease lives or has other
// contenders, or its end waits for more reports.
func (pr *peerReports) reportGone(q *queues.Queue, c *recipe.Contender) {
	switch {
	case len(pr.reports) == 0:
	case !c.Ours || c.LeaseID == "":
		delete(pr.reports, leaseOrPath(q.Path+"/"+c.Name))
	case !pr.back.waits(c.LeaseID) && pr.leases.byID[c.LeaseID] == nil && pr.replica.Group(c.LeaseID) == nil:
		if w := pr.reports[leaseOrPath(c.LeaseID)]; w != nil && w.name != c.Name && w.q == q && q.Contenders.Get(w.name) != nil {
			return // another contender has replaced it
		}
		delete(pr.reports, leaseOrPath(c.LeaseID))
	}
}

// publishLoss publishes that the replica is about to lose a contender that is not a lease of this gateway. When the
// reason is not known yet, the event is delayed. e has what this gateway knows.
func (pr *peerReports) publishLoss(e *events.Event, path string, c *recipe.Contender, own *cause) {
	about := leaseOrPath(c.LeaseID)
	if !c.Ours || c.LeaseID == "" {
		about = leaseOrPath(path)
	}
	w := pr.reports[about]
	if p, ok := pr.observedEnds.Get(c.LeaseID); w == nil && ok && p.Reported {
		w = &report{ended: true, sure: true, end: p}
	}
	runner, _ := pr.members.OwnerOf(c.LeaseID.Gateway())
	certain := w != nil && w.sure || (own != nil || w != nil && w.termination != nil) && !pr.mayExplain(runner)
	if c.Ours && c.LeaseID != "" && !certain && pr.peerMayExplain() && !fault.On("end-report") {
		pr.holdEnd(e, c.LeaseID, own, c.Ephemeral)
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
	pr.publisher.publish(e)
}

// reappeared drops the observed end of a contender that the replica shows again, or only now. Its gateway's report of
// the end stays until the replica loses the contender.
func (pr *peerReports) reappeared(q *queues.Queue, c *recipe.Contender) {
	p, seen := pr.observedEnds.Get(c.LeaseID)
	if !seen {
		return
	}
	pr.observedEnds.Drop(c.LeaseID)
	if !p.Reported || pr.leases.byID[c.LeaseID] != nil {
		return
	}
	if w := pr.reportOn(leaseOrPath(c.LeaseID), q, c); w != nil && !w.ended {
		p.Next = nil
		w.ended, w.sure, w.end = true, true, p
	}
}

// reportedGone is the answer about a lease that no longer exists, whose gateway is gone or was taken over by this one. It
// has the reason when that gateway reported it.
func (pr *peerReports) reportedGone(id recipe.LeaseID) *locks.Error {
	if p, ok := pr.observedEnds.Get(id); ok && p.Reported {
		return endedError(p.Reason()).Because(p.Words)
	}
	return endedError(locks.ReasonUnknown)
}

// orderedByPeer returns the end that an administrator of another gateway ordered, as far as that gateway has told; nil:
// none.
func (pr *peerReports) orderedByPeer(about leaseOrPath) *cause {
	if w := pr.reports[about]; w != nil {
		return w.termination
	}
	return nil
}
