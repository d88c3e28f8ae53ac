package httpapi

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

var writeErrors = flag.Bool("errors.write", false, "write the tables of docs/errors.md")

// errorTables are the tables of docs/errors.md: the catalogue, by status.
func errorTables() string {
	var text strings.Builder
	status := 0
	for _, k := range catalogue() {
		if k.status != status {
			status = k.status
			fmt.Fprintf(&text, "\n## %d %s\n\n| code | cause | what to do |\n|---|---|---|\n", status, http.StatusText(status))
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", k.code, k.cause, strings.ReplaceAll(k.help, "|", `\|`))
	}
	return text.String()
}

func TestTheDocumentHasEveryErrorOfTheCatalogue(t *testing.T) {
	const name, mark = "../../docs/errors.md", "<!-- what follows is written by: go test ./internal/httpapi -run TheDocumentHasEveryError -errors.write -->\n"
	text, err := os.ReadFile(name)
	assert.NoError(t, err)
	head, tables, found := strings.Cut(string(text), mark)
	assert.Must(t, found, "%s must have the line %s", name, mark)
	if *writeErrors {
		assert.NoError(t, os.WriteFile(name, []byte(head+mark+errorTables()), 0o600))
		return
	}
	assert.That(t, tables == errorTables(), "%s is not what the catalogue says: go test ./internal/httpapi -run TheDocumentHasEveryError -errors.write", name)
}
