package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// The leader is the lock's one exclusive holder. Simultaneous holders are no leader: a lock that is shared has none.

type leaderInput struct {
	locks.LockRequest
	poll
	format string // "text" or "json"
}

var leaderUntil = []string{untilElected, untilChanged}

var getLeader = operation[leaderInput]{fields: slices.Concat([]field[leaderInput]{
	{name: "lock", in: inPath, to: func(l *leaderInput) any { return (*lockName)(&l.Lock) }},
	{name: "ns", in: inQuery, preset: locks.DefaultNamespace, to: func(l *leaderInput) any { return &l.NS }},
	{name: "consistent", in: inQuery, to: func(l *leaderInput) any { return &l.Consistent }},
	{name: "format", in: inQuery, to: func(l *leaderInput) any { return oneOf{&l.format, []string{"json", "text"}} }},
}, pollFields(func(l *leaderInput) *time.Duration { return &l.Wait }, func(l *leaderInput) *string { return &l.Since }, func(l *leaderInput) *poll { return &l.poll }, leaderUntil...))}

func (q *queues) getLeader(x *exchange) error {
	in := leaderInput{LockRequest: locks.LockRequest{Principal: x.principal(), Limit: 1}}
	if err := decode(x, &getLeader, &in); err != nil {
		return err
	}
	if in.Wait != 0 && in.Since == "" && in.until == "" {
		in.until = untilElected
	}
	if err := in.check(in.Wait, in.Since, leaderUntil...); err != nil {
		return err
	}
	ctx, end, err := x.takePlace(in.Wait)
	if err != nil {
		return err
	}
	// The lock's rev moves with its waiters, too, so the leader's own is compared.
	known, changes := in.Since, in.until != untilElected
	lock, err := await(&poll{until: untilElected}, in.Wait, "", func(wait time.Duration, since string) (locks.Lock, error) {
		in.Wait, in.LockRequest.Since = wait, since
		return q.locks.Lock(ctx, in.LockRequest)
	}, func(l *locks.Lock) (string, bool) {
		leader := leaderOf(l)
		rev := leaderRev(leader)
		if known == "" {
			known = rev
		}
		return l.Rev, (changes && rev != known || !changes && leader != nil) && !beingGranted(leader)
	})
	end()
	switch {
	case err != nil:
		return err
	case x.wait > 0 && q.s.drained.Err() != nil:
		return draining()
	case !q.s.locks.StillValid(lock.Term):
		return x.notConfirmed()
	}
	leader := leaderOf(&lock)
	if leader == nil {
		return &problem{code: codeNoLeader, detail: whyNoLeader(&lock)}
	}
	x.tagWeakly(leaderRev(leader))
	x.open = true
	if in.format == "text" || in.format == "" && prefersText(x.r.Header) {
		x.raw([]byte(leaderMetadata(leader)))
		return x.send(http.StatusOK, typeText)
	}
	return x.answer(leaderShape(&lock, leader))
}

// leaderOf is the lock's one exclusive holder, nil when it has none.
func leaderOf(l *locks.Lock) *locks.Contender {
	held := l.State == locks.LockHeld || l.State == locks.LockUnclaimed
	if !held || l.HolderCount != 1 || len(l.Holders) != 1 || l.Holders[0].Mode != locks.Exclusive || l.Holders[0].Delayed {
		return nil
	}
	return &l.Holders[0]
}

// beingGranted reports whether a leader is so new that its fencing token is not known yet. It is within moments, and a look that
// waits has the time.
func beingGranted(c *locks.Contender) bool {
	return c != nil && c.Foreign == nil && c.FencingToken == 0
}

// whyNoLeader says what is there in place of a leader.
func whyNoLeader(l *locks.Lock) string {
	const wait = "; wait for one with wait=50s"
	switch {
	case l.State == locks.LockDelayed || len(l.Holders) == 1 && l.Holders[0].Delayed:
		return "the last leader's lease has ended, and its lock delay keeps the lock" + wait
	case l.HolderCount > 1:
		return fmt.Sprintf("%d contenders hold the lock at once: a leader is its only holder, in mode exclusive", l.HolderCount)
	case l.State != locks.LockFree && l.State != locks.LockQueued && len(l.Holders) == 1:
		return fmt.Sprintf("the lock is held in mode %s: a leader is its only holder, in mode exclusive", l.Holders[0].Mode)
	}
	return "no lease holds the lock" + wait
}

// noLeaderRev is the revision of having no leader.
const noLeaderRev = "none"

// leaderRev is the same at each gateway while the same lease leads and says the same of itself. The fencing token is no part of it:
// it stays while the lease does, and a gateway may learn of it late.
func leaderRev(c *locks.Contender) string {
	if c == nil {
		return noLeaderRev
	}
	h := sha256.New()
	for _, part := range []string{c.LeaseID, c.Znode, c.Owner, leaderMetadata(c)} {
		fmt.Fprintf(h, "%d %s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// leaderMetadata is what the leader says of itself: a lease's metadata, or the data of another program's node when it is text.
func leaderMetadata(c *locks.Contender) string {
	if shape := foreignShape(c.Foreign); shape != nil && shape.Data != nil {
		return shape.Data.Text
	}
	return c.Metadata
}

func leaderShape(l *locks.Lock, c *locks.Contender) *api.Leader {
	shape := &api.Leader{
		Lock: l.Name, NS: l.NS, LeaseID: c.LeaseID, Foreign: foreignShape(c.Foreign), Znode: c.Znode, Owner: c.Owner, Principal: c.Principal,
		Metadata: leaderMetadata(c), FencingToken: c.FencingToken, HeldLonger: c.HeldLonger, Unclaimed: c.Unclaimed, Rev: leaderRev(c),
	}
	if c.HeldFor > 0 {
		shape.Since = new(c.At.Add(-c.HeldFor).UTC().Truncate(time.Millisecond))
	}
	return shape
}
