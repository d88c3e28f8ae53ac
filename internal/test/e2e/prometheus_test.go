package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/zkreal"
)

// startPrometheus runs Debian's Prometheus, which scrapes the gateways and keeps the alerts' rules.
func startPrometheus(t testing.TB, gateways ...*gateway) (address string) {
	t.Helper()
	dir, listen := t.TempDir(), freeAddr(t)
	rules := assert.Value(filepath.Abs("../../../deploy/prometheus/alerts.yaml"))(t)
	var targets []string
	for _, g := range gateways {
		targets = append(targets, g.listen)
	}
	config, err := yaml.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"},
		"rule_files":     []string{rules},
		"scrape_configs": []any{map[string]any{"job_name": "lockkeeper", "static_configs": []any{map[string]any{"targets": targets}}}},
	})
	assert.NoError(t, err)
	file := filepath.Join(dir, "prometheus.yml")
	assert.NoError(t, os.WriteFile(file, config, 0o600))
	path, err := exec.LookPath("prometheus")
	assert.Must(t, err == nil, "%v\nhint: scripts/setup test installs what these tests need", err)
	log := &journal{}
	cmd := exec.Command(path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen, "--log.level=warn")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	proc := assert.Value(childproc.Start(cmd))(t)
	t.Cleanup(func() {
		proc.Stop(patience)
		if t.Failed() {
			t.Logf("Prometheus says:\n%s", log.tail())
		}
	})
	eventually(t, patience, func() error {
		if proc.Ended() {
			t.Fatalf("Prometheus ended: %v\n%s", proc.Wait(), log.tail())
		}
		response, err := http.Get("http://" + listen + "/-/ready")
		if err == nil {
			if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %d", response.StatusCode)
			}
		}
		return err
	}, "Prometheus is ready")
	return listen
}

// ask has Prometheus carry a query out, and returns how many series come of it.
func ask(prometheus, query string) (series int, err error) {
	response, err := http.Get("http://" + prometheus + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []any }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("%s", answer.Error)
	}
	return len(answer.Data.Result), nil
}

var (
	metricName = regexp.MustCompile(`\b(lockkeeper|process|go)_[a-z_]+`)
	metricType = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
)

