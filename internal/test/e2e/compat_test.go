package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
)

// Clients of other programs' protocols, which are not ours. They take minutes to build, or cannot be had everywhere, so what they
// have sent, and what they were answered, is in testdata/compat, and is sent again in each run.

var recordCompat = flag.Bool("compat.record", false, "write the exchanges of the real clients to testdata/compat")

// opentofu is the version whose exchange is recorded.
const opentofu = "github.com/opentofu/opentofu@v1.12.6"

// exchanged is one request of a recording and its answer.
type exchanged struct {
	Step        string `json:"step"` // of the scenario
	Method      string `json:"method"`
	Path        string `json:"path"`
	ContentType string `json:"content_type,omitempty"`
	FleetLock   string `json:"fleet_lock_protocol,omitempty"`
	Body        string `json:"body"`
	Status      int    `json:"status"`
	Answer      string `json:"answer"`
}

// recording stands before a gateway.
type recording struct {
	mu   sync.Mutex
	step string
	list []exchanged
	http *httptest.Server
}

func recordBefore(t *testing.T, g *gateway) *recording {
	r := &recording{}
	to := assert.Value(url.Parse(g.url()))(t)
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }, ModifyResponse: func(a *http.Response) error {
		answer, err := io.ReadAll(a.Body)
		if err != nil {
			return err
		}
		a.Body = io.NopCloser(bytes.NewReader(answer))
		q := a.Request
		r.mu.Lock()
		defer r.mu.Unlock()
		r.list = append(r.list, exchanged{r.step, q.Method, q.URL.Path, q.Header.Get("Content-Type"), q.Header.Get("Fleet-Lock-Protocol"), q.Context().Value(bodyKey{}).(string), a.StatusCode, string(answer)})
		return nil
	}}
	r.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), bodyKey{}, string(body))))
	}))
	t.Cleanup(r.http.Close)
	return r
}

type bodyKey struct{}

// begin names the requests that come from now on.
func (r *recording) begin(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step = step
}

// of are the requests of a step, each as "METHOD status".
func (r *recording) of(step string) (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.list {
		if e.Step == step {
			list = append(list, e.Method+" "+strconv.Itoa(e.Status))
		}
	}
	return list
}

// keep writes the recording, where that was asked for.
func (r *recording) keep(t *testing.T, name string) {
	if !*recordCompat {
		return
	}
	host := assert.Value(os.Hostname())(t)
	for i := range r.list {
		e := &r.list[i]
		e.Body, e.Answer = strings.ReplaceAll(e.Body, "@"+host, "@laptop"), strings.ReplaceAll(e.Answer, "@"+host, "@laptop")
	}
	text := assert.Value(json.MarshalIndent(r.list, "", " "))(t)
	assert.NoError(t, os.WriteFile("testdata/compat/"+name+".json", append(text, '\n'), 0o644))
}

func TestWhatRealClientsHaveSentIsAnsweredAsItWas(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"opentofu": nil, "fleetlockctl": {"--fleetlock-limit=3"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startStandalone(t, append(flags, "--compat=fleetlock,terraform")...)
			var list []exchanged
			assert.NoError(t, json.Unmarshal(assert.Value(os.ReadFile("testdata/compat/"+name+".json"))(t), &list))
			assert.Must(t, len(list) > 10, "%d requests", len(list))
			for i, e := range list {
				q := assert.Value(http.NewRequestWithContext(t.Context(), e.Method, g.url()+e.Path, strings.NewReader(e.Body)))(t)
				for header, value := range map[string]string{"Content-Type": e.ContentType, "Fleet-Lock-Protocol": e.FleetLock} {
					if value != "" {
						q.Header.Set(header, value)
					}
				}
				a := assert.Value(http.DefaultClient.Do(q))(t)
				body := assert.Value(io.ReadAll(a.Body))(t)
				_ = a.Body.Close()
				about := fmt.Sprintf("request %d (%s): %s %s %s", i, e.Step, e.Method, e.Path, e.Body)
				assert.Equal(t, a.StatusCode, e.Status, "%s: %s", about, body)
				assert.Equal(t, lasting(body), lasting([]byte(e.Answer)), "%s", about)
			}
		})
	}
}

