package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// Every curl line of the documentation, run as a reader would: page by page, from top to bottom in one shell, against a
// gateway that has just been started with its defaults.
func TestTheDocumentedCurlLinesDoWhatThePagesSay(t *testing.T) {
	t.Parallel()
	for page, text := range documents(t) {
		list, err := examples(text)
		assert.NoError(t, err, "%s", page)
		if _, own := pagesOfTheirOwn[page]; own || !slices.ContainsFunc(list, func(e example) bool { return e.curl }) {
			continue
		}
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			addr, chroot := zkreal.SharedT(t)
			g := newGateway(t, addr+chroot)
			g.flags = []string{"--zk=" + g.zk, "--listen=" + g.listen, "--log-format=json"}
			if page == "docs/operate/namespaces.md" {
				g.flags = append(g.flags, "--namespace=python=/app/locks:kazoo", "--namespace=hosts=/hosts:custom exclusive={id}-W- shared={id}-R-")
			}
			var hook *docReceiver
			if page == "docs/webhooks.md" {
				hook = startDocReceiver(t)
				g.flags = append(g.flags, "--webhook-allow=127.0.0.1")
			}
			g.start()
			g.awaitServing()
			addresses := []string{"localhost:8080", g.listen, "127.0.0.1:8080", g.listen}
			if page == "docs/guides/fencing-at-a-proxy.md" {
				addresses = append(addresses, "localhost:8081", startNginx(t, g.listen, newApp(t).listen))
			}
			if hook != nil {
				// What waits for a webhook is forgotten with it: a shell that is quicker than the delivery has to wait.
				addresses = append([]string{"curl -sX DELETE localhost:8080/v1/webhooks", "until [ -e '" + hook.told + "' ]; do sleep 0.05; done; curl -sX DELETE " + g.listen + "/v1/webhooks"},
					append(addresses, "localhost:9000", hook.listen)...)
			}
			ran := runExamples(t, list, addresses...)
			if hook != nil {
				hook.check(t, text)
			}
			for i, r := range ran {
				if err := r.check(&list[i]); err != nil {
					t.Errorf("%s:%d: %s\n%v\nanswer: %s%s", page, list[i].line, list[i].command, err, r.out, r.complaints)
				}
			}
		})
	}
}

// documents are the README and the pages of docs/, by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	const root = "../../.."
	pages := map[string]string{}
	add := func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		pages[filepath.ToSlash(path[len(root)+1:])] = string(text)
		return err
	}
	assert.NoError(t, filepath.WalkDir(root+"/docs", add))
	assert.NoError(t, filepath.WalkDir(root+"/README.md", add))
	return pages
}

// outcome is what became of one example.
type outcome struct {
	ran        bool
	exit       int
	statuses   []int // of each request, in order
	out        string
	complaints string
}

func (r *outcome) check(e *example) error {
	switch {
	case !r.ran:
		return fmt.Errorf("it was not reached")
	case r.exit != 0:
		return fmt.Errorf("exit code %d", r.exit)
	case e.curl && len(r.statuses) == 0:
		return fmt.Errorf("nothing was requested")
	}
	if e.file != "" {
		return nil
	}
	for i, status := range r.statuses {
		last := i == len(r.statuses)-1
		if want := e.status; want != 0 && last {
			if status != want {
				return fmt.Errorf("status %d, documented is %d", status, want)
			}
		} else if status < 200 || status > 299 {
			return fmt.Errorf("status %d", status)
		}
	}
	if err := inOrder(e.shows, r.out); e.shows != "" && err != nil {
		return err
	}
	if e.result == "" {
		return nil
	}
	return sameShape(e.result, r.out)
}

// readerOfExamples is a shell in which every curl, also inside $(...), says its status where it disturbs nothing. A reader ends
// a stream by hand, here after four seconds: it has to begin before that, on a busy machine too.
const readerOfExamples = `set -u
curl() {
	case " $* " in
	*" -sN "*) command curl "$@" --max-time 4 -w '%{stderr}\n@status %{http_code}\n' || [ $? = 28 ] ;;
	*) command curl --max-time 60 -w '%{stderr}\n@status %{http_code}\n' "$@" ;;
	esac
}
`

// pagesOfTheirOwn are run by the tests that they name.
var pagesOfTheirOwn = map[string]string{
	"docs/operate/moving-to-an-ensemble.md": "TestTheStepsOfMovingToAnEnsembleWorkAsTheyAreWritten",
}

// runExamples runs them in one shell, so that variables carry over, and tells what became of each. addresses are pairs: as
// written, and what is there now.
func runExamples(t *testing.T, list []example, addresses ...string) []outcome {
	t.Helper()
	const mark = "@example "
	var script strings.Builder
	script.WriteString(readerOfExamples)
	dir := t.TempDir()
	for i, e := range list {
		if e.file != "" {
			assert.NoError(t, os.WriteFile(filepath.Join(dir, e.file), []byte(strings.NewReplacer(addresses...).Replace(e.command)), 0o700))
			e.command = "test -x " + e.file
		}
		fmt.Fprintf(&script, "printf '\\n%s%d\\n' | tee /dev/stderr\n%s\nprintf '\\n@exit %%d\\n' $? >&2\n", mark, i, e.command)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(strings.NewReplacer(addresses...).Replace(script.String()))
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	assert.That(t, err == nil, "bash: %v\n%s", err, complaints.String())
	outcomes := make([]outcome, len(list))
	for i, part := range sections(out.String(), mark) {
		outcomes[i].out = strings.TrimSpace(part) + "\n"
	}
	for i, part := range sections(complaints.String(), mark) {
		r := &outcomes[i]
		r.ran = true
		for line := range strings.Lines(part) {
			line = strings.TrimSpace(line)
			if n, ok := strings.CutPrefix(line, "@status "); ok {
				status, _ := strconv.Atoi(n) // 000 when there was no answer
				r.statuses = append(r.statuses, status)
			} else if n, ok := strings.CutPrefix(line, "@exit "); ok {
				r.exit, _ = strconv.Atoi(n)
			} else if line != "" {
				r.complaints += line + "\n"
			}
		}
	}
	return outcomes
}

// sections are the parts of a text that follow the numbered marks.
func sections(text, mark string) map[int]string {
	parts := map[int]string{}
	for _, part := range strings.Split(text, "\n"+mark)[1:] {
		number, rest, _ := strings.Cut(part, "\n")
		if n, err := strconv.Atoi(number); err == nil {
			parts[n] = rest
		}
	}
	return parts
}