// Every query of the dashboard, and every condition of the alerts, is carried out by a Prometheus that scrapes two gateways
// at work. Those of the dashboard show something.
func TestTheDashboardAndTheAlertsAskForWhatGatewaysExpose(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	fleet := []*gateway{startGateway(t, addr+chroot), startGateway(t, addr+chroot)}
	prometheus := startPrometheus(t, fleet...)
	var dashboard struct {
		Templating struct {
			List []struct{ Name string }
		}
		Panels []struct {
			ID      int
			Type    string
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text := assert.Value(os.ReadFile("../../../deploy/grafana/dashboard.json"))(t)
	assert.NoError(t, json.Unmarshal(text, &dashboard))
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	text = assert.Value(os.ReadFile("../../../deploy/prometheus/alerts.yaml"))(t)
	assert.NoError(t, yaml.Unmarshal(text, &alerts))
	queries := map[string]string{} // by where they are
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		assert.That(t, !ids[p.ID], "two panels have the number %d", p.ID)
		ids[p.ID] = true
		for i, target := range p.Targets {
			queries[fmt.Sprintf("panel %q, %d", p.Title, i)] = strings.NewReplacer("$__rate_interval", "20s", "$job", "lockkeeper", "$instance", ".*").Replace(target.Expr)
		}
		assert.That(t, p.Type == "row" || len(p.Targets) != 0, "panel %q shows nothing", p.Title)
	}
	shown := len(queries)
	for _, rule := range alerts.Groups[0].Rules {
		queries["alert "+rule.Alert] = rule.Expr
	}
	assert.Must(t, shown >= 20 && len(queries) >= shown+10, "%d queries, %d of the dashboard", len(queries), shown)

	// What a fleet at work does: each query is asked until it has something to show, while it works.
	missing := map[string]string{}
	maps.Copy(missing, queries)
	fleet[0].hold("kept", "ttl=1h") // these two are there at each scrape
	fleet[0].queue("kept", "ttl=1h")
	round := 0
	eventually(t, patience, func() error {
		round++
		lock := fmt.Sprint("lock-", round)
		held := fleet[0].hold(lock, "ttl=1m")
		waiting := fleet[0].acquiring(t.Context(), lock, "ttl=1m&wait=1m")
		fleet[0].awaitLock(patience, lock, 1, 1)
		_, a, err := fleet[0].Acquire(t.Context(), lock, apitest.Query("ttl=1m"))
		expect(t, a, err, http.StatusConflict, "held_by_other")
		_, a, err = fleet[1].Heartbeat(t.Context(), held.Token) // of another's lease
		assert.Must(t, err == nil && (a.Status == http.StatusOK || a.Status == http.StatusServiceUnavailable), "%v %+v", err, a)
		fleet[0].letGo(held.Token)
		fleet[0].letGo(waiting.granted(patience).Token)
		for where, query := range missing {
			series, err := ask(prometheus, query)
			switch {
			case err != nil:
				t.Fatalf("%s: %v\n%s", where, err, query)
			case series > 0 || strings.HasPrefix(where, "alert "):
				delete(missing, where)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%d show nothing: %v", len(missing), missing)
		}
		return nil
	}, "each query of the dashboard shows something")

	ruled := newGateway(t, "") // what only a gateway with --auth-file has
	ruled.dataDir = t.TempDir()
	ruled.flags = []string{"--listen=" + ruled.listen, "--data-dir=" + ruled.dataDir,
		"--auth-file=" + rulesFile(t, "anonymous: [read]\nissuers: {away: {issuer: https://127.0.0.1:1, audience: lockkeeper}}\n")}
	ruled.start()
	ruled.awaitReady()
	exposed := map[string]bool{}
	for _, g := range append(fleet, ruled) {
		a, err := g.Send(t.Context(), http.MethodGet, "/metrics")
		expect(t, a, err, http.StatusOK, "")
		for _, m := range metricType.FindAllStringSubmatch(string(a.Body), -1) {
			exposed[m[1]] = true
			if m[2] == "histogram" {
				for _, part := range []string{"_bucket", "_sum", "_count"} {
					exposed[m[1]+part] = true
				}
			}
		}
	}
	for where, query := range queries {
		names := metricName.FindAllString(query, -1)
		assert.That(t, len(names) != 0 || strings.Contains(query, "up{"), "%s asks for no metric of ours: %s", where, query)
		for _, name := range names {
			assert.That(t, exposed[name],
				"%s asks for %s, which no gateway exposes; there are %v", where, name, slices.Sorted(maps.Keys(exposed)))
		}
	}
}

// The address of metrics is guarded and bounded as the main one is.
func TestTheAddressOfMetricsHasTheMainOnesGuards(t *testing.T) {
	t.Parallel()
	at := freeAddr(t)
	g := onShared(t, "--metrics-listen="+at)
	for _, c := range []struct {
		path, host, header, value string
		status                    int
	}{
		{"/metrics", "", "", "", http.StatusOK},
		{"/metrics", "evil.example", "", "", http.StatusMisdirectedRequest},
		{"/metrics", "0.0.0.0", "", "", http.StatusMisdirectedRequest},
		{"/metrics", "", "Origin", "http://evil.example", http.StatusForbidden},
		{"/metrics", "", "X-Large", strings.Repeat("a", 24<<10), http.StatusRequestHeaderFieldsTooLarge},
		{"/v1/locks", "", "", "", http.StatusNotFound},
		{"/", "", "", "", http.StatusNotFound},
	} {
		r := assert.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+c.path, nil))(t)
		r.Host = c.host
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		a := assert.Value(http.DefaultTransport.RoundTrip(r))(t)
		a.Body.Close()
		assert.That(t, a.StatusCode == c.status, "%s of host %q with %s: %d, want %d", c.path, c.host, c.header, a.StatusCode, c.status)
	}
	assert.Nil(t, g.status(http.MethodGet, "/metrics", http.StatusNotFound), "the main address has metrics, too")
}
