package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// What a field's text means. The domain decides which values are allowed. Refused here are values that would change on the
// way (a number without a unit, a broken character), and a lease token in a field that every client can read.

// reader is a target that reads its value itself.
type reader interface {
	read(name string, v value) error
}

// assign reads a value into a target, a pointer. zero: 0 and "" are values.
func assign(name string, zero bool, v value, to any) (err error) {
	given := true // not as zero
	switch to := to.(type) {
	case reader:
		return to.read(name, v)
	case *string:
		*to, err = text(name, v)
		given = *to != ""
	case **string:
		var s string
		if v.kind != isNull { // a merge patch removes with null (RFC 7396)
			s, err = text(name, v)
		}
		*to = &s
	case *locks.Mode:
		err = assign(name, zero, v, (*string)(to))
	case *locks.State:
		err = assign(name, zero, v, (*string)(to))
	case *locks.LockState:
		err = assign(name, zero, v, (*string)(to))
	case *locks.DelayOn:
		err = assign(name, zero, v, (*string)(to))
	case *locks.DoneOn:
		err = assign(name, zero, v, (*string)(to))
	case *[]string:
		*to, err = list(name, v)
	case *bool:
		*to, err = boolean(name, v)
	case **bool:
		var b bool
		b, err = boolean(name, v)
		*to = &b
	case *int:
		*to, err = integer(name, v)
		given = *to != 0
	case *time.Duration:
		*to, err = duration(name, v)
		given = *to != 0
	case *time.Time:
		*to, err = timestamp(name, v)
	default:
		panic("no way to read " + name)
	}
	if err == nil && !given && !zero {
		err = invalid(name, name+" must not be empty or 0: give it a value, or leave it out")
	}
	return err
}

// text reads text that every client can read and that is in logs.
func text(name string, v value) (string, error) {
	switch {
	case v.kind != isText:
		return "", invalid(name, name+" must be a string")
	case isSecret(v.text):
		return "", invalid(name, "this is a token: it is a secret, and every client can read this field")
	case strings.ContainsRune(v.text, utf8.RuneError):
		return "", invalid(name, name+" has a character that was broken on the way (U+FFFD)")
	}
	return v.text, nil
}

// list reads an array of strings, in the query a text with commas between.
func list(name string, v value) ([]string, error) {
	items := v.list
	if v.plain() {
		items = strings.Split(v.text, ",")
	} else if v.kind != isList {
		return nil, invalid(name, name+" must be an array of strings; in the query, values with commas between")
	}
	if len(items) == 0 {
		return nil, invalid(name, name+" must name at least one, or be left out")
	}
	for _, item := range items {
		if isSecret(item) {
			return nil, invalid(name, tokenHint(item))
		}
	}
	return items, nil
}

// duration reads a span with a unit.
func duration(name string, v value) (time.Duration, error) {
	switch v.kind {
	case isNumber:
		return 0, needsUnit(name, v.text)
	case isText:
	default:
		return 0, invalid(name, name+" must be a duration in a string, such as \"30s\"")
	}
	d, err := time.ParseDuration(v.text)
	switch {
	case (err != nil || d == 0) && isBareNumber(v.text): // time.ParseDuration takes "0"
		return 0, needsUnit(name, v.text)
	case err != nil && tooLong.MatchString(v.text):
		// Its range is what is wrong with it, and the domain names that. It is never locks.WaitForever.
		d = math.MaxInt64 - 1
		if v.text[0] == '-' {
			d = -d
		}
	case err != nil:
		return 0, invalid(name, name+" must be a number with a unit (ms, s, m, h), such as 30s or 1m30s")
	}
	return d, nil
}

// timestamp reads a time with its zone.
func timestamp(name string, v value) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, v.text)
	switch {
	case v.kind == isText && err == nil && !at.IsZero():
		return at, nil
	case v.kind == isText && strings.Contains(v.text, " "):
		return at, invalid(name, name+" must be a time such as 2026-11-23T18:00:00Z; in a URL the + of 2026-11-23T18:00:00+01:00 is written %2B")
	}
	return at, invalid(name, name+" must be a time with its zone, such as 2026-11-23T18:00:00Z (RFC 3339)")
}

// tooLong are durations that time.ParseDuration refuses for their size alone.
var tooLong = regexp.MustCompile(`^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`)

func isBareNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil && strings.ContainsAny(s, "0123456789")
}

func needsUnit(name, number string) error {
	p := &problem{code: codeNeedsUnit, field: name, detail: "add a unit, such as 30s, 1m30s or 24h"}
	if _, err := strconv.ParseUint(number, 10, 32); err == nil {
		p.detail = "add a unit: " + number + "s for seconds, " + number + "ms for milliseconds"
	}
	return p
}

// patience is the wait of an acquire: a duration, 0 or forever.
type patience time.Duration

func (p *patience) read(name string, v value) error {
	if v.kind == isText && (v.text == "0" || v.text == "forever") {
		*p = 0
		if v.text == "forever" {
			*p = patience(locks.WaitForever)
		}
		return nil
	}
	return assign(name, true, v, (*time.Duration)(p))
}

