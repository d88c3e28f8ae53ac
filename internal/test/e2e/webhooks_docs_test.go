package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/testkit"
)

// docReceiver is the receiver that docs/webhooks.md subscribes.
type docReceiver struct {
	listen string
	told   string // a file that is there once a release was told

	mu   sync.Mutex
	came []message
}

type message struct {
	header http.Header
	body   []byte
}

func startDocReceiver(t *testing.T) *docReceiver {
	r := &docReceiver{told: filepath.Join(t.TempDir(), "told")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.came = append(r.came, message{q.Header.Clone(), body})
		if bytes.Contains(body, []byte(`"lease.released"`)) {
			_ = os.WriteFile(r.told, nil, 0o600)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	r.listen = strings.TrimPrefix(server.URL, "http://")
	return r
}

// find is the first message of a type.
func (r *docReceiver) find(kind string) *message {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.came, func(m message) bool { return bytes.HasPrefix(m.body, []byte(`{"type":"`+kind+`"`)) })
	if i < 0 {
		return nil
	}
	return &r.came[i]
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// check: what the page says arrives has arrived. That the page's receiver takes what is genuine, and nothing else, is another test.
func (r *docReceiver) check(t *testing.T, page string) {
	t.Helper()
	testkit.Eventually(t, patience, func() bool { return r.find("lease.released") != nil }, "the release is told")
	body := string(r.find("lease.released").body)
	for _, part := range []string{`"lock":"deploy"`, `"owner":"me"`, `"fencing_token":`, `"reason":"released"`, `"mode":"exclusive"`} {
		assert.That(t, strings.Contains(body, part) && strings.Contains(strings.ReplaceAll(page, `": `, `":`), part),
			"%s is not in the message or not on the page: %s", part, body)
	}
	testkit.Eventually(t, patience, func() bool { return r.find("lease.granted") != nil }, "the notify_url is told of the grant")
	body = string(r.find("lease.granted").body)
	assert.That(t, strings.Contains(body, `"lock":"report"`), "%s", body)
	for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
		assert.That(t, r.find("webhook.test").header.Get(name) != "", "the test has no %s", name)
	}
}

// The program of docs/webhooks.md is built and started, subscribed, and told.
func TestTheDocumentedReceiverTakesWhatIsGenuineAndNothingElse(t *testing.T) {
	t.Parallel()
	page := assert.Value(os.ReadFile("../../../docs/webhooks.md"))(t)
	source := goBlock.FindSubmatch(page)
	assert.Must(t, source != nil, "the page has no Go program")
	listen, dir := freeAddr(t), t.TempDir()
	program, file := filepath.Join(dir, "receiver"), filepath.Join(dir, "main.go")
	assert.NoError(t, os.WriteFile(file, bytes.ReplaceAll(source[1], []byte("localhost:9000"), []byte(listen)), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, file).CombinedOutput()
	assert.Must(t, err == nil, "%v\n%s", err, out)
	g := startStandalone(t, "--webhook-allow=127.0.0.1")
	var hook api.Webhook
	answer := func(want int, into any, method, path string, options ...apitest.Option) {
		t.Helper()
		a, err := g.Send(t.Context(), method, path, options...)
		assert.Must(t, err == nil && a.Status == want, "%s %s: %v %+v", method, path, err, a)
		assert.NoError(t, json.Unmarshal(a.Body, into))
	}
	answer(201, &hook, "POST", "/v1/webhooks", apitest.JSON(`{"url":"http://`+listen+`/hook"}`))
	told := &journal{}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "WEBHOOK_SECRET="+hook.Secret)
	cmd.Stdout, cmd.Stderr = told, told
	proc := assert.Value(childproc.Start(cmd))(t)
	t.Cleanup(proc.Kill)
	testkit.Eventually(t, patience, func() bool {
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, "the receiver listens")
	var test api.WebhookAttempt
	answer(200, &test, "POST", "/v1/webhooks/"+hook.ID+"/test")
	assert.That(t, test.Result == "delivered" && test.Status == 204, "%+v", test)
	g.letGo(g.hold("deploy", "ttl=30s&owner=me").Token)
	testkit.Eventually(t, patience, func() bool { return strings.Contains(told.String(), `"type":"lease.released"`) }, "the release is told")
	// A message that is signed with another secret is not the gateway's.
	answer(200, &hook, "POST", "/v1/webhooks/"+hook.ID+"/rotate?overlap=0s")
	answer(200, &test, "POST", "/v1/webhooks/"+hook.ID+"/test")
	assert.That(t, test.Result == "failed" && test.Status == 401 && test.AnswerBytes != 0, "%+v", test)
}
