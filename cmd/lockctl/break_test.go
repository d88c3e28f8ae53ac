package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// Between the look and the end another client may have got the lock: its lease must not be ended in place of the one that was shown.
func TestBreakEndsNoOthersThanItHasShown(t *testing.T) {
	t.Setenv("LOCKKEEPER_TOKEN", "")
	t.Setenv("LOCKKEEPER_TOKEN_FILE", "")
	var bodies []map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		bodies = append(bodies, body)
		if body["dry_run"] == true {
			_, _ = w.Write([]byte(`{"reaped": [{"lease_id": "lkone", "znode": "/a/one", "mode": "shared"}, {"foreign": {"program": "kazoo"}, "znode": "/a/two", "mode": "shared"}],
				"unreached": [], "dry_run": true, "more": false}`))
			return
		}
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"code": "holder_changed", "detail": "lkone does not hold it any more"}`))
	}))
	defer server.Close()
	var out, complaints strings.Builder
	code := run([]string{"--url", server.URL, "break", "report", "--yes", "--owner", "ci", "--ns", "prod"}, strings.NewReader(""), &out, &complaints)
	assert.That(t, code == exitNotAcquired && strings.Contains(complaints.String(), "hint: none was ended"), "exit code %d, said %s", code, complaints.String())
	assert.Must(t, len(bodies) == 2, "sent %v", bodies)
	for _, body := range bodies {
		assert.That(t, body["owner"] == "ci" && body["ns"] == "prod" && body["state"] == "held" && body["older_than"] == "0s", "the filters were %v", body)
	}
	text, err := json.Marshal(bodies[1])
	assert.NoError(t, err)
	assert.That(t, strings.Contains(string(text), `"lease_ids":["lkone"]`) && strings.Contains(string(text), `"znodes":["/a/two"]`) && bodies[1]["dry_run"] == false, "asked to end %s", text)
}

// What clients have written must do nothing to a terminal.
func TestWhatIsPrintedCannotMoveTheCursor(t *testing.T) {
	for text, want := range map[string]string{"plain ü": "plain ü", "a\x1b[2Jb": `a\u001b[2Jb`, "a\nb": `a\u000ab`, "\u202e": `\u202e`} {
		assert.That(t, visible(text) == want, "%q is shown as %q", text, visible(text))
	}
}
