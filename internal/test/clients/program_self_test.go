package clients

import (
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

func TestVerdictsAreReadFromWhatAProgramPrints(t *testing.T) {
	p := &program{scenarios: make(chan []string, 1), waiting: make(map[string]chan<- verdict)}
	good, bad := make(chan verdict, 1), make(chan verdict, 1)
	p.waiting["good"], p.waiting["bad-one"] = good, bad
	printed := "scenarios good bad-one\nnot for us\nok good\nfail bad-one \"Traceback\\n  line \\u00e4\"\nok stranger\nend without"
	for chunk := range strings.SplitSeq(printed, "o") { // it comes in any pieces
		assert.Value(p.Write([]byte(chunk)))(t)
		assert.Value(p.Write([]byte("o")))(t)
	}
	names := testkit.Receive(t, startWithin, p.scenarios, "no list")
	assert.That(t, len(names) == 2 && names[1] == "bad-one", "scenarios %q", names)
	assert.Equal(t, testkit.Receive(t, startWithin, good, "no verdict").trace, "", "what went well has the trace")
	assert.Equal(t, testkit.Receive(t, startWithin, bad, "no verdict").trace, "failed:\nTraceback\n  line ä", "trace")
	assert.Equal(t, p.log.String(), "not for us\nok stranger\n", "log")
}

func TestOnlyTheEndOfALogIsKept(t *testing.T) {
	var l tail
	for range 10 {
		assert.Value(l.Write([]byte(strings.Repeat("x", keptOutput/4) + "y")))(t)
	}
	s := l.String()
	assert.That(t, len(s) == keptOutput && strings.HasSuffix(s, "y"), "%d bytes are kept, want the last %d", len(s), keptOutput)
}
