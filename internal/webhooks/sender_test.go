package webhooks

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"lockkeeper/internal/test/assert"
)

// The test vector of the specification's reference implementations: this secret,
// id, time and payload have this signature.
func TestTheSignatureIsTheSpecificationsOwn(t *testing.T) {
	s := &Subscription{Secrets: []Secret{{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}}
	m := &Message{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", Body: []byte(`{"test": 2432232314}`)}
	h := http.Header{}
	assert.NoError(t, sign(h, s, m, time.Unix(1614265330, 0)))
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	got := h.Get("webhook-signature")
	assert.That(t, got == want, "signed %q, the specification has %q", got, want)
	assert.That(t, h.Get("webhook-id") == m.ID && h.Get("webhook-timestamp") == "1614265330", "headers: %v", h)
}

// verify is a receiver's check, written from the specification's text.
func verify(secret string, h http.Header, body []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for signature := range strings.SplitSeq(h.Get("webhook-signature"), " ") {
		if hmac.Equal([]byte(signature), []byte(want)) {
			return true
		}
	}
	return false
}

func everywhere(t *testing.T) *Addresses {
	t.Helper()
	a := assert.Value(NewAddresses(true, nil))(t)
	return a
}

func newSender(t *testing.T, a *Addresses) *Sender {
	t.Helper()
	s := NewSender(SenderOptions{Addresses: a, Version: "1.2.3"})
	t.Cleanup(s.Close)
	return s
}

func testMessage() *Message {
	e := Event{Type: Released, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), NS: "default", Lock: "deploy", FencingToken: 17}
	return &Message{ID: MessageID("entry", &e, "wh_x"), Type: e.Type, NS: e.NS, Lock: e.Lock, Body: e.Body(), TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
}

func TestAReceiverCanVerifyWhatItIsSent(t *testing.T) {
	sub := &Subscription{ID: NewID(), Secrets: []Secret{NewSecret()}, Headers: map[string]string{"Authorization": "Bearer x"}}
	old := sub.Secrets[0]
	sub.Rotate(time.Now(), time.Hour)
	var body []byte
	var h http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		h = r.Header.Clone()
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	sub.URL = server.URL + "/hook?a=b"
	m := testMessage()
	a := newSender(t, everywhere(t)).Send(t.Context(), sub, m)
	assert.Must(t, a.Result == Delivered && a.Status == 204 && a.Error == "" && a.MessageID == m.ID, "attempt: %+v", a)
	for name, want := range map[string]string{"Authorization": "Bearer x", "Content-Type": "application/json", "User-Agent": "Lockkeeper/1.2.3", "Traceparent": m.TraceParent} {
		assert.That(t, h.Get(name) == want, "%s: %q", name, h.Get(name))
	}
	if !bytes.Equal(body, m.Body) || !bytes.HasPrefix(body, []byte(`{"type":"lease.released","timestamp":"2026-01-02T03:04:05Z","data":{`)) {
		t.Errorf("body: %s", body)
	}
	for _, secret := range []Secret{sub.Secrets[0], old} {
		hook := assert.Value(standardwebhooks.NewWebhook(secret.Value))(t)
		assert.Nil(t, hook.Verify(body, h), "the library says")
		assert.That(t, verify(secret.Value, h, body), "the specification says no")
	}
	assert.That(t, !verify(NewSecret().Value, h, body) && !verify(old.Value, h, append(body, ' ')), "a wrong secret or body verifies")
	got := sub.signing(time.Now().Add(2 * time.Hour))
	assert.That(t, len(got) == 1 && got[0] == sub.Secrets[0].Value, "the old secret signs after its time")
	sub.Rotate(time.Now(), time.Hour)
	assert.That(t, len(sub.Secrets) == 2, "%d secrets", len(sub.Secrets))
}

func TestAnswersAndWhatTheyMean(t *testing.T) {
	var status atomic.Int64
	var header atomic.Value
	header.Store("")
	hits := atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		if v := header.Load().(string); v != "" {
			w.Header().Set("Retry-After", v)
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte("hello\n\x00\xff" + strings.Repeat("x", 1000)))
	}))
	defer server.Close()
	sub := &Subscription{ID: NewID(), URL: server.URL, Secrets: []Secret{NewSecret()}}
	s := newSender(t, everywhere(t))
	s.public = onTheInternet
	for _, c := range []struct {
		status int
		after  string
		want   Result
		wait   time.Duration
	}{
		{200, "", Delivered, 0}, {202, "", Delivered, 0}, {299, "", Delivered, 0},
		{301, "", Failed, 0}, {302, "1", Failed, 0}, {307, "1", Failed, 0}, {308, "1", Failed, 0}, {304, "", Failed, 0},
		{400, "", Failed, 0}, {404, "", Failed, 0}, {410, "", Gone, 0},
		{429, "120", Failed, 2 * time.Minute}, {503, "5", Failed, 5 * time.Second}, {500, "-3", Failed, 0}, {500, "soon", Failed, 0},
		{503, "999999999", Failed, maxRetryAfter}, {503, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), Failed, time.Hour},
	} {
		status.Store(int64(c.status))
		header.Store(c.after)
		before := hits.Load()
		a := s.Send(t.Context(), sub, testMessage())
		assert.That(t, a.Result == c.want && a.Status == c.status && (a.Error == "") == (c.want == Delivered), "%d: %+v", c.status, a)
		d := a.RetryAfter - c.wait
		assert.That(t, d >= -2*time.Second && d <= 0, "%d with Retry-After %q: %v", c.status, c.after, a.RetryAfter)
		assert.That(t, hits.Load() == before+1, "%d: %d requests", c.status, hits.Load()-before)
		if c.status != 204 && c.status != 304 && (!strings.HasPrefix(a.Answer, "hello  \uFFFDxxx") || len(a.Answer) > keptAnswer+3) {
			t.Errorf("%d: answer %q", c.status, a.Answer)
		}
	}
}

