package proxies

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// trusting are 10.0.0.0/8, 2001:db8:aaaa::/48, one address, and one user.
func trusting(t *testing.T, header string) *Trust {
	t.Helper()
	return assert.Value(New([]string{"10.0.0.0/8", "2001:db8:aaaa::/48", "192.0.2.7", "uid:33"}, header))(t)
}

func request(remote string, lines ...string) *http.Request {
	r := &http.Request{RemoteAddr: remote, Header: http.Header{}}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

const proxy = "10.1.1.1:4711"

func TestTheRightmostAddressThatIsNoProxyIsTheClient(t *testing.T) {
	for _, test := range []struct {
		header, name, remote string
		lines                []string
		want                 string
	}{
		{XForwardedFor, "the proxy's own request", proxy, nil, "10.1.1.1"},
		{XForwardedFor, "one hop", proxy, []string{"X-Forwarded-For: 203.0.113.5"}, "203.0.113.5"},
		{XForwardedFor, "spoofed", proxy, []string{"X-Forwarded-For: 6.6.6.6, 203.0.113.5"}, "203.0.113.5"},
		{XForwardedFor, "spoofed as a proxy", proxy, []string{"X-Forwarded-For: 6.6.6.6, 10.0.0.9, 203.0.113.5"}, "203.0.113.5"},
		{XForwardedFor, "spoofed in a line of its own", proxy, []string{"X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 203.0.113.5"}, "203.0.113.5"},
		{XForwardedFor, "spoofed with a quote", proxy, []string{`X-Forwarded-For: 6.6.6.6, "x, 203.0.113.5`}, "203.0.113.5"},
		{XForwardedFor, "spoofed in other headers", proxy, []string{"Forwarded: for=6.6.6.6", "X-Real-Ip: 6.6.6.6", "True-Client-Ip: 6.6.6.6", "X-Forwarded-For: 203.0.113.5"}, "203.0.113.5"},
		{XForwardedFor, "only in other headers", proxy, []string{"Forwarded: for=6.6.6.6", "X-Real-Ip: 6.6.6.6"}, "10.1.1.1"},
		{XForwardedFor, "two proxies", proxy, []string{"X-Forwarded-For: 6.6.6.6, 203.0.113.5, 10.2.2.2"}, "203.0.113.5"},
		{XForwardedFor, "proxies alone", proxy, []string{"X-Forwarded-For: 10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		{XForwardedFor, "a client in the proxies' network sends what it likes", proxy, []string{"X-Forwarded-For: 6.6.6.6 x, 10.9.9.9"}, "10.9.9.9"},
		{XForwardedFor, "with ports", proxy, []string{"X-Forwarded-For: 203.0.113.5:1234, 10.2.2.2:80"}, "203.0.113.5"},
		{XForwardedFor, "IPv6", "[2001:db8:aaaa::1]:80", []string{"X-Forwarded-For: 2001:DB8::0005"}, "2001:db8::5"},
		{XForwardedFor, "IPv6 in brackets, with a port", proxy, []string{"X-Forwarded-For: [2001:db8::5]:80"}, "2001:db8::5"},
		{XForwardedFor, "IPv4 in IPv6", "[::ffff:10.1.1.1]:80", []string{"X-Forwarded-For: 6.6.6.6, ::ffff:203.0.113.5, ::ffff:10.2.2.2"}, "203.0.113.5"},
		{XForwardedFor, "a zone", proxy, []string{"X-Forwarded-For: fe80::1%caller=admin"}, "10.1.1.1"},
		{XForwardedFor, "garbage", proxy, []string{"X-Forwarded-For: 6.6.6.6, unknown"}, "10.1.1.1"},
		{XForwardedFor, "an empty element", proxy, []string{"X-Forwarded-For: 6.6.6.6, "}, "10.1.1.1"},
		{XForwardedFor, "garbage behind a proxy", proxy, []string{"X-Forwarded-For: 6.6.6.6, x, 10.2.2.2"}, "10.2.2.2"},
		{XForwardedFor, "one address of the list", "192.0.2.7:1", []string{"X-Forwarded-For: 203.0.113.5"}, "203.0.113.5"},
		{XForwardedFor, "a proxy's user", "uid:33", []string{"X-Forwarded-For: 203.0.113.5"}, "203.0.113.5"},
		{XForwardedFor, "a proxy's user for itself", "uid:33", nil, "uid:33"},

		{Forwarded, "one hop", proxy, []string{"Forwarded: for=203.0.113.5;proto=https;by=10.1.1.1"}, "203.0.113.5"},
		{Forwarded, "spoofed", proxy, []string{"Forwarded: for=6.6.6.6, for=203.0.113.5"}, "203.0.113.5"},
		{Forwarded, "the other header", proxy, []string{"X-Forwarded-For: 6.6.6.6"}, "10.1.1.1"},
		{Forwarded, "an open quote", proxy, []string{`Forwarded: for=6.6.6.6;x=", for=203.0.113.5`}, "203.0.113.5"},
		{Forwarded, "an open quote before quotes", proxy, []string{`Forwarded: for=6.6.6.6;x=", for="[2001:db8::5]:80";proto=https`}, "2001:db8::5"},
		{Forwarded, "an escaped quote", proxy, []string{`Forwarded: for=6.6.6.6;x="\, for="[2001:db8::5]"`}, "2001:db8::5"},
		{Forwarded, "two proxies", proxy, []string{`Forwarded: for=6.6.6.6, FOR = "203.0.113.5:80" ; proto=http,for=10.2.2.2`}, "203.0.113.5"},
		{Forwarded, "two lines", proxy, []string{"Forwarded: for=203.0.113.5", "Forwarded: for=10.2.2.2"}, "203.0.113.5"},
		{Forwarded, "a hidden hop", proxy, []string{"Forwarded: for=6.6.6.6, for=_hidden"}, "10.1.1.1"},
		{Forwarded, "an unknown hop behind a proxy", proxy, []string{"Forwarded: for=6.6.6.6, for=unknown, for=10.2.2.2"}, "10.2.2.2"},
		{Forwarded, "two addresses in one hop", proxy, []string{"Forwarded: for=203.0.113.5;for=6.6.6.6"}, "10.1.1.1"},
		{Forwarded, "no address", proxy, []string{"Forwarded: proto=https"}, "10.1.1.1"},
		{Forwarded, "garbage", proxy, []string{"Forwarded: 203.0.113.5"}, "10.1.1.1"},

		{"x-real-ip", "an address", proxy, []string{"X-Real-Ip: 203.0.113.5"}, "203.0.113.5"},
		{"x-real-ip", "a proxy's", proxy, []string{"X-Real-Ip: 10.9.9.9"}, "10.9.9.9"},
		{"x-real-ip", "none", proxy, []string{"X-Forwarded-For: 6.6.6.6"}, "10.1.1.1"},
		{"x-real-ip", "two", proxy, []string{"X-Real-Ip: 6.6.6.6", "X-Real-Ip: 203.0.113.5"}, "10.1.1.1"},
		{"x-real-ip", "a list", proxy, []string{"X-Real-Ip: 6.6.6.6, 203.0.113.5"}, "10.1.1.1"},
	} {
		t.Run(test.header+": "+test.name, func(t *testing.T) {
			got, ok := trusting(t, test.header).Behind(request(test.remote, test.lines...))
			assert.That(t, ok && got.Address == test.want, "%+v, %v", got, ok)
		})
	}
}

func TestNothingIsBelievedOfAClient(t *testing.T) {
	for _, remote := range []string{"203.0.113.9:10", "[2001:db8:bbbb::1]:10", "192.0.2.8:1", "uid:1000", "unix", "", "10.1.1.1", "[fe80::1%10.1.1.1]:10"} {
		for _, header := range []string{XForwardedFor, Forwarded, "X-Real-IP"} {
			got, ok := trusting(t, header).Behind(request(remote, "X-Forwarded-For: 6.6.6.6", "Forwarded: for=6.6.6.6;proto=https", "X-Real-Ip: 6.6.6.6", "X-Forwarded-Proto: https"))
			assert.That(t, !ok && got == Origin{}, "%s, %s: %+v", remote, header, got)
		}
	}
	every := assert.Value(New([]string{AnyUser}, XForwardedFor))(t)
	assert.That(t, every.Trusts("uid:1000") && every.Trusts("unix") && !every.Trusts("10.1.1.1:80"), "unix is every user of a Unix socket, and nothing else")
}

func TestWhetherTheClientsConnectionIsEncrypted(t *testing.T) {
	for _, test := range []struct {
		name, header string
		tls          bool
		lines        []string
		want         bool
	}{
		{"nothing is said", XForwardedFor, false, nil, false},
		{"nothing is said, over TLS", XForwardedFor, true, nil, true},
		{"https", XForwardedFor, false, []string{"X-Forwarded-Proto: HTTPS"}, true},
		{"http to a proxy that comes over TLS", XForwardedFor, true, []string{"X-Forwarded-Proto: http"}, false},
		{"twice", XForwardedFor, false, []string{"X-Forwarded-Proto: https, https"}, true},
		{"the client says so, and the proxy has added that it is not", XForwardedFor, true, []string{"X-Forwarded-Proto: https", "X-Forwarded-Proto: http"}, false},
		{"the same in one line", XForwardedFor, true, []string{"X-Forwarded-Proto: https, http"}, false},
		{"in the other header", XForwardedFor, false, []string{"Forwarded: for=203.0.113.5;proto=https"}, false},
		{"Forwarded", Forwarded, false, []string{"Forwarded: for=203.0.113.5;proto=https"}, true},
		{"Forwarded, and the client in another element", Forwarded, false, []string{"Forwarded: for=6.6.6.6;proto=https, for=203.0.113.5;proto=http"}, false},
		{"Forwarded by two proxies, of which the first has TLS", Forwarded, false, []string{"Forwarded: for=203.0.113.5;proto=https, for=10.2.2.2;proto=http"}, true},
		{"Forwarded for a hidden client", Forwarded, false, []string{"Forwarded: for=_x;proto=https"}, true},
		{"the header that does not count", Forwarded, false, []string{"X-Forwarded-Proto: https", "Forwarded: for=203.0.113.5"}, false},
		{"X-Real-IP", "X-Real-IP", false, []string{"X-Forwarded-Proto: https", "X-Real-Ip: 203.0.113.5"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(proxy, test.lines...)
			if test.tls {
				r.TLS = &tls.ConnectionState{}
			}
			got, ok := trusting(t, test.header).Behind(r)
			assert.That(t, ok && got.Secure == test.want, "%+v, %v", got, ok)
		})
	}
}

func TestOnlyWhatTheProxyItselfHasWrittenIsReportedAsUnreadable(t *testing.T) {
	for line, want := range map[string]bool{"X-Forwarded-For: 6.6.6.6, unix:": true, "X-Forwarded-For: unix:, 10.2.2.2": false, "X-Forwarded-For: x, 203.0.113.5": false} {
		got, _ := trusting(t, XForwardedFor).Behind(request(proxy, line))
		assert.Equal(t, got.Unreadable, want, line)
	}
	got, _ := trusting(t, Forwarded).Behind(request(proxy, "Forwarded: for"))
	assert.That(t, got.Unreadable, "Forwarded")
	got, _ = trusting(t, "X-Real-IP").Behind(request(proxy, "X-Real-Ip: x"))
	assert.That(t, got.Unreadable, "X-Real-IP")
}

func TestWhatCannotBeTrustedIsRefused(t *testing.T) {
	for _, one := range []string{"0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96", "10.0.0.0/33", "proxy.example.com", "fe80::1%eth0", "", "UNIX", "10.0.0.1:80"} {
		_, err := New([]string{one}, XForwardedFor)
		assert.That(t, err != nil, "%q is taken", one)
	}
	for _, header := range []string{"", "X Real", "a:b"} {
		_, err := New(nil, header)
		assert.That(t, err != nil, "the header %q is taken", header)
	}
}

// Whatever a client sends, the proxy adds the client's address behind it, and that one counts.
func FuzzNoClientChoosesItsAddress(f *testing.F) {
	f.Add(`6.6.6.6`, true)
	f.Add(`for=6.6.6.6;x="`, false)
	f.Add(`"\", for="`, true)
	f.Fuzz(func(t *testing.T, sent string, brackets bool) {
		client := netip.MustParseAddr("203.0.113.5")
		if brackets {
			client = netip.MustParseAddr("2001:db8::5")
		}
		node := client.String()
		if brackets {
			node = `"[` + node + `]:80"`
		}
		for header, added := range map[string]string{XForwardedFor: client.String(), Forwarded: "by=10.1.1.1;for=" + node} {
			got, ok := trusting(t, header).Behind(&http.Request{RemoteAddr: proxy, Header: http.Header{header: {sent + ", " + added}}})
			assert.That(t, ok && got.Address == client.String(), "%s: %q becomes %+v", header, sent, got)
			got, ok = trusting(t, header).Behind(&http.Request{RemoteAddr: proxy, Header: http.Header{header: {sent, added}}})
			assert.That(t, ok && got.Address == client.String(), "%s, a line each: %q becomes %+v", header, sent, got)
		}
	})
}
