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

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

func TestASubscriptionIsReadAsItWasWritten(t *testing.T) {
	s := &Subscription{ID: NewID(), URL: "https://example.com/x", Events: []string{Released, Expired, Released}, NS: "team-*", Locks: "deploy:*", Description: "told: ü", Enabled: true,
		Headers: map[string]string{"authorization": "Bearer x"}, Created: time.UnixMilli(1700000000123).UTC()}
	s.Rotate(s.Created, 0)
	s.Rotate(s.Created, time.Hour)
	assert.NoError(t, s.Normalize(mustAddresses(t, false)))
	assert.That(t, len(s.Events) == 2 && s.Headers["Authorization"] == "Bearer x", "normalized: %+v", s)
	got, err := ParseRecord(s.ID, s.Record(), 7)
	assert.NoError(t, err)
	s.Version = 7
	diff := cmp.Diff(s, got)
	assert.That(t, diff == "", "%v", diff)
	_, err = ParseRecord(s.ID, []byte(`{"v":4}`), 0)
	assert.That(t, errors.Is(err, errNewer), "a newer record: %v", err)
	_, err = ParseRecord(s.ID, []byte(`{"v":1,"secrets":"whsec_x"`), 0)
	assert.That(t, err != nil && !strings.Contains(err.Error(), "whsec"), "a damaged record: %v", err)
	assert.That(t, IsID(s.ID) && !IsID("wh_") && !IsID("wh_AAAAAAAAAAAAAAAA") && !IsID("https://example.com/"), "ids")
}

func TestWhatIsWrongWithASubscriptionIsNamed(t *testing.T) {
	many := map[string]string{}
	for i := range MaxHeaders + 1 {
		many["X-"+strings.Repeat("a", i+1)] = "b"
	}
	for field, list := range map[string][]Subscription{
		"events":      {{Events: []string{"lease.taken"}}, {Events: []string{Test}}, {Events: []string{""}}},
		"ns":          {{NS: "a?"}, {NS: strings.Repeat("*", access.MaxStars+1)}, {NS: strings.Repeat("a", access.MaxGlob+1)}},
		"locks":       {{Locks: "a/b"}, {Locks: "[a]"}, {Locks: "a\x00"}},
		"description": {{Description: strings.Repeat("a", MaxDescription+1)}, {Description: "a\nb"}},
		"headers": {{Headers: many}, {Headers: map[string]string{"a b": "c"}}, {Headers: map[string]string{"X": "a\r\nb"}}, {Headers: map[string]string{"host": "x"}}, {Headers: map[string]string{"webhook-id": "x"}},
			{Headers: map[string]string{"content-length": "1"}}, {Headers: map[string]string{"X": strings.Repeat("a", MaxHeaderBytes)}}, {Headers: map[string]string{"x-a": "1", "X-A": "2"}}},
		"owner":          {{Owner: strings.Repeat("*", access.MaxStars+1)}, {Owner: "a\nb"}, {Owner: strings.Repeat("a", access.MaxGlob+1)}},
		"reason":         {{Reason: strings.Repeat("*", access.MaxStars+1)}, {Reason: "\x00"}},
		"acquire_reason": {{Purpose: "a\nb"}},
		"format":         {{Format: "irc"}, {Format: "Slack"}},
		"url":            {{Format: FormatNtfy}},
		"ca":             {{CA: "x"}, {CA: strings.Repeat("a", MaxCA+1)}},
	} {
		for _, s := range list {
			s.URL = "https://example.com"
			err := s.Normalize(mustAddresses(t, false))
			wrong, ok := errors.AsType[*FieldError](err)
			assert.That(t, ok && wrong.Field == field, "%s: %+v: %v", field, s, err)
		}
	}
}

func TestASubscriptionWantsWhatItsGlobsMatch(t *testing.T) {
	s := Subscription{Enabled: true, Events: []string{Expired}, Locks: "deploy:*"}
	if !s.Wants(&Event{Type: Expired, NS: "default", Lock: "deploy:web"}) || s.Wants(&Event{Type: Released, NS: "default", Lock: "deploy:web"}) || s.Wants(&Event{Type: Expired, NS: "default", Lock: "web"}) {
		t.Error("wants")
	}
	s.Enabled = false
	assert.That(t, !s.Wants(&Event{Type: Expired, NS: "default", Lock: "deploy:web"}), "a disabled subscription wants")
}

func TestASubscriptionWantsItsOwnersAndReasons(t *testing.T) {
	by := &Event{Type: Expired, NS: "default", Lock: "a", Owner: "https://ci.example/job/7", Reason: "expired"}
	broken := &Event{Type: Revoked, NS: "default", Lock: "a", Owner: "ana", Reason: "revoked", Detail: "nightly maintenance"}
	bare := &Event{Type: Removed, NS: "default", Lock: "a"}
	for _, c := range []struct {
		owner, reason string
		want          [3]bool // by, broken, bare
	}{
		{"", "", [3]bool{true, true, true}},
		{"https://ci.example/*", "", [3]bool{true, false, false}},
		{"ana", "", [3]bool{false, true, false}},
		{"*", "", [3]bool{true, true, false}},
		{"", "expired", [3]bool{true, false, false}},
		{"", "*maintenance*", [3]bool{false, true, false}},
		{"", "*", [3]bool{true, true, false}},
		{"ana", "expired", [3]bool{}},
		{"a*", "revoked", [3]bool{false, true, false}},
	} {
		s := Subscription{Enabled: true, Owner: c.owner, Reason: c.reason}
		got := [3]bool{s.Wants(by), s.Wants(broken), s.Wants(bare)}
		assert.That(t, got == c.want, "owner %q, reason %q: %v", c.owner, c.reason, got)
	}
}

