package httpapi

import (
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/metrics"
)

// What a gateway knows of the fleet is in its replica of ZooKeeper. How it does itself, it alone knows: the gateway that is asked
// asks the others for that, if it is to.

type gatewaysInput struct{ ask bool }

var listGateways = operation[gatewaysInput]{fields: []field[gatewaysInput]{
	{name: "ask", in: inQuery, to: func(l *gatewaysInput) any { return &l.ask }},
}}

func (p *process) listGateways(x *exchange) error {
	var in gatewaysInput
	if err := decode(x, &listGateways, &in); err != nil {
		return err
	}
	list := p.gateways(x.r.Context(), x.counts())
	if in.ask {
		p.askGateways(x.r.Context(), askedBy(x), list)
	}
	return x.answer(list)
}

// gateways is what this gateway knows.
func (p *process) gateways(ctx context.Context, counts bool) *api.GatewayList {
	info := p.locks.Info(ctx)
	list := gatewayList(p.locks.Peers(), counts, &info)
	list.Left = each(p.locks.LeftGateways(), func(l *locks.LeftGateway) api.LeftGateway {
		shape := api.LeftGateway{GatewayID: l.Gateway, LeftAgoMS: millis(l.Ago), Deposed: l.Deposed, Successor: l.Successor}
		if counts {
			shape.Leases = &l.Leases
		}
		return shape
	})
	if own := slices.IndexFunc(list.Items, func(g api.GatewayInfo) bool { return g.Self }); own >= 0 && p.s.metrics != nil {
		if latency, ok := p.s.metrics.Commits(); ok {
			list.Items[own].Commits = commitsShape(latency)
		}
	}
	return list
}

// askGateways adds what the others say of themselves.
func (p *process) askGateways(ctx context.Context, a asker, list *api.GatewayList) {
	list.Unreached = askOthers(ctx, p.s.forwarder.fleet, p.locks, a, http.MethodGet, "/v1/gateways", func(answer *api.GatewayList) {
		for _, said := range answer.Items {
			if i := slices.IndexFunc(list.Items, func(g api.GatewayInfo) bool { return g.GatewayID == said.GatewayID }); said.Self && i >= 0 {
				list.Items[i].Zookeeper, list.Items[i].Commits = said.Zookeeper, said.Commits
			}
		}
	})
}

// ShowGateways is the list with what the others say, for a page. It has the totals, which not every viewer may see.
func (s *Server) ShowGateways(ctx context.Context) *api.GatewayList {
	list := s.gateways(ctx, true)
	s.askGateways(ctx, s.forPage(), list)
	return list
}

func commitsShape(l metrics.CommitLatency) *api.CommitLatency {
	return &api.CommitLatency{P50MS: fineMillis(l.P50), P99MS: fineMillis(l.P99), OverMS: millis(l.Over)}
}

// fineMillis is a span in milliseconds, to a hundredth.
func fineMillis(d time.Duration) float64 { return math.Round(d.Seconds()*1e5) / 100 }

func gatewayList(peers []locks.Peer, counts bool, info *locks.Info) *api.GatewayList {
	return &api.GatewayList{Items: each(peers, func(p *locks.Peer) api.GatewayInfo {
		shape := api.GatewayInfo{GatewayID: p.Gateway, Self: p.Self, Address: p.Address, Version: p.Version, Succeeded: p.Succeeded}
		if counts {
			shape.Leases = &p.Leases
		}
		if !p.Started.IsZero() {
			shape.Started = &p.Started
		}
		if p.GuardAge >= 0 {
			shape.GuardAgeMS = new(millis(p.GuardAge))
		}
		if p.Self {
			shape.Zookeeper = new(zooKeeperShape(&info.ZooKeeper))
		}
		return shape
	})}
}
