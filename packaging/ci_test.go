package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rhysd/actionlint"
	"sigs.k8s.io/yaml"
)

// action is what runs a composite action.
type action struct {
	Inputs map[string]struct {
		Description, Default string
		Required             bool
	}
	Runs struct {
		Using string
		Steps []struct {
			Shell, Run       string
			WorkingDirectory string `json:"working-directory"`
			Env              map[string]string
		}
	}
}

const actionDir = "../deploy/ci/github"

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(contents(t, path), into, yaml.DisallowUnknownFields); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// A linter that reads the action's own file says whether the workflow uses it rightly.
func TestTheExampleWorkflowUsesTheActionAsItIs(t *testing.T) {
	lint := func(change func(string) string) []*actionlint.Error {
		t.Helper()
		root := t.TempDir()
		for name, to := range map[string]string{"action.yml": "deploy/ci/github/action.yml", "example.yml": ".github/workflows/deploy.yml"} {
			if err := os.MkdirAll(filepath.Join(root, filepath.Dir(to)), 0o755); err != nil {
				t.Fatal(err)
			}
			text := change(string(contents(t, filepath.Join(actionDir, name))))
			if err := os.WriteFile(filepath.Join(root, to), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command("git", "-C", root, "init", "-q").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{WorkingDir: root})
		if err != nil {
			t.Fatal(err)
		}
		found, err := linter.LintRepository(root)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, wrong := range lint(func(s string) string { return s }) {
		t.Error(wrong)
	}
	if len(lint(func(s string) string {
		return strings.Replace(s, "          lock: staging", "          locks: staging", 1)
	})) == 0 {
		t.Error("an input that the action does not have is not noticed")
	}
}

// What a user of a repository can choose must not become a part of a script: the name of a branch, for example.
func TestTheActionsInputsAreVariablesAndNeverScript(t *testing.T) {
	var a action
	readYAMLLoosely(t, filepath.Join(actionDir, "action.yml"), &a)
	if a.Runs.Using != "composite" || len(a.Runs.Steps) != 1 {
		t.Fatalf("%+v", a.Runs)
	}
	step := a.Runs.Steps[0]
	if step.Shell != "bash" || strings.Contains(step.Run, "${{") {
		t.Errorf("the step is %q", step.Run)
	}
	used := fmt.Sprint(step.Env, step.WorkingDirectory)
	script := string(contents(t, filepath.Join(actionDir, "step.sh")))
	for name := range a.Inputs {
		if !strings.Contains(used, "${{ inputs."+name+" }}") || a.Inputs[name].Description == "" {
			t.Errorf("nothing reads the input %s, or nothing says what it is", name)
		}
	}
	for name := range step.Env {
		if !strings.Contains(script, "$"+name) {
			t.Errorf("step.sh does not read %s", name)
		}
	}
	if out, err := tool(t, "shellcheck", "--severity=warning", filepath.Join(actionDir, "step.sh")); err != nil {
		t.Error(out)
	}
}

func readYAMLLoosely(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal(contents(t, path), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// runner is a machine on which a step of the action runs.
type runner struct {
	temp, bin string
	gateway   string // its URL
	env       []string
}

// newRunner starts a gateway out of the release, without rules.
func newRunner(t *testing.T) *runner {
	t.Helper()
	r := &runner{temp: t.TempDir(), bin: t.TempDir()}
	stem := first.stem(products[0], here)
	_, files := unpacked(t, filepath.Join(first.dir, stem+".tar.gz"))
	path := filepath.Join(t.TempDir(), "lockkeeper")
	if err := os.WriteFile(path, files[stem+"/bin/lockkeeper"], 0o755); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(path, "--listen=127.0.0.1:0", "--data-dir="+filepath.Join(t.TempDir(), "data"))
	cmd.Env, cmd.Stderr = []string{}, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	listening := regexp.MustCompile(`msg=listening address=(\S+)`)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if m := listening.FindSubmatch(contents(t, log)); m != nil {
			r.gateway = "http://" + string(m[1])
			if answer, err := http.Get(r.gateway + "/readyz"); err == nil {
				answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					return r
				}
			}
		}
	}
	t.Fatalf("the gateway does not serve:\n%s", contents(t, log))
	return nil
}

// step runs the action with these inputs, as GitHub's runner does, and returns its exit code and what it says.
func (r *runner) step(t *testing.T, inputs map[string]string) (int, string) {
	t.Helper()
	var a action
	readYAMLLoosely(t, filepath.Join(actionDir, "action.yml"), &a)
	dir, err := filepath.Abs(actionDir)
	if err != nil {
		t.Fatal(err)
	}
	expand := func(text string) string {
		return regexp.MustCompile(`\$\{\{ *([a-z0-9_.-]+) *\}\}`).ReplaceAllStringFunc(text, func(expression string) string {
			name := strings.Trim(expression, "${} ")
			if input, ok := strings.CutPrefix(name, "inputs."); ok {
				if value, ok := inputs[input]; ok {
					return value
				}
				return strings.NewReplacer("${{ github.server_url }}", "https://github.test", "${{ github.repository }}", "shop/web", "${{ github.run_id }}", "42").Replace(a.Inputs[input].Default)
			}
			t.Fatalf("the expression %s", expression)
			return ""
		})
	}
	for name := range inputs {
		if _, ok := a.Inputs[name]; !ok {
			t.Fatalf("no input %s", name)
		}
	}
	step := a.Runs.Steps[0]
	script := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(script, []byte(step.Run), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script)
	cmd.Dir = expand(step.WorkingDirectory)
	cmd.Env = append([]string{"PATH=" + r.bin + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + r.temp, "RUNNER_TEMP=" + r.temp, "GITHUB_PATH=" + filepath.Join(r.temp, "path"), "GITHUB_ACTION_PATH=" + dir}, r.env...)
	for name, value := range step.Env {
		cmd.Env = append(cmd.Env, name+"="+expand(value))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(r.temp, "lockkeeper-step.*")); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func (r *runner) expect(t *testing.T, inputs map[string]string, code int, says ...string) string {
	t.Helper()
	got, out := r.step(t, inputs)
	for _, part := range says {
		if !strings.Contains(out, part) {
			t.Errorf("%v does not say %q:\n%s", inputs, part, out)
		}
	}
	if got != code {
		t.Errorf("%v: exit code %d, not %d:\n%s", inputs, got, code, out)
	}
	return out
}

func TestAStepRunsUnderTheLock(t *testing.T) {
	r := newRunner(t)
	release := "file://" + first.dir
	look := `curl -s "$LOCKKEEPER_URL/v1/locks/$LOCKKEEPER_LOCK"`
	// Installed, under the lock, in the directory, with the failure of any command.
	dir := t.TempDir()
	out := r.expect(t, map[string]string{"url": r.gateway, "release": release, "lock": "staging", "ttl": "30s", "working-directory": dir,
		"run": "pwd\n" + look + "\necho fence=$LOCKKEEPER_FENCING_TOKEN; env | grep -c -e ^ACTION -e ^LOCKKEEPER_TOKEN || true\n"}, 0,
		dir+"\n", `"owner":"https://github.test/shop/web/actions/runs/42"`, "fence=", "\n0\n")
	if !strings.Contains(out, "installed v1.2.3-rc.4 in ") {
		t.Errorf("%s", out)
	}
	paths := strings.TrimSpace(string(contents(t, filepath.Join(r.temp, "path"))))
	if must(t, filepath.Join(paths, "lockctl"), "--version") != "v1.2.3-rc.4\n" {
		t.Error("later steps do not find lockctl")
	}
	r.bin = paths
	r.expect(t, map[string]string{"url": r.gateway, "lock": "staging", "run": "false\necho no further"}, 1)
	r.expect(t, map[string]string{"url": r.gateway, "lock": "staging", "run": "exit 9"}, 9)
	r.expect(t, map[string]string{"url": r.gateway, "lock": "a\nb", "run": "echo $LOCKKEEPER_LOCK"}, 0, "a,b")
	// Another job has it.
	begun := filepath.Join(t.TempDir(), "begun")
	held := exec.Command(filepath.Join(paths, "lockctl"), "run", "busy", "--", "sh", "-c", "touch "+begun+"; sleep 60")
	held.Env = []string{"LOCKKEEPER_URL=" + r.gateway, "PATH=/usr/bin:/bin"}
	if err := held.Start(); err != nil {
		t.Fatal(err)
	}
	defer held.Wait()
	defer held.Process.Signal(syscall.SIGTERM)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(begun); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the lock is not held")
		}
	}
	r.expect(t, map[string]string{"url": r.gateway, "lock": "busy", "wait": "0", "run": "echo ran"}, 75, "::error title=Lockkeeper::busy was not to be had")
	// An input is no script.
	r.expect(t, map[string]string{"url": r.gateway, "lock": "$(touch /tmp/no) `x`", "run": "echo ran"}, 64)
	// What does not go together.
	r.expect(t, map[string]string{"lock": "staging"}, 64, "lock is given, and run is not")
	r.expect(t, map[string]string{"run": "x"}, 64, "run is given, and lock is not")
	r.expect(t, map[string]string{"url": r.gateway, "token": "a", "audience": "b", "lock": "c", "run": "d"}, 64, "token and audience are both given")
	r.expect(t, map[string]string{"url": r.gateway, "audience": "b", "lock": "c", "run": "d"}, 64, "the job has no identity")
	r.expect(t, map[string]string{"url": r.gateway, "lock": "c", "run": "d", "shared": "yes"}, 64, "shared must be true or false")
	r.bin = t.TempDir()
	r.expect(t, map[string]string{"lock": "c", "run": "d"}, 64, "lockctl is not on this runner")
	r.expect(t, map[string]string{"release": release, "sha256": strings.Repeat("0", 64)}, 65, "--sha256 is 0000")
	r.expect(t, map[string]string{"release": release}, 0, "installed v1.2.3-rc.4")
}

// The job's identity goes to the gateway alone: not to the commands, and not into the log.
func TestAStepShowsTheGatewayTheJobsIdentity(t *testing.T) {
	const identity = "header.claims.signature"
	var asked, shown string
	github := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked = q.URL.Query().Get("audience") + " " + q.URL.Query().Get("api-version") + " " + q.Header.Get("Authorization")
		fmt.Fprintf(w, `{"count":1,"value":"%s"}`, identity)
	}))
	defer github.Close()
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		shown = q.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"status":403,"code":"forbidden","title":"No","detail":"no role allows it"}`)
	}))
	defer gate.Close()
	r := &runner{temp: t.TempDir(), bin: t.TempDir(), env: []string{"ACTIONS_ID_TOKEN_REQUEST_URL=" + github.URL + "/?api-version=2", "ACTIONS_ID_TOKEN_REQUEST_TOKEN=secret"}}
	out := r.expect(t, map[string]string{"url": gate.URL, "release": "file://" + first.dir, "audience": "our locks", "lock": "staging", "run": "echo ran"}, 77, "the gateway refuses staging to this job")
	if asked != "our locks 2 bearer secret" || shown != "Bearer "+identity {
		t.Errorf("GitHub was asked %q, and the gateway was shown %q", asked, shown)
	}
	if strings.Count(out, identity) != 1 || !strings.Contains(out, "::add-mask::"+identity+"\n") || strings.Contains(out, "ran\n") {
		t.Errorf("the log:\n%s", out)
	}
}

// The job's lines in one shell, as GitLab's runner has them.
func TestAJobOfGitLabRunsUnderTheLock(t *testing.T) {
	r := newRunner(t)
	var file map[string]struct {
		Variables     map[string]string            `json:"variables"`
		IDTokens      map[string]map[string]string `json:"id_tokens"`
		Interruptible *bool                        `json:"interruptible"`
		BeforeScript  []string                     `json:"before_script"`
	}
	readYAML(t, "../deploy/ci/gitlab.yml", &file)
	job, ok := file[".lockkeeper"]
	if !ok || len(file) != 1 || job.IDTokens["LOCKKEEPER_TOKEN"]["aud"] != "lockkeeper" {
		t.Fatalf("%+v", file)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(first.dir)))
	defer server.Close()
	run := func(with map[string]string, script string) (int, string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "dash", "-e")
		cmd.Stdin = strings.NewReader(strings.Join(append(slices.Clone(job.BeforeScript), script), "\n"))
		cmd.Dir = t.TempDir()
		cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + cmd.Dir, "TMPDIR=" + cmd.Dir, "CI_JOB_ID=7", "CI_JOB_URL=https://gitlab.test/-/jobs/7", "LOCKKEEPER_URL=" + r.gateway}
		for name, value := range job.Variables {
			if given, ok := with[name]; ok {
				value = given
			}
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	from := map[string]string{"LOCKKEEPER_RELEASE": server.URL}
	if code, out := run(from, `lockctl run --wait 30m --owner "$CI_JOB_URL" staging -- sh -c 'curl -s "$LOCKKEEPER_URL/v1/locks/staging"'`); code != 0 || !strings.Contains(out, `"owner":"https://gitlab.test/-/jobs/7"`) {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := run(from, "lockctl run staging -- sh -c 'exit 3'\necho no further"); code != 3 || strings.Contains(out, "no further") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := run(nil, "true"); code != 64 || !strings.Contains(out, "LOCKKEEPER_RELEASE is empty") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := run(map[string]string{"LOCKKEEPER_RELEASE": server.URL + "/not"}, "true"); code != 69 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := run(map[string]string{"LOCKKEEPER_RELEASE": server.URL, "LOCKKEEPER_SHA256": strings.Repeat("1", 64)}, "echo no further"); code == 0 || strings.Contains(out, "no further") {
		t.Errorf("another checksum: exit code %d: %s", code, out)
	}
}
