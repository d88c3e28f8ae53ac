package reports

import (
	"strings"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

const (
	// maxReports bounds the reports that are kept about contenders that still exist. Further ones are dropped.
	maxReports = 1 << 14
	// ConnectWithin is how long events are delayed for a gateway whose feed is not, or no longer, followed: it may connect
	// soon.
	ConnectWithin = 3 * time.Second
	// searchDepth bounds the contenders that are compared with a report without a name: what was reported long ago, or
	// renamed since, is at the front or gone.
	searchDepth = 256
)

// Options of an Exchange: what it reads and what it calls.
type Options struct {
	Follows  bool   // this gateway follows its peers
	Nonce    string // makes places in the feeds of different processes differ
	Members  *cluster.Members
	Replica  *queues.Replica
	History  *postmortem.Log // this gateway's ends
	Observed *postmortem.Log // observed and reported ends of other gateways' leases
	// Lives reports whether this gateway runs a lease, and Stays whether the lease has ended and keeps its place.
	Lives, Stays func(recipe.LeaseID) bool
	// Terminated gives a lease that is ending because a contender was removed the reason of that removal.
	Terminated func(recipe.LeaseID, Cause)
	Shared     func(string) string // one copy of an owner's name
	// Event makes an event about a contender, nil while none is published. Publish publishes an event at once.
	Event   func(events.Type, *queues.Queue, *recipe.Contender) *events.Event
	Publish func(*events.Event)
	Stamp   func(*events.Event) // sets the time of an event that has none: when it happened, not when it is published
	Wake    func(chan struct{}) // closes a channel
	WakeAt  func(time.Duration) // has Next asked again then (boot)
}

// LeaseOrPath is what a report is about: a lease, or the path of another program's contender.
type LeaseOrPath string

// Exchange has what gateways report to each other, and the events that wait for it.
type Exchange struct {
	opt       Options
	feed      feed                           // reports of this gateway
	reports   map[LeaseOrPath]*evidence      // reports by other gateways about contenders that still exist
	peers     map[recipe.GatewayID]*peerFeed // gateways that may send reports
	peersWake chan struct{}                  // closed when peers changes; nil while no reader waits
	delayed   delayed
	ending    map[*recipe.Contender]Cause // of other owners' contenders that an administrator ends here
}

// New makes an Exchange.
func New(opt Options) *Exchange {
	return &Exchange{opt: opt, reports: map[LeaseOrPath]*evidence{}, ending: map[*recipe.Contender]Cause{}, peers: map[recipe.GatewayID]*peerFeed{},
		delayed: delayed{locks: map[string][]*delayedEvent{}, waiting: map[recipe.LeaseID][]*delayedEvent{}}}
}

// evidence is what peers have reported about an end.
type evidence struct {
	ended, sure bool // ended: the lease's gateway reported end; sure: its report is final
	end         postmortem.End
	termination *Cause        // the reason that an administrator's gateway reported
	confirmed   bool          // that gateway confirmed the deletion
	q           *queues.Queue // the contender's queue when the report arrived; nil: the replica had none
	name        string
}

// outcome returns why a lease ended, as far as known; own is what this gateway did to it. w may be nil.
func (w *evidence) outcome(own *Cause) Cause {
	switch {
	case w != nil && w.sure && w.end.Reason() != locks.ReasonRemoved:
		return causeOf(&w.end)
	case own != nil:
		return *own
	case w != nil && w.termination != nil:
		return *w.termination
	case w != nil && w.ended:
		return causeOf(&w.end)
	}
	return Cause{Reason: locks.ReasonUnknown}
}

// causeOf is why an end is remembered to have come.
func causeOf(p *postmortem.End) Cause { return Cause{Reason: p.Reason(), Words: p.Words, By: p.By} }

// Explain writes into an event of an end why that came. several: the lease was of several locks. Who ended it is then in no event:
// that caller may be known at one of the locks alone, and each reader of another one would see the name.
func (c Cause) Explain(e *events.Event, several bool) {
	e.Type, e.Reason, e.Detail = EndType(c.Reason), string(c.Reason), c.Words
	if !several {
		e.By = c.By
	}
}

// complete gives an event the owner and token that it lacks. w may be nil.
func (w *evidence) complete(e *events.Event) {
	if w == nil || !w.ended {
		return
	}
	if e.Owner == "" {
		e.Owner = w.end.Owner
	}
	if e.Purpose == "" {
		e.Purpose = w.end.Purpose
	}
	if e.FencingToken == 0 {
		e.FencingToken = w.end.FencingToken
	}
	if e.Queued == 0 && w.end.Waited+w.end.Held > 0 {
		e.Queued = (time.Duration(e.Time.UnixNano()) - w.end.Held - w.end.Waited).Milliseconds()
	}
}

// EndType is the type of the event of an end.
func EndType(reason locks.Reason) events.Type {
	switch reason {
	case locks.ReasonReleased:
		return events.LeaseReleased
	case locks.ReasonExpired:
		return events.LeaseExpired
	case locks.ReasonCancelled, locks.ReasonWaitElapsed, locks.ReasonWouldDeadlock, locks.ReasonDone:
		return events.LeaseCancelled
	case locks.ReasonUnclaimed:
		return events.LeaseUnclaimed
	case locks.ReasonRevoked, locks.ReasonDestroyed:
		return events.LeaseRevoked
	}
	return events.LeaseRemoved
}

// Receive applies another gateway's reports in their order. It returns those of destroyed locks: their events are due once
// the replica contains their zxid.
func (x *Exchange) Receive(from recipe.GatewayID, fleet recipe.FleetID, list []Report, now zk.Instant) (destroyed []Report) {
	if x.opt.Members.IsOwn(from) {
		return nil
	}
	for i := range list {
		r := &list[i]
		if r.Lease != "" {
			if id, err := recipe.ParseLeaseID(string(r.Lease)); err != nil || id.Fleet() != fleet {
				continue
			}
		}
		if r.Kind != Destroyed {
			x.receive(r, now)
		} else if x.opt.Replica.Namespaces[r.NS] != nil && r.Lock != "" && !strings.Contains(r.Lock, "/") {
			destroyed = append(destroyed, *r)
		}
	}
	return destroyed
}

func (x *Exchange) receive(r *Report, now zk.Instant) {
	q, c := x.contenderOf(r)
	about := LeaseOrPath(r.Lease)
	if about == "" {
		if q == nil {
			return // another program's contender, already gone: its end is published
		}
		about = LeaseOrPath(q.Path + "/" + r.Name)
	}
	switch r.Kind {
	case Ended:
		x.receiveEnd(r, q, c, now)
	case Termination, Confirmed:
		x.receiveTermination(r, about, q, c, now)
	case Withdrawn:
		if w := x.reports[about]; w != nil && !w.confirmed {
			if w.termination = nil; !w.ended {
				delete(x.reports, about)
			}
		}
	}
}

// contenderOf returns the contender that a report is about, when the replica shows it.
func (x *Exchange) contenderOf(r *Report) (*queues.Queue, *recipe.Contender) {
	s := x.opt.Replica.Namespaces[r.NS]
	if s == nil || r.Lock == "" {
		return nil, nil
	}
	q := s.Find(r.Lock)
	if q == nil {
		return nil, nil
	}
	if r.Name != "" {
		if c := q.Contenders.Get(r.Name); c != nil {
			return q, c
		}
	}
	if r.Lease == "" {
		return nil, nil
	}
	for i, c := range q.Contenders.All() {
		if c.Ours && c.LeaseID == r.Lease {
			return q, c
		}
		if i+1 == searchDepth {
			break
		}
	}
	return nil, nil
}

// on returns the evidence about a lease or path: nil when it has no use, or there is no room.
func (x *Exchange) on(about LeaseOrPath, q *queues.Queue, c *recipe.Contender) *evidence {
	if w := x.reports[about]; w != nil {
		return w
	}
	if id := recipe.LeaseID(about); c == nil && !x.opt.Lives(id) && !x.delayed.waits(id) || len(x.reports) >= maxReports {
		return nil
	}
	w := &evidence{q: q}
	if c != nil {
		w.name = strings.Clone(c.Name)
	}
	x.reports[about] = w
	return w
}

// receiveEnd applies another gateway's report that one of its leases ended.
func (x *Exchange) receiveEnd(r *Report, q *queues.Queue, c *recipe.Contender, now zk.Instant) {
	if x.opt.Stays(r.Lease) {
		return // this gateway has ended it, and knows better
	}
	p := x.endOf(r, now)
	if x.opt.Lives(r.Lease) {
		// This gateway was deposed while it stood still, and does not know that yet. What it finds out next is that the contender is gone.
		if w := x.on(LeaseOrPath(r.Lease), q, c); w != nil && !r.Unsure {
			w.ended, w.sure, w.end = true, true, p
		}
		return
	}
	if known, ok := x.opt.History.Get(r.Lease); ok {
		if !known.Terminated {
			return
		}
		// This gateway ended the lease. The gateway that ran it knows its details, and whether another end came first.
		if p.Terminated = true; r.Unsure || p.Reason() == locks.ReasonRemoved {
			p.Why, p.Words, p.By = known.Why, known.Words, known.By
		}
		x.opt.History.Revise(r.Lease, p)
	} else if c == nil {
		x.opt.Observed.AddOrRevise(r.Lease, p, func(old postmortem.Cause) bool {
			return p.Reason() != locks.ReasonRemoved || old.Reason() == locks.ReasonUnknown
		})
	}
	w := x.on(LeaseOrPath(r.Lease), q, c)
	if w == nil {
		return
	}
	w.ended, w.sure, w.end = true, w.sure || !r.Unsure, p
	if r.Stays && c != nil {
		x.EndStaying(q, c, p)
	}
	x.explained(r.Lease, w, now)
}

// receiveTermination applies the report of an administrator's action.
func (x *Exchange) receiveTermination(r *Report, about LeaseOrPath, q *queues.Queue, c *recipe.Contender, now zk.Instant) {
	why := Cause{Reason: r.Reason, Words: r.Words, By: r.By}
	ends := why.ends() // else: for peers that have seen only the end
	if p, known := x.opt.History.Get(r.Lease); known && r.Lease != "" {
		if ends {
			x.receiveLate(r, p, now)
		}
		return
	}
	if r.Kind == Confirmed && r.Lease != "" && c == nil && !x.opt.Lives(r.Lease) {
		x.opt.Observed.AddOrRevise(r.Lease, x.endOf(r, now), func(old postmortem.Cause) bool {
			return old.Reason() == locks.ReasonUnknown || old.Reason() == locks.ReasonRemoved
		})
	}
	if !ends {
		return
	}
	w := x.on(about, q, c)
	if w == nil {
		return
	}
	w.termination, w.confirmed = &why, w.confirmed || r.Kind == Confirmed
	x.opt.Terminated(r.Lease, why)
	x.explained(r.Lease, w, now)
}

// explained publishes the events that waited for reports about a lease, when no further report is expected.
func (x *Exchange) explained(id recipe.LeaseID, w *evidence, now zk.Instant) {
	if id == "" || !x.delayed.waits(id) {
		return
	}
	mine := x.opt.History.Has(id) && !x.opt.History.Terminated(id)
	runner, _ := x.opt.Members.OwnerOf(id.Gateway())
	if w.sure || w.termination != nil && (mine || w.confirmed && !x.mayExplain(runner, now.Boot())) {
		x.explainAll(id)
	}
}

// receiveLate applies a report of an administrator's action about a lease that has already ended here.
func (x *Exchange) receiveLate(r *Report, p postmortem.End, now zk.Instant) {
	if p.Terminated || p.Reason() != locks.ReasonRemoved || r.Kind != Confirmed && !x.delayed.waits(r.Lease) {
		return // it ended otherwise, whatever the action was
	}
	// The contender had been removed for an unknown reason, which this report gives.
	p.Why, p.Words, p.By = postmortem.CauseOf(r.Reason), r.Words, r.By
	x.opt.History.Revise(r.Lease, p)
	if w := x.on(LeaseOrPath(r.Lease), nil, nil); w != nil {
		w.termination = &Cause{Reason: r.Reason, Words: r.Words, By: r.By}
		x.explained(r.Lease, w, now)
		return
	}
	x.Tell(Notice{Kind: Ended, Lease: r.Lease})
}

// EndStaying publishes the end of another gateway's lease whose contender stays for its lock delay: no deletion
// follows.
func (x *Exchange) EndStaying(q *queues.Queue, c *recipe.Contender, end postmortem.End) {
	s := x.opt.Replica.Observed(c)
	if !s.Holds || s.SuppressEvents {
		return // the replica has not reached it yet
	}
	if e := x.opt.Event(EndType(end.Reason()), q, c); e != nil {
		causeOf(&end).Explain(e, c.Groups > 1)
		e.FencingToken = end.FencingToken
		if e.Owner == "" {
			e.Owner = end.Owner
		}
		if e.Purpose == "" {
			e.Purpose = end.Purpose
		}
		if c.Groups <= 1 {
			e.Mode = string(locks.ModeOf(end.Mode)) // this may still be the contender before a downgrade
		}
		x.Publish(e)
	}
	s.SuppressEvents = true
	x.opt.Replica.Observe(c, s)
	if queues.Leads(c) {
		x.opt.Observed.AddOrRevise(c.LeaseID, end, func(postmortem.Cause) bool { return true })
	}
	x.opt.Replica.Touch(q)
}

// endOf returns the end record of a report.
func (x *Exchange) endOf(r *Report, now zk.Instant) postmortem.End {
	p := postmortem.End{Why: postmortem.CauseOf(r.Reason), NS: r.NS, Lock: r.Lock, FencingToken: r.Token, TTL: r.TTL, Mode: r.Mode.Recipe(), Owner: x.opt.Shared(r.Owner), Words: r.Words, By: r.By,
		Waited: r.Waited, Held: r.Held, Beat: r.Beat, Reported: true, Several: r.Several, Purpose: r.Purpose}
	// At comes from the wall clock of the gateway that ran the lease, so it is the same time on every gateway.
	p.At = min(now.Boot()-(now.Wall()-time.Duration(r.Ended)), now.Boot())
	if n := r.Next; n != nil {
		p.Next = &postmortem.Next{Lease: n.Lease, Name: n.Name, Owner: x.opt.Shared(n.Owner), Token: n.Token, After: n.After}
	}
	return p
}

// Ordered returns the end that another gateway has reported of what this one did not end: that of the gateway which has taken the lease
// over, or else the one that an administrator ordered there; nil: none.
func (x *Exchange) Ordered(about LeaseOrPath) *Cause {
	w := x.reports[about]
	switch {
	case w == nil:
		return nil
	case w.sure && w.end.Reason() != locks.ReasonRemoved:
		why := causeOf(&w.end)
		return &why
	}
	return w.termination
}

// Revise completes what this gateway has observed of the end of another gateway's lease with what was reported.
func (x *Exchange) Revise(id recipe.LeaseID, p postmortem.End) postmortem.End {
	w := x.reports[LeaseOrPath(id)]
	if w != nil && w.ended {
		p = w.end // first-hand
	}
	if why := w.outcome(nil); why.Reason != locks.ReasonUnknown {
		p.Why, p.Words, p.By = postmortem.CauseOf(why.Reason), why.Words, why.By
	}
	return p
}

// drop drops the reports about a lease once its end is published, unless its contender still exists. For its own lease this
// gateway reports the outcome to its peers.
func (x *Exchange) drop(id recipe.LeaseID) {
	if x.opt.History.Has(id) && !x.opt.History.Terminated(id) {
		x.Tell(Notice{Kind: Ended, Lease: id})
	}
	if w := x.reports[LeaseOrPath(id)]; w != nil && !x.opt.Lives(id) && (w.q == nil || w.q.Contenders.Get(w.name) == nil) {
		delete(x.reports, LeaseOrPath(id))
	}
}

// Gone drops the reports about a contender that has left the replica. They stay while its lease lives or has other
// contenders, or its end waits for more reports.
func (x *Exchange) Gone(q *queues.Queue, c *recipe.Contender) {
	switch {
	case len(x.reports) == 0:
	case !c.Ours || c.LeaseID == "":
		delete(x.reports, LeaseOrPath(q.Path+"/"+c.Name))
	case !x.delayed.waits(c.LeaseID) && !x.opt.Lives(c.LeaseID) && x.opt.Replica.Group(c.LeaseID) == nil:
		if w := x.reports[LeaseOrPath(c.LeaseID)]; w != nil && w.name != c.Name && w.q == q && q.Contenders.Get(w.name) != nil {
			return // another contender has replaced it
		}
		delete(x.reports, LeaseOrPath(c.LeaseID))
	}
}

// Replaced records that a downgrade has replaced a contender. An end that was reported already is that of the replacement.
func (x *Exchange) Replaced(q *queues.Queue, c, next *recipe.Contender) {
	if w := x.reports[LeaseOrPath(c.LeaseID)]; w != nil && w.q == q && w.name == c.Name {
		w.name = strings.Clone(next.Name)
	}
}

// Lost publishes that the replica is about to lose a contender that is not a lease of this gateway. When the reason is not
// known yet, the event is delayed. e has what this gateway knows.
func (x *Exchange) Lost(e *events.Event, path string, c *recipe.Contender, now time.Duration) {
	own, about := x.Ending(c), LeaseOrPath(c.LeaseID)
	if !c.Ours || c.LeaseID == "" {
		about = LeaseOrPath(path)
	}
	w := x.reports[about]
	if w == nil && x.opt.Observed.Reported(c.LeaseID) {
		end, _ := x.opt.Observed.Get(c.LeaseID)
		w = &evidence{ended: true, sure: true, end: end}
	}
	runner, _ := x.opt.Members.OwnerOf(c.LeaseID.Gateway())
	certain := w != nil && w.sure || (own != nil || w != nil && w.termination != nil) && !x.mayExplain(runner, now)
	if c.Ours && c.LeaseID != "" && !certain && x.PeerMayExplain(now) && !fault.On("end-report") {
		x.Delay(e, c, own, c.Ephemeral, now)
		return
	}
	if why := w.outcome(own); why.Reason != locks.ReasonUnknown {
		why.Explain(e, c.Groups > 1)
	}
	w.complete(e)
	x.Publish(e)
}

// Reappeared drops the observed end of a contender that the replica shows again, or only now. Its gateway's report of the
// end stays until the replica loses the contender.
func (x *Exchange) Reappeared(q *queues.Queue, c *recipe.Contender) {
	if !x.opt.Observed.Has(c.LeaseID) {
		return
	}
	p, _ := x.opt.Observed.Get(c.LeaseID)
	x.opt.Observed.Drop(c.LeaseID)
	if !p.Reported || x.opt.Lives(c.LeaseID) {
		return
	}
	if w := x.on(LeaseOrPath(c.LeaseID), q, c); w != nil && !w.ended {
		p.Next = nil
		w.ended, w.sure, w.end = true, true, p
	}
}

// peerFeed is a gateway that may send reports.
type peerFeed struct {
	followed bool
	since    time.Duration // boot; start of the present value of followed
}