func boolean(name string, v value) (bool, error) {
	if v.kind == isBool || v.plain() {
		switch v.text {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	}
	return false, invalid(name, name+" must be true or false")
}

// integer reads a whole number, which is a number in JSON.
func integer(name string, v value) (int, error) {
	n, err := strconv.Atoi(v.text)
	if err != nil || v.kind != isNumber && !v.plain() || v.text[0] == '+' {
		return 0, invalid(name, name+" must be a whole number")
	}
	return n, nil
}

// between refuses what is out of bounds that no domain knows.
func between[N int | time.Duration](name string, n, least, most N) error {
	if n < least || n > most {
		return invalid(name, fmt.Sprintf("%s must be between %v and %v", name, least, most))
	}
	return nil
}

// revision and cursor are texts that a gateway gave out: the mark of a state or the id of an event, and a place in a list.
// A cursor of the list of locks is as long as the directory before the page.
type (
	revision string
	cursor   string
)

func (r *revision) read(name string, v value) error { return opaque(name, v, 128, (*string)(r)) }

func (c *cursor) read(name string, v value) error { return opaque(name, v, 8192, (*string)(c)) }

func opaque(name string, v value, most int, to *string) error {
	invisible := func(r rune) bool { return r < '!' || r > '~' }
	if v.kind != isText || v.text == "" || len(v.text) > most || strings.ContainsFunc(v.text, invisible) {
		return invalid(name, name+" must be as the gateway gave it out")
	}
	*to = v.text
	return nil
}

// metadata is a text, or a JSON object: the text of it without spaces, members and numbers as they came.
type metadata string

func (m *metadata) read(name string, v value) error {
	if v.kind == isOther && v.raw[0] == '{' {
		var compact bytes.Buffer
		_ = json.Compact(&compact, v.raw) // it is JSON
		*m = metadata(compact.String())
		return nil
	}
	return assign(name, true, v, (*string)(m))
}

// newMetadata is metadata in place of what was there.
type newMetadata struct{ to **string }

func (n newMetadata) read(name string, v value) error {
	var m metadata
	if v.kind != isNull {
		if err := m.read(name, v); err != nil {
			return err
		}
	}
	*n.to = (*string)(&m)
	return nil
}

// fencingToken is the number that came with a grant.
type fencingToken int64

const tokenWords = "it must be the fencing_token of a lease, a whole number from 1"

func (t *fencingToken) read(name string, v value) error {
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil || n <= 0 || v.text[0] == '+' {
		return invalid(name, tokenWords)
	}
	*t = fencingToken(n)
	return nil
}

// oneOf is one of some forms of an answer.
type oneOf struct {
	to    *string
	words []string
}

func (o oneOf) read(name string, v value) error {
	if v.kind != isText || !slices.Contains(o.words, v.text) {
		last := len(o.words) - 1
		return invalid(name, name+" must be "+strings.Join(o.words[:last], ", ")+" or "+o.words[last])
	}
	*o.to = v.text
	return nil
}

// lockName is the name of a lock, or its directory's.
type lockName string

func (l *lockName) read(name string, v value) error {
	if isSecret(v.text) {
		return invalid(name, tokenHint(v.text))
	}
	parsed, err := recipe.ParseLockName(v.text)
	if err != nil {
		return invalid(name, err.Error())
	}
	*l = lockName(parsed)
	return nil
}

// leaseID is a lease's id in a path.
type leaseID string

func (l *leaseID) read(_ string, v value) error {
	if _, err := recipe.ParseLeaseID(v.text); err != nil {
		p := &problem{code: code(locks.CodeNotFound), detail: "this is not a lease's id"}
		if isSecret(v.text) {
			p.detail = tokenHint(v.text)
		}
		return p
	}
	*l = leaseID(v.text)
	return nil
}

// self in place of a lease's id is the lease that the Lease-Token header names.
const self = "self"

// leaseOrSelf is a lease's id, or "" for self.
type leaseOrSelf string

func (l *leaseOrSelf) read(name string, v value) error {
	if v.text == self {
		return nil
	}
	return (*leaseID)(l).read(name, v)
}

// secret is the value of a header that only the domain looks into.
type secret string

func (s *secret) read(name string, v value) error {
	if v.text == "" {
		return invalid(name, name+" must not be empty")
	}
	*s = secret(v.text)
	return nil
}

// tokenHint is said of a token where other clients can read it.
func tokenHint(s string) string {
	if token.Form(s) {
		return "this is an API token: it is a secret, and travels in the Authorization header, never in a URL"
	}
	return "this is a lease token: it is a secret, and travels in the Lease-Token header, never in a URL"
}

// isSecret reports whether a text is a lease token or an API token.
func isSecret(s string) bool { return isLeaseToken(s) || token.Whole(s) }

func isLeaseToken(s string) bool { return strings.HasPrefix(s, "lk1.") && strings.Count(s, ".") == 3 }

// leaseOf is the id in a lease token; "" when there is none. It says nothing about whether the token is genuine.
func leaseOf(text string) string {
	if !isLeaseToken(text) {
		return ""
	}
	id, _, _ := strings.Cut(text[len("lk1."):], ".")
	if _, err := recipe.ParseLeaseID(id); err != nil {
		return ""
	}
	return id
}
