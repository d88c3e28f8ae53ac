package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"lockkeeper"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

var writeExamples = flag.Bool("examples.write", false, "write the answers to the examples into openapi.yaml")

// player sends the requests that openapi.yaml shows, and holds the answers against those that it shows.
type player struct {
	*gateway
	t       *testing.T
	waits   map[string]*apitest.Example // not played yet, by operation
	actual  map[string]any
	answers map[string]*apitest.Answer
	real    *strings.Replacer // what is another address here
}

// play sends the example of an operation.
func (p *player) play(operation string) *apitest.Answer {
	p.t.Helper()
	e := p.waits[operation]
	assert.Must(p.t, e != nil, "%s is no operation, or played already", operation)
	delete(p.waits, operation)
	path, options, err := e.Request(p.actual)
	assert.NoError(p.t, err)
	a := assert.Value(p.Send(p.t.Context(), e.Method, path, options...))(p.t)
	shown := *a
	shown.Body = []byte(p.real.Replace(string(a.Body)))
	p.answers[operation] = &shown
	if *writeExamples {
		assert.That(p.t, a.Status < 400, "%s: %d %s", operation, a.Status, a.Body)
		return a
	}
	assert.Nil(p.t, e.Check(a))
	return a
}

func member[T any](t *testing.T, a *apitest.Answer, of func(*T) string) string {
	t.Helper()
	v := new(T)
	assert.NoError(t, json.Unmarshal(a.Body, v))
	return of(v)
}

func TestD28EachOperationIsAnsweredAsItsExampleShows(t *testing.T) {
	t.Parallel()
	var refuses atomic.Bool
	receiver := newReceiver(t)
	receiver.refuses = refuses.Load
	spec := assert.Value(apitest.Load())(t)
	p := &player{gateway: startStandalone(t, "--webhook-allow=127.0.0.1"), t: t, waits: map[string]*apitest.Example{}, actual: map[string]any{},
		answers: map[string]*apitest.Answer{}, real: strings.NewReplacer(receiver.URL, "https://example.com")}
	for _, e := range spec.Examples() {
		p.waits[e.Operation.OperationID] = e
		assert.That(t, e.Operation.Summary != "" && e.Operation.Description != "", "%s has no description", e.Operation.OperationID)
	}
	p.playLeases()
	p.playLocks()
	p.playWebhooks(receiver, &refuses)
	eventually(p.t, patience, func() error {
		if past := post[api.HistoryList](p.gateway, "GET", "/v1/history?lock=deploy", http.StatusOK, ""); len(past.Items) == 0 || past.Items[0].EndedAt == "" {
			return errors.New("the history is behind")
		}
		return nil
	}, "the history is behind")
	p.play("ListHistory")
	p.play("GetStats")
	for _, id := range []string{"ListNamespaces", "ListGateways", "GetInfo", "WhoAmI", "Healthz", "Readyz"} {
		p.play(id)
	}
	for id, e := range p.waits {
		assert.That(t, e.NoExample(), "%s is not played", id) // streams: their events are those of GetHistory
	}
	if *writeExamples {
		assert.NoError(t, os.WriteFile("../../../openapi.yaml", apitest.WithExamples(lockkeeper.OpenAPI, p.answers), 0o600))
	}
}

func (p *player) playLeases() {
	grant := p.play("Acquire")
	p.actual["Lease-Token"] = member(p.t, grant, func(l *api.Lease) string { return l.Token })
	p.actual["tokens"] = []any{p.actual["Lease-Token"]}
	for _, id := range []string{"GetLease", "UpdateLease", "Heartbeat", "HeartbeatMany", "Downgrade", "ListLeases", "Release", "GetPostmortem"} {
		p.play(id)
	}
	delete(p.actual, "Lease-Token")
	p.actual["id"] = member(p.t, p.play("AcquireSeveral"), func(l *api.Lease) string { return l.LeaseID })
	p.play("BreakLease")
	delete(p.actual, "id")
}

func (p *player) playLocks() {
	lease := p.hold("deploy", "ttl=10m&owner=ci")
	p.queue("deploy", "ttl=10m&owner=dev")
	p.actual["fencing_token"], p.actual["Fencing-Token"], p.actual["Lockkeeper-Lock"] = lease.FencingToken, lease.FencingToken, "deploy"
	for _, id := range []string{"GetLock", "GetGraph", "GetLeader", "ListLocks", "PreviewAcquire", "GetHistory", "GetFence", "CheckFence", "Revoke", "WithdrawRevocation", "Reap"} {
		p.play(id)
	}
	p.actual["name"] = lease.Znode[strings.LastIndexByte(lease.Znode, '/')+1:]
	p.play("BreakContender")
	p.play("Destroy")
	p.play("ConfigureLock")
	p.play("RemoveLock")
	p.letGo(p.hold("deploy", "ttl=10m&owner=ci&once_per=24h&period=2026-11-22").Token)
	p.actual["period"] = "2026-11-22"
	p.play("ListPeriods")
	p.play("ForgetPeriod")
	delete(p.actual, "period")
}

func (p *player) playWebhooks(r *receiver, refuses *atomic.Bool) {
	p.actual["url"] = r.URL + "/hooks/locks"
	hook := p.play("CreateWebhook")
	p.actual["id"] = member(p.t, hook, func(h *api.Webhook) string { return h.ID })
	for _, id := range []string{"GetWebhook", "ListWebhooks", "RotateWebhook", "TestWebhook", "ListWebhookAttempts"} {
		p.play(id)
	}
	refuses.Store(true)
	p.letGo(p.hold("deploy", "ttl=10m&owner=ci").Token)
	path := "/v1/webhooks/" + p.actual["id"].(string)
	eventually(p.t, patience, func() error {
		if tried := post[api.WebhookAttemptList](p.gateway, "GET", path+"/attempts", http.StatusOK, ""); len(tried.Items) < 2 {
			return errors.New("the message is not tried")
		}
		return nil
	}, "the message is not tried")
	p.play("UpdateWebhook") // what waits for it becomes dead letters
	var dead api.DeadLetterList
	eventually(p.t, patience, func() error {
		if dead = post[api.DeadLetterList](p.gateway, "GET", path+"/dead-letters", http.StatusOK, ""); len(dead.Items) == 0 {
			return errors.New("there is no dead letter")
		}
		return nil
	}, "there is no dead letter")
	p.play("ListWebhookDeadLetters")
	refuses.Store(false)
	post[api.Webhook](p.gateway, http.MethodPatch, path+"?enabled=true", http.StatusOK, "")
	p.actual["message_id"] = dead.Items[0].MessageID
	p.play("ReplayWebhook")
	p.play("DeleteWebhook")
}
