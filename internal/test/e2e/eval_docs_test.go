package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

var (
	evaluates = regexp.MustCompile("\\beval\\b[^`]*?(\\$\\(|`)[^\n]*\\bcurl\\b")
	// A failure, an answer that does not come, and one that breaks off: each stops what needs the lock.
	stops = regexp.MustCompile(`\beval "\$\(curl --fail-with-body [^\n]* \|\| echo ' false'\)"( \|\| (exit|return|continue)\b|; then\b)`)
)

// carelessEvals are the lines of a text that go on without the lock when the acquire fails.
func carelessEvals(text string) (lines []string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if !evaluates.MatchString(line) {
			continue
		}
		m := stops.FindStringSubmatch(line)
		if m == nil || strings.Contains(m[1], "then") && !strings.Contains(line, "if ! eval ") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestNoDocumentedShellGoesOnWithoutTheLock(t *testing.T) {
	t.Parallel()
	read, found := 0, 0
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "vendor") {
				return filepath.SkipDir
			}
			return err
		}
		switch filepath.Ext(path) {
		case ".md", ".yaml", ".templ", ".html", ".js", ".sh", ".conf", ".service":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		found += len(stops.FindAllString(string(text), -1))
		for _, line := range carelessEvals(string(text)) {
			t.Errorf(`%s: %swrite eval "$(curl --fail-with-body ... || echo ' false')" || exit 75`, path, line)
		}
		return nil
	})
	assert.NoError(t, err)
	assert.That(t, read >= 20 && found >= 15, "%d files with %d lines were found: the test looks at the wrong place", read, found)
}

func TestACarelessEvalIsFound(t *testing.T) {
	t.Parallel()
	for line, careless := range map[string]bool{
		`eval "$(curl --fail-with-body -sX POST localhost:8080/x || echo ' false')" || exit 75`:          false,
		`eval "$(curl --fail-with-body -sX POST localhost:8080/x || echo ' false')" || exit 75   # 201`:  false,
		`eval "$(curl --fail-with-body -sX POST localhost:8080/x || echo ' false')" || return 1`:         false,
		`if ! eval "$(curl --fail-with-body -sX POST localhost:8080/x || echo ' false')"; then`:          false,
		"eval \"$(curl --fail-with-body -sX POST \\\n  localhost:8080/x || echo ' false')\" || continue": false,
		`eval "$(curl -sX POST localhost:8080/x || echo ' false')" || exit 75`:                           true,
		`nothing of it needs eval`:                                                                  false,
		`eval "$(curl --fail-with-body -sX POST localhost:8080/x)"`:                                 true,
		`eval "$(curl --fail-with-body -sX POST localhost:8080/x)" || exit 75`:                      true,
		`eval "$(curl --fail-with-body -sX POST localhost:8080/x || echo ' false')"`:                true,
		`eval "$(curl --fail-with-body -sX POST localhost:8080/x || echo false)" || exit 75`:        true,
		`eval "$(curl --fail-with-body -sX POST localhost:8080/x || echo ' false')" || echo failed`: true,
		`eval "$(curl --fail-with-body -sX POST localhost:8080/x || echo ' false')" # || exit 75`:   true,
		`if eval "$(curl --fail-with-body -sX POST localhost:8080/x || echo ' false')"; then`:       true,
		"eval `curl -sX POST localhost:8080/x`":                                                     true,
		"x && eval \"$(curl -sX POST \\\n  'localhost:8080/x?format=env')\"; echo go on":            true,
		`eval $(http_proxy= curl -sX POST localhost:8080/x) || exit 75`:                             true,
	} {
		found := carelessEvals(line)
		assert.That(t, (len(found) > 0) == careless, "%s: found %q", line, found)
	}
}
