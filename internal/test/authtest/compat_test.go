package authtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// compatRules are for clients of other programs' protocols.
const compatRules = `
roles:
  machines: [{ns: default, locks: "fleetlock:*", verbs: [acquire]}]
  applies:  [{ns: default, locks: "infra:*", verbs: [acquire]}]
  operates: [{ns: default, locks: "*", verbs: [operate]}]
who:
  - {token: [machines, other], roles: [machines]}
  - {token: [ann, bob], roles: [applies]}
  - {token: operator, roles: [operates]}
`

func sent(text string) apitest.Option {
	if text == "" {
		return func(*http.Request) {}
	}
	return apitest.JSON(text)
}

// machine is a client of FleetLock.
type machine struct {
	w     *World
	by    *Caller
	group string
	id    string
}

func (m machine) ask(at *Gateway, what string) *Answer {
	text := assert.Value(json.Marshal(map[string]any{"client_params": map[string]string{"id": m.id, "group": m.group}}))(m.w.t)
	// No Content-Type: the clients of the protocol send none, and curl -d says that it is a form.
	return m.w.Send(at, m.by, http.MethodPost, "/compat/fleetlock/v1/"+what, apitest.Body(string(text)), apitest.Header("fleet-lock-protocol", "true"))
}

// failure is an error of the protocol.
func failure(t *testing.T, a *Answer) (kind string) {
	t.Helper()
	var e struct{ Kind, Value string }
	assert.NoError(t, json.Unmarshal([]byte(a.Body), &e), "%s", a.Body)
	assert.That(t, e.Kind != "" && e.Value != "", "%s", a.Body)
	return e.Kind
}

// The paragraphs that are quoted here and below are of https://coreos.github.io/zincati/development/fleetlock/protocol/.
//
// "It is modeled after a distributed counting semaphore with recursive locking and lock-ownership. [...] RecursiveLock: try to
// reserve (lock) a slot for rebooting. UnlockIfHeld: try to release (unlock) a slot that it was previously holding."
//
// "If the operation is succesful, a 200 status code is returned. Every other code is considered as a failed operation."
func TestThreeOfTenMachinesRebootAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		by, root := w.Bearer("machines", 0, false), w.Bearer("root", 0, true)
		a := w.Send(w.Gateways[0], root, http.MethodPut, "/v1/locks/fleetlock:workers?limit=3")
		assert.Must(t, a.Status == 200, "%+v", a)
		machines := make([]machine, 10)
		held := 0
		for i := range machines {
			machines[i] = machine{w, by, "workers", fmt.Sprint("machine-", i)}
			switch a := machines[i].ask(w.Gateways[i%2], "pre-reboot"); a.Status {
			case 200:
				held++
			default:
				// "a error value like the following could be returned on /v1/pre-reboot when all available slots are already in
				// use: {"kind": "failed_lock_semaphore_full", ...}"
				assert.Equal(t, failure(t, a), "failed_lock_semaphore_full", "of machine %d", i)
			}
		}
		assert.Equal(t, held, 3, "machines that may reboot")
		// One comes back, at the other gateway, and one more may go.
		assert.Equal(t, machines[0].ask(w.Gateways[1], "steady-state").Status, 200)
		assert.Equal(t, machines[7].ask(w.Gateways[0], "pre-reboot").Status, 200)
		assert.Equal(t, failure(t, machines[8].ask(w.Gateways[1], "pre-reboot")), "failed_lock_semaphore_full")
	})
}

