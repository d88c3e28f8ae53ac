package httpapi

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a request's body, in bytes.
const (
	maxBody           = 64 << 10
	maxHeartbeatsBody = 256 << 10
)

// form is the fields of one operation. take sets a field; known is false when
// the operation has none of that name from that source.
type form interface {
	names() []string
	take(name string, v value) (known bool, p *problem)
}

// fields decodes the query, and the body where the operation has one, into f.
// A field that is unknown, repeated, or given in both places is refused.
func (x *exchange) fields(f form, bodyLimit int64) *problem {
	d := decoder{form: f}
	if x.r.URL.RawQuery != "" {
		if p := d.query(x.r.URL.RawQuery); p != nil {
			return p
		}
	}
	if bodyLimit == 0 {
		return x.noBody()
	}
	if x.r.Body == nil || x.r.Body == http.NoBody || x.r.ContentLength == 0 {
		return nil
	}
	body, p := x.readBody(bodyLimit)
	if p != nil || len(body) == 0 {
		return p
	}
	if p := jsonOnly(x.r.Header); p != nil {
		return p
	}
	return decodeObject(body, d.take)
}

// nothing is the form of operations that have no fields.
type nothing struct{}

func (nothing) names() []string                     { return nil }
func (nothing) take(string, value) (bool, *problem) { return false, nil }

// decoder remembers which fields were given.
type decoder struct {
	form form
	what string // whose fields they are; "" for the operation's
	room [16]given
	n    int
}

type given struct {
	name   string
	source source
}

func (d *decoder) take(name string, v value) *problem {
	for _, g := range d.room[:d.n] {
		if g.name != name {
			continue
		}
		detail := "it is given twice"
		if g.source != v.source {
			detail = "it is given in the query and in the body"
		}
		return &problem{code: codeRepeatedField, field: name, detail: detail}
	}
	known, p := d.form.take(name, v)
	if !known {
		return d.unknown(name, v.source)
	}
	if p != nil {
		return p
	}
	if d.n == len(d.room) {
		panic("a form with more fields than the decoder has room for")
	}
	d.room[d.n] = given{name, v.source}
	d.n++
	return nil
}

// maxEchoed is how much of a name that we do not know is told back.
const maxEchoed = 64

func (d *decoder) unknown(name string, from source) *problem {
	names := d.form.names()
	what := d.what
	if what == "" {
		what = "this operation"
	}
	p := &problem{code: codeUnknownField, field: echo(name), detail: what + " has no fields"}
	if len(names) > 0 {
		p.detail = what + " has " + strings.Join(names, ", ")
	}
	if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) }); i >= 0 {
		p.detail = "write it as " + names[i]
		if names[i] == name && from == fromBody {
			p.detail = "give it in the query"
		}
	}
	if looksLikeToken(name) {
		p.field = ""
		p.detail = tokenHint
	}
	return p
}

// echo is a client's word, short enough and harmless to show.
func echo(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return '?'
		}
		return r
	}, name)
	if len(name) > maxEchoed {
		name = strings.ToValidUTF8(name[:maxEchoed], "") + "..."
	}
	return name
}

// query splits the query itself: url.ParseQuery drops the order and takes an
// empty name for a name.
func (d *decoder) query(raw string) *problem {
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil || !utf8.ValidString(name) {
			return malformed("the query has a name that is not percent-encoded UTF-8")
		}
		text, err := url.QueryUnescape(rawValue)
		if err != nil || !utf8.ValidString(text) {
			return &problem{code: codeMalformed, field: echo(name), detail: "its value in the query is not percent-encoded UTF-8"}
		}
		if p := d.take(name, value{source: fromQuery, kind: isText, text: text}); p != nil {
			return p
		}
	}
	return nil
}

// noBody refuses a body where the operation has none.
func (x *exchange) noBody() *problem {
	if x.r.Body == nil || x.r.Body == http.NoBody || x.r.ContentLength == 0 {
		return nil
	}
	if body, p := x.readBody(maxBody); p != nil || len(body) == 0 {
		return p
	}
	return malformed("this operation has no body")
}

// readBody reads the whole body, so that net/http notices from then on when the
// client goes away. The bytes belong to the exchange.
func (x *exchange) readBody(limit int64) ([]byte, *problem) {
	if x.r.ContentLength > limit {
		// Not a byte of it is read; net/http closes the connection.
		x.Header()["Connection"] = []string{"close"}
		return nil, tooLarge(limit)
	}
	x.body.Reset()
	x.bodyRead = true
	_, err := x.body.ReadFrom(http.MaxBytesReader(x.w, x.r.Body, limit))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge(limit)
	case err != nil:
		return nil, &problem{code: codeMalformed, detail: "the body did not arrive whole", cause: err}
	}
	return x.body.Bytes(), nil
}

func tooLarge(limit int64) *problem {
	return &problem{code: codeBodyTooLarge, detail: fmt.Sprintf("at most %d KiB", limit>>10)}
}

// jsonOnly refuses a body that does not say that it is JSON.
func jsonOnly(h http.Header) *problem {
	if coding := h.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return &problem{code: codeUnsupportedType, field: "Content-Encoding", detail: "send the body as it is"}
	}
	if types := h["Content-Type"]; len(types) == 1 {
		if types[0] == "application/json" {
			return nil
		}
		mediaType, params, err := mime.ParseMediaType(types[0])
		charset := params["charset"]
		if err == nil && mediaType == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return &problem{code: codeUnsupportedType, field: "Content-Type",
		detail: "send the body as application/json (curl -H 'Content-Type: application/json' -d '{...}'), or the fields in the query"}
}
