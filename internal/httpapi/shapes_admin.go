package httpapi

import (
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

func fenceShape(f *locks.FenceAnswer) api.Fence {
	shape := api.Fence{Current: f.Current, Highest: f.Highest}
	if !f.Current {
		shape.Reason = api.FenceReason(f.Reason)
	}
	return shape
}

func postmortemShape(p *locks.Postmortem) *api.Postmortem {
	shape := &api.Postmortem{
		LeaseID: p.LeaseID, Lock: p.Lock, NS: p.NS, Mode: api.Mode(p.Mode), Owner: p.Owner, AcquireReason: p.Purpose, Reason: api.Reason(p.Reason), Detail: p.Detail, By: p.By,
		FencingToken: p.FencingToken, EndedAt: p.EndedAt.UTC().Format(eventTime), EndedAgoMS: millis(p.EndedAgo),
		WaitedMS: millis(p.WaitedFor), TTLMS: millis(p.TTL),
	}
	if p.FencingToken != 0 || p.HeldFor > 0 {
		shape.HeldMS = new(millis(p.HeldFor))
	}
	shape.LastHeartbeatMS = lastHeartbeat(p.LastHeartbeat)
	if n := p.Next; n != nil {
		shape.Next = &api.Successor{LeaseID: n.LeaseID, Owner: n.Owner, FencingToken: n.FencingToken, AfterMS: millis(n.After)}
	}
	return shape
}

func revokeShape(a *locks.RevokeAnswer) *api.RevokeAnswer {
	return &api.RevokeAnswer{Asked: contenders(a.Asked), Unreached: unreached(a.Not), More: a.More}
}

func withdrawShape(a *locks.WithdrawAnswer) *api.WithdrawAnswer {
	return &api.WithdrawAnswer{Withdrawn: contenders(a.Withdrawn), Unreached: unreached(a.Not), More: a.More}
}

func reapShape(a *locks.ReapAnswer) *api.ReapAnswer {
	return &api.ReapAnswer{Reaped: contenders(a.Reaped), Unreached: unreached(a.Not), DryRun: a.DryRun, More: a.More}
}

func destroyShape(a *locks.DestroyAnswer) *api.DestroyAnswer {
	return &api.DestroyAnswer{Ended: a.Ended, Foreign: a.Foreign}
}

func unreached(list []locks.Unreached) []api.Unreached {
	return each(list, func(u *locks.Unreached) api.Unreached {
		return api.Unreached{Contender: contender(&u.Contender), Detail: u.Detail}
	})
}
