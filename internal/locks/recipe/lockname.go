package recipe

import (
	"fmt"
	"net/url"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// MaxLockName is the greatest length of a lock's name.
const MaxLockName = 200

// LockNameError says what is wrong with a lock's name, in a sentence for the person that chose it.
type LockNameError struct {
	Name   string // as given
	Detail string
}

func (e *LockNameError) Error() string { return "lock name: " + e.Detail }

// CheckLockName checks the name of a new lock: 1 to 200 of A-Z a-z 0-9 . _ ~ @ : = + -, the first a letter or a digit.
// The name is a znode's: without slashes it stays one level deep. No name is "." or "..", which ZooKeeper refuses.
// The error is a *LockNameError.
func CheckLockName(name string) error {
	if name == "" {
		return &LockNameError{name, "must not be empty"}
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case isAlphanumeric(c):
		case c == '/':
			return &LockNameError{name, "must not contain '/'; use ':' to separate the parts of a name, as in team:service:job"}
		case c == '%':
			return &LockNameError{name, "must not contain " + encodedAt(name[i:]) + "; allowed are A-Z a-z 0-9 . _ ~ @ : = + -. A lock that another program has made under another name can be looked at and ended, and not taken"}
		case !isLockNameMark(c):
			return &LockNameError{name, "must not contain " + characterAt(name[i:]) + "; allowed are A-Z a-z 0-9 . _ ~ @ : = + -"}
		case i == 0:
			return &LockNameError{name, "must start with a letter or a digit, not with " + characterAt(name)}
		}
	}
	if len(name) > MaxLockName {
		return &LockNameError{name, "must have at most " + strconv.Itoa(MaxLockName) + " characters, has " + strconv.Itoa(len(name))}
	}
	return nil
}

// characterAt tells a person the first character of s: itself, or its number when it cannot be seen.
func characterAt(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && size == 1:
		return "a byte that is not UTF-8"
	case unicode.IsPrint(r):
		return "'" + string(r) + "'"
	}
	return fmt.Sprintf("the character U+%04X", r)
}

// encodedAt is characterAt for what ParseLockName has encoded: the character that the client wrote.
func encodedAt(s string) string {
	n := 0
	for n+3 <= len(s) && s[n] == '%' {
		n += 3
	}
	if decoded, err := url.PathUnescape(s[:n]); err == nil && n > 0 && decoded[0] != '%' && decoded[0] != '/' {
		return characterAt(decoded)
	}
	return "'%'"
}

func isLockNameMark(c byte) bool {
	switch c {
	case '.', '_', '~', '@', ':', '=', '+', '-':
		return true
	}
	return false
}