// "All operations are recursive, meaning that multiple unbalanced lock/unlock actions by a client are allowed."
func TestAMachineMayAskAgainAtAnyGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		by := w.Bearer("machines", 0, false)
		m, other := machine{w, by, "default", "c988d2509fdf5cdcbed39037c56406fb"}, machine{w, by, "default", "C988d2509fdf5cdcbed39037c56406fb"}
		for range 2 {
			for _, g := range w.Gateways {
				a := m.ask(g, "steady-state") // it holds nothing
				assert.Must(t, a.Status == 200, "%+v", a)
			}
			for i := range 4 {
				a := m.ask(w.Gateways[i%2], "pre-reboot")
				assert.Must(t, a.Status == 200, "%+v", a)
			}
			// "Client ID is a case-sensitive textual label that uniquely identifies a lock holder."
			assert.Equal(t, failure(t, other.ask(w.Gateways[0], "pre-reboot")), "failed_lock_semaphore_full")
			// "only the client that created a lock can release it"
			assert.Equal(t, other.ask(w.Gateways[1], "steady-state").Status, 200)
			assert.Equal(t, failure(t, other.ask(w.Gateways[1], "pre-reboot")), "failed_lock_semaphore_full")
			assert.Equal(t, m.ask(w.Gateways[1], "steady-state").Status, 200) // one is enough for all four
			assert.Equal(t, other.ask(w.Gateways[0], "pre-reboot").Status, 200)
			assert.Equal(t, other.ask(w.Gateways[1], "steady-state").Status, 200)
		}
	})
}

func TestRequestsOfOneMachineAtTheSameTimeTakeOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		by, root := w.Bearer("machines", 0, false), w.Bearer("root", 0, true)
		a := w.Send(w.Gateways[0], root, http.MethodPut, "/v1/locks/fleetlock:workers?limit=9")
		assert.Must(t, a.Status == 200, "%+v", a)
		for round := range 5 {
			m := machine{w, by, "workers", fmt.Sprint("machine-", round)}
			text := fmt.Sprintf(`{"client_params":{"id":%q,"group":%q}}`, m.id, m.group)
			var waiting []<-chan *Answer
			for i := range 6 {
				waiting = append(waiting, w.Later(context.Background(), w.Gateways[i%2], by, http.MethodPost, "/compat/fleetlock/v1/pre-reboot", apitest.Body(text), apitest.Header("fleet-lock-protocol", "true")))
			}
			for _, answer := range waiting {
				a := <-answer
				assert.Equal(t, a.Status, 200, "%s", a.Body)
			}
			a := w.Send(w.Gateways[1], root, http.MethodGet, "/v1/locks/fleetlock:workers?consistent=true")
			assert.Equal(t, strings.Count(a.Body, m.id+`\"`), 1, "slots of one machine: %s", a.Body)
			assert.Equal(t, m.ask(w.Gateways[0], "steady-state").Status, 200)
		}
	})
}

// No heartbeat keeps a slot: it lasts for --compat-hold, an hour here, from the last time that its machine asked. A gateway that
// is stopped meanwhile changes nothing.
func TestASlotLastsFromTheLastTimeThatItsMachineAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		by := w.Bearer("machines", 0, false)
		m, other := machine{w, by, "default", "m"}, machine{w, by, "default", "other"}
		assert.Equal(t, m.ask(w.Gateways[0], "pre-reboot").Status, 200)
		time.Sleep(50 * time.Minute)
		assert.Equal(t, m.ask(w.Gateways[1], "pre-reboot").Status, 200, "at the gateway that does not run the lease")
		time.Sleep(50 * time.Minute)
		assert.Equal(t, failure(t, other.ask(w.Gateways[0], "pre-reboot")), "failed_lock_semaphore_full")
		w.Gateways[0].stop() // it runs the lease
		w.Gateways = w.Gateways[1:]
		w.Settle()
		assert.Equal(t, failure(t, other.ask(w.Gateways[0], "pre-reboot")), "failed_lock_semaphore_full", "after a takeover")
		time.Sleep(2 * time.Hour)
		assert.Equal(t, other.ask(w.Gateways[0], "pre-reboot").Status, 200)
	})
}

