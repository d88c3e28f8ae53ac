package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// several takes, or queues for, several locks at once.
func (g *gateway) several(query string) (lease api.Lease) {
	g.t.Helper()
	a, err := g.Send(g.t.Context(), http.MethodPost, "/v1/leases", apitest.Query(query), apitest.Query("async=true"))
	assert.Must(g.t, err == nil && (a.Status == http.StatusCreated || a.Status == http.StatusAccepted), "%v, %+v", err, a)
	assert.NoError(g.t, json.Unmarshal(a.Body, &lease))
	return lease
}

// patiently queues as a client that heartbeats until the test is over.
func (g *gateway) patiently(lock, query string) (lease api.Lease) {
	g.t.Helper()
	lease = g.queue(lock, query)
	g.keepAlive(lease.Token)
	return lease
}

// says waits until an element shows all of the words.
func (b *tab) says(selector string, words ...string) {
	b.t.Helper()
	for _, w := range words {
		b.until(fmt.Sprintf(`document.querySelector(%s)?.innerText.includes(%s)`, quoted(selector), quoted(w)), selector+" says "+w)
	}
}

// row is a selector of the contender of that name.
func row(owner string) string { return `#queue [data-who="` + owner + `"]` }

func TestThePageShowsWhyAClientWaits(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	var readers []api.Lease
	for _, owner := range []string{"web-1", "web-2", "web-3"} {
		readers = append(readers, g.hold("catalogue", "ttl=5m&mode=shared&owner="+owner))
	}
	g.patiently("catalogue", "ttl=5m&owner=indexer")
	g.patiently("catalogue", "ttl=5m&mode=shared&owner=web-4")
	g.patiently("catalogue", "ttl=5m&mode=shared&owner=web-5")
	g.hold("gpu", "ttl=5m&mode=semaphore&limit=10&permits=4&owner=transcode-1")
	g.hold("gpu", "ttl=5m&mode=semaphore&limit=10&permits=3&owner=transcode-4")
	g.patiently("gpu", "ttl=5m&mode=semaphore&limit=10&permits=5&owner=transcode-2")
	blocker := g.hold("account:2", "ttl=5m&owner=audit")
	g.keepAlive(g.several("locks=account:1,account:2&ttl=5m&owner=mover").Token)
	g.patiently("account:1", "ttl=5m&owner=report")

	page := openPage(t, g, "/locks/catalogue")
	page.says("#queue", "Held by 3 readers together")
	page.says(row("indexer"), "waits for 3 readers")
	page.says(row("web-4"), "waits for the writer at 1; is granted with the next reader")
	g.letGo(readers[0].Token)
	page.says("#queue", "Held by 2 readers together")
	page.says(row("indexer"), "waits for web-2 and web-3")

	page.visit(g.url() + "/locks/gpu")
	page.says("#queue", "7 of 10 permits taken", "transcode-2 needs 5, 3 are free")
	page.says(row("transcode-2"), "needs 5 permits; those ahead leave 3 of 10")

	page.says("#lock-head", "limit 10")

	page.visit(g.url() + "/locks/account:1")
	page.untilLink("live")
	page.says("#lock-head", "queued", "0 holders")
	page.says("#queue", "the first waiter waits for another lock of its group")
	page.says(row("mover"), "It is first here", "Waits for its other locks", "account:2")
	assert.Equal(t, eval[string](page, `document.querySelector("#queue .group a").pathname`), "/locks/account:2", "the link leads to")
	g.letGo(blocker.Token)
	page.says("#queue", "Held by")
	page.says(row("mover"), "Together with", "Held for")

	page.visit(g.url() + "/")
	page.says("#locks", "7 of 10", "shared")

	// A reentrant lease, and one that ends with its gateway's session.
	g.hold("warehouse", "ttl=5m&owner=nightly&hold=extract")
	g.hold("plain", "ttl=5m&owner=cron&ephemeral=true")
	page.visit(g.url() + "/locks/warehouse")
	page.says(row("nightly"), "Holds", "extract")
	page.visit(g.url() + "/locks/plain")
	page.says(row("cron"), "ephemeral")
}

func TestALockDelayIsSeenOnThePage(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	held := g.hold("deploy", "ttl=5m&owner=alice&lock_delay=3s&lock_delay_on=always")
	g.patiently("deploy", "ttl=5m&owner=bob")
	page := openPage(t, g, "/locks/deploy")
	g.letGo(held.Token)
	page.says("#lock-head", "delayed", "no holder")
	page.says("#queue", "Kept for a lock delay")
	page.says(row("alice"), "lock delay", "released")
	page.says(row("bob"), "waits for the end of alice's lock delay")
	page.until(`document.querySelector('#queue .holder[data-who="bob"]')`, "then bob holds")
	page.notReloaded()
}
