package e2e

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// keyInCurl is an Idempotency-Key as a curl line sends it. A comment or a table that names the header alone does not match.
var keyInCurl = regexp.MustCompile(`(?i)idempotency-key: *([^'" ]+)`)

// guessableKeys are the keys of a page's curl lines that a reader might copy as they are. A key is a secret, so examples take it
// from a variable or a command that makes a random one.
func guessableKeys(page string) (list []string) {
	for line := range strings.Lines(page) {
		if !strings.Contains(line, "curl") {
			continue
		}
		for _, m := range keyInCurl.FindAllStringSubmatch(line, -1) {
			if !strings.HasPrefix(m[1], "$") {
				list = append(list, m[1])
			}
		}
	}
	return list
}

func TestNoDocumentedCurlLineHasAKeyThatCanBeGuessed(t *testing.T) {
	pages := documents(t)
	specification := assert.Value(os.ReadFile("../../../openapi.yaml"))(t)
	pages["openapi.yaml"] = string(specification)
	random := 0
	for page, text := range pages {
		for _, key := range guessableKeys(text) {
			t.Errorf("%s: the Idempotency-Key %s stands in the page: take it from $(openssl rand -hex 16) or $(uuidgen)", page, key)
		}
		random += strings.Count(text, "Idempotency-Key: $")
	}
	assert.That(t, random != 0, "no page has a curl line with an Idempotency-Key: the pattern finds nothing")
	got := guessableKeys("curl -H 'Idempotency-Key: nightly-2026-11-22' x\ncurl -H \"Idempotency-Key: $KEY\" x\ncurl -H \"idempotency-key:$(uuidgen)\" x\n| `Idempotency-Key: a` |")
	assert.That(t, slices.Equal(got, []string{"nightly-2026-11-22"}), "found %q", got)
}
