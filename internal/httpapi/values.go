package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// maxWait is the longest wait of an acquire that has an end.
const maxWait = 24 * time.Hour

// duration reads a span that has a unit.
func duration(field string, v value, least, most time.Duration) (time.Duration, *problem) {
	switch v.kind {
	case isNumber:
		return 0, needsUnit(field, v.text)
	case isText:
	default:
		return 0, invalid(field, "it is a duration in a string, such as \"30s\"")
	}
	d, err := time.ParseDuration(v.text)
	switch {
	case (err != nil || d == 0) && isBareNumber(v.text):
		return 0, needsUnit(field, v.text)
	case err != nil:
		return 0, invalid(field, "it is a number with a unit (ms, s, m, h), such as 30s or 1m30s")
	case d < least || d > most:
		return 0, invalid(field, fmt.Sprintf("it is from %s to %s", span(least), span(most)))
	}
	return d, nil
}

// isBareNumber tells a number without a unit. time.ParseDuration takes "0".
func isBareNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil && strings.ContainsAny(s, "0123456789")
}

func needsUnit(field, number string) *problem {
	p := &problem{code: codeNeedsUnit, field: field, detail: "add a unit, such as 30s, 1m30s or 24h"}
	if _, err := strconv.ParseUint(number, 10, 32); err == nil {
		p.detail = "add a unit: " + number + "s for seconds, " + number + "ms for milliseconds"
	}
	return p
}

// span writes a duration as people do: 24h, not 24h0m0s.
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func boolean(field string, v value) (bool, *problem) {
	if v.kind == isBool || v.kind == isText && v.source == fromQuery {
		switch v.text {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	}
	return false, invalid(field, "it is true or false")
}

// integer reads a whole number, which is a number in JSON.
func integer(field string, v value, least, most int) (int, *problem) {
	n, err := strconv.Atoi(v.text)
	isInteger := v.kind == isText && v.source == fromQuery || v.kind == isNumber
	if err != nil || !isInteger || n < least || n > most || v.text[0] == '+' {
		return 0, invalid(field, fmt.Sprintf("it is a whole number from %d to %d", least, most))
	}
	return n, nil
}

// fencingToken reads a fencing token; ok is false when it cannot be one.
func fencingToken(s string) (token int64, ok bool) {
	token, err := strconv.ParseInt(s, 10, 64)
	return token, err == nil && token > 0 && s[0] != '+'
}

// someText is text that says something: an empty filter would let everything
// through, which is not what a script with an unset variable asks for.
func someText(field string, v value, limit int) (string, *problem) {
	s, p := text(field, v, limit)
	if p == nil && s == "" {
		p = invalid(field, "it is empty: give it a value, or leave it out")
	}
	return s, p
}

// choice reads one of a few words.
func choice(field string, v value, words ...string) (string, *problem) {
	if v.kind == isText {
		for _, word := range words {
			if v.text == word {
				return word, nil
			}
		}
	}
	return "", invalid(field, "it is "+strings.Join(words, " or "))
}

// text reads a label of at most limit bytes without control characters: it is
// shown to everyone and stands in logs, so it is no lease token either.
func text(field string, v value, limit int) (string, *problem) {
	if v.kind != isText {
		return "", invalid(field, "it is a string")
	}
	if len(v.text) > limit {
		return "", invalid(field, fmt.Sprintf("it has at most %d bytes, and this has %d", limit, len(v.text)))
	}
	if looksLikeToken(v.text) {
		return "", invalid(field, "this is a lease token: it is a secret, and everyone can read this field")
	}
	for _, r := range v.text {
		if unicode.IsControl(r) {
			return "", invalid(field, "it has no control characters")
		}
		if r == unicode.ReplacementChar {
			return "", invalid(field, "it has a character that was broken on the way (U+FFFD)")
		}
	}
	return v.text, nil
}

// opaque reads a word that a gateway gave out: a cursor, a revision.
func opaque(field string, v value, limit int) (string, *problem) {
	if v.kind != isText || v.text == "" || len(v.text) > limit || !visible(v.text) {
		return "", invalid(field, "give it back as the gateway gave it out")
	}
	return v.text, nil
}

// visible reports whether s has only visible ASCII characters.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return false
		}
	}
	return true
}

// holdName reads the name of a hold.
func holdName(v value) (string, *problem) {
	name, p := someText("hold", v, locks.MaxHoldName)
	if p == nil && !visible(name) {
		p = invalid("hold", "it has visible ASCII characters alone, and no spaces")
	}
	return name, p
}

func namespace(v value) (string, *problem) {
	if v.kind == isText && len(v.text) <= 64 && v.text != "" && isAlphanumeric(v.text[0]) {
		ok := true
		for i := range len(v.text) {
			ok = ok && (isAlphanumeric(v.text[i]) || strings.IndexByte("._-", v.text[i]) >= 0)
		}
		if ok {
			return v.text, nil
		}
	}
	return "", invalid("ns", "it is 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit")
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// lockName reads the name of a lock, whoever has made it.
func lockName(name string) (string, *problem) {
	if looksLikeToken(name) {
		return "", invalid("lock", tokenHint)
	}
	parsed, err := recipe.ParseLockName(name)
	return parsed, wrongName(err)
}

// newLockName checks the name of a lock that is to be taken.
func newLockName(name string) *problem {
	if looksLikeToken(name) {
		return invalid("lock", tokenHint)
	}
	return wrongName(recipe.CheckLockName(name))
}

func wrongName(err error) *problem {
	var wrong *recipe.LockNameError
	if errors.As(err, &wrong) {
		return invalid("lock", "a lock's name "+wrong.Detail)
	}
	return nil
}

// tokenHint is for those who put a lease token where others can read it.
const tokenHint = "this is a lease token: it is a secret, and travels in the Lease-Token header, never in a URL"

func looksLikeToken(s string) bool { return strings.HasPrefix(s, "lk1.") && strings.Count(s, ".") == 3 }

// leaseOf is the id in a lease token; "" when there is none. It says nothing
// about whether the token is genuine.
func leaseOf(token string) string {
	if !looksLikeToken(token) {
		return ""
	}
	id, _, _ := strings.Cut(token[len("lk1."):], ".")
	if _, err := recipe.ParseLeaseID(id); err != nil {
		return ""
	}
	return id
}

// single reads a header that may be given once.
func single(h http.Header, name string) (s string, given bool, p *problem) {
	values := h[name]
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	}
	return "", false, &problem{code: codeRepeatedField, field: name, detail: "it is given twice"}
}

// leaseToken reads the Lease-Token header; "" when there is none.
func leaseToken(h http.Header) (string, *problem) {
	token, _, p := single(h, "Lease-Token")
	return token, p
}

// neededToken reads the Lease-Token header where nothing goes without it.
func neededToken(h http.Header) (string, *problem) {
	token, p := leaseToken(h)
	if p == nil && token == "" {
		p = &problem{code: string(locks.CodeTokenMissing), detail: "send the token that came with the lease in the Lease-Token header"}
	}
	return token, p
}

// idempotencyKey reads the Idempotency-Key header; "" when there is none.
func idempotencyKey(h http.Header) (string, *problem) {
	const name = "Idempotency-Key"
	key, given, p := single(h, name)
	if p != nil || !given {
		return "", p
	}
	if len(key) < locks.MinKeyLength || len(key) > locks.MaxKeyLength || !visible(key) {
		return "", invalid(name, fmt.Sprintf("it has %d to %d visible ASCII characters: a fresh random one for each attempt to do the job, secret like the token",
			locks.MinKeyLength, locks.MaxKeyLength))
	}
	return key, nil
}
