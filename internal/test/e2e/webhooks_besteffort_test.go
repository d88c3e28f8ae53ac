package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// about are the types of the messages about a lock, repeats too, by type. Each must be signed with the secret.
func (b *inbox) about(t *testing.T, lock, secret string) (types []string) {
	t.Helper()
	hook := assert.Value(standardwebhooks.NewWebhook(secret))(t)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.came {
		var told struct {
			Type string           `json:"type"`
			Data api.WebhookEvent `json:"data"`
		}
		assert.NoError(t, json.Unmarshal(m.body, &told))
		if told.Data.Lock == lock {
			assert.NoError(t, hook.Verify(m.body, m.header), "%s", m.body)
			types = append(types, told.Type)
		}
	}
	slices.Sort(types)
	return types
}

func TestD17AFleetTellsGrantsQueueingsAndHazardsOnceEach(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	var gates []*gateway
	for range 2 {
		gates = append(gates, startGateway(t, addr+chroot, "--webhook-allow=127.0.0.1"))
	}
	to, ends := newInbox(t), newInbox(t)
	subscribe := func(url, events string) api.Webhook {
		return post[api.Webhook](gates[0], "POST", "/v1/webhooks?locks=told*&url="+url+"/hook"+events, http.StatusCreated, "")
	}
	hook := subscribe(to.URL, "&events=lease.granted,lease.queued,lock.hazard,lock.hazard_cleared,lease.revoke_requested,lease.released")
	ended := subscribe(ends.URL, "")
	assert.That(t, len(hook.Delivery.BestEffort) == 5 && len(hook.Delivery.Durable) == 1 && len(ended.Delivery.BestEffort) == 0, "%+v %+v", hook.Delivery, ended.Delivery)
	eventually(t, patience, func() error {
		if n := len(post[api.WebhookList](gates[1], "GET", "/v1/webhooks", http.StatusOK, "").Items); n != 2 {
			return fmt.Errorf("it knows %d webhooks", n)
		}
		return nil
	}, "the other gateway knows the webhooks")

	holder := gates[0].hold("told", "ttl=5m&owner=one")
	next := gates[1].queue("told", "ttl=5m&owner=other")
	post[api.RevokeAnswer](gates[1], "POST", "/v1/locks/told/revoke?reason=please", http.StatusOK, "")
	testkit.Eventually(t, patience, func() bool { return slices.Contains(to.about(t, "told", hook.Secret), "lease.revoke_requested") }, "the request is told")
	gates[0].letGo(holder.Token)
	gates[1].hold("untold", "ttl=5m")
	other := newForeign(t, addr, chroot)
	other.put("/lockkeeper/locks/told-odd", nil)
	other.put("/lockkeeper/locks/told-odd/stray", nil)
	testkit.Eventually(t, patience, func() bool { return slices.Contains(to.about(t, "told-odd", hook.Secret), "lock.hazard") }, "the hazard is told")
	assert.NoError(t, other.Delete(chroot+"/lockkeeper/locks/told-odd/stray", -1))
	testkit.Eventually(t, patience, func() bool { return len(to.about(t, "told-odd", hook.Secret)) > 1 }, "that it is over is told")
	gates[1].beat(next.Token, api.StateHeld)
	gates[1].letGo(next.Token)

	want := []string{"lease.granted", "lease.granted", "lease.queued", "lease.queued", "lease.released", "lease.released", "lease.revoke_requested"}
	testkit.Eventually(t, patience, func() bool { return len(to.about(t, "told", hook.Secret)) >= len(want) }, "all is told: %q", to.about(t, "told", hook.Secret))
	assert.Slices(t, to.about(t, "told", hook.Secret), want, "told")
	assert.Slices(t, to.about(t, "told-odd", hook.Secret), []string{"lock.hazard", "lock.hazard_cleared"}, "told of the hazard")
	testkit.Eventually(t, patience, func() bool { return len(ends.about(t, "told", ended.Secret)) == 2 }, "ends are told to who names no types")
	assert.Slices(t, ends.about(t, "told", ended.Secret), []string{"lease.released", "lease.released"}, "told to who names no types")
	assert.That(t, len(to.about(t, "untold", hook.Secret)) == 0, "a lock is told that the webhook does not name")

	// The attempt log and the test are those of every webhook.
	attempts := post[api.WebhookAttemptList](gates[1], "GET", "/v1/webhooks/"+hook.ID+"/attempts", http.StatusOK, "")
	assert.That(t, slices.ContainsFunc(attempts.Items, func(a api.WebhookAttempt) bool { return a.Type == "lease.granted" && a.Status == http.StatusNoContent }), "%+v", attempts.Items)
	a, err := gates[0].Send(t.Context(), "POST", "/v1/webhooks/"+hook.ID+"/test")
	assert.That(t, err == nil && strings.Contains(string(a.Body), `"result":"delivered"`), "%v %+v", err, a)
	// An address inside one's own network is refused, whatever it is to be told.
	a, err = gates[0].Send(t.Context(), "POST", "/v1/webhooks?url=http://10.0.0.1/&events=lease.granted", apitest.JSON("{}"))
	assert.That(t, err == nil && a.Status == http.StatusUnprocessableEntity && a.Problem.Field == "url", "%v %+v", err, a)
}
