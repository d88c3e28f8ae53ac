package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// Attack 25, with the real programs: of two gateways one was started without the namespace, and succeeds the other.
func TestANamespaceThatOneGatewayAddsIsServedAndTakenOverByTheOther(t *testing.T) {
	t.Parallel()
	plain := onShared(t)
	inPython := apitest.Query("ns=python")
	_, a, err := plain.Acquire(t.Context(), "deploy", inPython)
	expect(t, a, err, http.StatusNotFound, "namespace_unknown")

	adds := startGateway(t, plain.zk, "--namespace=python=/app/locks:kazoo")
	l, a, err := adds.Acquire(t.Context(), "deploy", apitest.Query("ns=python&ttl=1m"))
	expect(t, a, err, http.StatusCreated, "")
	assert.That(t, strings.HasPrefix(l.Znode, "/app/locks/deploy/") && strings.Contains(l.Znode, "__lock__"),
		"its contender is %s", l.Znode)
	eventually(t, patience, func() error {
		list, _, err := plain.Namespaces(t.Context())
		want := api.NamespaceInfo{NS: "python", Root: "/app/locks", Dialect: "kazoo", Ready: true, Locks: 1}
		if err == nil && (len(list.Items) != 2 || list.Items[1] != want || !list.Items[0].Swept) {
			err = fmt.Errorf("%+v", list.Items)
		}
		return err
	}, "the running gateway has picked it up")
	_, a, err = plain.Acquire(t.Context(), "deploy", inPython)
	expect(t, a, err, http.StatusConflict, "held_by_other")

	adds.kill()
	eventually(t, patience, func() error {
		b, a, err := plain.Heartbeat(t.Context(), l.Token)
		if err == nil && (a.Status != http.StatusOK || b.State != api.StateHeld) {
			err = fmt.Errorf("%d %s", a.Status, a.Body)
		}
		assert.Must(t, a == nil || a.Status != http.StatusGone, "the lease was lost: %+v", a)
		return err
	}, "the successor runs its clock")

	// One that is started anew finds it in the record, and what contradicts the record is refused.
	for flag, says := range map[string]string{
		"python=/elsewhere:kazoo": "recorded with root /app/locks and dialect kazoo",
		"python=/app/locks:all":   "recorded with root /app/locks and dialect kazoo",
		"more=/app":               "overlap",
	} {
		cmd := exec.Command(binary(t), "--zk="+plain.zk, "--listen="+freeAddr(t), "--namespace="+flag)
		out, err := cmd.CombinedOutput()
		assert.That(t, cmd.ProcessState.ExitCode() == 78 && strings.Contains(string(out), says) && strings.Contains(string(out), "hint: "),
			"%s: %v\n%s", flag, err, out)
	}
	fresh := startGateway(t, plain.zk)
	eventually(t, patience, func() error {
		list, _, err := fresh.Namespaces(t.Context())
		if err == nil && (len(list.Items) != 2 || !list.Items[1].Ready) {
			err = fmt.Errorf("%+v", list.Items)
		}
		return err
	}, "a new gateway knows it")
}
