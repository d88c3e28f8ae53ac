package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

// app is what the lock protects: it takes what is sent to it, and cannot compare tokens.
type app struct {
	listen string
	mu     sync.Mutex
	lines  []string // token and body of each request that passed
}

func newApp(t testing.TB) *app {
	a := &app{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lines = append(a.lines, r.Method+" "+strings.Join(r.Header["Fencing-Token"], ",")+" "+string(body))
	}))
	t.Cleanup(s.Close)
	a.listen = s.Listener.Addr().String()
	return a
}

// passed is what has passed since the last time.
func (a *app) passed() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	lines := a.lines
	a.lines = nil
	return lines
}

// nginxBlock is the configuration in a page.
var nginxBlock = regexp.MustCompile("(?s)```nginx\n(.*?)```")

// startNginx runs Debian's nginx with the configuration of docs/guides/fencing-at-a-proxy.md, between the gateway and what the lock protects,
// and tells where it listens.
func startNginx(t testing.TB, gateway, app string) string {
	t.Helper()
	page := assert.Value(os.ReadFile("../../../docs/guides/fencing-at-a-proxy.md"))(t)
	block := nginxBlock.FindSubmatch(page)
	assert.Must(t, block != nil, "docs/guides/fencing-at-a-proxy.md has no configuration of nginx")
	listen := freeAddr(t)
	server := string(block[1])
	for written, there := range map[string]string{"127.0.0.1:8081": listen, "127.0.0.1:8080": gateway, "127.0.0.1:9000": app} {
		assert.Must(t, strings.Count(server, written) == 1,
			"the configuration has %s %d times:\n%s", written, strings.Count(server, written), server)
		server = strings.Replace(server, written, there, 1)
	}
	runNginx(t, listen, server)
	return listen
}

// runNginx runs Debian's nginx with what is in an http block, and returns when it listens.
func runNginx(t testing.TB, listen, server string) {
	t.Helper()
	dir := t.TempDir()
	// What is not about locks: one process in the foreground, and nothing outside of its own directory.
	var temporary strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temporary, "%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	config := filepath.Join(dir, "nginx.conf")
	text := "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n" + temporary.String() + server + "}\n"
	assert.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	path, err := exec.LookPath("nginx")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/nginx"); err != nil { // not every PATH has it
			t.Fatalf("%v\nhint: scripts/setup test installs what these tests need", err)
		}
	}
	log := &journal{}
	cmd := exec.Command(path, "-p", dir, "-e", "stderr", "-c", config)
	cmd.Stdout, cmd.Stderr = log, log
	proc := assert.Value(childproc.Start(cmd))(t)
	t.Cleanup(func() {
		assert.That(t, !proc.Stop(patience), "nginx did not end when it was asked to")
		if t.Failed() {
			t.Logf("nginx says:\n%s", log.tail())
		}
	})
	eventually(t, patience, func() error {
		if proc.Ended() {
			t.Fatalf("nginx ended: %v\n%s", proc.Wait(), log.tail())
		}
		response, err := http.Get("http://" + listen)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}, "nginx listens")
}

// sendThrough sends a request with a token through nginx and tells the answer.
func sendThrough(t testing.TB, listen, token, body string) (status int, header http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listen+"/report?lock=another", strings.NewReader(body))
	assert.NoError(t, err)
	if token != "" {
		request.Header.Set("Fencing-Token", token)
	}
	// None of these is the gateway's business: it is asked for a lock by the configuration, and not by a page.
	request.Header.Set("Origin", "https://app.example")
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	request.Header.Set("Lockkeeper-Lock", "another")
	client := http.Client{Timeout: patience}
	response := assert.Value(client.Do(request))(t)
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header
}

func tokenOf(l api.Lease) string { return strconv.FormatInt(l.FencingToken, 10) }

func TestAProxyLetsOnlyTheHolderThrough(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	network := netfault.NewT(t, addr)
	g := startGateway(t, network.Addr()+chroot)
	app := newApp(t)
	listen := startNginx(t, g.listen, app.listen)
	expect := func(what, token string, want int) {
		t.Helper()
		status, header := sendThrough(t, listen, token, what)
		var passed []string
		if want == http.StatusOK {
			passed = []string{"POST " + token + " " + what}
		}
		if got := app.passed(); status != want || fmt.Sprint(got) != fmt.Sprint(passed) {
			t.Errorf("%s: status %d, want %d; passed %q", what, status, want, got)
		}
		assert.That(t, want != http.StatusServiceUnavailable || header.Get("Retry-After") != "", "%s: no Retry-After", what)
	}

	expect("a number without a holder", "4711", http.StatusForbidden)
	expect("no token", "", http.StatusForbidden)
	expect("no number", "all of them", http.StatusForbidden)
	first := g.hold("storage", "ttl=1m&owner=first")
	other := g.hold("another", "ttl=1m")
	expect("the holder", tokenOf(first), http.StatusOK)
	expect("the holder of another lock", tokenOf(other), http.StatusForbidden)

	second := g.queue("storage", "ttl=1m&owner=second")
	a, err := g.Release(t.Context(), first.Token)
	assert.Must(t, err == nil && a.Status == http.StatusNoContent, "release: %v %+v", err, a)
	expect("who has let go", tokenOf(first), http.StatusForbidden)
	eventually(t, patience, func() error {
		lease, _, err := g.Lease(t.Context(), second.LeaseID)
		if err == nil && lease.State != api.StateHeld {
			err = fmt.Errorf("it is %s", lease.State)
		}
		second.FencingToken = lease.FencingToken
		return err
	}, "the next one holds")
	expect("the next holder", tokenOf(second), http.StatusOK)
	expect("the holder before", tokenOf(first), http.StatusForbidden)

	// Cut off from ZooKeeper the gateway cannot know; it must not confirm the holder.
	network.Cut()
	expect("the holder, in an outage", tokenOf(second), http.StatusServiceUnavailable)
	elapse(t, promiseWindow+500*time.Millisecond)
	expect("the holder, after the trust window has closed", tokenOf(second), http.StatusServiceUnavailable)
	network.Heal()
	eventually(t, patience, func() error {
		if status, _ := sendThrough(t, listen, tokenOf(second), "again"); status != http.StatusOK {
			return fmt.Errorf("status %d", status)
		}
		return nil
	}, "the holder passes again")
	app.passed()
	expect("the holder before, after the outage", tokenOf(first), http.StatusForbidden)

	g.kill()
	expect("the holder, without a gateway", tokenOf(second), http.StatusServiceUnavailable)
	g.restart()
	eventually(t, patience, func() error {
		if status, _ := sendThrough(t, listen, tokenOf(second), "again"); status != http.StatusOK {
			return fmt.Errorf("status %d", status)
		}
		return nil
	}, "the holder passes once the gateway is back")
}
