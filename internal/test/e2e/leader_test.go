package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// A follower asks one gateway; the candidates take the lock at another one, which dies.
func TestAFollowerKnowsTheLeaderAtAnyGateway(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	theirs, ours := startGateway(t, addr+chroot), startGateway(t, addr+chroot)
	const path = "/v1/locks/office/leader"
	leader := func(query string) api.Leader {
		t.Helper()
		return post[api.Leader](ours, "GET", path+query, http.StatusOK, "")
	}
	none := func(query string) {
		t.Helper()
		a, err := ours.Send(t.Context(), "GET", path+query)
		expect(t, a, err, http.StatusNotFound, "no_leader")
	}
	// later asks at once, and gives the answer.
	later := func(query string) func() (*apitest.Answer, error) {
		answer := make(chan *apitest.Answer, 1)
		failed := make(chan error, 1)
		go func() {
			a, err := ours.Send(t.Context(), "GET", path+query)
			failed <- err
			answer <- a
		}()
		return func() (*apitest.Answer, error) { return <-answer, <-failed }
	}
	none("")

	elected := later("?wait=1m&format=text")
	first := theirs.hold("office", "ttl=30s&owner=node-1&metadata=http://10.0.0.1:9000")
	a, err := elected()
	expect(t, a, err, http.StatusOK, "")
	assert.Equal(t, string(a.Body), "http://10.0.0.1:9000", "the address")
	known := leader("?consistent=true")
	assert.That(t, known.LeaseID == first.LeaseID && known.FencingToken == first.FencingToken && known.Owner == "node-1" && known.Since != nil, "%+v", known)
	there := post[api.Leader](theirs, "GET", path, http.StatusOK, "")
	assert.That(t, there.Rev == known.Rev, "%s at its own gateway, %s at the other one", there.Rev, known.Rev)

	// A candidate that comes is no news; other metadata are.
	changed := later("?wait=1m&since=" + known.Rev)
	second := theirs.queue("office", "ttl=30s&owner=node-2&metadata=http://10.0.0.2:9000")
	ours.awaitLock(patience, "office", 1, 1)
	post[api.Lease](theirs, http.MethodPatch, "/v1/leases/self?metadata=http://10.0.0.1:9001", http.StatusOK, "", apitest.Token(first.Token))
	a, err = changed()
	expect(t, a, err, http.StatusOK, "")
	moved := leader("")
	assert.That(t, moved.Metadata == "http://10.0.0.1:9001" && moved.LeaseID == first.LeaseID && moved.Rev != known.Rev, "%+v", moved)

	changed = later("?wait=1m&until=changed&since=" + moved.Rev)
	theirs.letGo(first.Token)
	a, err = changed()
	expect(t, a, err, http.StatusOK, "")
	next := leader("")
	assert.That(t, next.LeaseID == second.LeaseID && next.FencingToken > first.FencingToken, "%+v", next)

	// The leader outlives its gateway, and is the same one.
	theirs.beat(second.Token, api.StateHeld)
	theirs.kill()
	ours.awaitOwned(second.LeaseID)
	ours.beat(second.Token, api.StateHeld)
	assert.Equal(t, leader("").Rev, next.Rev, "the leader's rev after a takeover")
	changed = later("?wait=1m&since=" + next.Rev)
	ours.letGo(second.Token)
	a, err = changed()
	expect(t, a, err, http.StatusNotFound, "no_leader")

	// Several holders are no leader, and another program's lock may be one.
	shared := ours.hold("office", "mode=shared&ttl=30s")
	none("")
	ours.letGo(shared.Token)
	ours.awaitLock(patience, "office", 0, 0)
	outside := ours.foreign(t)
	outside.put("/lockkeeper/locks/office/_c_6a9ed4c8-5ba5-4b63-a1e3-96de7b4a7ccc-lock-", []byte("10.0.0.7"))
	eventually(t, patience, func() error {
		a, err := ours.Send(t.Context(), "GET", path+"?format=text")
		if err == nil && a.Status == http.StatusOK && string(a.Body) != "10.0.0.7" {
			return errors.New(string(a.Body))
		}
		if err == nil && a.Status != http.StatusOK {
			return fmt.Errorf("%d", a.Status)
		}
		return err
	}, "the data of Curator's node are its metadata")
}
