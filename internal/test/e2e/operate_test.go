package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

func TestAGatewayThatIsTerminatedAnswersWaitingRequests(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lease := g.hold("deploy", "ttl=1m")
	look, a, err := g.Lease(t.Context(), lease.LeaseID)
	expect(t, a, err, http.StatusOK, "")
	keyed := g.acquiring(t.Context(), "deploy", "ttl=1m&wait=1m&owner=keyed", apitest.Key("a-fresh-random-key-0001"))
	g.awaitLock(patience, "deploy", 1, 1)
	plain := g.acquiring(t.Context(), "deploy", "ttl=1m&wait=1m&owner=plain")
	q := g.awaitLock(patience, "deploy", 1, 2)
	polled := make(chan *apitest.Answer, 2)
	poll := func(path, rev string) {
		a, err := g.Send(t.Context(), http.MethodGet, path, apitest.Query("wait=1m&since="+rev))
		assert.Nil(t, err, "%s", path)
		polled <- a
	}
	look, a, err = g.Lease(t.Context(), lease.LeaseID)
	expect(t, a, err, http.StatusOK, "")
	go poll("/v1/leases/"+lease.LeaseID, look.Rev)
	go poll("/v1/locks/deploy", q.Rev)
	eventually(t, patience, func() error {
		if n := g.metric(`lockkeeper_http_waiting_requests`); n != "4" {
			return fmt.Errorf("%s requests wait", n)
		}
		return nil
	}, "four requests wait")

	began := time.Now()
	g.terminate()
	took := time.Since(began)
	assert.That(t, took <= 10*time.Second, "the end took %v", took)
	for range 2 {
		a := <-polled
		assert.That(t, a != nil && a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") == "0",
			"a long poll was answered %+v", a)
	}
	for who, p := range map[string]*pending{"with a key": keyed, "without": plain} {
		p.answered(patience)
		expect(t, p.a, p.err, http.StatusServiceUnavailable, "draining")
		assert.Equal(t, p.a.Header.Get("Retry-After"), "0", "a blocking acquire %s is told Retry-After", who)
	}

	g.restart()
	g.beatUntil(lease.Token, api.StateHeld)
	again := g.acquiring(t.Context(), "deploy", "ttl=1m&wait=1m&owner=keyed", apitest.Key("a-fresh-random-key-0001"))
	q = g.awaitLock(patience, "deploy", 1, 1)
	assert.That(t, q.Waiters[0].Owner == "keyed", "in line is %+v", q.Waiters[0])
	g.letGo(lease.Token)
	again.answered(patience)
	expect(t, again.a, again.err, http.StatusOK, "")
}

// metric is the value of a sample without labels.
func (g *gateway) metric(name string) string {
	a, err := g.Send(g.t.Context(), http.MethodGet, "/metrics")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(a.Body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func TestMetricsTellWhatHappenedAndNameNoLock(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lease := g.hold("a-name-to-find", "ttl=1m&owner=an-owner-to-find")
	waiter := g.acquiring(t.Context(), "a-name-to-find", "ttl=1m&wait=1m")
	g.awaitLock(patience, "a-name-to-find", 1, 1)
	_, a, err := g.Acquire(t.Context(), "a-name-to-find")
	expect(t, a, err, http.StatusConflict, "held_by_other")
	g.letGo(lease.Token)
	second := waiter.granted(patience)
	g.queue("a-name-to-find", "ttl=1m")
	a, err = g.Send(t.Context(), http.MethodGet, "/metrics")
	expect(t, a, err, http.StatusOK, "")
	text := string(a.Body)
	for _, pattern := range []string{
		`lockkeeper_leases\{mode="exclusive",state="held"\} 1`, `lockkeeper_leases\{mode="exclusive",state="waiting"\} 1`,
		`lockkeeper_acquire_seconds_count\{result="held"\} 2`, `lockkeeper_acquire_seconds_count\{result="held_by_other"\} 1`,
		`lockkeeper_hold_seconds_count 1`, `lockkeeper_queue_wait_seconds_count 2`, `lockkeeper_handover_seconds_count [1-9]`,
		`lockkeeper_lease_ended_total\{reason="released"\} 1`, `lockkeeper_zk_op_seconds_count\{op="multi",outcome="\w+"\} [1-9]`,
		`lockkeeper_zk_batch_size_count [1-9]`, `lockkeeper_fence_margin_seconds [0-9.]*[1-9]`, `lockkeeper_replica_current 1`,
		`lockkeeper_takeovers_total 0`, `lockkeeper_oldest_waiter_seconds [0-9.e-]*[1-9]`, `lockkeeper_build_info\{.*version=".+"\} 1`,
	} {
		assert.That(t, regexp.MustCompile(`(?m)^`+pattern).MatchString(text), "no sample matches %s", pattern)
	}
	for _, secret := range []string{"to-find", lease.LeaseID, lease.Token, second.LeaseID} {
		assert.That(t, !strings.Contains(text, secret), "%q is in the metrics", secret)
	}
	if t.Failed() {
		t.Log(strings.Join(slices.Collect(lockkeeperLines(text)), ""))
	}
}

func lockkeeperLines(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "lockkeeper_") && !strings.Contains(line, "_bucket") && !yield(line) {
				return
			}
		}
	}
}

