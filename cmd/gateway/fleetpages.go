package main

import (
	"context"
	"time"

	"lockkeeper/internal/dashboard"
	"lockkeeper/internal/httpapi"
	"lockkeeper/web/templates"
)

// fleetPages is what the API says with the help of other gateways, as the dashboard shows it. api is set before the dashboard is
// served.
type fleetPages struct{ api *httpapi.Server }

func (p *fleetPages) Figures(ctx context.Context) map[string]templates.GatewayFigures {
	said, list := map[string]templates.GatewayFigures{}, p.api.ShowGateways(ctx)
	for i := range list.Items {
		g := &list.Items[i]
		var f templates.GatewayFigures
		if c := g.Commits; c != nil {
			f.P50, f.P99 = fromMillis(c.P50MS), fromMillis(c.P99MS)
		}
		if zk := g.Zookeeper; zk != nil && zk.SessionAgeMS != nil && zk.LagMS != nil {
			f.Opened, f.Lag = time.Now().Add(-time.Duration(*zk.SessionAgeMS)*time.Millisecond), time.Duration(*zk.LagMS)*time.Millisecond
		}
		said[g.GatewayID] = f
	}
	for _, u := range list.Unreached {
		said[u.GatewayID] = templates.GatewayFigures{Silent: u.Detail}
	}
	return said
}

func (p *fleetPages) Owned(ctx context.Context, owner, host string) dashboard.Owned {
	list, more, missing := p.api.ShowLeasesElsewhere(ctx, owner, host)
	o := dashboard.Owned{Leases: make(map[string]dashboard.OwnedLease, len(list)), More: more, Unreached: unreachedNames(missing)}
	now := time.Now()
	for i := range list {
		l := &list[i]
		known := dashboard.OwnedLease{Owner: l.Owner, Metadata: l.Metadata, TTL: time.Duration(l.TTLMS) * time.Millisecond}
		if l.ExpiresInMS != nil {
			known.ExpiresAt = now.Add(time.Duration(*l.ExpiresInMS) * time.Millisecond)
		}
		if l.LastHeartbeatMS != nil {
			known.HeardAt = now.Add(-time.Duration(*l.LastHeartbeatMS) * time.Millisecond)
		}
		o.Leases[l.LeaseID] = known
	}
	return o
}

func fromMillis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
