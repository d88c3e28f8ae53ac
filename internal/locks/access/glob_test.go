package access

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

func TestGlobsMatchAsTheyRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		glob := rapid.StringMatching(`[ab*]{0,10}`).Filter(func(s string) bool { return strings.Count(s, "*") <= MaxStars }).Draw(t, "glob")
		name := rapid.StringMatching(`[ab]{0,12}`).Draw(t, "name")
		want := regexp.MustCompile("^" + strings.ReplaceAll(glob, "*", ".*") + "$").MatchString(name)
		assert.MustEqual(t, Match(glob, name), want, "Match(%q, %q)", glob, name)
	})
}

func TestAGlobHasNoOtherWildcardThanStars(t *testing.T) {
	for _, glob := range []string{"a?", "[a]", "a/b", `a\*`, "{a,b}", "a\x00", "a\xff", strings.Repeat("*", MaxStars+1), strings.Repeat("a", MaxGlob+1)} {
		assert.That(t, CheckGlob(glob) != nil, "%q was let through", glob)
	}
	for _, glob := range []string{"", "*", "shop:*", strings.Repeat("*", MaxStars), strings.Repeat("a", MaxGlob)} {
		assert.NoError(t, CheckGlob(glob))
	}
}
