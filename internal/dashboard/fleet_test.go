package dashboard

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/ensemble"
	"lockkeeper/web/templates"
)

func TestThePageOfGatewaysShowsTheFleetAndItsZooKeeper(t *testing.T) {
	r := newRig(t)
	started := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	r.fake.mu.Lock()
	r.fake.info = func() locks.Info {
		info := servingInfo()
		info.PromiseWindow = 10 * time.Second
		return info
	}
	r.fake.peers = []locks.Peer{
		{Gateway: "one", Self: true, Address: "one:8080", Version: "1.0", Started: started, Leases: 3, Succeeded: []string{"gone", "gone2"}, GuardAge: -1},
		{Gateway: "three", Address: "three:8080", GuardAge: 12 * time.Second},
		{Gateway: "two", GuardAge: time.Second}, {Gateway: "zero", GuardAge: -1},
	}
	r.fake.mu.Unlock()
	r.opt.Ensemble = func(context.Context) []ensemble.Server {
		return []ensemble.Server{{Address: "a:2181", Mode: "leader", Version: "3.8.0", Zxid: 0x500000010, Connections: 4}, {Address: "b:2181", Mode: "follower", Zxid: 0x50000000e},
			{Address: "c:2181", Mode: "follower", Zxid: 0x400000099}, {Address: "d:2181", Problem: "it cannot be reached"}}
	}
	c := assert.Value(r.read(t.Context(), view{page: pageGateways, ns: "default"}, nil))(t)
	want := []templates.GatewayRow{
		{ID: "one", Self: true, Address: "one:8080", Version: "1.0", Started: started, Leases: 3, Succeeded: 2, State: "serving", Tone: "good"},
		{ID: "three", Address: "three:8080", State: "silent", Tone: "warn", Seen: "no write for 12 s"},
		{ID: "two", State: "writing", Tone: "good"}, {ID: "zero", State: "registered", Tone: "good"},
	}
	diff := cmp.Diff(want, c.gateways.Rows)
	assert.Equal(t, diff, "")
	servers := []templates.ServerRow{{Address: "a:2181", Mode: "leader", Version: "3.8.0", Zxid: "0x500000010", Connections: 4},
		{Address: "b:2181", Mode: "follower", Zxid: "0x50000000e", Lag: "2 behind when last asked"},
		{Address: "c:2181", Mode: "follower", Zxid: "0x400000099", Lag: "of an earlier leader"}, {Address: "d:2181", Problem: "It cannot be reached."}}
	diff = cmp.Diff(servers, c.gateways.Servers)
	assert.Equal(t, diff, "")
	body := r.get(t, "/gateways").Body.String()
	for _, part := range []string{"this one", "three:8080", "successor of 2", "leader", "It cannot be reached."} {
		assert.That(t, strings.Contains(body, part), "the page lacks %s", part)
	}
}

func TestAGatewayShowsWhatItMaySay(t *testing.T) {
	own := locks.Peer{Gateway: "one", Self: true, GuardAge: -1}
	for _, c := range []struct {
		zk   locks.ZooKeeperInfo
		want string
	}{
		{locks.ZooKeeperInfo{Trusted: true, ReplicaCurrent: true}, "serving"},
		{locks.ZooKeeperInfo{Trusted: true}, "behind"},
		{locks.ZooKeeperInfo{ReplicaCurrent: true}, "not trusted"},
	} {
		row := gatewayRowOf(&own, c.zk, time.Second)
		assert.That(t, row.State == c.want, "%+v is shown as %s, want %s", c.zk, row.State, c.want)
	}
}
