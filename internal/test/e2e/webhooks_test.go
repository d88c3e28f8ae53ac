package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
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
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// receiver is where webhooks are delivered to.
type receiver struct {
	*httptest.Server
	mu        sync.Mutex
	refuses   func() bool                // nil: never
	messages  map[string]map[string]bool // webhook-ids by lease
	delivered int                        // with duplicates
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{messages: map[string]map[string]bool{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var m struct {
			Data struct {
				LeaseID string `json:"lease_id"`
			} `json:"data"`
		}
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil {
			return // cut off: its gateway was killed
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.refuses != nil && r.refuses() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		ids := r.messages[m.Data.LeaseID]
		if ids == nil {
			ids = map[string]bool{}
			r.messages[m.Data.LeaseID] = ids
		}
		ids[req.Header.Get("Webhook-Id")] = true
		r.delivered++
	}))
	t.Cleanup(r.Close)
	return r
}

// missing is a lease whose end was not delivered, and how many there are.
func (r *receiver) missing(ended []string) (one string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ended {
		if r.messages[id] == nil {
			one, n = id, n+1
		}
	}
	return one, n
}

// worker takes and releases locks until it is stopped, at any gateway that answers.
type worker struct {
	gates   []*gateway
	name    string
	lock    int
	ended   []string // leases of which it was told that they are released
	refused int
}

func (w *worker) gate() *gateway { return w.gates[rand.IntN(len(w.gates))] }

func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		lease, a, err := w.gate().Acquire(ctx, fmt.Sprint(w.name, "-", w.lock), apitest.Query("ttl=10m&owner="+w.name))
		switch {
		case err != nil || a.Status == http.StatusServiceUnavailable:
			w.refused++
			w.lock++ // it may hold all the same, and no client has its token
			pause(ctx, 20*time.Millisecond)
			continue
		case a.Status != http.StatusCreated:
			w.lock++
			continue
		}
		w.release(context.WithoutCancel(ctx), lease)
	}
}

// release repeats until it is known that the lease has ended.
func (w *worker) release(ctx context.Context, lease api.Lease) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for within.Err() == nil {
		a, err := w.gate().Release(within, lease.Token)
		if err == nil && (a.Status == http.StatusNoContent || a.Status == http.StatusGone) {
			w.ended = append(w.ended, lease.LeaseID)
			return
		}
		w.refused++
		pause(within, 20*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Promise 7. Each gateway is killed again and again, at moments that nothing chooses.
func TestEveryReleaseIsToldThoughItsGatewayIsKilledRightAfterIt(t *testing.T) {
	for _, gateways := range []int{1, 3} {
		t.Run(fmt.Sprint("gateways=", gateways), func(t *testing.T) {
			t.Parallel()
			workers, kills, least, within := 12, 6, 2000, 2*time.Minute
			if os.Getenv("LOCKKEEPER_FULL") != "" {
				workers, kills, least, within = 24, 100, 50_000, 15*time.Minute
			}
			addr, chroot := zkreal.SharedT(t)
			to := newReceiver(t)
			var gates []*gateway
			for range gateways {
				gates = append(gates, startGateway(t, addr+chroot, "--webhook-allow-private", "--session-timeout=1s", "--promise-window=2s", "--log-level=warn"))
			}
			a, err := gates[0].Send(t.Context(), http.MethodPost, "/v1/webhooks", apitest.JSON(fmt.Sprintf(`{"url": %q, "locks": "told-*"}`, to.URL)))
			expect(t, a, err, http.StatusCreated, "")

			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var all sync.WaitGroup
			var crew []*worker
			for i := range workers {
				w := &worker{gates: gates, name: fmt.Sprint("told-", i)}
				crew = append(crew, w)
				all.Go(func() { w.work(ctx) })
			}
			for range kills {
				elapse(t, time.Duration(300+rand.IntN(900))*time.Millisecond)
				g := gates[rand.IntN(len(gates))]
				g.kill()
				g.restart()
			}
			eventually(t, within, func() error {
				to.mu.Lock()
				defer to.mu.Unlock()
				if n := len(to.messages); n < least {
					return fmt.Errorf("%d of %d", n, least)
				}
				return nil
			}, "enough releases")
			stop()
			all.Wait()

			var ended []string
			refused := 0
			for _, w := range crew {
				ended, refused = append(ended, w.ended...), refused+w.refused
			}
			eventually(t, patience, func() error {
				if one, n := to.missing(ended); n > 0 {
					return fmt.Errorf("%d of %d, %s for one", n, len(ended), one)
				}
				return nil
			}, "every release is told")
			z := newForeign(t, addr, chroot)
			eventually(t, patience, func() error {
				if left := z.children("/lockkeeper/outbox"); len(left) > 0 {
					return fmt.Errorf("%d entries are left, %s for one", len(left), left[0])
				}
				return nil
			}, "the outbox is empty")
			to.mu.Lock()
			defer to.mu.Unlock()
			for lease, ids := range to.messages {
				assert.That(t, len(ids) == 1, "%s is told under %d ids: %v", lease, len(ids), ids)
			}
			t.Logf("%d releases, %d messages, %d of them duplicates, %d requests without success, %d kills", len(ended), to.delivered, to.delivered-len(to.messages), refused, kills)
		})
	}
}

// docReceiver is the receiver that docs/webhooks.md subscribes.
type docReceiver struct {
	listen string
	told   string // a file that is there once a release was told

	mu   sync.Mutex
	came []message
}

type message struct {
	path   string
	header http.Header
	body   []byte
}

func startDocReceiver(t *testing.T) *docReceiver {
	r := &docReceiver{told: filepath.Join(t.TempDir(), "told")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.came = append(r.came, message{q.URL.Path, q.Header.Clone(), body})
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
