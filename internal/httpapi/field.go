package httpapi

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a request's body, in bytes.
const (
	noBody    = 0
	unread    = -1 // it belongs to another request and is not looked at
	maxBody   = 64 << 10
	largeBody = 256 << 10 // for a thousand tokens or names
)

// place says where a field may stand.
type place uint8

const (
	anywhere place = iota // in the query or the body
	inQuery
	inBody
	inPath
	inHeader
)

// field is one field of an operation. The type of its target says how it is read (assign).
type field[T any] struct {
	name string
	in   place
	to   func(*T) any // a pointer to where the value goes
	// zero: 0 and "" are values, and an empty header is none. Otherwise they are refused: the domain reads them as left out, and a script with an
	// unset variable does not mean that.
	zero    bool
	preset  string // its value when it is left out
	header  string // a header that may give it, too; when both do they have to agree
	missing error  // the refusal of a request without it; nil: it may be left out
}

// operation is what a request may say.
type operation[T any] struct {
	fields []field[T]
	body   int64 // limit, or noBody or unread
}

func (op *operation[T]) names() (names []string) {
	for i := range op.fields {
		if op.fields[i].in <= inBody {
			names = append(names, op.fields[i].name)
		}
	}
	return names
}

// nothing is an operation without fields.
var nothing operation[struct{}]

// decode reads a request. A field that is unknown, repeated or given in two places is refused.
func decode[T any](x *exchange, op *operation[T], into *T) error {
	d := decoder[T]{op: op, into: into, what: "this operation"}
	if err := d.address(x); err != nil {
		return err
	}
	if x.r.URL.RawQuery != "" {
		if err := d.pairs(x.r.URL.RawQuery, fromQuery, "query"); err != nil {
			return err
		}
	}
	if err := d.body(x); err != nil {
		return err
	}
	return d.finish(x)
}

// decoder remembers which fields were given: bits in the order of the operation's fields.
type decoder[T any] struct {
	op      *operation[T]
	into    *T
	what    string // whose fields they are
	given   uint64
	queried uint64 // of those, in the query
}

// address reads the path and the headers that are fields of their own.
func (d *decoder[T]) address(x *exchange) error {
	for i := range d.op.fields {
		f := &d.op.fields[i]
		var text string
		var given bool
		var err error
		switch f.in {
		case inPath:
			text, err = x.segment(f.name)
			given = true
		case inHeader:
			text, given, err = x.single(f.name)
			given = given && (text != "" || !f.zero)
		default:
			continue
		}
		if err == nil && given {
			to := f.to(d.into)
			if err = assign(f.name, f.zero, value{text: text}, to); err == nil {
				d.given |= 1 << i
				x.line.about(to)
			}
		}
		if err == nil && !given && f.missing != nil {
			err = f.missing
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pairs reads a query or a form. It splits the text itself: url.ParseQuery drops the order and takes an empty name for a name.
func (d *decoder[T]) pairs(raw string, from source, where string) error {
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil || !utf8.ValidString(name) {
			return malformed("the " + where + " has a name that is not percent-encoded UTF-8")
		}
		text, err := url.QueryUnescape(rawValue)
		if err != nil || !utf8.ValidString(text) {
			return &problem{code: codeMalformed, field: echo(name), detail: "its value in the " + where + " must be percent-encoded UTF-8"}
		}
		if err := d.take(name, value{source: from, text: text}); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder[T]) body(x *exchange) error {
	if d.op.body == unread || x.r.Body == nil || x.r.Body == http.NoBody || x.r.ContentLength == 0 {
		return nil
	}
	body, err := x.readBody(max(d.op.body, maxBody))
	switch {
	case err != nil || len(body) == 0:
		return err
	case d.op.body == noBody:
		return malformed("this operation has no body")
	}
	form, err := isForm(x.r)
	switch {
	case err != nil:
		return err
	case form:
		x.form = true
		return d.pairs(string(body), fromForm, "form")
	}
	return decodeObject(body, d.take)
}

// take sets a field of the query or the body.
func (d *decoder[T]) take(name string, v value) error {
	i := slices.IndexFunc(d.op.fields, func(f field[T]) bool { return f.name == name })
	if i < 0 || !d.op.fields[i].in.has(v.source) {
		return d.unknown(name, v.source)
	}
	bit := uint64(1) << i
	if d.given&bit != 0 {
		detail := name + " must be given once"
		if (d.queried&bit != 0) != (v.source == fromQuery) {
			detail = name + " must be given in the query or in the body, not in both"
		}
		return &problem{code: codeRepeatedField, field: name, detail: detail}
	}
	d.given |= bit
	if v.source == fromQuery {
		d.queried |= bit
	}
	return assign(name, d.op.fields[i].zero, v, d.op.fields[i].to(d.into))
}

func (p place) has(s source) bool {
	return p == anywhere || p == inQuery && s == fromQuery || p == inBody && s != fromQuery
}

// finish takes what headers add to the query, and looks for what is missing.
func (d *decoder[T]) finish(x *exchange) error {
	for i := range d.op.fields {
		f := &d.op.fields[i]
		given := d.given&(1<<i) != 0
		if f.header != "" {
			text, too, err := x.single(f.header)
			if err == nil && too {
				err = d.agree(f, text, given)
				given = true
			}
			if err != nil {
				return err
			}
		}
		var err error
		switch {
		case given:
		case f.missing != nil:
			err = f.missing
		case f.preset != "":
			err = assign(f.name, f.zero, value{text: f.preset}, f.to(d.into))
		}
		if err != nil {
			return err
		}
		if f.name == "ns" || f.name == "lock" {
			x.line.about(f.to(d.into))
		}
	}
	return nil
}

// agree sets a field from a header. A proxy's configuration says the query and its client the header: the header may repeat
// the query and must not contradict it.
func (d *decoder[T]) agree(f *field[T], text string, given bool) error {
	if !given {
		return assign(f.name, f.zero, value{text: text}, f.to(d.into))
	}
	var other T
	if err := assign(f.name, f.zero, value{text: text}, f.to(&other)); err != nil {
		return err
	}
	if !reflect.DeepEqual(f.to(&other), f.to(d.into)) {
		return &problem{code: codeRepeatedField, field: f.header, detail: "the query and this header must say the same"}
	}
	return nil
}

// unknown refuses a field that the operation does not have in that place.
func (d *decoder[T]) unknown(name string, from source) error {
	if isSecret(name) {
		return &problem{code: codeUnknownField, detail: tokenHint(name)}
	}
	p := &problem{code: codeUnknownField, field: echo(name), detail: d.what + " has no fields"}
	names := d.op.names()
	if len(names) > 0 {
		p.detail = d.what + " has " + strings.Join(names, ", ")
	}
	if name == "" {
		p.detail = "the field has no name; " + p.detail
	}
	switch i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) }); {
	case i < 0:
	case names[i] != name:
		p.detail = "write it as " + names[i]
	case from != fromQuery:
		p.detail = "give it in the query"
	default:
		p.detail = "give it in the body"
	}
	return p
}

// echo is a client's text, short enough and harmless to show.
func echo(name string) string {
	const most = 64
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return '?'
		}
		return r
	}, name)
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	return name
}
