package testkit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// Shells are those whose eval is tested: what Linux users type into, and what runs most scripts on Debian.
var Shells = []string{"bash", "dash"}

// Evaluated is what one eval has left behind.
type Evaluated struct {
	Exit int
	// The variables of an acquire. Before the eval each of them is "old".
	LeaseID, LeaseToken, FencingToken, LeaseError, LeaseStatus string
}

// Eval gives each text to the eval of a shell, as eval "$(curl ...)" does, and reports what it left behind and whether
// anything of it ran: the texts may call canary, or write to the file "$CANARY". Each eval has a shell of its own when
// apart is true, for texts that end the shell (a syntax error does, in dash); together they are a hundred times faster, and a
// text that ends the shell fails the test.
//
// Commands other than canary are not found: PATH is empty. The working directory is empty, too, and has to stay so.
func Eval(t testing.TB, shell string, apart bool, texts [][]byte) (results []Evaluated, ran bool) {
	t.Helper()
	path, err := exec.LookPath(shell)
	assert.Must(t, err == nil, "%v: scripts/setup test installs it", err)
	home := t.TempDir()
	work, canary := filepath.Join(home, "work"), filepath.Join(home, "canary")
	NoError(t, os.Mkdir(work, 0o700))
	file := filepath.Join(home, "script")
	NoError(t, os.WriteFile(file, evals(texts, apart), 0o600))
	cmd := exec.CommandContext(t.Context(), path, file)
	cmd.Dir, cmd.Env, cmd.Stdin = work, []string{"PATH=" + filepath.Join(home, "nothing"), "CANARY=" + canary, "LC_ALL=C.UTF-8"}, nil
	out, err := cmd.Output()
	_, exited := err.(*exec.ExitError)
	assert.Must(t, err == nil || exited, "%v", err)
	for line := range strings.Lines(string(out)) {
		if status, ended := strings.CutPrefix(line, "@ENDED "); ended {
			exit, _ := strconv.Atoi(strings.TrimSpace(status))
			results = append(results, Evaluated{Exit: exit})
		}
		fields, found := strings.CutPrefix(line, "@EVALUATED ")
		part := strings.Split(fields, "|")
		if !found || len(part) < 8 || part[0] != strconv.Itoa(len(results)) {
			continue
		}
		exit, _ := strconv.Atoi(part[1])
		results = append(results, Evaluated{exit, part[2], part[3], part[4], part[5], part[6]})
	}
	if _, err := os.Stat(canary); err == nil {
		ran = true
	}
	if left, _ := os.ReadDir(work); len(left) > 0 {
		ran = true
	}
	if len(results) != len(texts) && !ran {
		t.Errorf("%s: %d of %d evals came to their end: %s", shell, len(results), len(texts), Brief(texts[min(len(results), len(texts)-1)]))
	}
	return results, ran
}

// evals is the script that gives each text to eval.
func evals(texts [][]byte, apart bool) []byte {
	var script bytes.Buffer
	script.WriteString("canary() { echo ran >>\"$CANARY\"; }\n")
	for i, text := range texts {
		if apart {
			script.WriteString("(trap 'echo \"@ENDED $?\"' EXIT\n")
		}
		script.WriteString("LEASE_ID=old LEASE_TOKEN=old FENCING_TOKEN=old LEASE_ERROR=old LEASE_STATUS=old\neval ")
		// What $(...) keeps: no NUL, no line breaks at the end. The status of eval is that of its last command.
		text = bytes.TrimRight(bytes.ReplaceAll(text, []byte{0}, nil), "\n")
		script.WriteString("'" + strings.ReplaceAll(string(text), "'", `'\''`) + "'")
		fmt.Fprintf(&script, "\nprintf '@EVALUATED %d|%%s|%%s|%%s|%%s|%%s|%%s|\\n' \"$?\" \"$LEASE_ID\" \"$LEASE_TOKEN\" \"$FENCING_TOKEN\" \"$LEASE_ERROR\" \"$LEASE_STATUS\"\n", i)
		if apart {
			script.WriteString("trap - EXIT)\n")
		}
	}
	return script.Bytes()
}

// Brief is the beginning of a text, for the message of a test.
func Brief(text []byte) string {
	if len(text) > 500 {
		return fmt.Sprintf("%q...", text[:500])
	}
	return fmt.Sprintf("%q", text)
}
