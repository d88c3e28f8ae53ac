package interop

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// Attack 17: Curator's Revoker writes over our contender's data, in which the TTL and the holds are that a successor must know,
// and then the owner dies.
func TestARevokedLeaseKeepsItsTimeAndItsHoldsWhenItsGatewayDies(t *testing.T) {
	for name, deaf := range map[string]bool{"the owner has written them back": false, "the owner dies before it hears of it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const window, session = 3 * time.Second, 4 * time.Second
			w := newWorld(t, "--session-timeout=4s", "--promise-window=3s")
			curator := w.program(t, "curator-revoker")
			lease, err := w.acquire(t.Context(), "native", "deploy", "ttl=5s&hold=outer&metadata=kept")
			assert.NoError(t, err)
			token := apitest.Token(lease.Token)
			if a, err := w.Send(t.Context(), http.MethodPost, "/v1/locks/deploy/leases?ns=native&hold=inner", token); err != nil || a.Status != http.StatusOK {
				t.Fatalf("%+v, %v", a, err)
			}
			data := func() string {
				data, _, err := w.conn.Get(lease.Znode)
				assert.NoError(t, err)
				return string(data)
			}
			if deaf {
				w.proc.Signal(syscall.SIGSTOP)
			}
			beaten := time.Now() // its client counts from here at the latest
			lines, err := curator.start("hold", "revoker", "curator-revoker", lease.Znode)
			if err == nil {
				_, err = await(curator, lines, "held", patience)
			}
			assert.NoError(t, err)
			if deaf {
				assert.Must(t, data() == "__REVOKE__", "Curator wrote %q", data())
			} else {
				testkit.Eventually(t, patience, func() bool { return strings.Contains(data(), `"kept"`) && strings.Contains(data(), "__REVOKE__") },
					"the owner writes back what was there, and that it was asked to let go")
			}
			w.proc.Kill()
			w.startGateway()
			var l api.Lease
			testkit.Eventually(t, patience, func() bool {
				var a *apitest.Answer
				l, a, err = w.Lease(t.Context(), lease.LeaseID) // an outsider's look, which keeps nothing alive
				return err == nil && a.Status == http.StatusOK && l.State == "held"
			}, "the successor answers for it")
			taken := time.Since(beaten)
			assert.That(t, !deaf || taken >= session/2, "it was taken over after %v, while its gateway's session lived", taken)
			assert.That(t, l.FencingToken == lease.FencingToken, "fencing token %d, was %d", l.FencingToken, lease.FencingToken)
			if deaf {
				// Its TTL is unknown: it is kept for the longest time that there is, and only all of it can be released.
				time.Sleep(window + 5*time.Second + 2*time.Second) // there is nothing to wait for: that it does not end is the point
				if b, a, err := w.Heartbeat(t.Context(), lease.Token); err != nil || a.Status != http.StatusOK || b.RevokeRequested == nil {
					t.Fatalf("a heartbeat after takeover + window + TTL: %+v, %v", a, err)
				}
				a, err := w.Release(t.Context(), lease.Token)
				assert.Must(t, err == nil && a.Status == http.StatusNoContent, "%+v, %v", a, err)
				return
			}
			var holds []string
			for _, h := range l.Holds {
				holds = append(holds, string(h))
			}
			if l.TTLMS != 5000 || !slices.Equal(holds, []string{"outer", "inner"}) || l.Metadata != "kept" || l.RevokeRequested == nil {
				t.Errorf("the successor knows %+v", l)
			}
			release := func(hold string) {
				t.Helper()
				a, err := w.Send(t.Context(), http.MethodDelete, "/v1/leases/self?hold="+hold, token)
				assert.Must(t, err == nil && a.Status == http.StatusNoContent, "%s: %+v, %v", hold, a, err)
			}
			release("inner")
			if b, a, err := w.Heartbeat(t.Context(), lease.Token); err != nil || a.Status != http.StatusOK || b.State != "held" || b.RevokeRequested == nil {
				t.Errorf("with one hold left: %+v, %v", a, err)
			}
			release("outer")
			testkit.Eventually(t, patience, func() bool { return len(w.names("native", "deploy")) == 0 }, "the last hold ends it")
		})
	}
}
