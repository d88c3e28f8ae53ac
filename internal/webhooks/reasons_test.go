package webhooks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"lockkeeper/internal/test/assert"
)

// onTheInternet takes every address for one of the internet: receivers of tests are on loopback.
func onTheInternet(netip.AddrPort) bool { return true }

// resolve makes a name server on loopback this process's, which knows these names and no others. "" as address: the server fails.
func resolve(t *testing.T, names map[string]string) (server string) {
	t.Helper()
	conn := assert.Value(net.ListenPacket("udp4", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			q := m.Questions[0]
			switch at, known := names[strings.TrimSuffix(q.Name.String(), ".")]; {
			case !known:
				m.RCode = dnsmessage.RCodeNameError
			case at == "":
				m.RCode = dnsmessage.RCodeServerFailure
			case q.Type == dnsmessage.TypeA:
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
					Body: &dnsmessage.AResource{A: netip.MustParseAddr(at).As4()}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp4", conn.LocalAddr().String())
	}}
	t.Cleanup(func() { net.DefaultResolver = before; conn.Close(); <-done })
	return conn.LocalAddr().String()
}

// A client must not learn from an attempt what internal names resolve to, or that they do.
func TestANameThatResolvesInsideAndOneThatDoesNotHaveTheSameReason(t *testing.T) {
	names := map[string]string{"db.corp.example": "10.1.2.3", "agent.example": "168.63.129.16", "meta.example": "169.254.169.254", "broken.example": ""}
	server := resolve(t, names)
	s := newSender(t, mustAddresses(t, false))
	told := map[string][]string{}
	for _, host := range []string{"db.corp.example", "agent.example", "meta.example", "broken.example", "none.example"} {
		for _, scheme := range []string{"http", "https"} {
			a := s.Send(t.Context(), &Subscription{ID: NewID(), URL: scheme + "://" + host + "/", Secrets: []Secret{NewSecret()}}, testMessage())
			assert.That(t, a.Result == Failed && a.Status == 0, "%s: %+v", host, a)
			told[a.Error] = append(told[a.Error], host)
			for _, secret := range []string{names[host], server, "127.0.0.1", host, "lookup"} {
				assert.That(t, secret == "" || !strings.Contains(a.Error, secret), "%s: told %q", host, a.Error)
			}
		}
	}
	assert.That(t, len(told) == 1, "told apart: %q", told)
}

// The log has what the client does not see, and neither path nor query of the URL.
func TestTheLogHasTheAddressThatClientsDoNotSee(t *testing.T) {
	resolve(t, map[string]string{"db.corp.example": "10.1.2.3"})
	var out bytes.Buffer
	s := NewSender(SenderOptions{Addresses: mustAddresses(t, false), Logger: slog.New(slog.NewTextHandler(&out, nil))})
	defer s.Close()
	hook := &Subscription{ID: NewID(), URL: "http://db.corp.example/T000/SECRET?token=abc", Secrets: []Secret{NewSecret()}}
	for range 2 * linesAMinute {
		s.Send(t.Context(), hook, testMessage())
	}
	got := out.String()
	if !strings.Contains(got, "level=WARN") || !strings.Contains(got, "webhook="+hook.ID) || !strings.Contains(got, "10.1.2.3") || !strings.Contains(got, "http://db.corp.example/...") {
		t.Errorf("logged: %s", got)
	}
	assert.That(t, !strings.Contains(got, "SECRET") && !strings.Contains(got, "token="), "the log has the path: %s", got)
	assert.Equal(t, strings.Count(got, "\n"), linesAMinute, "lines for %d attempts", 2*linesAMinute)
	s.failures.since = s.failures.since.Add(-2 * 60e9)
	notify := "http://db.corp.example/job/SECRET"
	s.Send(t.Context(), &Subscription{ID: notify, URL: notify, Secrets: []Secret{NewSecret()}}, testMessage())
	last := out.String()[len(got):]
	if !strings.Contains(last, "host=http://db.corp.example ") || !strings.Contains(last, "not_logged_before=20") || strings.Contains(last, "SECRET") {
		t.Errorf("logged: %s", last)
	}
}

// No attempt shows what is inside one's own network, also where the operator allows messages to it.
func TestWhatAnInternalServiceSaysIsNotReadBack(t *testing.T) {
	banner := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer banner.Close()
	go func() {
		for {
			conn, err := banner.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_of_the_inside\r\n")
			conn.Close()
		}
	}()
	closed := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "INSIDE page") }))
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for name, a := range map[string]*Addresses{"--webhook-allow 127.0.0.1": mustAddresses(t, false, "127.0.0.1"), "--webhook-allow-private": mustAddresses(t, true)} {
		for _, c := range []struct {
			what, url, want string
			length          int
		}{
			{"a page", plain.URL, "", len("INSIDE page")},
			{"another protocol", "http://" + banner.Addr().String(), string(reasonConnect), 0},
			{"nothing", "http://" + closed.Addr().String(), string(reasonConnect), 0},
			{"a certificate", secure.URL, string(reasonTLS), 0},
		} {
			got := newSender(t, a).Send(t.Context(), &Subscription{ID: NewID(), URL: c.url + "/", Secrets: []Secret{NewSecret()}}, testMessage())
			assert.That(t, got.Error == c.want && got.Answer == "" && got.Length == c.length, "%s, %s: %+v", name, c.what, got)
		}
	}
	// A receiver on the internet is shown as ever, certificate and all.
	s := newSender(t, mustAddresses(t, true))
	s.public = onTheInternet
	got := s.Send(t.Context(), &Subscription{URL: plain.URL, Secrets: []Secret{NewSecret()}}, testMessage())
	assert.That(t, got.Answer == "INSIDE page" && got.Length == len(got.Answer), "%+v", got)
	got = s.Send(t.Context(), &Subscription{URL: secure.URL, Secrets: []Secret{NewSecret()}}, testMessage())
	assert.That(t, strings.HasPrefix(got.Error, "TLS failed: ") && strings.Contains(got.Error, "certificate"), "%+v", got)
}

