package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// The page of gateways says how each gateway does, and where the leases of one that was killed went.
func TestThePageOfGatewaysSaysWhereTheLeasesOfALostGatewayWent(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	gateways := fleetOf(t, addr+chroot, 2)
	stays, dies := gateways[0], gateways[1]
	for i := range 3 {
		dies.hold(fmt.Sprint("lock-", i), "ttl=5m&owner=me")
	}
	stays.awaitLock(patience, "lock-2", 1, 0)
	fleet := func() (list api.GatewayList) {
		a, err := stays.Send(t.Context(), http.MethodGet, "/v1/gateways?ask=true")
		expect(t, a, err, http.StatusOK, "")
		assert.NoError(t, json.Unmarshal(a.Body, &list))
		return list
	}
	list := fleet()
	assert.Must(t, len(list.Items) == 2 && len(list.Left) == 0 && len(list.Unreached) == 0, "%+v", list)
	for _, g := range list.Items {
		assert.Must(t, g.Commits != nil && g.Commits.P50MS > 0 && g.Commits.P99MS >= g.Commits.P50MS && g.Zookeeper != nil && *g.Zookeeper.SessionAgeMS > 0, "%+v", g)
	}
	one, lost := list.Items[0].GatewayID, list.Items[1].GatewayID

	b := openPage(t, stays, "/gateways")
	cell := func(id, label string) string {
		return fmt.Sprintf(`document.getElementById("gw/%s").querySelector('[data-label="%s"]').innerText`, id, label)
	}
	b.until(fmt.Sprintf(`/commits .* ms · p99 .* ms/.test(%s)`, cell(one, "ZooKeeper")), "how long this gateway's commits take")
	b.until(fmt.Sprintf(`/commits .* ms · p99 .* ms\s+.*behind\s+session for \d/.test(%s)`, cell(lost, "ZooKeeper")), "how long another gateway's commits take")
	b.eachLook(func(look string) {
		b.flawless("gateways, " + look)
		b.shot("gateways-" + look)
	})

	dies.kill()
	b.until(fmt.Sprintf(`/gone\s+left .* ago\s+its 3 leases went to %s/.test(%s)`, one, cell(lost, "State")), "where its leases went")
	b.eachLook(func(look string) {
		b.flawless("a lost gateway, " + look)
		b.shot("gateways-lost-" + look)
	})
	list = fleet()
	assert.Must(t, len(list.Items) == 1 && len(list.Left) == 1, "%+v", list)
	left := list.Left[0]
	assert.That(t, left.GatewayID == lost && left.Successor == one && left.Leases != nil && *left.Leases == 3 && !left.Deposed, "%+v", left)
}

// The pages of an owner and of its host show what holds at another gateway, which alone knows the owner.
func TestThePageOfAnOwnerShowsTheLeasesOfAllGateways(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	gateways := fleetOf(t, addr+chroot, 2)
	here, there := gateways[0], gateways[1]
	here.hold("one", "ttl=5m&"+owner("alice@ci-1"))
	there.hold("two", "ttl=5m&metadata=run-42&"+owner("alice@ci-1"))
	there.hold("three", "ttl=5m&"+owner("bob@ci-2"))
	here.awaitLock(patience, "three", 1, 0)
	for _, path := range []string{"/owners/alice@ci-1", "/hosts/ci-1"} {
		b := openPage(t, here, path)
		b.says("#owned", "holds 2 locks")
		b.says("#owned", "two")
		b.until(`!document.querySelector("#owned").innerText.includes("three")`, "another owner's lock is not there")
		b.flawless(path)
	}
}