// "Locking and unlocking requests must contain a fleet-lock-protocol header with a fixed value of true"; "id (string, mandatory,
// non-empty)"; "Client group is a mandatory textual label, conforming to the regexp ^[a-zA-Z0-9.-]+$ [...] A server SHOULD check
// this value".
func TestARequestThatIsNotTheProtocolsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		by := w.Bearer("machines", 0, false)
		header := apitest.Header("fleet-lock-protocol", "true")
		for _, path := range []string{"/compat/fleetlock/v1/pre-reboot", "/compat/fleetlock/v1/steady-state"} {
			for _, c := range []struct {
				status  int
				says    string
				options []apitest.Option
			}{
				{422, "fleet-lock-protocol", []apitest.Option{apitest.Body(`{"client_params":{"id":"m","group":"default"}}`)}},
				{422, "fleet-lock-protocol", []apitest.Option{apitest.Body(`{"client_params":{"id":"m","group":"default"}}`), apitest.Header("fleet-lock-protocol", "false")}},
				{422, "must be JSON", []apitest.Option{header, apitest.Body(`client_params=m`)}},
				{422, "must be JSON", []apitest.Option{header}},
				{422, "client_params must be", []apitest.Option{header, apitest.Body(`{}`)}},
				{422, "id must have", []apitest.Option{header, apitest.Body(`{"client_params":{"id":"","group":"default"}}`)}},
				{422, "id must have", []apitest.Option{header, apitest.Body(`{"client_params":{"id":"` + strings.Repeat("m", 257) + `","group":"default"}}`)}},
				{422, "group must have", []apitest.Option{header, apitest.Body(`{"client_params":{"id":"m"}}`)}},
				{422, "group must have", []apitest.Option{header, apitest.Body(`{"client_params":{"id":"m","group":"a:b"}}`)}},
				{422, "group must have", []apitest.Option{header, apitest.Body(`{"client_params":{"id":"m","group":"a\n"}}`)}},
				{413, "64 KiB", []apitest.Option{header, apitest.Body(`{"client_params":{"id":"` + strings.Repeat("m", 70_000) + `","group":"default"}}`)}},
				{422, "no fields", []apitest.Option{header, apitest.Query("ttl=1m")}},
			} {
				a := w.Send(w.Gateways[0], by, http.MethodPost, path, c.options...)
				assert.That(t, a.Status == c.status && strings.Contains(a.Body, c.says), "%s: %d %s; want %d %s", path, a.Status, a.Body, c.status, c.says)
				// "Errors on the service endpoints SHOULD be returned to the client as JSON objects, with a 4xx or 5xx HTTP status
				// code", with kind and value; "A server MUST ensure that possible values for kind have a bounded/small cardinality."
				assert.Equal(t, failure(t, a), a.Code(), "the kind is one of the catalogue")
			}
		}
		// Also what is refused before the adapter has the request.
		a := machine{w, &Caller{Name: "none"}, "default", "m"}.ask(w.Gateways[0], "pre-reboot")
		assert.That(t, a.Status == 401 && failure(t, a) == "unauthenticated", "%+v", a)
	})
}

func TestAnIDIsNoRightToWhatAnotherPrincipalHasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		mine, theirs := w.Bearer("machines", 0, false), w.Bearer("other", 0, false)
		root := w.Bearer("root", 0, true)
		assert.Equal(t, machine{w, mine, "default", "m"}.ask(w.Gateways[0], "pre-reboot").Status, 200)
		for _, what := range []string{"pre-reboot", "steady-state"} {
			for _, g := range w.Gateways {
				a := machine{w, theirs, "default", "m"}.ask(g, what)
				assert.That(t, a.Status == 403 && failure(t, a) == "forbidden", "%s: %+v", what, a)
			}
		}
		// A lease of the API is not the machine's, whatever its owner says.
		assert.Equal(t, machine{w, root, "default", "m"}.ask(w.Gateways[1], "steady-state").Status, 200, "with the verb operate")
		lease := w.Acquire(w.Gateways[0], root, "fleetlock:default", "mode=semaphore&ttl=1h&owner=m&limit=1")
		assert.Equal(t, machine{w, root, "default", "m"}.ask(w.Gateways[0], "steady-state").Status, 200)
		a := w.Send(w.Gateways[0], root, http.MethodGet, "/v1/leases/self", apitest.Token(lease.Token))
		assert.Equal(t, string(a.Lease().State), "held", "the lease of the API")
	})
}

