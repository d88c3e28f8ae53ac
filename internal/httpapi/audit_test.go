package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"lockkeeper/internal/audit"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// auditing has a server write an audit log. The log is read when the returned function has ended it.
func auditing(t *testing.T) (option func(*Options), end func() []audit.Line) {
	var text bytes.Buffer
	log := assert.Value(audit.Open(audit.Options{Output: &text, Log: slog.New(slog.DiscardHandler)}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); log.Run(ctx) }()
	return func(o *Options) { o.Audit = log }, func() (lines []audit.Line) {
		stop()
		<-ended
		assert.That(t, !strings.Contains(text.String(), "s3cret"), "a secret stands in the audit log: %s", text.String())
		for line := range bytes.Lines(text.Bytes()) {
			var l audit.Line
			assert.NoError(t, json.Unmarshal(line, &l), string(line))
			lines = append(lines, l)
		}
		return lines
	}
}

func TestTheAuditLogHasEachChangeAndEachRefusal(t *testing.T) {
	guests := newGuests(t)
	option, end := auditing(t)
	g := serve(t, guests.options, option)
	type sent struct {
		who, method, path string
		// Operation, result, status, principal and credential; "": no line. A wrong credential is refused before the operation is known.
		want string
	}
	all := []sent{
		{"reader", "GET", "/v1/locks/deploy", ""},
		{"reader", "HEAD", "/v1/locks/deploy", ""},
		{"s3cret-stranger", "GET", "/v1/locks/deploy?q=s3cret", "refused 401"},
		{"s3cret-stranger", "POST", "/v1/locks/deploy/leases?ttl=5s&metadata=s3cret", "refused 401"},
		{"", "GET", "/v1/locks", "ListLocks refused 401 anonymous"},
		{"reader", "GET", "/metrics", "Metrics refused 403 token:reader abcdefgh"},
		{"reader", "POST", "/v1/locks/deploy/leases?ttl=5", "Acquire failed 422 token:reader abcdefgh"},
		{"reader", "POST", "/v1/locks/deploy/leases?ttl=5s&metadata=s3cret", "Acquire ok 201 token:reader abcdefgh"},
		{"reader", "POST", "/v1/leases/self/heartbeat", ""},
	}
	var want []string
	for _, s := range all {
		options := []apitest.Option{as(s.who)}
		if strings.Contains(s.path, "self") {
			options = append(options, apitest.Token(someToken))
		}
		a := g.send(t, s.method, s.path, options...)
		if s.want != "" {
			want = append(want, s.want+" "+a.Header.Get("Lockkeeper-Request-Id"))
		}
	}
	var got []string
	for _, l := range end() {
		text, _ := json.Marshal(l.Status)
		got = append(got, strings.Join(strings.Fields(strings.Join([]string{l.Operation, l.Result, string(text), l.Principal, l.Credential, l.RequestID}, " ")), " "))
		assert.That(t, l.Event == "request" && l.Address != "", "%+v", l)
	}
	assert.Slices(t, got, want)
}
