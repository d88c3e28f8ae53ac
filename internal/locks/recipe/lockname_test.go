package recipe

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

func TestALockNameIsOneZnodeName(t *testing.T) {
	for _, test := range []struct {
		name, problem string // "" for a good name
	}{
		{"deploy", ""},
		{"7", ""},
		{"Team:service:job-1_a.b~c@d=e+f", ""},
		{strings.Repeat("a", 200), ""},
		{strings.Repeat("a", 201), "at most 200 characters, has 201"},
		{"", "must not be empty"},
		{"a/b", "':'"},
		{"/a", "':'"},
		{".", "start with a letter or a digit"},
		{"..", "start with a letter or a digit"},
		{"-x", "not with '-'"},
		{":x", "not with ':'"},
		{"a b", "' '"},
		{"a\x00b", "U+0000"},
		{"a\nb", "U+000A"},
		{"ключ", "'к'"},
		{"a\xff", "not UTF-8"},
		{"a%2fb", "'%'"},
		{"a%25b", "'%'"},
		{"a%20b", "' '"},
		{"a%2A%2Ab", "'*'"},
		{"a%C3%BC", "'ü'"}, // as ParseLockName writes it
		{"a%E2%80%8Bb", "U+200B"},
		{"a,b", "','"},
	} {
		err := CheckLockName(test.name)
		if test.problem == "" {
			assert.Nil(t, err, "CheckLockName(%q)", test.name)
			continue
		}
		var nameErr *LockNameError
		assert.That(t, errors.As(err, &nameErr) && nameErr.Name == test.name && strings.Contains(err.Error(), test.problem),
			"CheckLockName(%q): %v; want %q", test.name, err, test.problem)
	}
}

func TestEveryByteOfALockNameIsAllowedOrRefused(t *testing.T) {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~@:=+-"
	for c := range 256 {
		err := CheckLockName("x" + string([]byte{byte(c)}))
		good := strings.IndexByte(allowed, byte(c)) >= 0
		assert.That(t, good == (err == nil), "byte %q: %v", byte(c), err)
	}
}

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

func TestEachWaiterKnowsWhatItWaitsFor(t *testing.T) {
	for queue, want := range map[string]string{ // 2/3: two permits of three; - holds, or nothing is in its way
		"x x x":                   "- first after-1w",
		"x s s":                   "- first after-0",
		"s s x s s":               "- - first after-1w after-1w",
		"s x s 1/3":               "- first after-1w after-1w",
		"2/10 3/10 6/10 1/10 x s": "- - first,5-of-10 after-1,0-of-10 after-2 after-3w",
		"1/3 s":                   "- first",
		"s 1/3":                   "- first",
		"2/3 1/9 1/3":             "- - first,0-of-3",
	} {
		var q Queue
		for i, word := range strings.Fields(queue) {
			c := &Contender{Name: fmt.Sprintf("c-%010d", i), Number: int32(i), Ours: true, LeaseID: LeaseID(rune('a' + i)), Member: 1, Members: 1}
			switch word {
			case "s":
				c.Mode = Shared
			case "x":
			default:
				c.Mode = Permit
				assert.Value(fmt.Sscanf(word, "%d/%d", &c.Permits, &c.Limit))(t)
			}
			q.Insert(c)
		}
		var ahead Ahead
		var got []string
		for _, c := range q.All() {
			position, _ := q.Position(c.Name)
			wait := ahead.Next(c, position)
			assert.That(t, (wait == nil) == q.Holds(c.Name), "%s: %s: %+v, and the queue decides otherwise", queue, c.Name, wait)
			if wait == nil {
				got = append(got, "-")
				continue
			}
			text := "first"
			if !wait.First {
				text = fmt.Sprintf("after-%d", wait.Position)
			}
			if wait.Writer && !wait.First {
				text += "w"
			}
			if wait.Permits {
				text += fmt.Sprintf(",%d-of-%d", wait.Free, c.Limit)
			}
			got = append(got, text)
		}
		assert.That(t, strings.Join(got, " ") == want, "%s: %s, want %s", queue, got, want)
	}
}