// command is a run of terraform.
type command struct {
	w    *World
	by   *Caller
	info string
	id   string
}

func run(w *World, by *Caller, id string) command {
	return command{w, by, fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":"%s@laptop","Version":"1.12.6","Created":"2026-11-23T10:00:00.123456Z","Path":""}`, id, by.Name), id}
}

func (c command) ask(at *Gateway, method, path string) *Answer {
	return c.w.Send(at, c.by, method, path, sent(c.info))
}

// idIn is the ID of the lock info that an answer carries.
func idIn(a *Answer) string {
	var info struct{ ID string }
	_ = json.Unmarshal([]byte(a.Body), &info)
	return info.ID
}

// The paragraphs that are quoted here and below are of https://opentofu.org/docs/language/settings/backends/http/.
//
// "When locking support is enabled it will use LOCK and UNLOCK requests providing the lock info in the body. The endpoint should
// return a 423: Locked or 409: Conflict with the holding lock info when it's already taken, 200: OK for success. Any other status
// will be considered an error. The ID of the holding lock info will be added as a query parameter to state updates requests."
func TestAStateIsLockedUnderTheIDOfItsLockInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		ann, bob := run(w, w.Bearer("ann", 0, false), "9d1c"), run(w, w.Bearer("bob", 0, false), "77aa")
		root := w.Bearer("root", 0, true)
		for _, methods := range [][2]string{{"LOCK", "UNLOCK"}, {"POST", "DELETE"}, {"PUT", "DELETE"}} {
			for i, g := range w.Gateways {
				other := w.Gateways[1-i]
				for range 2 { // a repeat is answered as the first
					a := ann.ask(g, methods[0], "/compat/terraform/infra:prod")
					assert.Must(t, a.Status == 200 && idIn(a) == "9d1c", "%+v", a)
					assert.Equal(t, ann.ask(other, methods[0], "/compat/terraform/infra:prod").Status, 200)
				}
				a := bob.ask(other, methods[0], "/compat/terraform/infra:prod")
				assert.That(t, a.Status == 423 && a.Body == ann.info+"\n", "%+v", a)
				// The lock of the page and of the API is the same, and shows who has it.
				a = w.Send(g, root, http.MethodPost, "/v1/locks/infra:prod/leases?ttl=1m")
				assert.That(t, a.Status == 409 && strings.Contains(a.Body, `"owner":"ann@laptop"`) && strings.Contains(a.Body, "OperationTypeApply"), "%+v", a)
				a = bob.ask(g, methods[1], "/compat/terraform/infra:prod")
				assert.That(t, a.Status == 409 && idIn(a) == "9d1c", "%+v", a)
				for range 2 {
					assert.Equal(t, ann.ask(other, methods[1], "/compat/terraform/infra:prod").Status, 200)
				}
				assert.Equal(t, bob.ask(g, methods[0], "/compat/terraform/infra:prod").Status, 200)
				a = ann.ask(g, methods[1], "/compat/terraform/infra:prod") // a repeat that comes late
				assert.That(t, a.Status == 409 && idIn(a) == "77aa", "%+v", a)
				assert.Equal(t, bob.ask(g, methods[1], "/compat/terraform/infra:prod").Status, 200)
			}
		}
	})
}