// A connection that is used again goes where it went.
func TestAnAnswerOverAConnectionThatIsUsedAgainIsNotReadBackEither(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "INSIDE page") }))
	defer server.Close()
	s := newSender(t, mustAddresses(t, true))
	for range 3 {
		a := s.Send(t.Context(), &Subscription{URL: server.URL, Secrets: []Secret{NewSecret()}}, testMessage())
		assert.That(t, a.Result == Delivered && a.Answer == "" && a.Length != 0, "%+v", a)
	}
}

// Behind a proxy it is not known where a message goes, and an error may be the proxy's own, which names it.
func TestClientsDoNotSeeTheProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "db.corp: 10.1.2.3 refused")
	}))
	u := assert.Value(url.Parse(proxy.URL))(t)
	s := NewSender(SenderOptions{Addresses: mustAddresses(t, false), Proxy: u})
	defer s.Close()
	s.public = onTheInternet
	hook := &Subscription{URL: "http://hooks.example.com/x", Secrets: []Secret{NewSecret()}}
	a := s.Send(t.Context(), hook, testMessage())
	assert.That(t, a.Status == 502 && a.Answer == "" && a.Length != 0, "%+v", a)
	proxy.Close()
	assert.Equal(t, s.Send(t.Context(), hook, testMessage()).Error, string(reasonConnect))
}

func TestAURLIsShownWithoutPathAndQuery(t *testing.T) {
	for raw, want := range map[string]string{
		"https://hooks.slack.com/services/T000/B000/XXXXSECRET?token=abc": "https://hooks.slack.com/...",
		"https://example.com:8443/?token=abc":                             "https://example.com:8443/...",
		"https://example.com?token=abc":                                   "https://example.com/...",
		"https://example.com?":                                            "https://example.com/...",
		"https://example.com":                                             "https://example.com",
		"https://example.com/":                                            "https://example.com/",
		"https://[2606:4700::1111]/x":                                     "https://[2606:4700::1111]/...",
		"https://user:secret@example.com/x":                               "https://example.com/...",
		"SECRET%zz":                                                       "/...",
	} {
		assert.Equal(t, ShownURL(raw), want, "%s is shown as", raw)
	}
	// What is shown is not taken for an address.
	var field *FieldError
	err := (&Subscription{URL: "https://example.com/..."}).Normalize(mustAddresses(t, false))
	assert.That(t, errors.As(err, &field) && field.Field == "url" && strings.Contains(field.Detail, "leave it out"), "%v", err)
}

func TestAnotherPathIsAnotherTarget(t *testing.T) {
	const at = "https://hooks.example.com/services/T000?token=abc"
	for other, same := range map[string]bool{
		at: true, "https://HOOKS.example.com/services/T000": true, "https://hooks.example.com/services/T000?token=other": true,
		"https://hooks.example.com/services/T001?token=abc": false, "https://hooks.example.com/": false, "https://hooks.example.com/services/T000/": false,
		"https://hooks.example.com/services%2FT000": false, "http://hooks.example.com/services/T000": false, "https://hooks.example.com:8443/services/T000": false,
		"https://hooks.example.org/services/T000": false, "%zz": false,
	} {
		assert.That(t, SameTarget(at, other) == same && SameTarget(other, at) == same, "%s: the same %v", other, !same)
	}
	assert.That(t, SameTarget("https://example.com", "https://example.com/"), "no path is the root")
}
