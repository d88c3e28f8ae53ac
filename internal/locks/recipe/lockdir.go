package recipe

import (
	"strings"
	"unicode/utf8"
)

// Other programs' directories may have names that CheckLockName refuses: with spaces, of other alphabets, too long.
// The name of such a lock is its directory's name, percent-encoded as in URLs with capital digits.
// It encodes each byte that a name may not have, and a first byte that may not begin one.
// CheckLockName accepts no %, so each lock has one name, and each name one lock.

const hexDigits = "0123456789ABCDEF"

// LockName is the name of the lock with that directory.
func LockName(dir string) string {
	escapes := 0
	for i := range len(dir) {
		if !plainAt(i, dir[i]) {
			escapes++
		}
	}
	if escapes == 0 {
		return dir
	}
	b := make([]byte, 0, len(dir)+2*escapes)
	for i := range len(dir) {
		if c := dir[i]; plainAt(i, c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

// plainAt reports whether a byte stands for itself at that place of a name.
func plainAt(i int, c byte) bool { return isAlphanumeric(c) || i > 0 && isLockNameMark(c) }

// LockDir returns the directory of a lock by its name. ok is false for a name that LockName does not write.
func LockDir(name string) (dir string, ok bool) {
	if strings.IndexByte(name, '%') < 0 {
		return name, LockName(name) == name
	}
	dir, rest := unescape(name)
	return dir, rest == "" && LockName(dir) == name
}

// unescape decodes %XX. rest begins where decoding failed.
func unescape(s string) (read, rest string) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return string(b), s[i:]
		}
		high, low := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if high < 0 || low < 0 {
			return string(b), s[i:]
		}
		b = append(b, byte(high<<4|low))
		i += 2
	}
	return string(b), ""
}

// ParseLockName reads a lock's name or, without a %, its directory, and returns the name. The error is a
// *LockNameError: ZooKeeper can have no such directory, or LockName would write the name otherwise.
func ParseLockName(s string) (name string, err error) {
	dir, ok := LockDir(s)
	if !ok && strings.IndexByte(s, '%') >= 0 {
		dir, rest := unescape(s)
		detail := "has a % that two of 0-9 A-F do not follow; % itself is %25"
		if rest == "" {
			detail = "is written in another way: " + LockName(dir)
		}
		return "", &LockNameError{s, detail}
	}
	switch {
	case dir == "":
		return "", &LockNameError{s, "must not be empty"}
	case strings.IndexByte(dir, '/') >= 0:
		return "", &LockNameError{s, "must not contain '/'; use ':' to separate the parts of a name, as in team:service:job"}
	case dir == "." || dir == ".." || !utf8.ValidString(dir) || strings.ContainsFunc(dir, notInZnodes):
		return "", &LockNameError{s, "is one that ZooKeeper refuses: it has characters that no node's name may have"}
	}
	return LockName(dir), nil
}

// notInZnodes are the characters that ZooKeeper refuses. It counts in UTF-16, so all beyond U+FFFF are among them.
func notInZnodes(r rune) bool {
	return r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}

// NamePrefix finds locks by the beginning of a typed name: their directories begin with Dir, and Fits accepts them.
// Text without a % is the beginning of a directory.
type NamePrefix struct{ dir, name string }

// ParseNamePrefix reads the beginning of a name, which may end within a %XX.
func ParseNamePrefix(s string) NamePrefix {
	if strings.IndexByte(s, '%') < 0 {
		return NamePrefix{dir: s}
	}
	dir, _ := unescape(s)
	return NamePrefix{dir: dir, name: s}
}

// Dir begins all of their directories.
func (p NamePrefix) Dir() string { return p.dir }

// Fits reports whether the lock with that directory, which begins with Dir, matches.
func (p NamePrefix) Fits(dir string) bool {
	return p.name == "" || strings.HasPrefix(LockName(dir), p.name)
}