func TestTheLogHasOneLineForEachRequestAndNoSecret(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	const key = "a-fresh-random-key-to-find"
	lease := g.hold("deploy", "ttl=1m&owner=me&metadata=metadata-to-find", apitest.Key(key))
	replayed, a, err := g.Acquire(t.Context(), "deploy", apitest.Query("ttl=1m&owner=me&metadata=metadata-to-find"), apitest.Key(key))
	expect(t, a, err, http.StatusOK, "")
	ids := map[string]string{a.Header.Get("Lockkeeper-Request-Id"): "Acquire"}
	note := func(operation string, a *apitest.Answer, err error) {
		t.Helper()
		assert.NoError(t, err)
		ids[a.Header.Get("Lockkeeper-Request-Id")] = operation
	}
	_, a, err = g.Heartbeat(t.Context(), lease.Token)
	note("Heartbeat", a, err)
	_, a, err = g.Heartbeats(t.Context(), []string{lease.Token, replayed.Token + "x"})
	note("HeartbeatMany", a, err)
	a, err = g.Send(t.Context(), http.MethodDelete, "/v1/leases/"+lease.Token, apitest.Token(lease.Token)) // in the wrong place
	note("Release", a, err)
	a, err = g.Send(t.Context(), http.MethodDelete, "/v1/leases/self?token="+lease.Token, apitest.Token(lease.Token))
	note("Release", a, err)
	_, a, err = g.Acquire(t.Context(), "deploy", apitest.Query("owner=you"), apitest.Key(key))
	note("Acquire", a, err)
	a, err = g.Send(t.Context(), http.MethodGet, "/nowhere/"+lease.Token)
	note("", a, err)
	a, err = g.Release(t.Context(), lease.Token)
	note("Release", a, err)
	g.terminate()

	for _, secret := range []string{key, lease.Token, lease.Token[strings.LastIndex(lease.Token, "."):], "metadata-to-find"} {
		assert.That(t, !strings.Contains(g.log.String(), secret), "%q is in the log", secret)
	}
	seen := map[string]int{}
	for line := range strings.Lines(g.log.String()) {
		var entry struct {
			Time      string  `json:"time"`
			Level     string  `json:"level"`
			Msg       string  `json:"msg"`
			ID        string  `json:"request_id"`
			Operation string  `json:"operation"`
			Status    int     `json:"status"`
			Code      string  `json:"code"`
			Duration  float64 `json:"duration_ms"`
			Client    string  `json:"client_ip"`
			Principal string  `json:"principal"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("a line that is no JSON: %v\n%s", err, line)
			continue
		}
		at, err := time.Parse("2006-01-02T15:04:05.000Z", entry.Time)
		assert.That(t, err == nil && time.Since(at) <= time.Hour, "time %q", entry.Time)
		if entry.Msg != "request" {
			continue
		}
		seen[entry.ID]++
		operation, mine := ids[entry.ID]
		assert.That(t, !mine || entry.Operation == operation, "%s is logged as %q", operation, entry.Operation)
		if entry.ID == "" || entry.Status == 0 || entry.Client != "127.0.0.1" || entry.Principal != "anonymous" || entry.Status >= 400 && entry.Code == "" {
			t.Errorf("a line lacks something: %s", line)
		}
	}
	for id, operation := range ids {
		assert.That(t, seen[id] == 1, "%s (%s) has %d lines", operation, id, seen[id])
	}
}

// ZooKeeper answers this gateway's pings and reads, and none of its writes: it alone is not trusted, and others may do better.
func TestAGatewayThatReachesZooKeeperAndCannotCommitIsNotReady(t *testing.T) {
	t.Parallel()
	g, p := behindProxy(t, "--session-timeout=20s")
	lease := g.hold("deploy", "ttl=1m")
	commitNothing := p.Observe(func(f netfault.Frame) netfault.Action {
		if f.Dir == netfault.Requests && f.Op() == netfault.OpMulti {
			return netfault.Swallow
		}
		return netfault.Forward
	})
	eventually(t, patience, func() error { return g.status(http.MethodGet, "/readyz", http.StatusServiceUnavailable) }, "readyz is red")
	_, a, err := g.Heartbeat(t.Context(), lease.Token)
	expect(t, a, err, http.StatusServiceUnavailable, "zookeeper_unavailable")
	assert.Nil(t, g.status(http.MethodGet, "/healthz", http.StatusOK), "healthz")
	commitNothing()
	p.Reset()
	eventually(t, patience, func() error { return g.status(http.MethodGet, "/readyz", http.StatusOK) }, "readyz is green again")
	g.beatUntil(lease.Token, api.StateHeld)
}

// As soon as the gateway says that it is ready, it serves.
func TestAGatewayThatSaysItIsReadyServes(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	for i := range 4 {
		g := newGateway(t, addr+chroot)
		g.start()
		g.awaitReady()
		g.hold(fmt.Sprint("first-", i), "ttl=1m")
		g.terminate()
	}
}

func TestErrorsAtTheStartHaveAnExitCodeAndAHint(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	startGateway(t, addr+chroot) // its window is recorded
	busy := startGateway(t, addr+chroot+"/busy", "--root=/elsewhere")
	noServer := freeAddr(t)
	for name, c := range map[string]struct {
		flags []string
		code  int
		says  string
	}{
		"an unknown flag":           {[]string{"--zk=" + addr, "--zookeper=x"}, 64, "--zookeper"},
		"a ZooKeeper without name":  {[]string{"--zk="}, 64, "--zk"},
		"a duration without a unit": {[]string{"--zk=" + addr, "--session-timeout=10"}, 64, "session-timeout"},
		"a chroot that is no path":  {[]string{"--zk=" + addr + "/a//b"}, 64, "--zk"},
		"open to others":            {[]string{"--zk=" + addr, "--listen=0.0.0.0:0"}, 64, "0.0.0.0"},
		"a port that is taken":      {[]string{"--zk=" + addr + chroot, "--listen=" + busy.listen}, 64, busy.listen},
		"ZooKeeper is not there":    {[]string{"--zk=" + noServer, "--zk-connect-timeout=1s"}, 69, noServer},
		"a root that is missing":    {[]string{"--zk=" + addr + chroot, "--root=/misspelt", "--no-create-root"}, 78, "/misspelt"},
		"another promise window":    {[]string{"--zk=" + addr + chroot, "--promise-window=7s"}, 78, "7s"},
		"an identity in no file":    {[]string{"--zk=" + addr + chroot, "--zk-auth-file=/nonexistent"}, 78, "/nonexistent"},
	} {
		flags := c.flags
		if !slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--listen=") }) {
			flags = append(flags, "--listen="+freeAddr(t))
		}
		code, out := exitCode(t, flags...)
		var errors, hints int
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "error: ") {
				errors++
				assert.That(t, strings.Contains(line, c.says), "%s: the error does not name %s: %s", name, c.says, line)
			}
			if strings.HasPrefix(line, "hint: ") {
				hints++
			}
		}
		assert.That(t, code == c.code && errors == 1 && hints == 1,
			"%s: exit code %d, want %d; %d errors, %d hints\n%s", name, code, c.code, errors, hints, out)
	}
	code, out := exitCode(t, "--help")
	assert.That(t, code == 0 && strings.Contains(out, "--promise-window"), "--help: %d\n%s", code, out)
	code, out = exitCode(t, "version")
	assert.That(t, code == 0 && out != "", "version: %d\n%s", code, out)
}

// Until ZooKeeper is there the gateway is alive, not ready, and answers.
func TestAGatewayWaitsForAZooKeeperThatComesLater(t *testing.T) {
	t.Parallel()
	s := zkreal.StartT(t, zkreal.WithoutFsync())
	s.Kill()
	g := newGateway(t, s.Addr())
	g.start()
	eventually(t, patience, func() error { return g.status(http.MethodGet, "/healthz", http.StatusOK) }, "healthz")
	assert.Nil(t, g.status(http.MethodGet, "/readyz", http.StatusServiceUnavailable), "readyz")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	took := g.refusesAcquire("early")
	assert.That(t, took <= required(3*time.Second), "refused after %v", took)
	_, a, err := g.Heartbeat(ctx, "lk1.abc.def.ghi")
	assert.That(t, err == nil && a.Status == http.StatusServiceUnavailable, "a heartbeat is answered %v %+v", err, a)
	s.RestartT(t)
	g.awaitServing()
	g.hold("late", "ttl=1m")
}
