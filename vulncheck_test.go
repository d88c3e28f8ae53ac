package lockkeeper_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// vulncheck runs the script on one small package, with that database.
func vulncheck(t *testing.T, database string) (code int, says string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "scripts/vulncheck", "./internal/locks/recipe")
	cmd.Env = append(os.Environ(), "LOCKKEEPER_VULNDB="+database, "no_proxy=127.0.0.1")
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), string(out)
	}
	assert.NoError(t, err)
	return 0, string(out)
}

func TestVulncheckSaysSoWhereItsDatabaseCannotBeReached(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	began := time.Now()
	code, says := vulncheck(t, gone.URL)
	assert.That(t, code == 0 && strings.HasPrefix(says, "govulncheck: database not reachable, skipped"), "exit code %d: %s", code, says)
	took := time.Since(began)
	assert.That(t, took <= 10*time.Second, "it took %v", took)
}

// What the database knows of and the code calls is a failure; without it the same run passes.
func TestVulncheckFailsForWhatItFinds(t *testing.T) {
	testkit.NotShort(t, "govulncheck takes seconds")
	const id, modified = "GO-2999-0001", "2026-01-01T00:00:00Z"
	entry := fmt.Sprintf(`{"schema_version":"1.3.1","id":%q,"modified":%[2]q,"published":%[2]q,"aliases":[],"summary":"made up","details":"made up",
		"affected":[{"package":{"name":"stdlib","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
		"ecosystem_specific":{"imports":[{"path":"strings","symbols":["HasPrefix","Cut","IndexByte"]}]}}],"references":[],"database_specific":{"url":"https://pkg.go.dev/vuln/"}}`, id, modified)
	for _, known := range []bool{true, false} {
		files := map[string]string{"/index/db.json.gz": `{"modified":"` + modified + `"}`, "/index/modules.json.gz": "[]"}
		if known {
			files["/index/modules.json.gz"] = `[{"path":"stdlib","vulns":[{"id":"` + id + `","modified":"` + modified + `"}]}]`
			files["/ID/"+id+".json.gz"] = entry
		}
		database := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, ok := files[r.URL.Path]
			if !ok {
				http.NotFound(w, r)
				return
			}
			packed := gzip.NewWriter(w)
			defer packed.Close()
			_, _ = io.WriteString(packed, text)
		}))
		defer database.Close()
		code, says := vulncheck(t, database.URL)
		if want := map[bool]int{true: 3, false: 0}[known]; code != want || strings.Contains(says, id) != known {
			t.Errorf("the database knows of it: %v; exit code %d, want %d: %s", known, code, want, says)
		}
	}
}