// lasting is an answer without what differs each time.
func lasting(answer []byte) string {
	var members map[string]any
	if json.Unmarshal(answer, &members) != nil {
		return string(answer)
	}
	delete(members, "request_id")
	delete(members, "retry_after_ms")
	text, _ := json.Marshal(members) // it was JSON
	return string(text)
}

// stateStore keeps the state, as the backend's address. The gateway does not.
func stateStore(t *testing.T) string {
	var mu sync.Mutex
	var state []byte
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == http.MethodPost:
			state, _ = io.ReadAll(r.Body) // what is cut off is no state to the client
		case state == nil:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write(state)
		}
	}))
	t.Cleanup(store.Close)
	return store.URL
}

// builtTofu is the path of OpenTofu, built from the Go module proxy: six minutes of processor time the first time.
func builtTofu(t *testing.T) string {
	if path := os.Getenv("LOCKKEEPER_TEST_TOFU"); path != "" {
		return path
	}
	if os.Getenv("LOCKKEEPER_FULL") == "" {
		t.Skip("it takes minutes to build OpenTofu: make test-full does, or name one in LOCKKEEPER_TEST_TOFU")
	}
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", opentofu)
	download.Dir = t.TempDir() // outside of this module
	var module struct{ Dir string }
	assert.NoError(t, json.Unmarshal(assert.Value(download.Output())(t), &module))
	path := filepath.Join(t.TempDir(), "tofu")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/tofu")
	build.Dir, build.Env = module.Dir, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	assert.NoError(t, err, "%s", out)
	return path
}

// slow is a configuration whose apply ends when the file go is there.
const slow = `
terraform {
  backend "http" {}
}
resource "terraform_data" "slow" {
  triggers_replace = [timestamp()]
  provisioner "local-exec" {
    command = "touch begun; until [ -e go ]; do sleep 0.1; done"
  }
}
`

// https://opentofu.org/docs/language/settings/backends/http/: "When locking support is enabled it will use LOCK and UNLOCK
// requests providing the lock info in the body. The endpoint should return a 423: Locked or 409: Conflict with the holding lock
// info when it's already taken, 200: OK for success."
func TestOpenTofuLocksWaitsAndForcesUnlocks(t *testing.T) {
	t.Parallel()
	tofu := builtTofu(t)
	g := startStandalone(t, "--compat=terraform")
	r := recordBefore(t, g)
	dir, store := t.TempDir(), stateStore(t)
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "main.tf"), []byte(slow), 0o600))
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(tofu, args...)
		cmd.Dir = dir
		at := r.http.URL + "/compat/terraform/infra:prod"
		cmd.Env = append(os.Environ(), "TF_HTTP_ADDRESS="+store, "TF_HTTP_LOCK_ADDRESS="+at, "TF_HTTP_UNLOCK_ADDRESS="+at, "TF_IN_AUTOMATION=1")
		return cmd
	}
	run := func(fails bool, args ...string) string {
		t.Helper()
		out, err := command(args...).CombinedOutput()
		assert.Must(t, (err != nil) == fails, "tofu %v: %v\n%s", args, err, out)
		return string(out)
	}
	start := func(args ...string) (*childproc.Process, *bytes.Buffer) {
		t.Helper()
		cmd, out := command(args...), &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = out, out
		p := assert.Value(childproc.Start(cmd))(t)
		t.Cleanup(p.Kill)
		return p, out
	}
	begun := func() {
		t.Helper()
		eventually(t, patience, func() error { _, err := os.Stat(filepath.Join(dir, "begun")); return err }, "the apply has begun")
	}
	remove := func(name string) { assert.NoError(t, os.Remove(filepath.Join(dir, name))) }
	free := func() { assert.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600)) }

	run(false, "init", "-no-color")
	r.begin("one applies, another is refused")
	first, out := start("apply", "-auto-approve", "-no-color")
	begun()
	refused := run(true, "plan", "-no-color")
	assert.That(t, strings.Contains(refused, "Error acquiring the state lock") && strings.Contains(refused, "OperationTypeApply"), "%s", refused)
	id := lockID(t, refused)

	r.begin("another waits, and is let in")
	waiting, waited := start("plan", "-no-color", "-lock-timeout=2m")
	eventually(t, patience, func() error {
		if list := r.of("another waits, and is let in"); len(list) == 0 {
			return fmt.Errorf("it has not asked for the lock")
		}
		return nil
	}, "the plan waits")
	free()
	assert.That(t, first.Wait() == nil, "%s", out)
	assert.That(t, waiting.Wait() == nil, "%s", waited)
	remove("go")
	remove("begun")

	r.begin("one is killed, and its lock is forced open")
	killed, _ := start("apply", "-auto-approve", "-no-color")
	begun()
	killed.Kill()
	<-killed.Done()
	refused = run(true, "plan", "-no-color")
	left := lockID(t, refused)
	assert.That(t, left != id, "the lock is that of the first apply")
	run(true, "force-unlock", "-force", "-no-color", id)
	run(false, "force-unlock", "-force", "-no-color", left)
	free()
	run(false, "apply", "-auto-approve", "-no-color")

	for step, want := range map[string][]string{
		"one applies, another is refused":            {"LOCK 200", "LOCK 423"},
		"one is killed, and its lock is forced open": {"LOCK 200", "LOCK 423", "UNLOCK 409", "UNLOCK 200", "LOCK 200", "UNLOCK 200"},
	} {
		assert.Equal(t, strings.Join(r.of(step), ", "), strings.Join(want, ", "), "%s", step)
	}
	lets := strings.Join(r.of("another waits, and is let in"), ", ")
	assert.That(t, strings.HasPrefix(lets, "LOCK 423") && strings.Contains(lets, "UNLOCK 200") && strings.HasSuffix(lets, "LOCK 200, UNLOCK 200"), "%s", lets)
	r.keep(t, "opentofu")
}