// "terraform force-unlock LOCK_ID": OpenTofu sends a lock info of which all but the ID is empty, and Terraform before 1.11 no body.
func TestForceUnlockBreaksTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		ann, operator := run(w, w.Bearer("ann", 0, false), "9d1c"), w.Bearer("operator", 0, false)
		bare := func(id string) apitest.Option {
			return sent(fmt.Sprintf(`{"ID":%q,"Operation":"","Info":"","Who":"","Version":"","Created":"0001-01-01T00:00:00Z","Path":""}`, id))
		}
		force := func(by *Caller, options ...apitest.Option) *Answer {
			return w.Send(w.Gateways[1], by, "UNLOCK", "/compat/terraform/infra:prod", options...)
		}
		for _, of := range [][]apitest.Option{{bare("9d1c")}, nil} {
			a := ann.ask(w.Gateways[0], "LOCK", "/compat/terraform/infra:prod")
			assert.Must(t, a.Status == 200, "%+v", a)
			assert.Equal(t, force(ann.by, of...).Status, 403, "it needs the verb operate")
			a = force(operator, bare("another"))
			assert.That(t, a.Status == 409 && idIn(a) == "9d1c", "%+v", a)
			assert.Equal(t, ann.ask(w.Gateways[0], "LOCK", "/compat/terraform/infra:prod").Status, 200, "it is locked all the same")
			a = force(operator, of...)
			assert.Must(t, a.Status == 200, "%+v", a)
			w.Settle()
			assert.That(t, strings.Contains(w.Log.String(), `"operation":"TerraformForceUnlock","result":"ok"`), "the audit log has no break")
			other := run(w, ann.by, "next")
			assert.Equal(t, other.ask(w.Gateways[0], "LOCK", "/compat/terraform/infra:prod").Status, 200)
			assert.Equal(t, other.ask(w.Gateways[0], "UNLOCK", "/compat/terraform/infra:prod").Status, 200)
		}
		// What no command of Terraform has locked is shown under the id of its lease, and broken by that.
		root := w.Bearer("root", 0, true)
		lease := w.Acquire(w.Gateways[0], root, "infra:prod", "ttl=1h&owner=deploy")
		a := ann.ask(w.Gateways[1], "LOCK", "/compat/terraform/infra:prod")
		assert.That(t, a.Status == 423 && idIn(a) == lease.LeaseID && strings.Contains(a.Body, `"Who":"deploy"`), "%+v", a)
		byLease := run(w, root, lease.LeaseID) // of the same principal
		assert.Equal(t, byLease.ask(w.Gateways[0], "LOCK", "/compat/terraform/infra:prod").Status, 423, "the id of a lease of the API locks nothing")
		assert.Equal(t, force(operator, bare(lease.LeaseID)).Status, 200)
		a = w.Send(w.Gateways[0], root, http.MethodGet, "/v1/leases/"+lease.LeaseID+"/postmortem")
		assert.That(t, strings.Contains(a.Body, `"reason":"revoked"`) && strings.Contains(a.Body, `"by":"token:operator"`) && strings.Contains(a.Body, "force-unlock"), "%+v", a)
	})
}

func TestALockInfoIsNoRightToWhatAnotherPrincipalHasLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		ann := run(w, w.Bearer("ann", 0, false), "9d1c")
		forged := command{w, w.Bearer("bob", 0, false), ann.info, ann.id} // from the answer 423
		assert.Equal(t, ann.ask(w.Gateways[0], "LOCK", "/compat/terraform/infra:prod").Status, 200)
		for _, g := range w.Gateways {
			assert.Equal(t, forged.ask(g, "LOCK", "/compat/terraform/infra:prod").Status, 403)
			assert.Equal(t, forged.ask(g, "UNLOCK", "/compat/terraform/infra:prod").Status, 403)
		}
		assert.Equal(t, run(w, forged.by, "x").ask(w.Gateways[0], "LOCK", "/compat/terraform/infra:prod").Status, 423)
		// "username - (Optional) The username for HTTP basic authentication; password - (Optional) The password"
		basic := &Caller{Name: "basic", Authorization: "Basic " + base64.StdEncoding.EncodeToString([]byte("any:"+strings.TrimPrefix(ann.by.Authorization, "Bearer ")))}
		assert.Equal(t, command{w, basic, ann.info, ann.id}.ask(w.Gateways[1], "UNLOCK", "/compat/terraform/infra:prod").Status, 200)
		// Nowhere else is a password a credential.
		assert.Equal(t, w.Send(w.Gateways[0], basic, http.MethodGet, "/v1/whoami").Status, 401)
		for _, wrong := range []string{"Basic", "Basic !", "Basic " + base64.StdEncoding.EncodeToString([]byte("any:")), "Basic " + base64.StdEncoding.EncodeToString([]byte("any"))} {
			by := &Caller{Name: wrong, Authorization: wrong}
			a := command{w, by, ann.info, ann.id}.ask(w.Gateways[0], "LOCK", "/compat/terraform/infra:prod")
			assert.That(t, a.Status == 401 && !strings.Contains(a.Header.Get("Www-Authenticate"), "Basic"), "%q: %+v", wrong, a)
		}
	})
}

