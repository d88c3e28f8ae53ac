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
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	assert.NoError(t, NewSender(SenderOptions{}).sign(h, s, m, time.Unix(1614265330, 0)))
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
	assert.That(t, len(s.transports) == 1, "%d transports are kept", len(s.transports))
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

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, func(_ *Subscription, _ *Message, n int) Attempt {
			if n == 0 {
				return Attempt{Result: Failed, Status: 503, Error: "503", RetryAfter: 10 * time.Minute}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		c.Add(entry(1, "a", s))
		synctest.Wait()
		c.Add(entry(2, "b", s)) // another lock's, but the receiver is paused
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.That(t, r.seen[1].at.Sub(r.seen[0].at) >= 10*time.Minute, "sent after %v", r.seen[1].at.Sub(r.seen[0].at))
		assert.That(t, len(r.delivered(s.ID)) == 2, "told %q", r.delivered(s.ID))
	})
}

func TestRetryAfterIsHonouredAfterAnotherMessageWasDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, func(_ *Subscription, m *Message, n int) Attempt {
			if n == 0 {
				return Attempt{Result: Failed, Status: 429, Error: "429", RetryAfter: 10 * time.Minute}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		r.took = time.Second
		c.Add(entry(1, "a", s))
		time.Sleep(time.Millisecond)
		c.Add(entry(2, "b", s)) // under way when the other one is refused
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		assert.Slices(t, r.delivered(s.ID), []string{"b2"}, "told")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		got := r.delivered(s.ID)
		assert.That(t, len(got) == 2, "told %q", got)
	})
}

func TestAfterAnOutageNoMessageWaitsForTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(time.Hour)
		c, r, _ := newBench(t, func(*Subscription, *Message, int) Attempt {
			if time.Now().Before(back) {
				return Attempt{Result: Failed, Error: "connection refused"}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		c.Add(entry(1, "a", s))
		c.Add(entry(2, "b", s))
		time.Sleep(time.Until(back) + time.Second)
		synctest.Wait()
		got := r.delivered(s.ID)
		assert.Must(t, len(got) == 0, "told %q", got)
		c.Add(entry(3, "c", s)) // nothing is known of it that would make it wait
		synctest.Wait()
		got = r.delivered(s.ID)
		assert.That(t, len(got) == 3 && got[0] == "c3", "told %q", got)
		for _, a := range c.Attempts(s.ID)[:2] {
			if a.Try != 4 { // at 0 s, 5 s, 5 min; the one at 35 min met the outage and is not counted
				t.Errorf("%s was try %d", a.Lock, a.Try)
			}
		}
	})
}

// With any failures, and with webhooks that come and go: each message of each entry is delivered or dead at the end,
// those of one lane in their order, and the counts are those of the messages.
func TestNothingIsLostAfterAnyFailure(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng, answers := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			subs := []*Subscription{subscription("a"), subscription("b"), subscription("c")}
			var down [3]time.Time
			c, r, k := newBench(t, func(to *Subscription, m *Message, _ int) Attempt {
				i := slices.IndexFunc(subs, func(s *Subscription) bool { return s.ID == to.ID })
				if time.Now().Before(down[i]) || answers.IntN(4) == 0 {
					return Attempt{Result: Failed, Status: 500, Error: "500"}
				}
				return Attempt{Status: 200}
			})
			r.took = time.Millisecond
			c.Subscriptions(subs)
			messages := 0
			for i := range 300 {
				var to []*Subscription
				for _, s := range subs {
					if rng.IntN(2) == 0 {
						to = append(to, s)
					}
				}
				if len(to) > 0 {
					c.Add(entry(i, fmt.Sprint(rng.IntN(6)), to...))
					messages += len(to)
				}
				time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
				if rng.IntN(20) == 0 {
					r.mu.Lock()
					down[rng.IntN(3)] = time.Now().Add(time.Duration(rng.IntN(7200)) * time.Second)
					r.mu.Unlock()
				}
			}
			time.Sleep(40 * 24 * time.Hour)
			synctest.Wait()
			waiting, dead := c.Load()
			delivered := 0
			for _, s := range subs {
				last := map[string]int{}
				for _, d := range r.seen {
					if d.to != s.ID || d.result != Delivered {
						continue
					}
					delivered++
					n := 0
					fmt.Sscan(strings.TrimPrefix(d.order, d.lock), &n)
					assert.That(t, n >= last[d.lock], "seed %d: %s came after %d", seed, d.order, last[d.lock])
					last[d.lock] = n
				}
			}
			assert.That(t, waiting == 0 && delivered+dead == messages,
				"seed %d: of %d messages %d were delivered, %d are dead, %d wait", seed, messages, delivered, dead, waiting)
			assert.That(t, len(k.done)+len(c.entries) != 0 && (dead != 0 || len(c.entries) == 0),
				"seed %d: done %d, kept %d", seed, len(k.done), len(c.entries))
		})
	}
}

// pipes is a network to one server, whose connections can be made to lose all that is sent.
type pipes struct {
	accept chan net.Conn
	closed sync.Once

	mu   sync.Mutex
	made []*atomic.Bool // whether a connection is dead
}

func (p *pipes) Accept() (net.Conn, error) {
	conn, open := <-p.accept
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }
func (p *pipes) Close() error   { p.closed.Do(func() { close(p.accept) }); return nil }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, near := net.Pipe()
	far, server := net.Pipe()
	dead := &atomic.Bool{}
	forward := func(from, to net.Conn) {
		defer to.Close()
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if !dead.Load() {
				_, _ = to.Write(buffer[:n])
			}
		}
	}
	go forward(near, far)
	go forward(far, near)
	p.mu.Lock()
	p.made = append(p.made, dead)
	p.mu.Unlock()
	p.accept <- server
	return client, nil
}

// die makes the connections of now lose everything; it returns how many there are.
func (p *pipes) die() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, dead := range p.made {
		dead.Store(true)
	}
	return len(p.made)
}

// A NAT or a load balancer forgets a connection, and tells neither side.
func TestADeadConnectionIsNotUsedForLong(t *testing.T) {
	for _, idle := range []time.Duration{0, attemptTimeout} { // from the connection's death to the next message
		synctest.Test(t, func(t *testing.T) {
			p := &pipes{accept: make(chan net.Conn)}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, r.ProtoMajor, 2, "protocol")
			}))
			server.Listener.Close()
			server.Listener, server.EnableHTTP2 = p, true
			server.StartTLS()
			defer server.Close()
			sub := &Subscription{ID: NewID(), URL: "https://example.com/hook", Secrets: []Secret{NewSecret()}, CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))}
			s := newSender(t, everywhere(t))
			defer s.Close()
			assert.Value(s.transport(sub.CA))(t).(*http.Transport).DialContext = p.dial
			assert.MustEqual(t, s.Send(t.Context(), sub, testMessage()).Result, Delivered, "while the connection lives")
			assert.MustEqual(t, p.die(), 1, "connections")
			time.Sleep(idle)
			if idle == 0 {
				a := s.Send(t.Context(), sub, testMessage())
				assert.That(t, a.Result == Failed && a.Took < attemptTimeout, "over the dead connection: %+v", a)
			}
			a := s.Send(t.Context(), sub, testMessage())
			assert.That(t, a.Result == Delivered && a.Took < time.Second, "idle for %v: %+v", idle, a)
		})
	}
}