func TestASubscriptionWantsWhatALeaseWasTakenFor(t *testing.T) {
	s := Subscription{Enabled: true, Purpose: "*database*"}
	for purpose, want := range map[string]bool{"the database moves": true, "": false, "a deployment": false} {
		e := &Event{Type: Expired, NS: "default", Lock: "a", Reason: "database", Detail: "database", Purpose: purpose}
		assert.That(t, s.Wants(e) == want, "%q", purpose)
	}
}

// A gateway that knows of no format would write what the receiver does not take; one that knows of no filter would tell too much.
func TestARecordWithAFormatOrAFilterIsOfALaterVersion(t *testing.T) {
	for _, s := range []Subscription{{Format: FormatSlack}, {Owner: "a"}, {Reason: "b"}, {Purpose: "c"}, {Format: FormatTeams, Maker: &Maker{Name: "ana"}}} {
		s.URL, s.ID = "https://example.com", NewID()
		assert.That(t, strings.HasPrefix(string(s.Record()), `{"v":3,`), "%s", s.Record())
		got := assert.Value(ParseRecord(s.ID, s.Record(), 4))(t)
		assert.That(t, got.Format == s.Format && got.Owner == s.Owner && got.Reason == s.Reason && got.Purpose == s.Purpose && (got.Maker == nil) == (s.Maker == nil), "%+v", got)
	}
	assert.That(t, strings.HasPrefix(string((&Subscription{URL: "https://example.com"}).Record()), `{"v":1,`), "one without")
	for _, damaged := range []string{`{"v":4}`, `{"v":3,"maker":{}}`, `{"v":2}`, `{"v":1,"maker":{"name":"a"}}`} {
		_, err := ParseRecord("wh_a", []byte(damaged), 0)
		assert.That(t, err != nil, "%s was read", damaged)
	}
}

func TestAnEntryIsReadAsItWasWritten(t *testing.T) {
	s := subscription("s")
	e := entry(3, "a", s)
	e.TraceParent = "x"
	e.Dead = []Dead{{Notice: 0, Subscription: 0, At: time.UnixMilli(5).UTC(), Attempts: 10, Error: "500"}}
	got := assert.Value(ParseEntry(e.Name, e.Order, e.Data()))(t)
	diff := cmp.Diff(e, got)
	assert.That(t, diff == "", "%v", diff)
	for _, damaged := range []string{`{`, `{"v":3}`, `{"v":1,"notices":[{"to":[0]}]}`, `{"v":1,"dead":[{}]}`, `{"v":1,"subscriptions":["a"],"notices":[{"to":[-1]}]}`} {
		_, err := ParseEntry("x", 0, []byte(damaged))
		assert.That(t, err != nil, "%s was read", damaged)
	}
	// For good: a gateway of the next release must give the same ones.
	assert.Equal(t, MessageID("lkabc", &Event{NS: "default", Lock: "deploy"}, "wh_b"), "msg_fii3koaj34hz2yyn3mq5oknwwa", "message ids")
}

// One lock that a lease has released is one message, from each gateway and with any other locks.
func TestAMessagesIDFollowsFromWhatItTells(t *testing.T) {
	id := func(entry, ns, lock, to string) string { return MessageID(entry, &Event{NS: ns, Lock: lock}, to) }
	whole := id(EntryOf("lkabc"), "default", "deploy", "wh_b")
	if got := id(PartEntry("lkabc", 2), "default", "deploy", "wh_b"); got != whole || id(PartEntry("lkabc", 0), "default", "deploy", "wh_b") != whole {
		t.Errorf("%s is told as %s by who has seen that lock alone", whole, got)
	}
	for what, other := range map[string]string{"another lock": id("lkabc", "default", "other", "wh_b"), "another namespace": id("lkabc", "other", "deploy", "wh_b"),
		"another webhook": id("lkabc", "default", "deploy", "wh_c"), "another lease": id("lkabd", "default", "deploy", "wh_b"), "its grant": id(GrantEntry("lkabc"), "default", "deploy", "wh_b"),
		"its notify_url": id("lkabc", "default", "deploy", someNotify), "another program's": id(ForeignEntry(7), "default", "deploy", "wh_b")} {
		assert.That(t, other != whole, "%s has the same id", what)
	}
	end, grant := id("lkabc", "default", "deploy", someNotify), id(GrantEntry("lkabc"), "default", "deploy", someNotify)
	assert.That(t, end != grant, "a notify_url drops the end as what it has seen: the grant has the same id")
	a, b := id(ForeignEntry(7), "default", "deploy", "wh_b"), id(ForeignEntry(8), "default", "deploy", "wh_b")
	assert.That(t, a != b, "two contenders of other programs have one id")
	assert.Equal(t, LeaseOf(PartEntry("lkabc", 3)), "lkabc", "a part is about")
}

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
