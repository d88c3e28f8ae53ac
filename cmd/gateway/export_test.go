package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/zk"
	zklayout "lockkeeper/internal/zk/layout"
)

// oneLease is a ZooKeeper with a Lockkeeper root that has one lease, and its address.
func oneLease(t *testing.T) (addr string, o *zklayout.Offline) {
	t.Helper()
	cfg := zk.Config{Servers: []string{embeddedtest.RunT(t).Addr()}, CreateRoot: true}
	layout := assert.Value(zklayout.Open(t.Context(), cfg))(t)
	o = assert.Value(zklayout.OpenOffline(t.Context(), cfg))(t)
	t.Cleanup(o.Close)
	put(t, o, "/lockkeeper/locks/deploy")
	put(t, o, "/lockkeeper/locks/deploy/write-v1.lk"+layout.FleetID+"aaaaaaaaaaaaa"+"bbbbbbbbbbbbbbbb-lock-0000000000")
	return cfg.Servers[0], o
}

func put(t *testing.T, o *zklayout.Offline, path string) {
	t.Helper()
	assert.Value(o.Commit(t.Context(), []zk.Op{{Kind: zk.OpCreate, Path: path, Data: []byte(`{"v":1}`)}}))(t)
}

func TestAnExportIsAPrivateFileThatReplacesNothing(t *testing.T) {
	addr, _ := oneLease(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "x.export")
	code, stdout, stderr := command(t, "export", "--zk", addr, "--output", path)
	if code != 0 || stdout != "" || !strings.Contains(stderr, "1 held and 0 waiting leases in 1 lock, 0 idempotency keys") || !strings.Contains(stderr, "like a password") {
		t.Fatalf("exit %d, stdout %q, stderr:\n%s", code, stdout, stderr)
	}
	info, err := os.Stat(path)
	assert.That(t, err == nil && info.Mode() == 0o600, "%v, mode %v", err, info.Mode())
	first := assert.Value(os.ReadFile(path))(t)
	code, _, stderr = command(t, "export", "--zk", addr, "--output", path)
	assert.That(t, code == exitUsage && strings.Contains(stderr, "exists"), "over an existing file: exit %d:\n%s", code, stderr)
	second, err := os.ReadFile(path)
	assert.That(t, err == nil && bytes.Equal(first, second), "the file was changed: %v", err)
	// What fails leaves no part of a file behind.
	code, _, _ = command(t, "export", "--zk", addr, "--root", "/nowhere", "--output", path+"2")
	assert.Equal(t, code, exitConfig, "a root that is not there: exit")
	left, err := os.ReadDir(dir)
	assert.That(t, err == nil && len(left) == 1, "left in the directory: %v, %v", left, err)
}

func TestAnExportGoesThroughAPipeIntoAnImport(t *testing.T) {
	addr, _ := oneLease(t)
	code, stdout, stderr := command(t, "export", "--zk", addr)
	assert.Must(t, code == 0, "exit %d:\n%s", code, stderr)
	input := file(t, "x.export", stdout, 0o600)
	to := embeddedtest.RunT(t).Addr()
	code, stdout, stderr = command(t, "import", "--zk", to+"/apps", "--root", "/other", "--input", input)
	if code != 0 || stdout != "" || !strings.Contains(stderr, "imported 1 held") || !strings.Contains(stderr, "fencing tokens go on above") {
		t.Fatalf("exit %d, stdout %q:\n%s", code, stdout, stderr)
	}
	code, stdout, stderr = command(t, "export", "--zk", to+"/apps", "--root", "/other")
	assert.That(t, code == 0 && strings.Contains(stdout, `"lock":"deploy"`), "exit %d:\n%s\n%s", code, stdout, stderr)
}

func TestADataDirectoryIsExportedAndImportedLikeAZooKeeper(t *testing.T) {
	addr, _ := oneLease(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "1.export")
	for _, args := range []string{
		"export --zk " + addr + " --output " + path,
		"import --data-dir " + dir + "/data --input " + path,
		"export --data-dir " + dir + "/data --output " + dir + "/2.export",
	} {
		code, _, stderr := command(t, strings.Fields(args)...)
		assert.Must(t, code == 0, "%s: exit %d:\n%s", args, code, stderr)
	}
	below := func(path string) (n int64) {
		t.Helper()
		data := assert.Value(os.ReadFile(path))(t)
		var header struct {
			TokensBelow int64 `json:"tokens_below"`
		}
		assert.NoError(t, json.NewDecoder(bytes.NewReader(data)).Decode(&header))
		return header.TokensBelow
	}
	first, second := below(path), below(dir+"/2.export")
	assert.That(t, second > first, "tokens below %d, then below %d", first, second)
	code, _, stderr := command(t, "import", "--data-dir", dir+"/data", "--input", path)
	assert.That(t, code == exitConfig && strings.Contains(stderr, "--data-dir"),
		"into a directory that is in use: exit %d:\n%s", code, stderr)
	code, _, stderr = command(t, "export", "--data-dir", dir+"/none")
	assert.That(t, code == exitUsage && strings.Contains(stderr, "has no store"), "from no directory: exit %d:\n%s", code, stderr)
	_, err := os.Stat(dir + "/none")
	assert.That(t, err != nil, "the export has made a data directory")
}

