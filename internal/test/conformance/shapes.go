package conformance

import (
	"encoding/base64"
	"strconv"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// The specification's shapes in the domain's words.

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func each[From, To any](list []From, convert func(*From) To) []To {
	converted := make([]To, len(list))
	for i := range list {
		converted[i] = convert(&list[i])
	}
	return converted
}

func lease(l *api.Lease) locks.Lease {
	return locks.Lease{
		ID: l.LeaseID, Token: l.Token, NS: l.NS, Lock: l.Lock, Znode: l.Znode, Mode: locks.Mode(l.Mode), State: locks.State(l.State),
		Reason: locks.Reason(l.Reason), Position: l.Position, QueueLength: value(l.QueueLength), FencingToken: l.FencingToken,
		TTL: millis(l.TTLMS), ExpiresIn: millis(value(l.ExpiresInMS)), FailoverSafe: l.FailoverSafe, Owner: l.Owner, Metadata: l.Metadata,
		Permits: l.Permits, Limit: l.Limit, Holds: l.Holds, LockDelay: millis(l.LockDelayMS), LockDelayOn: locks.DelayOn(l.LockDelayOn), AtLeast: millis(l.AtLeastMS), OncePer: millis(l.OncePerMS), Period: l.Period, DoneOn: locks.DoneOn(l.DoneOn),
		Ephemeral: l.Ephemeral, Revoke: revocation(l.RevokeRequested), Warning: l.Warning, Rev: l.Rev, Purpose: l.AcquireReason, EndsAt: endsAt(l.EndsAt), ReservedFor: millis(l.ReservedForMS),
		Locks: each(l.Locks, func(k *api.LeaseLock) locks.LeaseLock {
			return locks.LeaseLock{NS: k.NS, Lock: k.Lock, Mode: locks.Mode(k.Mode), Permits: k.Permits, Limit: k.Limit, Znode: k.Znode,
				FencingToken: k.FencingToken, Position: k.Position}
		}),
	}
}

func endsAt(text string) time.Time {
	at, _ := time.Parse(time.RFC3339, text) // none is the zero time, and the specification's pattern refuses any other text
	return at
}

func revocation(r *api.RevokeRequested) *locks.Revocation {
	if r == nil {
		return nil
	}
	return &locks.Revocation{Reason: r.Reason, By: r.By, Forced: r.ForceInMS != nil, ForceIn: millis(value(r.ForceInMS))}
}

func heartbeat(h *api.Heartbeat) locks.Heartbeat {
	return locks.Heartbeat{LeaseID: h.LeaseID, State: locks.State(h.State), ExpiresIn: millis(h.ExpiresInMS), TTL: millis(h.TTLMS),
		FencingToken: h.FencingToken, Position: h.Position, Waiters: h.Waiters, Revoke: revocation(h.RevokeRequested)}
}

func contenders(list []api.Contender) []locks.Contender { return each(list, contender) }

func contender(c *api.Contender) locks.Contender {
	d := locks.Contender{
		LeaseID: c.LeaseID, Znode: c.Znode, Owner: c.Owner, Mode: locks.Mode(c.Mode), Permits: c.Permits, Limit: c.Limit, Position: c.Position,
		FencingToken: c.FencingToken, Age: millis(value(c.AgeMS)), AgeKnown: c.AgeMS != nil, HeldFor: millis(c.HeldMS), HeldLonger: c.HeldLonger, HeldAtMost: millis(c.HeldAtMostMS),
		ExpiresIn: millis(c.ExpiresInMS), Unclaimed: c.Unclaimed, Metadata: c.Metadata, Purpose: c.AcquireReason, EndsAt: endsAt(c.EndsAt), ReservedFor: millis(c.ReservedForMS), Delayed: c.Delayed, Reason: locks.Reason(c.Reason),
		Holds: c.Holds, Group: c.Group, Ephemeral: c.Ephemeral, Revoke: revocation(c.RevokeRequested),
	}
	if f := c.Foreign; f != nil {
		session, _ := strconv.ParseUint(f.Session, 0, 64) // "" is 0: a persistent node
		d.Foreign = &locks.Foreign{Program: f.Program, Kind: f.Kind, Session: int64(session)}
		if f.Data != nil {
			d.Foreign.Data = []byte(f.Data.Text)
			if b, err := base64.StdEncoding.DecodeString(f.Data.Base64); err == nil && len(b) > 0 {
				d.Foreign.Data = b
			}
		}
	}
	return d
}

func unreached(u *api.Unreached) locks.Unreached {
	return locks.Unreached{Contender: contender(&u.Contender), Detail: u.Detail}
}

func lock(l *api.Lock) locks.Lock {
	d := locks.Lock{
		NS: l.NS, Name: l.Lock, State: locks.LockState(l.State), Holders: contenders(l.Holders), Waiters: contenders(l.Waiters),
		QueueLength: l.QueueLength, Rev: l.Rev, NextCursor: l.NextCursor,
		Hazards: each(l.Hazards, func(h *api.Hazard) locks.Hazard {
			return locks.Hazard{Code: locks.HazardCode(h.Code), Programs: h.Programs, Detail: h.Detail}
		}),
	}
	if l.Settings != nil {
		d.Limit, d.LimitAgreed = l.Settings.Limit, l.Settings.Agreed
	}
	return d
}

func postmortem(p *api.Postmortem) (locks.Postmortem, error) {
	at, err := time.Parse(time.RFC3339Nano, p.EndedAt)
	d := locks.Postmortem{
		LeaseID: p.LeaseID, NS: p.NS, Lock: p.Lock, Mode: locks.Mode(p.Mode), Owner: p.Owner, Reason: locks.Reason(p.Reason), Detail: p.Detail, By: p.By, Purpose: p.AcquireReason,
		FencingToken: p.FencingToken, EndedAgo: millis(p.EndedAgoMS), EndedAt: at, WaitedFor: millis(p.WaitedMS), HeldFor: millis(value(p.HeldMS)),
		TTL: millis(p.TTLMS), LastHeartbeat: millis(value(p.LastHeartbeatMS)),
	}
	if n := p.Next; n != nil {
		d.Next = &locks.Successor{LeaseID: n.LeaseID, Owner: n.Owner, FencingToken: n.FencingToken, After: millis(n.AfterMS)}
	}
	return d, err
}

func problem(p *api.Problem) *locks.Error {
	var cycle *locks.Cycle
	if p.Cycle != nil {
		cycle = new(graphCycle(p.Cycle))
	}
	return &locks.Error{
		Cycle: cycle,
		Code:  locks.Code(p.Code), Field: p.Field, Detail: p.Detail, RetryAfter: millis(value(p.RetryAfterMS)), Reason: locks.Reason(p.Reason), By: p.By,
		Holders: contenders(p.Holders), QueueLength: value(p.QueueLength), Limit: p.Limit,
	}
}
