package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// checkChat: what docs/guides/chat.md says is shown has arrived, each in the form of its system.
func (r *docReceiver) checkChat(t *testing.T) {
	t.Helper()
	came := func(path string, parts ...string) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.came, func(m message) bool {
			return m.path == path && m.header.Get("Webhook-Signature") != "" && !slices.ContainsFunc(parts, func(p string) bool { return !bytes.Contains(m.body, []byte(p)) })
		})
	}
	for path, parts := range map[string][]string{
		"/slack":   {`"type":"header"`, "deploy: ended by an administrator", "Owner: ci-7", "Reason: night maintenance", "By: 127.0.0.1"},
		"/teams":   {`"type":"AdaptiveCard"`, "deploy: ended by an administrator", `"text":"night maintenance"`},
		"/discord": {`"allowed_mentions":{"parse":[]}`, `deploy\\: granted`, `ci\\-7`},
	} {
		testkit.Eventually(t, patience, func() bool { return came(path, parts...) }, "%s is told %q", path, parts)
	}
	testkit.Eventually(t, patience, func() bool { return came("/my-topic", "Owner: ci-7\nReason: night maintenance\nBy: ") }, "ntfy is told")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.came {
		if m.path == "/my-topic" {
			assert.That(t, strings.HasPrefix(m.header.Get("Content-Type"), "text/plain") && m.header.Get("Title") != "" && m.header.Get("Authorization") == "Bearer tk_example", "%v", m.header)
		}
	}
}

// A chat that is away gets each end that its filter lets through, also of a gateway that is killed before it could deliver.
func TestAChatIsToldOfEndsThroughOutagesOfItsReceiverAndOfAGateway(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	var gates []*gateway
	for range 2 {
		gates = append(gates, startGateway(t, addr+chroot, "--webhook-allow=127.0.0.1"))
	}
	to := newInbox(t)
	var away atomic.Bool
	away.Store(true)
	to.mu.Lock()
	to.refuses = away.Load
	to.mu.Unlock()
	hook := post[api.Webhook](gates[1], "POST", "/v1/webhooks", http.StatusCreated, "", apitest.JSON(`{"url":"`+to.URL+`/chat","format":"slack","owner":"ci-*","events":["lease.released","lease.revoked"]}`))
	eventually(t, patience, func() error {
		if n := len(post[api.WebhookList](gates[0], "GET", "/v1/webhooks", http.StatusOK, "").Items); n != 1 {
			return fmt.Errorf("it knows %d webhooks", n)
		}
		return nil
	}, "the other gateway knows the webhook")
	gates[0].letGo(gates[0].hold("chat-a", "ttl=10m&owner=ci-1").Token)
	gates[0].letGo(gates[0].hold("chat-b", "ttl=10m&owner=dev-1").Token) // no owner of the filter
	broken := gates[0].hold("chat-c", "ttl=10m&owner=ci-%3C%21channel%3E")
	post[struct{}](gates[0], "POST", "/v1/leases/"+broken.LeaseID+"/break?reason=stop+%26+go", http.StatusNoContent, "")
	testkit.Eventually(t, patience, func() bool { return to.tries() > 0 }, "it is tried")
	gates[0].kill()
	away.Store(false)
	gates[1].letGo(gates[1].hold("chat-d", "ttl=10m&owner=ci-4").Token)

	texts := func() (list []string) {
		to.mu.Lock()
		defer to.mu.Unlock()
		verifier := assert.Value(standardwebhooks.NewWebhook(hook.Secret))(t)
		for _, m := range to.came {
			var told struct{ Text string }
			assert.NoError(t, json.Unmarshal(m.body, &told), "%s", m.body)
			assert.NoError(t, verifier.Verify(m.body, m.header), "%s", m.body)
			list = append(list, told.Text)
			if strings.HasPrefix(told.Text, "chat-c") {
				assert.That(t, bytes.Contains(m.body, []byte(`Owner: ci-\u0026lt;!channel\u0026gt;`)) && bytes.Contains(m.body, []byte(`stop \u0026amp; go`)) && bytes.Contains(m.body, []byte("By: 127.0.0.1")), "%s", m.body)
			}
		}
		slices.Sort(list)
		return slices.Compact(list) // at least once
	}
	want := []string{"chat-a: released", "chat-c: ended by an administrator", "chat-d: released"}
	testkit.Eventually(t, patience, func() bool { return len(texts()) >= len(want) }, "all is told: %q", texts())
	assert.Slices(t, texts(), want, "told")
}

// A grant is best effort: no transaction notes it. What its gateway could not deliver before it was killed, the others tell when they
// see that it has gone, under the same id. The end of the same lease is durable.
func TestAGrantWhoseGatewayIsKilledBeforeItsDeliveryIsToldByAnother(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	var gates []*gateway
	for range 2 {
		gates = append(gates, startGateway(t, addr+chroot, "--webhook-allow=127.0.0.1"))
	}
	to := newInbox(t)
	var away atomic.Bool
	away.Store(true)
	ids := map[string]bool{} // of the grant; guarded by to.mu
	to.mu.Lock()
	to.refuses = away.Load
	to.seen = func(m message) {
		if bytes.HasPrefix(m.body, []byte(`{"type":"lease.granted"`)) {
			ids[m.header.Get("Webhook-Id")] = true
		}
	}
	to.mu.Unlock()
	hook := post[api.Webhook](gates[1], "POST", "/v1/webhooks?events=lease.granted,lease.released&url="+to.URL+"/hook", http.StatusCreated, "")
	eventually(t, patience, func() error {
		if n := len(post[api.WebhookList](gates[0], "GET", "/v1/webhooks", http.StatusOK, "").Items); n != 1 {
			return fmt.Errorf("it knows %d webhooks", n)
		}
		return nil
	}, "the other gateway knows the webhook")
	lease := gates[0].hold("granted", "ttl=10m&owner=me")
	testkit.Eventually(t, patience, func() bool { return to.tries() > 0 }, "the grant is tried")
	gates[0].kill()
	away.Store(false)
	testkit.Eventually(t, patience, func() bool { return slices.Contains(to.about(t, "granted", hook.Secret), "lease.granted") }, "another gateway tells the grant")
	gates[1].awaitOwned(lease.LeaseID)
	gates[1].letGo(lease.Token)
	testkit.Eventually(t, patience, func() bool { return slices.Contains(to.about(t, "granted", hook.Secret), "lease.released") }, "the end is told")
	to.mu.Lock()
	defer to.mu.Unlock()
	assert.That(t, len(ids) == 1, "the grant has the ids %v", ids)
}
