package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// scripted runs a script in a shell, in a directory of its own. $B is the gateway. It returns the exit code, what was
// written, and the files that are left: those of commands that ran.
func scripted(t *testing.T, shell, base, script string) (exit int, out string, left []string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), shell, "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "B="+base)
	text, err := cmd.CombinedOutput()
	_, exited := err.(*exec.ExitError)
	assert.Must(t, err == nil || exited, "%s: %v (scripts/setup test installs it)", shell, err)
	left = assert.Value(filepath.Glob(filepath.Join(dir, "*")))(t)
	return cmd.ProcessState.ExitCode(), string(text), left
}

// A client that takes a lock, or a program that writes into its directory, chooses words of the refusal that others meet.
func TestD1TheEvalOfARefusalRunsNothingThatOthersWrote(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	g := startStandalone(t, "--embedded-listen="+addr)
	// A holder, by two commands and with one of its own.
	exit, out, left := scripted(t, "bash", g.url(), `curl -sf -XPOST -G $B/v1/locks/report/leases --data-urlencode ttl=5m `+
		"--data-urlencode 'owner=$(id>pwned_owner)' --data-urlencode 'metadata=`id>pwned_meta`'")
	if exit != 0 || len(left) != 0 || !strings.Contains(out, `\u0024(id>pwned_owner)`) || !strings.Contains(out, `\u0060id>pwned_meta\u0060`) {
		t.Errorf("exit %d, %q: %s", exit, left, out)
	}
	taken := []string{"report"}
	// Other programs, at the same ZooKeeper.
	theirs := newForeign(t, addr, "")
	for lock, c := range map[string]struct{ node, data string }{
		"latch":  {"_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-latch-", "$(touch pwned)"},
		"mutex":  {"_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", "`touch pwned`"},
		"kazoo":  {"0123456789abcdef0123456789abcdef__lock__", "me$(touch pwned)"},
		"quotes": {"_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", "\";touch pwned;\"\n';touch pwned;'\ntouch pwned\n"},
		"bytes":  {"_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", "\x00\xff$(touch pwned)\u009b31m\u202e"},
		"long":   {"_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", strings.Repeat("$(touch pwned)", 1000)},
		"name":   {"$(touch pwned)-lock-", ""},
	} {
		dir := "/lockkeeper/locks/" + lock
		theirs.put(dir, nil)
		assert.Value(theirs.Create(dir+"/"+c.node, []byte(c.data), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)))(t)
		g.awaitLock(patience, lock, 1, 0)
		taken = append(taken, lock)
	}
	for _, lock := range taken {
		for _, shell := range testkit.Shells {
			for _, c := range []struct {
				request, code string
			}{
				{`"$B/v1/locks/` + lock + `/leases?ttl=30s&owner=cron&format=env"`, "held_by_other 409"},
				{`"$B/v1/locks/` + lock + `/leases?ttl=30s&owner=cron&wait=1s&format=env"`, "wait_elapsed 409"},
				{`"$B/v1/locks/` + lock + `/leases?dry_run=true&format=env"`, "unknown_field 422"},
				{`-H 'Accept: text/plain' "$B/v1/locks/` + lock + `/leases"`, "held_by_other 409"},
			} {
				all := lock == "report" || lock == "latch"
				if strings.Contains(c.request, "wait=") && !all {
					continue // each takes a second
				}
				for _, flags := range []string{"-sX", "-sfX"} {
					if !all && flags == "-sfX" {
						continue
					}
					exit, out, left := scripted(t, shell, g.url(), `LEASE_TOKEN=old; eval "$(curl `+flags+` POST `+c.request+`)"; echo "exit $? token $LEASE_TOKEN error $LEASE_ERROR $LEASE_STATUS"`)
					want := "exit 1 token  error " + c.code + "\n"
					if flags == "-sfX" {
						want = "exit 0 token old error  \n" // -f shows nothing, and eval of nothing succeeds
					}
					assert.That(t, exit == 0 && out == want && len(left) == 0,
						"%s, %s %s: exit %d, left %q: %s", shell, flags, c.request, exit, left, out)
				}
				// As the documentation has it: the script ends, with any options of curl.
				for _, flags := range []string{"--fail-with-body -sX", "-sX", "-sfX"} {
					if !all || strings.Contains(c.request, "wait=") {
						break
					}
					exit, out, left := scripted(t, shell, g.url(), `eval "$(curl `+flags+` POST `+c.request+` || echo ' false')" || exit 75; echo on`)
					assert.That(t, exit == 75 && out == "" && len(left) == 0,
						"%s, %s %s: exit %d, left %q: %s", shell, flags, c.request, exit, left, out)
				}
			}
			// By mistake: JSON, a list, a table, a page.
			for _, request := range []string{"-X POST $B/v1/locks/" + lock + "/leases", "$B/v1/locks/" + lock, "$B/v1/locks", "$B/v1/leases",
				"$B/v1/locks/" + lock + "?format=text", "$B/locks/" + lock, "$B/"} {
				_, out, left := scripted(t, shell, g.url(), `eval "$(curl -s `+request+`)"; echo "exit $?"`)
				assert.That(t, !strings.Contains(out, "exit 0\n") && len(left) == 0, "%s, %s: left %q: %s", shell, request, left, out)
			}
		}
	}
	// No gateway, half an answer, and successes.
	for _, shell := range testkit.Shells {
		acquire := `eval "$(curl --fail-with-body -sX POST "$B/v1/locks/` + shell + `/leases?format=env`
		for _, c := range []struct {
			script string
			want   int
		}{
			{`eval "$(curl --fail-with-body -sX POST http://` + freeAddr(t) + `/v1/locks/x/leases?format=env || echo ' false')" || exit 75`, 75},
			{`eval "$(printf 'LEASE_ID=\nLEASE_TOKEN=lk1.a'; echo ' false')" || exit 75`, 75},
			{acquire + `" || echo ' false')" || exit 75; [ $LEASE_STATE-$LEASE_STATUS = held-201 ]`, 0},
			{"set -e; " + acquire + `&async=true" || echo ' false')" || exit 75; [ $LEASE_STATE-$LEASE_STATUS = waiting-202 ]`, 0},
		} {
			exit, out, left := scripted(t, shell, g.url(), c.script)
			assert.That(t, exit == c.want && len(left) == 0, "%s: %s\nexit %d, left %q: %s", shell, c.script, exit, left, out)
		}
	}
}