func TestExportAndImportSayWhatIsWrongAndWhatToDo(t *testing.T) {
	addr, o := oneLease(t)
	_, whole, _ := command(t, "export", "--zk", addr)
	put(t, o, "/lockkeeper/locks/deploy/_c_1234-lock-0000000007")
	cut := file(t, "cut", whole[:len(whole)-20], 0o600)
	edited := file(t, "edited", strings.Replace(whole, `"lock":"deploy"`, `"lock":"Deploy"`, 1), 0o600)
	later := file(t, "later", `{"lockkeeper_export":9}`+"\n", 0o600)
	other := file(t, "other", "listen: 127.0.0.1:1\n", 0o600)
	good := file(t, "good", whole, 0o644)
	empty := embeddedtest.RunT(t).Addr()
	for _, c := range []struct {
		args string
		code int
		says []string
	}{
		{"export", exitUsage, []string{"--zk", "--data-dir"}},
		{"import --input " + good, exitUsage, []string{"--zk", "--data-dir"}},
		{"import --zk a:1 --data-dir x --input " + good, exitUsage, []string{"exclude each other"}},
		{"export --zk a:b:c", exitUsage, []string{"--zk", "hint: for example"}},
		{"export --zk 127.0.0.1:1 --output /nowhere/x", exitUsage, []string{"--output", "no such file"}},
		{"export --zk 127.0.0.1:1", exitUnavailable, []string{"cannot be reached"}},
		{"export --zk " + addr + " --root /x", exitConfig, []string{"there is no Lockkeeper", "--root"}},
		{"export --zk " + addr, exitFailure, []string{"_c_1234-lock-0000000007", "--leave-foreign"}},
		{"import --zk " + empty + " --input /nowhere", exitUsage, []string{"no such file"}},
		{"import --zk " + empty + " --input " + cut, exitIO, []string{"cut off", "export again"}},
		{"import --zk " + empty + " --input " + edited, exitIO, []string{"been changed", "export again"}},
		{"import --zk " + empty + " --input " + later, exitConfig, []string{"format 9", "release"}},
		{"import --zk " + empty + " --input " + other, exitIO, []string{"no export of Lockkeeper"}},
		{"import --zk " + addr + " --input " + good, exitConfig, []string{"warning: others can read", "a Lockkeeper in it already", "--root"}},
		{"import --zk " + empty + " --no-create-root --input " + good, exitConfig, []string{"does not exist", "--no-create-root"}},
	} {
		code, stdout, stderr := command(t, strings.Fields(c.args)...)
		assert.That(t, code == c.code && stdout == "" && strings.Contains(stderr, "error: "),
			"%q: exit %d, stdout %q, stderr:\n%s", c.args, code, stdout, stderr)
		for _, part := range append(c.says, "hint: ") {
			assert.That(t, strings.Contains(stderr, part), "%q does not say %q:\n%s", c.args, part, stderr)
		}
		var secret struct{ Keys []struct{ Key string } }
		if _, at, ok := strings.Cut(whole, `"/secret","data":`); ok {
			var data string
			_ = json.NewDecoder(strings.NewReader(at)).Decode(&data)
			_ = json.Unmarshal([]byte(data), &secret)
		}
		assert.That(t, len(secret.Keys) != 0 && !strings.Contains(stderr, secret.Keys[0].Key),
			"%q tells the secret (%d keys)", c.args, len(secret.Keys))
	}
	stat, err := o.Exists(t.Context(), "/lockkeeper")
	assert.That(t, err == nil && stat != nil, "%v %v", stat, err)
	code, stdout, stderr := command(t, "export", "--zk", addr, "--leave-foreign")
	if code != 0 || !strings.Contains(stderr, "another program made it: /lockkeeper/locks/deploy/_c_1234-lock-0000000007") || strings.Contains(stdout, "_c_1234") {
		t.Errorf("exit %d:\n%s\n%s", code, stdout, stderr)
	}
}

func TestAnExportNeverGoesToATerminal(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this machine has no terminals: ", err)
	}
	defer tty.Close()
	var errs bytes.Buffer
	code := run([]string{"export", "--zk", "127.0.0.1:1"}, tty, &errs, func() {})
	assert.That(t, code == exitUsage && strings.Contains(errs.String(), "terminal"), "exit %d:\n%s", code, errs.String())
}

func TestHelpOfExportAndImportIsEnoughToStart(t *testing.T) {
	for name, parts := range map[string][]string{
		"export": {"--data-dir", "--output", "--leave-foreign", "secret", "docs/operate/moving-to-an-ensemble.md", "gateway import --zk"},
		"import": {"--zk", "--input", "--replace-partial", "--root", "interrupted"},
	} {
		code, stdout, _ := command(t, name, "--help")
		for _, part := range parts {
			assert.That(t, code == 0 && strings.Contains(stdout, part), "%s --help (exit %d) does not mention %q", name, code, part)
		}
	}
}

func TestLongWorkSaysHowFarItIsAndShortWorkDoesNot(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.report("reading", 1, 2)
	assert.That(t, out.Len() == 0, "short work says %q", out.String())
	p.next = p.next.Add(-2 * progressEvery)
	p.report("reading", 1, 2)
	p.report("reading", 2, 2)
	want := fmt.Sprintln("reading: 1 of 2")
	assert.That(t, out.String() == want, "says %q, want %q", out.String(), want)
}
