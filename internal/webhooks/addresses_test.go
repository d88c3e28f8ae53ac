package webhooks

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

func mustAddresses(t *testing.T, private bool, allow ...string) *Addresses {
	t.Helper()
	a := assert.Value(NewAddresses(private, allow))(t)
	return a
}

// Each of these is refused when a subscription is made, and again when it is sent to.
func TestAddressesInsideAreRefused(t *testing.T) {
	a := mustAddresses(t, false)
	var reached atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, host := range []string{
		"127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1",
		// The agents and metadata services of clouds: Azure, AWS, Oracle, Alibaba, Tencent, Scaleway, Google.
		"168.63.129.16", "[::ffff:168.63.129.16]", "169.254.170.2", "192.0.0.192", "100.100.100.200", "100.88.222.5", "169.254.42.42", "[fd00:ec2::23]", "[fd00:42::42]", "[fd20:ce::254]",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:10.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[2001:db8::1]", "[2001::1]",
		"2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "10.1", "0", "127.0.0.1.", "localhost", "LOCALHOST", "localhost.", "a.localhost", "1.2.3.4.5",
		"a..b", "-a.example.com", "exa mple.com", "ex%61mple.com", "例え.jp",
	} {
		for _, scheme := range []string{"http", "https"} {
			raw := fmt.Sprintf("%s://%s:%s/", scheme, host, port)
			s := &Subscription{URL: raw}
			if err := s.Normalize(a); err == nil {
				t.Errorf("%s was accepted", raw)
			} else if field, ok := errors.AsType[*FieldError](err); !ok || field.Field != "url" {
				t.Errorf("%s: %v", raw, err)
			}
			s.Secrets = []Secret{NewSecret()}
			attempt := newSender(t, a).Send(t.Context(), s, testMessage())
			assert.That(t, attempt.Result == Failed && attempt.Status == 0, "%s was sent to: %+v", raw, attempt)
		}
	}
	assert.Equal(t, reached.Load(), 0, "requests arrived")
}

func TestTricksWithURLsAreRefused(t *testing.T) {
	a := mustAddresses(t, false)
	for _, raw := range []string{
		"", "example.com", "//example.com", "ftp://example.com", "file:///etc/passwd", "gopher://example.com", "javascript:alert(1)", "http:example.com", "http://", "http:///x",
		"http://user@example.com", "http://user:password@example.com", "http://example.com@127.0.0.1/", "http://127.0.0.1#@example.com/", "http://example.com#x", "http://example.com\\@127.0.0.1/",
		"http://example.com:/", "http://example.com:99999999/", "http://exa\tmple.com/", "http://example.com/\r\nX: y", " http://example.com", "http://[::1", "http://" + strings.Repeat("a", MaxURL),
	} {
		assert.That(t, (&Subscription{URL: raw}).Normalize(a) != nil, "%q was accepted", raw)
	}
	for _, raw := range []string{"https://example.com/a?b=c", "http://example.com:8080", "https://8.8.8.8/", "https://[2606:4700::1111]/", "https://hooks.example.co.uk./x"} {
		assert.Nil(t, (&Subscription{URL: raw}).Normalize(a), "%q", raw)
	}
}

// A name is looked at when the connection is made: what it resolved to when the
// subscription was made does not matter (DNS rebinding).
func TestANameThatResolvesInsideIsRefusedWhenTheConnectionIsMade(t *testing.T) {
	a := mustAddresses(t, false)
	for network, address := range map[string]string{"tcp": "localhost:80", "tcp4": "localhost:80"} {
		conn, err := a.dial(t.Context(), network, address) // CheckHost is not asked: the name was good
		if err == nil {
			conn.Close()
		}
		assert.That(t, errors.Is(err, ErrAddressRefused), "%s %s: %v", network, address, err)
	}
}

func TestARedirectLeadsNowhere(t *testing.T) {
	var reached atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer inside.Close()
	outside := httptest.NewServer(http.RedirectHandler(inside.URL, http.StatusTemporaryRedirect))
	defer outside.Close()
	a := newSender(t, everywhere(t)).Send(t.Context(), &Subscription{URL: outside.URL, Secrets: []Secret{NewSecret()}}, testMessage())
	assert.That(t, a.Result == Failed && a.Status == http.StatusTemporaryRedirect && reached.Load() == 0,
		"%+v, and %d requests arrived behind it", a, reached.Load())
}

func TestWhatIsAllowedIsLetThrough(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, c := range []struct {
		allow   []string
		private bool
		host    string
		through bool
	}{
		{nil, true, "127.0.0.1", true}, {nil, true, "localhost", true},
		{[]string{"127.0.0.0/8"}, false, "127.0.0.1", true}, {[]string{"127.0.0.1"}, false, "127.0.0.1", true}, {[]string{"127.0.0.1"}, false, "[::ffff:127.0.0.1]", true},
		{[]string{"localhost"}, false, "localhost", true}, {[]string{"localhost"}, false, "LocalHost", true},
		{[]string{"localhost"}, false, "127.0.0.1", false}, {[]string{"127.0.0.2"}, false, "127.0.0.1", false}, {[]string{"10.0.0.0/8"}, false, "127.0.0.1", false},
	} {
		a := mustAddresses(t, c.private, c.allow...)
		s := &Subscription{URL: "http://" + c.host + ":" + port, Secrets: []Secret{NewSecret()}}
		err := s.Normalize(a)
		assert.That(t, (err == nil) == c.through, "%+v: %v", c, err)
		got := newSender(t, a).Send(t.Context(), s, testMessage())
		assert.That(t, (got.Result == Delivered) == c.through, "%+v: %+v", c, got)
	}
	for _, entry := range []string{"", "10.0.0.0/33", "a b", "http://x", "*.example.com", "::ffff:10.0.0.0/104", "2130706433", "fe80::1%lo"} {
		_, err := NewAddresses(false, []string{entry})
		assert.That(t, err != nil, "--webhook-allow %q was accepted", entry)
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var conns atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1000)) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	s := newSender(t, everywhere(t))
	sub := &Subscription{URL: server.URL, Secrets: []Secret{NewSecret()}}
	for range 20 {
		a := s.Send(t.Context(), sub, testMessage())
		assert.Must(t, a.Result == Delivered && a.Took <= time.Minute, "%+v", a)
	}
	assert.Equal(t, conns.Load(), 1, "connections for 20 messages")
}
