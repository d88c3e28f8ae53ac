package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/zk/ensemble"
	"lockkeeper/web/templates"
)

const pageGateways = "gateways"

// gatewaysPage is the fleet and its ZooKeeper.
type gatewaysPage struct{ plain }

func (gatewaysPage) name() string  { return pageGateways }
func (gatewaysPage) title() string { return "Gateways" }

// waits: other gateways are asked, at each tick.
func (gatewaysPage) waits() bool { return true }

func (gatewaysPage) read(ctx context.Context, from *Options, as reading) (content, error) {
	shown := &gatewaysContent{templates.Gateways{Page: as.frame}}
	peers, partial := from.Locks.Peers(), !as.who.Rules.MayAll(access.Read)
	said := as.fleet.figures(ctx)
	for i := range peers {
		row := gatewayRowOf(&peers[i], as.info.ZooKeeper, as.info.PromiseWindow)
		row.Partial, row.Figures = partial, said[peers[i].Gateway]
		shown.Rows = append(shown.Rows, row)
	}
	for _, l := range from.Locks.LeftGateways() {
		shown.Rows = append(shown.Rows, leftRowOf(&l, partial))
	}
	if from.Ensemble != nil {
		shown.Servers = serverRowsOf(from.Ensemble(ctx))
	}
	return shown, nil
}

type gatewaysContent struct{ templates.Gateways }

func (c *gatewaysContent) document() templ.Component { return templates.GatewaysPage(c.Gateways) }
func (c *gatewaysContent) parts() []part {
	return []part{{"gateways", templates.GatewaysFragment(c.Gateways)}}
}

// gatewayRowOf is the row of a gateway. This gateway knows its own state; of others it knows when
// they last wrote.
func gatewayRowOf(p *locks.Peer, own locks.ZooKeeperInfo, window time.Duration) templates.GatewayRow {
	row := templates.GatewayRow{ID: visible(p.Gateway), Self: p.Self, Address: visible(p.Address), Version: visible(p.Version), Started: p.Started,
		Leases: p.Leases, Succeeded: len(p.Succeeded), State: "registered", Tone: "good"}
	switch {
	case p.Self && !own.Trusted:
		row.State, row.Tone, row.Seen = "not trusted", "bad", "no write confirmed for the promise window"
	case p.Self && !own.ReplicaCurrent:
		row.State, row.Tone, row.Seen = "behind", "warn", "its data is out of date"
	case p.Self:
		row.State = "serving"
	case p.GuardAge < 0:
	case window > 0 && p.GuardAge >= window:
		row.State, row.Tone, row.Seen = "silent", "warn", "no write for "+strconv.Itoa(int(p.GuardAge.Seconds()))+" s"
	default:
		row.State, row.SeenAt = "healthy", time.Now().Add(-p.GuardAge).Truncate(time.Second)
	}
	return row
}

// leftRowOf is the row of a gateway that has left.
func leftRowOf(l *locks.LeftGateway, partial bool) templates.GatewayRow {
	row := templates.GatewayRow{ID: visible(l.Gateway), State: "gone", Tone: "bad", Left: true, Partial: partial, Deposed: l.Deposed, Successor: visible(l.Successor),
		SeenAt: time.Now().Add(-l.Ago).Round(time.Second)}
	if !partial {
		row.Leases = l.Leases
	}
	return row
}

// serverRowsOf are ZooKeeper's servers, in the order in which they were given. Epochs of leaders are in a zxid's upper half: a
// number of transactions between two servers is known within one epoch.
func serverRowsOf(list []ensemble.Server) []templates.ServerRow {
	var rows []templates.ServerRow
	if len(list) == 0 {
		return nil
	}
	newest := slices.MaxFunc(list, func(a, b ensemble.Server) int { return cmp.Compare(a.Zxid, b.Zxid) }).Zxid
	for _, s := range list {
		row := templates.ServerRow{Address: visible(s.Address), Mode: visible(s.Mode), Version: visible(s.Version), Connections: s.Connections}
		if s.Problem != "" {
			row.Problem = sentence(visible(s.Problem))
		} else {
			row.Zxid = "0x" + strconv.FormatInt(s.Zxid, 16)
			switch behind := newest - s.Zxid; {
			case behind == 0:
			case newest>>32 == s.Zxid>>32:
				row.Lag = fmt.Sprintf("%d behind when last asked", behind)
			default:
				row.Lag = "behind: previous epoch"
			}
		}
		rows = append(rows, row)
	}
	return rows
}
