package recipe

import (
	"errors"
	"strings"
	"testing"

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
