package recipe

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

func TestALockOfAnotherProgramHasOneName(t *testing.T) {
	for dir, name := range map[string]string{
		"deploy":                 "deploy",
		"a:b.c~d@e=f+g-h_i":      "a:b.c~d@e=f+g-h_i",
		"my lock ü":              "my%20lock%20%C3%BC",
		"100%":                   "100%25",
		"my%20lock":              "my%2520lock",
		".hidden":                "%2Ehidden",
		"-dash":                  "%2Ddash",
		"a,b":                    "a%2Cb",
		strings.Repeat("a", 300): strings.Repeat("a", 300),
	} {
		assert.Equal(t, LockName(dir), name, "LockName(%q)", dir)
		got, ok := LockDir(name)
		assert.That(t, ok && got == dir, "LockDir(%q) = %q, %v, want %q", name, got, ok, dir)
		got, err := ParseLockName(name)
		assert.That(t, err == nil && got == name, "ParseLockName(%q) = %q, %v", name, got, err)
		got, err = ParseLockName(dir)
		assert.That(t, strings.Contains(dir, "%") || err == nil && got == name, "ParseLockName(%q) = %q, %v", dir, got, err)
	}
	for s, problem := range map[string]string{
		"":            "empty",
		"a/b":         "':'",
		"a%2Fb":       "':'",
		".":           "refuses",
		"%2E%2E":      "in another way: %2E.",
		"a\x00b":      "refuses",
		"a%00b":       "refuses",
		"a\xff":       "refuses",
		"a%FF":        "refuses",
		"a\u0085b":    "refuses",
		"\ue000":      "refuses",
		"\U0001F512":  "refuses",
		"100%":        "%25",
		"a%2":         "%25",
		"a%c3%bc":     "%25",
		"%61":         "is written in another way: a",
		"my lock%20ü": "is written in another way: my%20lock%20%C3%BC",
	} {
		var wrong *LockNameError
		if name, err := ParseLockName(s); !errors.As(err, &wrong) || !strings.Contains(wrong.Detail, problem) {
			t.Errorf("ParseLockName(%q) = %q, %v; want an error with %q", s, name, err, problem)
		}
	}
}

// The name of any directory is reversible, of the characters of names and of
// escapes alone, and unchanged where it could be a name of ours.
func TestEveryDirectoryHasANameAndEveryNameOneDirectory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{1,12}`), rapid.StringMatching(`[a-c%0-9A-F]{1,8}`)).Draw(t, "dir")
		name := LockName(dir)
		back, ok := LockDir(name)
		assert.Must(t, ok && back == dir, "%q is called %q, and that is %q, %v", dir, name, back, ok)
		assert.Must(t, CheckLockName(dir) != nil || name == dir, "%q is called %q", dir, name)
		for i := range len(name) {
			c := name[i]
			assert.Must(t, c == '%' || isAlphanumeric(c) || isLockNameMark(c), "%q is called %q", dir, name)
		}
		assert.Must(t, CheckLockName(name) != nil || name == dir, "%q is called %q, which another lock may be called", dir, name)
		parsed, err := ParseLockName(dir) // as a client would type it
		if err == nil {
			if again, err := ParseLockName(parsed); err != nil || again != parsed {
				t.Fatalf("%q is %q, and that %q, %v", dir, parsed, again, err)
			}
			d, _ := LockDir(parsed)
			assert.Must(t, utf8.ValidString(d) && (d == dir || strings.Contains(dir, "%")), "%q is taken for %q", dir, d)
		}
		cut := rapid.IntRange(0, len(name)).Draw(t, "cut")
		if p := ParseNamePrefix(name[:cut]); !strings.HasPrefix(dir, p.Dir()) || !p.Fits(dir) {
			t.Fatalf("%q begins with %q, and is not found by it", name, name[:cut])
		}
	})
}