// An answer without a word, or without its end, comes from something before the gateway. eval of nothing succeeds.
func TestAnEmptyOrCutAnswerStopsADocumentedShell(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]func(w http.ResponseWriter){
		"an empty failure": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
		"a refusal that breaks off": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "200")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, "LEASE_ID=\nLEASE_TOKEN=\n")
		},
		"a grant that breaks off": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "200")
			_, _ = io.WriteString(w, "LEASE_ID=a\nLEASE_TOKEN=lk1.a")
		},
		"a refusal without an end": func(w http.ResponseWriter) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.0 409 Conflict\r\n\r\nLEASE_ID=\nLEASE_TOKEN=\n")
				_ = conn.Close()
			}
		},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
		for _, shell := range testkit.Shells {
			exit, out, left := scripted(t, shell, server.URL, `LEASE_TOKEN=old
				eval "$(curl --fail-with-body -sX POST "$B/v1/locks/x/leases?format=env" || echo ' false')" || exit 75; echo "went on"`)
			assert.That(t, exit == 75 && out == "" && len(left) == 0, "%s, %s: exit %d, left %q: %s", shell, what, exit, left, out)
		}
		server.Close()
	}
}

// A reverse proxy has words of its own: nothing in them runs, and no script goes on.
func TestWhatNginxSaysByItselfIsNoSuccessToAShell(t *testing.T) {
	t.Parallel()
	front := behindNginx(t, &gateway{listen: freeAddr(t)}, &gateway{listen: freeAddr(t)})
	for _, shell := range testkit.Shells {
		for what, request := range map[string]string{
			"no gateway":   `-X POST "$B/v1/locks/x/leases?format=env"`,
			"a page":       `"$B/metrics"`,
			"a large head": `-H "X: $(printf '%60000d' 1)" "$B/"`,
			"a bad path":   `-X POST "$B/%zz?format=env"`,
		} {
			exit, out, left := scripted(t, shell, front.url(), `eval "$(curl --fail-with-body -s `+request+` || echo ' false')" || exit 75; echo "went on"`)
			// A syntax error ends dash at once.
			assert.That(t, (exit == 75 || shell == "dash" && exit == 2) && !strings.Contains(out, "went on") && len(left) == 0,
				"%s, %s: exit %d, left %q: %s", shell, what, exit, left, out)
		}
	}
}