// A lock that ends earlier than its client expects is worse than none.
func TestALockThatARoleBoundsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, "roles: {short: [{ns: default, locks: \"*\", verbs: [acquire], max_ttl: 59m}]}\nwho: [{token: short, roles: [short]}]\n")
		short := w.Bearer("short", 0, false)
		a := run(w, short, "9d1c").ask(w.Gateways[0], "LOCK", "/compat/terraform/infra:prod")
		assert.That(t, a.Status == 403 && strings.Contains(a.Body, "for must be at most 59m"), "%+v", a)
		a = machine{w, short, "default", "m"}.ask(w.Gateways[0], "pre-reboot")
		assert.That(t, a.Status == 403 && strings.Contains(a.Body, "for must be at most 59m"), "%+v", a)
	})
}

func TestAStateIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		ann := w.Bearer("ann", 0, false)
		const state = `{"version":4,"terraform_version":"1.12.6","serial":1,"lineage":"x","outputs":{},"resources":[]}`
		for _, c := range []struct {
			method, body string
			status       int
		}{
			{"GET", "", 405}, // not 404, which is a state that is not there yet
			{"POST", state, 422}, {"PUT", state, 422}, {"DELETE", "", 422}, {"LOCK", "", 422}, {"UNLOCK", state, 422}, {"PATCH", state, 405},
			{"LOCK", `{"ID":"with space"}`, 422}, {"LOCK", `{"ID":"x","Created":"yesterday"}`, 422}, {"LOCK", `{"ID":"` + strings.Repeat("x", 129) + `"}`, 422},
		} {
			a := w.Send(w.Gateways[0], ann, c.method, "/compat/terraform/infra:prod", sent(c.body))
			assert.That(t, a.Status == c.status && strings.Contains(a.Body, "lock_address"), "%s %s: %+v", c.method, c.body, a)
		}
		a := w.Send(w.Gateways[0], ann, "LOCK", "/compat/terraform/infra:prod?ttl=1m", sent(`{"ID":"x"}`))
		assert.That(t, a.Status == 422 && a.Code() == "unknown_field", "%+v", a)
	})
}

// Text that is too long for the lease is cut: a lock that is refused for its info's length would stop a deployment.
func TestALockInfoIsKeptShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, compatRules)
		ann := w.Bearer("ann", 0, false)
		for _, filler := range []string{"x", `\"`, "\\u0001", "<", "é", "\\u2028"} {
			long := strings.Repeat(filler, 1500)
			info := fmt.Sprintf(`{"ID":"9d1c","Operation":"%s","Info":"%s","Who":"%s","Version":"%s","Path":"%s"}`, long, long, long, long, long)
			c := command{w, ann, info, "9d1c"}
			for range 2 {
				a := c.ask(w.Gateways[0], "LOCK", "/compat/terraform/infra:prod")
				assert.Must(t, a.Status == 200 && idIn(a) == "9d1c", "%q: %+v", filler, a)
			}
			a := run(w, ann, "other").ask(w.Gateways[1], "LOCK", "/compat/terraform/infra:prod")
			assert.That(t, a.Status == 423 && idIn(a) == "9d1c" && len(a.Body) < 4<<10+100, "%q: %+v", filler, a)
			assert.Equal(t, c.ask(w.Gateways[1], "UNLOCK", "/compat/terraform/infra:prod").Status, 200)
		}
	})
}