// lockID is the ID that a command shows of the lock that is in its way.
func lockID(t *testing.T, out string) string {
	t.Helper()
	for line := range strings.Lines(out) {
		if _, id, ok := strings.Cut(line, "ID: "); ok {
			return strings.TrimSpace(id)
		}
	}
	t.Fatalf("no ID is shown:\n%s", out)
	return ""
}

// The client is github.com/flatcar/fleetlock at 67e62f9, which the module proxy does not have: LOCKKEEPER_TEST_FLEETLOCKCTL names
// one that was built from there.
func TestThreeOfTenMachinesOfFleetlockctlHold(t *testing.T) {
	t.Parallel()
	program := os.Getenv("LOCKKEEPER_TEST_FLEETLOCKCTL")
	if program == "" {
		t.Skip("no fleetlockctl is named in LOCKKEEPER_TEST_FLEETLOCKCTL; what it has sent is replayed")
	}
	g := startStandalone(t, "--compat=fleetlock", "--fleetlock-limit=3")
	r := recordBefore(t, g)
	run := func(what string, machine int) (out string, held bool) {
		text, err := exec.CommandContext(t.Context(), program, what, "-u", r.http.URL+"/compat/fleetlock", "-i", fmt.Sprintf("machine-%d", machine)).CombinedOutput()
		return string(text), err == nil
	}
	r.begin("three of ten hold")
	for i := range 10 {
		out, held := run("recursive-lock", i)
		assert.Equal(t, held, i < 3, "machine %d: %s", i, out)
		assert.That(t, held || strings.Contains(out, "failed_lock_semaphore_full"), "machine %d: %s", i, out)
	}
	r.begin("those that hold ask again, one comes back, another may go")
	for i, c := range []struct {
		what    string
		machine int
		held    bool
	}{
		{"recursive-lock", 2, true}, {"unlock-if-held", 9, true}, {"recursive-lock", 9, false}, {"unlock-if-held", 1, true}, {"unlock-if-held", 1, true},
		{"recursive-lock", 9, true}, {"recursive-lock", 1, false}, {"unlock-if-held", 0, true}, {"unlock-if-held", 2, true}, {"unlock-if-held", 9, true}, {"recursive-lock", 1, true},
	} {
		out, held := run(c.what, c.machine)
		assert.Equal(t, held, c.held, "%d: %s of machine %d: %s", i, c.what, c.machine, out)
	}
	r.keep(t, "fleetlockctl")
}