func TestAReceiverThatHangsIsGivenUp(t *testing.T) {
	l := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	a := newSender(t, everywhere(t)).Send(ctx, &Subscription{URL: "http://" + l.Addr().String() + "/?secret=x", Secrets: []Secret{NewSecret()}}, testMessage())
	assert.That(t, a.Result == Failed && a.Status == 0 && a.Error != "" && !strings.Contains(a.Error, "secret"), "attempt: %+v", a)
}

func TestTheCAOfASubscriptionCounts(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	sub := &Subscription{ID: NewID(), URL: server.URL, Secrets: []Secret{NewSecret()}}
	s := newSender(t, everywhere(t))
	a := s.Send(t.Context(), sub, testMessage())
	assert.That(t, a.Result == Failed && a.Error == string(reasonTLS), "a certificate without an authority: %+v", a)
	sub.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	assert.Equal(t, s.Send(t.Context(), sub, testMessage()).Result, Delivered, "with its CA")
	s.Keep(nil)
	assert.That(t, len(s.clients) == 1, "%d clients are kept", len(s.clients))
}

func TestAProxyIsUsed(t *testing.T) {
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked.Store(r.URL.String()) }))
	defer proxy.Close()
	u := assert.Value(url.Parse(proxy.URL))(t)
	public := assert.Value(NewAddresses(false, nil))(t)
	s := NewSender(SenderOptions{Addresses: public, Proxy: u})
	defer s.Close()
	a := s.Send(t.Context(), &Subscription{URL: "http://hooks.example.com/x", Secrets: []Secret{NewSecret()}}, testMessage())
	assert.That(t, a.Result == Delivered && asked.Load() == "http://hooks.example.com/x", "%+v, asked %v", a, asked.Load())
	a = s.Send(t.Context(), &Subscription{URL: "http://169.254.169.254/latest", Secrets: []Secret{NewSecret()}}, testMessage())
	assert.That(t, a.Result == Failed, "the metadata service through the proxy: %+v", a)
}
