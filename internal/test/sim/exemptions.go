package sim

import (
	"slices"
	"sync"
	"time"
)

// exemptions are the reasons for which a lease may end although its client counts on it.
type exemptions struct {
	audit *audit

	mu            sync.Mutex
	excused       map[string]bool // leases that another program has ended, or was to
	freed         map[string]bool // leases that their own clients have released
	interventions []*intervention
	withdrawals   []*withdrawal
	jumps         []jump
}

// intervention is what an administrator has asked a gateway to do to the leases of a lock: they may end when it says.
type intervention struct {
	lock, lease string    // either: all leases of a lock, or one
	sent, until time.Time // from asking to the answer; when there is none, to when it can happen no more
	force       time.Duration
	contenders  bool // the whole queue, not holders alone, and outright: nothing stays for a lock delay
}

// withdrawal is what an administrator was told of a revocation that was withdrawn.
type withdrawal struct {
	lock           string
	leases         map[string]bool // those that the answer names
	sent, answered time.Time
}

// jump is one of a gateway's clock.
type jump struct {
	at time.Time
	by time.Duration
}

// late is how long a request without an answer may be under way.
const late = 20 * time.Second

func newExemptions(a *audit) *exemptions {
	return &exemptions{audit: a, excused: make(map[string]bool), freed: make(map[string]bool)}
}

// excuse says that another program ends the lease of a contender.
func (e *exemptions) excuse(path string) {
	lease := e.audit.leaseOf(path)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.excused[lease] = true
}

// free says that its own client has released a lease.
func (e *exemptions) free(lease string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.freed[lease] = true
}

func (e *exemptions) isExcused(lease string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.excused[lease]
}

func (e *exemptions) isFreed(lease string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.freed[lease]
}

// intervene notes what is asked for. Its caller calls done when it has the answer, or void when that says that nothing was done.
func (e *exemptions) intervene(i intervention, counts bool) (done, void func()) {
	i.sent = time.Now()
	i.until = i.sent.Add(late)
	if !counts {
		return func() {}, func() {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.interventions = append(e.interventions, &i)
	return func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			i.until = time.Now()
		}, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.interventions = slices.DeleteFunc(e.interventions, func(other *intervention) bool { return other == &i })
		}
}

// withdraw notes that a withdrawal is asked for; done notes the leases that its answer names.
func (e *exemptions) withdraw(lock string) (done func(leases []string)) {
	back := &withdrawal{lock: lock, leases: map[string]bool{}, sent: time.Now()}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.withdrawals = append(e.withdrawals, back)
	return func(leases []string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		back.answered = time.Now()
		for _, l := range leases {
			back.leases[l] = true
		}
	}
}

// withdrawnSince reports whether a lock's revocation may have been withdrawn after that time.
func (e *exemptions) withdrawnSince(lock string, since time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.withdrawals, func(back *withdrawal) bool { return back.lock == lock && !back.sent.Before(since) })
}

// hasten notes that some gateway's clock jumps: what it does by force comes so much earlier, as other clocks see it.
func (e *exemptions) hasten(by time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jumps = append(e.jumps, jump{time.Now(), by})
	for _, i := range e.interventions {
		i.force -= by
	}
}

// asleep is how far gateways' clocks jumped in that time. A machine's sleep passes for its clients, too; here it does not, and a
// gateway counts it into waited_ms.
func (e *exemptions) asleep(from, to time.Time) (by time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, j := range e.jumps {
		if !j.at.Before(from) && !j.at.After(to) {
			by += j.by
		}
	}
	return by
}

// mayEnd reports whether a lease may end at that time without its gateway having to keep it.
func (e *exemptions) mayEnd(lease string, at time.Time) bool {
	places := e.audit.places(lease)
	ephemeral := slices.ContainsFunc(places, func(c contender) bool { return c.ephemeral }) // it goes with its gateway's session
	return ephemeral || e.isExcused(lease) || e.isFreed(lease) || e.intervened(lease, places, at, false)
}

// mayTerminate reports whether an administrator may have ended a lease, or another program's contender, outright.
func (e *exemptions) mayTerminate(lease string, at time.Time) bool {
	return e.intervened(lease, e.audit.places(lease), at, true)
}

func (e *exemptions) intervened(lease string, places []contender, at time.Time, outright bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, i := range e.interventions {
		withdrawn := !i.contenders && slices.ContainsFunc(e.withdrawals, func(back *withdrawal) bool {
			return back.leases[lease] && i.until.Before(back.sent) && at.After(back.answered)
		})
		if withdrawn || outright && !i.contenders || at.Before(i.sent.Add(i.force)) || i.contenders && at.After(i.until) {
			continue
		}
		for _, c := range places {
			if c.made.Before(i.until) && (i.lease == lease || c.lock == i.lock && (i.contenders || !c.led.IsZero() && c.led.Before(i.until))) {
				return true
			}
		}
	}
	return false
}
