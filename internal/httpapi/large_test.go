package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// crowded has the fake answer everything about locks with so many holders, and all the metadata that they may have.
func crowded(f *fake, n int) {
	one := locks.Lock{NS: "default", Name: "deploy", State: locks.LockHeld, Rev: "7f"}
	for i := range n {
		one.Holders = append(one.Holders, locks.Contender{LeaseID: someID, Znode: fmt.Sprint("/lockkeeper/locks/deploy/", i), Mode: locks.Shared, Metadata: strings.Repeat("$", locks.MaxMetadata)})
	}
	one.HolderCount = n + 5
	f.lock = func(context.Context, locks.LockRequest) (locks.Lock, error) { return one, nil }
	f.locks = func(locks.LockFilter) (locks.LockPage, error) { return locks.LockPage{Items: []locks.Lock{one}}, nil }
	f.configure = func(locks.SettingsRequest) (locks.Lock, error) { return one, nil }
	f.revoke = func(locks.RevokeRequest) (locks.RevokeAnswer, error) {
		return locks.RevokeAnswer{Asked: one.Holders}, nil
	}
	f.withdraw = func(locks.WithdrawRequest) (locks.WithdrawAnswer, error) {
		return locks.WithdrawAnswer{Withdrawn: one.Holders}, nil
	}
	f.reap = func(locks.ReapRequest) (locks.ReapAnswer, error) { return locks.ReapAnswer{Reaped: one.Holders}, nil }
}

// Clients that do not read keep their answers in memory. At the bound further large answers are refused, before anything
// is done, and small ones go on.
func TestUnreadLargeAnswersAreBounded(t *testing.T) {
	testkit.NotShort(t, "megabytes of answers")
	const limit = 24 << 20
	g := serve(t, func(o *Options) { o.MaxAnswers = limit })
	crowded(g.fake, 400) // some 9.8 MB
	var stuck []net.Conn
	open := func() *bufio.Reader {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		assert.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		if _, err := fmt.Fprintf(conn, "GET /v1/locks HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		stuck = append(stuck, conn)
		return bufio.NewReaderSize(conn, 256)
	}
	for range 2 {
		answer, err := http.ReadResponse(open(), nil) // its header
		assert.Must(t, err == nil && answer.StatusCode == http.StatusOK && answer.ContentLength >= 8<<20, "%v %+v", err, answer)
	}
	if b := g.server.AnswersBound(); b.Used < 16<<20 || b.Used > limit || b.Refused != 0 {
		t.Errorf("with two answers under way: %+v", b)
	}
	g.server.answers.limit = g.server.answers.used.Load()
	_ = g.fake.asked() // forgets
	for _, large := range []string{"POST /v1/locks/deploy/revoke", "DELETE /v1/locks/deploy/revoke", "POST /v1/locks/deploy/reap?older_than=0s"} {
		method, path, _ := strings.Cut(large, " ")
		if a := g.send(t, method, path); a.Status != http.StatusTooManyRequests || a.Code() != "too_many_answers" || a.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %s", large, a.Status, a.Code())
		}
	}
	now := g.fake.asked()
	assert.That(t, len(now) <= 0, "what was refused was done: %q", now)
	for _, path := range []string{"/v1/locks", "/v1/locks/deploy"} {
		if a := g.send(t, http.MethodGet, path); a.Status != http.StatusTooManyRequests || a.Code() != "too_many_answers" || a.Header.Get("Etag") != "" {
			t.Errorf("%s: %d %s", path, a.Status, a.Code())
		}
	}
	g.expect(t, http.StatusOK, "", http.MethodGet, "/v1/leases")
	g.expect(t, http.StatusOK, "", http.MethodPost, "/v1/leases/"+someID+"/heartbeat", apitest.Header("Lease-Token", someToken))
	if b := g.server.AnswersBound(); b.Refused != 5 {
		t.Errorf("%d refusals are counted", b.Refused)
	}
	for _, conn := range stuck {
		_ = conn.Close()
	}
	waitFor(t, func() bool { return g.server.answers.used.Load() == 0 })
	g.expect(t, http.StatusOK, "", http.MethodGet, "/v1/locks")
	g.expect(t, http.StatusOK, "", http.MethodPost, "/v1/locks/deploy/revoke")
	waitFor(t, func() bool { return g.server.answers.used.Load() == 0 })
}

func TestALockTellsHowManyHoldWhereItDoesNotShowAll(t *testing.T) {
	g := serve(t)
	crowded(g.fake, 2)
	if a := g.send(t, http.MethodGet, "/v1/locks/deploy"); !strings.Contains(string(a.Body), `"holder_count":7`) {
		t.Errorf("%s", a.Body)
	}
	if a := g.send(t, http.MethodGet, "/v1/locks/deploy?format=text"); !strings.Contains(string(a.Body), "7 holders") {
		t.Errorf("%s", a.Body)
	}
}

// The refusal of an acquire has sixteen holders. It is small, for any owners and metadata.
func TestARefusalIsSmall(t *testing.T) {
	g := serve(t)
	crowded(g.fake, 16)
	one, _ := g.fake.lock(t.Context(), locks.LockRequest{})
	g.fake.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{}, &locks.Error{Code: locks.CodeHeldByOther, Holders: one.Holders}
	}
	a := g.send(t, http.MethodPost, "/v1/locks/deploy/leases")
	if n := strings.Count(string(a.Body), `"lease_id"`); a.Status != http.StatusConflict || len(a.Body) > smallAnswer || n != 16 {
		t.Errorf("%d with %d holders in %d bytes", a.Status, n, len(a.Body))
	}
}
