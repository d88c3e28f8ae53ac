package httpapi

import (
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/test/assert"
)

func TestAGatewayTellsOfItselfAndAsksTheOthersIfItIsTo(t *testing.T) {
	counted := func(took time.Duration) func(*Options) {
		return func(o *Options) {
			o.Metrics = metrics.New("1")
			o.Metrics.ZKOperation("multi", "ok", took)
		}
	}
	asked, _ := member(t, "asked", "secret", counted(800*time.Microsecond))
	other, _ := member(t, "other", "secret", counted(80*time.Millisecond))
	asked.session, asked.lag = time.Minute, 3*time.Millisecond
	other.session = time.Hour
	other.peers = []locks.Peer{{Gateway: "other", Self: true, Registered: true}, {Gateway: "asked", Registered: true}}
	asked.peers = []locks.Peer{{Gateway: "asked", Self: true, Registered: true}, {Gateway: "other", Address: other.address(), Registered: true},
		{Gateway: "silent", Address: "127.0.0.1:1", Registered: true}}
	asked.left = []locks.LeftGateway{{Gateway: "gone", Ago: 20 * time.Second, Deposed: true, Leases: 3, Successor: "other"}}

	list := read[api.GatewayList](t, asked.expect(t, 200, "", "GET", "/v1/gateways"))
	assert.Must(t, len(list.Items) == 3 && list.Unreached == nil, "%+v", list)
	own := &list.Items[0]
	assert.That(t, *own.Zookeeper.SessionAgeMS == 60_000 && *own.Zookeeper.LagMS == 3, "%+v", own.Zookeeper)
	assert.That(t, own.Commits != nil && own.Commits.P50MS > .5 && own.Commits.P99MS <= 1, "%+v", own.Commits)
	assert.That(t, list.Items[1].Commits == nil && list.Items[1].Zookeeper == nil, "another gateway was asked: %+v", list.Items[1])
	assert.That(t, len(list.Left) == 1 && *list.Left[0].Leases == 3, "%+v", list.Left)
	list.Left[0].Leases = nil
	assert.Equal(t, list.Left[0], api.LeftGateway{GatewayID: "gone", LeftAgoMS: 20_000, Deposed: true, Successor: "other"})

	list = read[api.GatewayList](t, asked.expect(t, 200, "", "GET", "/v1/gateways?ask=true"))
	assert.Must(t, len(list.Items) == 3 && len(list.Unreached) == 1 && list.Unreached[0].GatewayID == "silent", "%+v", list)
	assert.That(t, list.Items[1].Commits != nil && list.Items[1].Commits.P50MS > 50 && *list.Items[1].Zookeeper.SessionAgeMS == 3_600_000, "%+v", list.Items[1])
	assert.That(t, list.Items[2].Commits == nil && list.Items[2].Zookeeper == nil, "%+v", list.Items[2])
}

func TestHowManyLeasesALostGatewayHadIsATotal(t *testing.T) {
	guests := withTeams(t)
	g := serve(t, guests.options)
	g.left = []locks.LeftGateway{{Gateway: "gone", Leases: 4711}}
	for who, told := range map[string]bool{"shop": false, "all": true, "admin": false} {
		a := g.expect(t, 200, "", "GET", "/v1/gateways", as(who))
		assert.That(t, strings.Contains(string(a.Body), "4711") == told, "%s: %s", who, a.Body)
	}
}
