package httpapi

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
)

// shellLines are the answer to a request that asks for lines to eval, success or failure. Every line is always there, empty
// where there is nothing: a failure must not leave the token of an earlier lease in the shell's variables. The last line of
// a failure is the command false, so that eval fails.
type shellLines struct {
	leaseID, token, fencingToken, state, ttl, waited, notifySecret string

	code   code // of the problem; "" for a success
	status int
}

// shellFailure is a failure as lines.
func shellFailure(c code, status int) *shellLines { return &shellLines{code: c, status: status} }

func shellLease(l *locks.Lease, status int) *shellLines {
	lines := &shellLines{leaseID: l.ID, token: l.Token, state: string(l.State), notifySecret: l.NotifySecret, status: status,
		ttl: strconv.FormatInt(millis(l.TTL), 10)}
	if l.WaitedKnown {
		lines.waited = strconv.FormatInt(millis(l.Waited), 10)
	}
	if l.FencingToken != 0 {
		lines.fencingToken = strconv.FormatInt(l.FencingToken, 10)
	}
	return lines
}

// fields are the values, each at its name.
func (l *shellLines) fields() [8]struct {
	name  string
	value *string
} {
	return [...]struct {
		name  string
		value *string
	}{
		{"LEASE_ID", &l.leaseID}, {"LEASE_TOKEN", &l.token}, {"FENCING_TOKEN", &l.fencingToken}, {"LEASE_STATE", &l.state},
		{"LEASE_TTL_MS", &l.ttl}, {"LEASE_WAITED_MS", &l.waited},
		{"NOTIFY_SECRET", &l.notifySecret}, {"LEASE_ERROR", &l.code},
	}
}

// errNotInert is a defect: every value is made by a gateway, of characters that a shell does not act on.
var errNotInert = errors.New("a value for a shell has a character that a shell may act on")

// encodeShell puts lines into the answer's buffer. No value that a shell could act on gets there: it becomes the failure
// internal, and the status to send is that of what was encoded.
func (x *exchange) encodeShell(l *shellLines) (status int) {
	for _, f := range l.fields() {
		if !inert(*f.value) {
			x.line.code, x.line.cause = codeInternal, errNotInert
			x.forget()
			delete(x.Header(), "Retry-After")
			return x.encodeShell(shellFailure(codeInternal, http.StatusInternalServerError))
		}
	}
	x.out.Reset()
	for _, f := range l.fields() {
		x.out.WriteString(f.name)
		x.out.WriteByte('=')
		x.out.WriteString(*f.value)
		x.out.WriteByte('\n')
	}
	x.out.WriteString("LEASE_STATUS=" + strconv.Itoa(l.status) + "\n")
	if l.code != "" {
		x.out.WriteString("false\n")
	}
	return l.status
}

// inert reports whether a shell takes the value as it is, without quotes.
func inert(value string) bool {
	for i := range len(value) {
		switch c := value[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == '+', c == '/', c == '=', c == '-':
		default:
			return false
		}
	}
	return true
}

// forShell reports whether a failure is answered as shell lines. p is nil for an answer of another gateway. It does not
// depend on what was decoded or routed: the request may be wrong in any way. A request that a shell would have got lines for
// must be among them; where one only looks like it, a JSON client gets plain text in place of a problem.
func (x *exchange) forShell(p *problem) bool {
	acquire := x.operation == "Acquire" || x.operation == "AcquireSeveral" || x.operation == "" && x.r.Method == http.MethodPost
	asked, other := formatIn(x.r.URL.RawQuery, acquire)
	switch {
	case asked:
		return true
	case !other && (acquire || x.operation == "") && prefersText(x.r.Header):
		return true
	case p == nil || !acquire || !x.bodyRead:
		return false
	case x.form:
		asked, _ = formatIn(x.buffer.String(), true) // curl -d format=env, which is no field
		return asked
	case p.code == codeUnknownField && strings.EqualFold(p.field, "format"):
		return bytes.Contains(bytes.ToLower(x.buffer.Bytes()), []byte("env")) // in a body of JSON, where it is no field
	case p.code == codeUnsupportedType:
		asked, _ = formatIn(x.buffer.String(), true) // curl -d format=env
		return asked
	}
	return false
}

// formatIn looks for a format in a query, also in one that is not well formed. asked: it is meant to be env; for an acquire
// every format but json. other: another one is given.
func formatIn(query string, acquire bool) (asked, other bool) {
	for pair := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(unescaped(pair), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "format") {
			continue
		}
		value = strings.ToLower(strings.TrimSpace(value))
		if strings.Contains(value, "env") || acquire && value != "json" {
			return true, false
		}
		other = true
	}
	return false, other
}

// unescaped decodes what is percent-encoded and leaves what is not well formed.
func unescaped(s string) string {
	if decoded, err := url.QueryUnescape(s); err == nil {
		return decoded
	}
	var b strings.Builder
	for len(s) > 0 {
		n := 1
		if s[0] == '%' && len(s) >= 3 {
			n = 3
		}
		if decoded, err := url.QueryUnescape(s[:n]); err == nil {
			b.WriteString(decoded)
		} else {
			n = 1
			b.WriteByte(s[0])
		}
		s = s[n:]
	}
	return b.String()
}

// shellAnswer reads another gateway's answer to a request for shell lines. That gateway may be of an older release, which
// answers problems as JSON and successes as three or four lines.
func shellAnswer(a *fleet.Answer) *shellLines {
	if a.Status >= http.StatusBadRequest {
		c := problemIn(a)
		if c == "" {
			c = codeInternal
		}
		return shellFailure(c, a.Status)
	}
	lines := linesIn(a)
	if lines == nil || lines.leaseID == "" || lines.token == "" {
		return shellFailure(codeInternal, http.StatusInternalServerError)
	}
	lines.code, lines.status = "", a.Status
	if lines.state == "" {
		lines.state = string(locks.Waiting)
		if lines.fencingToken != "" {
			lines.state = string(locks.Held)
		}
	}
	return lines
}

// linesIn reads shell lines; nil when the answer is something else.
func linesIn(a *fleet.Answer) *shellLines {
	if !hasType(a.Header, "text/plain") {
		return nil
	}
	lines := &shellLines{}
	fields := lines.fields()
	for line := range bytes.Lines(a.Body) {
		name, value, found := strings.Cut(strings.TrimSuffix(string(line), "\n"), "=")
		for _, f := range fields {
			if found && f.name == name {
				*f.value = value
			}
		}
	}
	return lines
}

// hasType reports whether the Content-Type is one of these.
func hasType(h http.Header, types ...string) bool {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return false
	}
	for _, t := range types {
		if mediaType == t {
			return true
		}
	}
	return false
}
