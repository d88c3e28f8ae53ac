package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/otlptest"
	"lockkeeper/internal/test/zkreal"
)

// Every curl line of the documentation, run as a reader would: page by page, from top to bottom in one shell, against a
// gateway that has just been started with its defaults.
func TestTheDocumentedCurlLinesDoWhatThePagesSay(t *testing.T) {
	t.Parallel()
	for page, text := range documents(t) {
		list, err := examples(text)
		assert.NoError(t, err, "%s", page)
		if _, own := pagesOfTheirOwn[page]; own || len(list) == 0 {
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
			if page == "docs/guides/terraform.md" || page == "docs/guides/fleetlock.md" {
				g.flags = append(g.flags, "--compat=terraform,fleetlock")
			}
			var hook *docReceiver
			if page == "docs/webhooks.md" || page == "docs/guides/chat.md" {
				hook = startDocReceiver(t)
				g.flags = append(g.flags, "--webhook-allow=127.0.0.1")
			}
			var collector *otlptest.Receiver
			if page == "docs/guides/traces.md" {
				collector = otlptest.Start(t)
				g.flags = append(g.flags, "--otlp="+collector.URL)
				g.env = []string{exportSoon}
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
			switch page {
			case "docs/webhooks.md":
				hook.check(t, text)
			case "docs/guides/chat.md":
				hook.checkChat(t)
			}
			if collector != nil {
				checkDocumentedSpans(t, collector, text)
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
// a stream by hand, here half a second after it has begun.
const readerOfExamples = `set -u
curl() {
	case " $* " in
	*" -sN "*)
		local head=$(mktemp ./head.XXXXXX)
		command curl --max-time 60 "$@" -D "$head" & local pid=$!
		until [ -s "$head" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
		sleep 0.5
		kill $pid 2>/dev/null
		wait $pid 2>/dev/null
		printf '\n@status %s\n' "$(head -n 1 "$head" | cut -d' ' -f2)" >&2 ;;
	*) command curl --max-time 60 -w '%{stderr}\n@status %{http_code}\n' "$@" ;;
	esac
}
`

// pagesOfTheirOwn are run by the tests that they name.
var pagesOfTheirOwn = map[string]string{
	"docs/operate/moving-to-an-ensemble.md": "TestTheStepsOfMovingToAnEnsembleWorkAsTheyAreWritten",
	"docs/operate/backup.md":                "TestTheStepsOfABackupWorkAsTheyAreWritten",
	"docs/operate/tokens.md":                "TestTheStepsOfTokensWorkAsTheyAreWritten",
	"docs/operate/secrets.md":               "TestTheStepsOfTheSecretWorkAsTheyAreWritten",
	"docs/operate/install.md":               "packaging: TestTheCommandsOfTheInstallPageWorkAsTheyAreWritten",
	"docs/operate/security.md":              "TestTwoTeamsShareAGatewayAsThePageSays",
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
	here := strings.NewReplacer(addresses...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(lockctl(t))+":"+os.Getenv("PATH"), "LOCKKEEPER_URL=http://"+here.Replace("localhost:8080"))
	cmd.Stdin = strings.NewReader(here.Replace(script.String()))
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

// capabilities are what a library offers, by the pages of docs/from and the headings under which they have them.
var capabilities = map[string][]string{
	"curator.md / InterProcessMutex": {"acquire()", "acquire(time, unit)", "acquire() once more", "release()", "isAcquiredInThisProcess()",
		"isOwnedByCurrentThread()", "getParticipantNodes()", "getLockNodeBytes()", "withProtection()"},
	"curator.md / Revocable": {"makeRevocable(listener)", "makeRevocable(listener, executor)", "attemptRevoke(path)"},
	"curator.md / InterProcessReadWriteLock": {"readLock().acquire()", "readLock().acquire(time, unit)", "writeLock().acquire()", "writeLock().release()", "readLock().release()",
		"downgrade", "readLock().getParticipantNodes()", "writeLock().getParticipantNodes()", "new InterProcessReadWriteLock(client, path, data)"},
	"curator.md / InterProcessSemaphoreV2": {"acquire()", "acquire(3)", "acquire(time, unit)", "acquire(qty, time, unit)", "returnLease(lease)", "returnAll(leases)",
		"Lease.close()", "Lease.getData()", "Lease.getNodeName()", "setNodeData(data)", "getParticipantNodes()", "sharedCount"},
	"curator.md / InterProcessMultiLock": {"new InterProcessMultiLock(client, paths).acquire()", "new InterProcessMultiLock(locks)", "acquire(time, unit)", "release()", "isAcquiredInThisProcess()"},
	"curator.md / LeaderLatch": {"start()", "await()", "await(timeout, unit)", "hasLeadership()", "getState()", "getOurPath()", "getLeader()", "getParticipants()", "getId()",
		"addListener(listener)", "isLeader()", "notLeader()", "close()"},
	"hbase.md / InterProcessLock": {"acquire()", "tryAcquire(-1)", "tryAcquire(timeoutMs)", "release()", "visitLocks(handler)", "handleMetadata(ownerMetadata): told to the blocked"},
	"hbase.md / InterProcessReadWriteLock": {"readLock(metadata).acquire()", "writeLock(metadata).acquire()", "readLock(metadata).visitLocks(handler)", "reapExpiredLocks(expireTimeoutMs)",
		"readLock(metadata).reapAllLocks(): of this type alone", "writeLock(metadata).reapAllLocks()"},
	"zookeeper-recipes.md / WriteLock":                                  {"lock()", "unlock()", "isOwner()", "getId()", "LockListener.lockAcquired()", "LockListener.lockReleased()", "setLockListener(listener)", "dump of the nodes"},
	"zookeeper-recipes.md / Leader election":                            {"start(), with a wait after each leader", "getLeaderHostName()", "stop()"},
	"zookeeper-recipes.md / ZLock of bigdata":                           {"lock()", "lock(timeout, unit)", "unlock()", "unlock() by anyone entitled", "isLockHeld()", "getQueue()", "getLockRequestZNode()", "destroyLock()"},
	"zookeeper-recipes.md / The exclusive lock of the ZooKeeper books":  {"create an ephemeral sequential znode", "watch the znode before", "delete the znode", "a recoverable error", "the simple lock"},
	"zookeeper-recipes.md / The read-write lock of the ZooKeeper books": {"a read lock", "a write lock", "unlock"},
}

// That the lines do what they say is TestTheDocumentedCurlLinesDoWhatThePagesSay.
func TestEveryCapabilityOfTheOtherLibrariesHasACurlLine(t *testing.T) {
	t.Parallel()
	// What stands in comments right above a command, by its page and heading.
	described := map[string]string{}
	for name, text := range documents(t) {
		var part, words string
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if heading, ok := strings.CutPrefix(line, "## "); ok {
				part = heading
			} else if comment, ok := strings.CutPrefix(line, "# "); ok {
				words += comment + "\n"
			} else {
				if from, ok := strings.CutPrefix(name, "docs/from/"); ok && (sendsCurl.MatchString(line) || strings.HasPrefix(line, "KEY=")) {
					described[from+" / "+part] += words
				}
				words = ""
			}
		}
	}
	for heading, names := range capabilities {
		for _, name := range names {
			assert.That(t, strings.Contains(described[heading], name), "%s has no curl line for %s", heading, name)
		}
	}
}

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

// surroundings make the page's commands mean the gateway under test: what serves goes
// into the background, as a service manager would have it, and a status that is no
// success ends the script. There is one user, and the service is what the script began with.
const surroundings = `set -eu
trap '[ -z "${GATEWAY:-}" ] || { kill "$GATEWAY" && wait "$GATEWAY"; } || true' EXIT
curl() { command curl --fail-with-body --max-time 30 --retry 100 --retry-delay 1 --retry-all-errors --retry-max-time 30 "$@"; }
gateway() {
	case "$1" in
	export|import|backup|restore|token|secret) "$BINARY" "$@" ;;
	*) "$BINARY" "$@" & GATEWAY=$!; command curl -s --retry 300 --retry-delay 1 --retry-all-errors --retry-max-time 40 -o /dev/null --fail "$LOCKKEEPER_LISTEN/readyz" ;;
	esac
}
lockkeeper() { gateway "$@"; }
sudo() { [ "$1" != -u ] || shift 2; "$@"; }
systemctl() {
	case "$1" in
	stop) kill "$GATEWAY"; wait "$GATEWAY"; GATEWAY= ;;
	start) service ;;
	esac
}
`

// runSteps runs the commands of a page, from top to bottom, and returns what they printed and the files that are left.
// replaced are pairs: as written, and what is there now.
func runSteps(t *testing.T, page, first string, replaced ...string) (out string, left []string) {
	t.Helper()
	listen := freeAddr(t)
	commands, err := examples(documents(t)[page])
	assert.NoError(t, err)
	assert.That(t, len(commands) >= 4, "%s has only %d commands", page, len(commands))
	var script strings.Builder
	script.WriteString(surroundings + "service() { " + first + "; }\nservice\n")
	for _, e := range commands {
		fmt.Fprintf(&script, "printf '\\n@line %d\\n' >&2\n%s\n", e.line, e.command)
	}
	script.WriteString("printf '\\n@end\\n' >&2\n")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "BINARY="+binary(t), "LOCKKEEPER_LISTEN="+listen, "GORACE=halt_on_error=1")
	cmd.Stdin = strings.NewReader(strings.NewReplacer(append([]string{"localhost:8080", listen}, replaced...)...).Replace(script.String()))
	said, err := cmd.CombinedOutput()
	assert.Must(t, err == nil && strings.Contains(string(said), "\n@end\n") && !strings.Contains(string(said), "DATA RACE"),
		"%s: %v; the last @line did not work\n%s", page, err, said)
	left, err = filepath.Glob(cmd.Dir + "/*")
	assert.NoError(t, err)
	return string(said), left
}

func TestTheStepsOfMovingToAnEnsembleWorkAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	z := zkreal.StartT(t, zkreal.Real(), zkreal.WithoutFsync())
	out, left := runSteps(t, "docs/operate/moving-to-an-ensemble.md", "gateway --data-dir ./lockkeeper-data", "zk1:2181,zk2:2181,zk3:2181", z.Addr())
	n := strings.Count(out, `"state":"held"`)
	assert.That(t, n >= 2, "the lease was seen held %d times after a move\n%s", n, out)
	assert.That(t, len(left) == 4, "left behind: %v", left) // both data directories, the last export and the identity
}

func TestTheStepsOfABackupWorkAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	_, left := runSteps(t, "docs/operate/backup.md", "gateway --data-dir ./lockkeeper-data", "/var/lib/lockkeeper/", "./")
	assert.That(t, len(left) == 3, "left behind: %v", left) // both data directories and the backup
}

func TestTheStepsOfTokensWorkAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	out, left := runSteps(t, "docs/operate/tokens.md", "gateway --data-dir ./lockkeeper-data")
	assert.That(t, strings.Contains(out, "  ci-shop  active") && strings.Contains(out, "revoked ") && !strings.Contains(out, "lkt_"), "said: %s", out)
	assert.That(t, len(left) == 3, "left behind: %v", left) // the data directory, the token and the header
}

func TestTheStepsOfTheSecretWorkAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	out, _ := runSteps(t, "docs/operate/secrets.md", "gateway --data-dir ./lockkeeper-data")
	assert.That(t, strings.Contains(out, "phase          retiring") && strings.Contains(out, "lost: the tokens") && strings.Contains(out, "no rotation is under way"), "said: %s", out)
}

// The statements of docs/semantics.md, in another database that has them as well.
func TestTheDocumentedUpdateRefusesALateToken(t *testing.T) {
	t.Parallel()
	page := documents(t)["docs/semantics.md"]
	var statements []string
	for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(page, -1) {
		statements = append(statements, m[1])
	}
	assert.Must(t, len(statements) == 2, "the page must have the table and the update, and has %q", statements)
	out := assert.Value(exec.CommandContext(t.Context(), "python3", "-c", `
import sqlite3, sys
db = sqlite3.connect(":memory:")
db.executescript(sys.argv[1])
write = lambda fence: db.execute(sys.argv[2], {"1": fence, "2": "text"}).rowcount
print(write(33), write(33), write(34), write(33), write(34))
`, statements[0], statements[1]).CombinedOutput())(t)
	assert.That(t, string(out) == "1 1 1 0 1\n", "rows changed with 33, 33, 34, 33, 34: %s", out)
}
