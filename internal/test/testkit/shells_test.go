package testkit

import (
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestWhatAShellRunsIsNoticed(t *testing.T) {
	for _, shell := range Shells {
		for text, want := range map[string]bool{
			`{"owner":"$(canary)"}`:           true,
			"{\"owner\":\"`canary`\"}":        true,
			"A=b\ncanary\nfalse":              true,
			`: "${x:-$(canary)}"`:             true,
			"A=b;canary":                      true,
			"A=b>x":                           true,
			`{"owner":"\u0024(canary)"}`:      false,
			"A='canary'":                      false,
			"<html>\r\n<title>x</title>\r\n":  false,
			"400 Bad Request: malformed Host": false,
			"":                                false,
		} {
			results, ran := Eval(t, shell, true, [][]byte{[]byte(text), []byte("LEASE_ID=new\nLEASE_TOKEN=\nFENCING_TOKEN=\x007\nLEASE_ERROR=no\nfalse\n\n")})
			want2 := Evaluated{1, "new", "", "7", "no", "old"}
			assert.That(t, ran == want && len(results) == 2 && results[1] == want2, "%s: %q ran: %v, %+v", shell, text, ran, results)
		}
		together, ran := Eval(t, shell, false, [][]byte{[]byte("LEASE_ID=1"), []byte("(exit 3)"), []byte("nothing-like-this")})
		want := []Evaluated{{0, "1", "old", "old", "old", "old"}, {3, "old", "old", "old", "old", "old"}, {127, "old", "old", "old", "old", "old"}}
		assert.That(t, !ran && slices.Equal(together, want), "%s: %+v", shell, together)
	}
}
