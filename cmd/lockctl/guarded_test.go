package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"lockkeeper/client"
	"lockkeeper/internal/supervise"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// An end that is known late leaves less of the lock delay, or nothing.
func TestACommandGoesOnWithinWhatIsLeftOfTheLockDelay(t *testing.T) {
	testkit.NotShort(t, "waits for requests")
	var delayed map[string]any // of the holder
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case r.Method == "DELETE":
			w.WriteHeader(http.StatusNoContent)
			return
		case r.Method == "POST" && r.URL.Path == "/v1/locks/a/leases":
			answer = map[string]any{"lease_id": "lk1", "token": "t", "state": "held", "ttl_ms": 60000, "waited_ms": 0, "fencing_token": 1}
		case r.Method == "POST":
			<-r.Context().Done() // a heartbeat that is held
			return
		default:
			answer = map[string]any{"lock": "a", "holders": []any{delayed}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer gateway.Close()
	c, err := client.New(client.Config{URLs: []string{gateway.URL}})
	assert.NoError(t, err)
	lease, err := c.Acquire(t.Context(), "a", client.TTL(time.Minute))
	assert.NoError(t, err)
	defer lease.Release(t.Context())
	for _, test := range []struct {
		left    time.Duration // of the lock delay; negative: none runs
		lostFor time.Duration // before the look at it
		want    time.Duration
	}{
		{30 * time.Second, 0, 10 * time.Second},              // all of --kill-after
		{6 * time.Second, 0, 5 * time.Second},                // the margin before the delay is over
		{6 * time.Second, 3 * time.Second, 8 * time.Second},  // it counts from when the command got SIGTERM
		{500 * time.Millisecond, 0, -500 * time.Millisecond}, // nothing is left
		{-1, 0, 0}, // broken: the next one may have the lock
	} {
		delayed = map[string]any{"lease_id": "lk1", "delayed": true, "expires_in_ms": test.left.Milliseconds()}
		if test.left < 0 {
			delayed = map[string]any{"lease_id": "lk2"}
		}
		g := &guarded{leaseFlags: &leaseFlags{killAfter: 10 * time.Second, Margin: time.Second, LockDelay: 30 * time.Second}, client: c, lock: "a"}
		got := g.graceOf(lease, supervise.Now()-test.lostFor)
		assert.That(t, got <= test.want+time.Millisecond && got > test.want-300*time.Millisecond, "%v left after %v: %v, not %v", test.left, test.lostFor, got, test.want)
	}
}

// The issue's own bound: what an administrator breaks has stopped within 500 ms, also when it ignores SIGTERM and has daemonized.
func TestABrokenLeaseStopsItsCommandWithin500ms(t *testing.T) {
	testkit.NotShort(t, "starts the gateway and lockctl")
	testkit.BuiltFrom(t, "lockkeeper/cmd/lockctl")
	testkit.BuiltFrom(t, "lockkeeper/cmd/gateway")
	url := gatewayForConsoles(t)
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(programs, "lockctl"), "run", "a", "--", "sh", "-c",
		`trap '' TERM; (setsid sh -c 'trap "" TERM; for i in $(seq 3000); do touch at-work; sleep 0.01; done' &); sleep 30`)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LOCKKEEPER_URL="+url)
	assert.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM) }()
	atWork := func() time.Time {
		info, err := os.Stat(filepath.Join(dir, "at-work"))
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return !atWork().IsZero() }, "the work has begun")
	out, err := lockctl(t, url, "break", "a", "--yes")
	broken := time.Now() // when the administrator knows
	assert.Must(t, err == nil, "break: %v\n%s", err, out)
	_ = cmd.Wait()
	assert.Equal(t, cmd.ProcessState.ExitCode(), exitLost)
	took := atWork().Sub(broken)
	assert.That(t, took < 500*time.Millisecond, "the work went on for %v", took)
}
