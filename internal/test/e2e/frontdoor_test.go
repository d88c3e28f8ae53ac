package e2e

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// Defects that a newcomer met with plain curl, each by its number, at the gateway as it comes. Those that need no queue are
// tests of internal/httpapi.
func TestFrontDoor(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	ask := func(method, path string, options ...apitest.Option) *apitest.Answer {
		t.Helper()
		a := assert.Value(g.Send(t.Context(), method, path, options...))(t)
		return a
	}

	t.Run("D3 a client that counts by waited_ms never counts longer than the gateway", func(t *testing.T) {
		first := g.hold("d3", "ttl=1m")
		sent := time.Now()
		second := g.acquiring(t.Context(), "d3", "ttl=1m&wait=50s")
		g.awaitLock(patience, "d3", 1, 1)
		queued := time.Now()
		ask("GET", "/v1/locks/d3?wait=200ms&until=free") // meanwhile it waits
		released := time.Now()
		ask("DELETE", "/v1/leases/self", apitest.Token(first.Token))
		lease := second.granted(patience)
		var grant struct {
			WaitedMS int64 `json:"waited_ms"`
		}
		assert.NoError(t, json.Unmarshal(second.a.Body, &grant))
		waited := time.Duration(grant.WaitedMS) * time.Millisecond
		assert.That(t, waited >= released.Sub(queued)-time.Millisecond && waited <= time.Since(sent), "it waited %v: %s", waited, second.a.Body)
		var look struct {
			ExpiresInMS int64 `json:"expires_in_ms"`
		}
		assert.NoError(t, json.Unmarshal(ask("GET", "/v1/leases/self", apitest.Token(lease.Token)).Body, &look))
		client, gateway := sent.Add(waited+time.Minute), time.Now().Add(time.Duration(look.ExpiresInMS+1)*time.Millisecond)
		assert.That(t, !client.After(gateway), "the client counts %v longer than the gateway", client.Sub(gateway))
	})
	t.Run("D4 the naive release is told how to release", func(t *testing.T) {
		g.hold("d4", "ttl=1m")
		a := ask("DELETE", "/v1/locks/d4")
		if a.Code() != "lock_in_use" || !strings.Contains(a.Problem.Detail, "DELETE /v1/leases/self") || strings.Contains(a.Problem.Detail, "destroy") {
			t.Errorf("%s", a.Body)
		}
	})
	t.Run("D5 until", func(t *testing.T) {
		first := g.hold("d5", "ttl=1m")
		next := post[api.Lease](g, "POST", "/v1/locks/d5/leases?ttl=1m&async=true", http.StatusAccepted, "")
		granted := make(chan *apitest.Answer, 1)
		go func() {
			a, _ := g.Send(t.Context(), "GET", "/v1/leases/self?wait=50s&until=granted", apitest.Token(next.Token))
			granted <- a
		}()
		a := ask("GET", "/v1/leases/"+first.LeaseID+"?wait=50ms&until=ended") // it is not over in time
		assert.That(t, a.Status == 200 && strings.Contains(string(a.Body), `"state":"held"`), "%s", a.Body)
		ask("DELETE", "/v1/leases/self", apitest.Token(first.Token))
		a = <-granted
		assert.That(t, a != nil && strings.Contains(string(a.Body), `"state":"held"`), "%+v", a)
		ask("DELETE", "/v1/leases/self", apitest.Token(next.Token))
		a = ask("GET", "/v1/locks/d5?wait=50s&until=free")
		assert.That(t, strings.Contains(string(a.Body), `"state":"free"`), "%s", a.Body)
		a = ask("GET", "/v1/leases/"+first.LeaseID+"?wait=50s&until=ended")
		assert.That(t, strings.Contains(string(a.Body), `"state":"ended"`), "%s", a.Body)
	})
	t.Run("D10 a lock delay is no holder, and its rest is told", func(t *testing.T) {
		lease := g.hold("d10", "ttl=1m&lock_delay=50s&lock_delay_on=always")
		ask("DELETE", "/v1/leases/self", apitest.Token(lease.Token))
		a := ask("POST", "/v1/locks/d10/leases")
		after, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		assert.That(t, a.Code() == "lock_delayed" && after >= 20 && after <= 50, "Retry-After %d, %s", after, a.Body)
	})
	t.Run("D11 Retry-After is worth waiting for", func(t *testing.T) {
		g.hold("d11", "ttl=1h")
		if a := ask("POST", "/v1/locks/d11/leases"); a.Code() != "held_by_other" || a.Header.Get("Retry-After") != "5" {
			t.Errorf("Retry-After %s, %s", a.Header.Get("Retry-After"), a.Body)
		}
	})
	t.Run("D15 the lines of an async acquire tell whether it holds or waits", func(t *testing.T) {
		for i, state := range []string{"held", "waiting"} {
			a := ask("POST", "/v1/locks/d15/leases?ttl=1m&async=true&format=env")
			assert.That(t, a.Status == 201+i && strings.Contains(string(a.Body), "\nLEASE_STATE="+state+"\n"), "%d %s", a.Status, a.Body)
		}
	})
	t.Run("D6 what the client has is not sent again", func(t *testing.T) {
		lease := g.hold("d6", "ttl=1m")
		for _, path := range []string{"/v1/locks/d6", "/v1/leases/" + lease.LeaseID, "/v1/locks?prefix=d6", "/openapi.yaml"} {
			tag := ask("GET", path).Header.Get("ETag")
			a := ask("GET", path, apitest.Header("If-None-Match", tag))
			assert.That(t, a.Status == 304, "%s with %s: %d %.200s", path, tag, a.Status, a.Body)
		}
		tag := ask("GET", "/v1/locks/d6").Header.Get("ETag")
		ask("DELETE", "/v1/leases/self", apitest.Token(lease.Token))
		assert.Equal(t, ask("GET", "/v1/locks/d6?consistent=true", apitest.Header("If-None-Match", tag)).Status, 200, "a change")
	})
	t.Run("D7 a change of what was changed meanwhile is 412", func(t *testing.T) {
		tag := ask("GET", "/v1/locks/d7").Header.Get("ETag")
		for i, want := range []int{200, 412} {
			a := ask("PUT", "/v1/locks/d7?limit="+strconv.Itoa(i+3), apitest.Header("If-Match", tag))
			assert.That(t, a.Status == want, "PUT %d: %d %s", i, a.Status, a.Body)
		}
		lease := g.hold("d7-lease", "ttl=1m")
		tag = ask("GET", "/v1/leases/self", apitest.Token(lease.Token)).Header.Get("ETag")
		for i, want := range []int{200, 412} {
			a := ask("PATCH", "/v1/leases/self?owner=o"+strconv.Itoa(i), apitest.Token(lease.Token), apitest.Header("If-Match", tag))
			assert.That(t, a.Status == want, "PATCH %d: %d %s", i, a.Status, a.Body)
		}
	})
	t.Run("D8 a configured semaphore is listed while it is idle", func(t *testing.T) {
		ask("PUT", "/v1/locks/d8?limit=3")
		for _, query := range []string{"", "&state=free"} {
			a := ask("GET", "/v1/locks?prefix=d8"+query)
			assert.That(t, strings.Contains(string(a.Body), `"lock":"d8"`), "%s: %s", query, a.Body)
		}
		a := ask("GET", "/v1/locks?prefix=d8&state=held")
		assert.That(t, !strings.Contains(string(a.Body), `"d8"`), "%s", a.Body)
	})
	t.Run("an acquire without an owner has its address, also where a repeat comes from another one", func(t *testing.T) {
		lease := g.hold("nobody", "ttl=1m")
		named := g.hold("me", "ttl=1m&owner=me")
		assert.That(t, lease.Owner == "127.0.0.1" && named.Owner == "me", "owners %q and %q", lease.Owner, named.Owner)
	})
	t.Run("D16 a lock has a history", func(t *testing.T) {
		lease := g.hold("d16", "ttl=1m&owner=me")
		ask("DELETE", "/v1/leases/self", apitest.Token(lease.Token))
		ask("GET", "/v1/locks/d16?consistent=true")
		got := post[api.EventList](g, "GET", "/v1/locks/d16/history", http.StatusOK, "")
		var types []string
		for _, e := range got.Items {
			types = append(types, string(e.Type))
		}
		assert.That(t, strings.Join(types, " ") == "lease.released lease.granted lease.queued" && got.Items[0].LeaseID == lease.LeaseID,
			"%+v", got.Items)
	})
	t.Run("the locks with the most waiters come first", func(t *testing.T) {
		for _, lock := range []string{"sort-a", "sort-b", "sort-c"} {
			g.hold(lock, "ttl=1m")
		}
		for _, lock := range []string{"sort-b", "sort-c", "sort-b"} {
			post[api.Lease](g, "POST", "/v1/locks/"+lock+"/leases?ttl=1m&async=true", http.StatusAccepted, "")
		}
		ask("GET", "/v1/locks/sort-b?consistent=true")
		for query, want := range map[string]string{
			"sort=-waiters": "sort-b sort-c sort-a", "sort=-waiters&limit=2": "sort-b sort-c", "sort=-held": "sort-a sort-b sort-c", "sort=-wait&limit=1": "sort-b",
		} {
			var names []string
			for _, l := range post[api.LockList](g, "GET", "/v1/locks?prefix=sort-&"+query, http.StatusOK, "").Items {
				names = append(names, l.Lock)
			}
			got := strings.Join(names, " ")
			assert.Equal(t, got, want, "%s", query)
		}
		a := ask("GET", "/v1/locks?sort=waiters")
		assert.That(t, a.Code() == "invalid_field", "%s", a.Body)
	})
}
