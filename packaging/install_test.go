package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// installed runs install.sh with a shell that knows nothing but POSIX.
type installed struct {
	code   int
	output string
}

func install(t *testing.T, env []string, args ...string) installed {
	t.Helper()
	return shell(t, string(contents(t, "../install.sh")), env, args...)
}

// shell runs a script as `curl ... | sh -s -- ARGS` does.
func shell(t *testing.T, script string, env []string, args ...string) installed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "dash", append([]string{"-s", "--"}, args...)...)
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir()}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	for _, e := range cmd.Env {
		if dir, ok := strings.CutPrefix(e, "TMPDIR="); ok {
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("%v is left in %s", left, dir)
			}
		}
	}
	return installed{cmd.ProcessState.ExitCode(), string(out)}
}

func (i installed) expect(t *testing.T, code int, says ...string) {
	t.Helper()
	for _, part := range says {
		if !strings.Contains(i.output, part) {
			t.Errorf("it does not say %q:\n%s", part, i.output)
		}
	}
	if i.code != code || code != 0 && (!strings.Contains(i.output, "error: ") || !strings.Contains(i.output, "hint: ")) {
		t.Errorf("exit code %d, not %d:\n%s", i.code, code, i.output)
	}
}

func TestInstallShInstallsWhatMakeDistHasMade(t *testing.T) {
	server := httptest.NewServer(http.FileServer(http.Dir(first.dir)))
	defer server.Close()
	home := t.TempDir()
	into := filepath.Join(home, ".local/bin")
	for _, from := range []string{server.URL + "/", "file://" + first.dir} {
		got := install(t, nil, "--from", from, "--into", into)
		got.expect(t, 0, "installed v1.2.3-rc.4 in "+into+": lockkeeper lockctl", `export PATH="`+into+`:$PATH"`, "lockctl run hello")
		for _, name := range []string{"lockkeeper", "lockctl"} {
			if out := must(t, filepath.Join(into, name), "--version"); out != "v1.2.3-rc.4\n" {
				t.Errorf("%s: %s", name, out)
			}
		}
	}
	if names, _ := os.ReadDir(into); len(names) != 2 {
		t.Errorf("something else is left: %v", names)
	}
	alone := filepath.Join(home, "alone")
	install(t, []string{"LOCKKEEPER_RELEASE=" + server.URL, "LOCKKEEPER_ONLY=lockctl", "LOCKKEEPER_INTO=" + alone, "PATH=" + os.Getenv("PATH") + ":" + alone}).
		expect(t, 0, ": lockctl\n", "export LOCKKEEPER_URL=")
	if names, _ := os.ReadDir(alone); len(names) != 1 {
		t.Errorf("%v", names)
	}
}

// fake is a release whose programs are scripts, for the machine that uname describes.
type fake map[string]string

func fakeRelease(t *testing.T, programs ...string) fake {
	t.Helper()
	dir, name := t.TempDir(), "lockkeeper-1.0.0-"+here.String()
	var files []file
	for _, program := range programs {
		files = append(files, file{path: "bin/" + program, mode: 0o755, data: []byte("#!/bin/sh\necho v1.0.0\n")})
	}
	if err := archive(filepath.Join(dir, name+".tar.gz"), name, files, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	data := contents(t, filepath.Join(dir, name+".tar.gz"))
	sum := sha256.Sum256(data)
	return fake{"/" + name + ".tar.gz": string(data), "/SHA256SUMS": fmt.Sprintf("%x  %s.tar.gz\n%s  other\n", sum, name, strings.Repeat("0", 64))}
}

func (f fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, ok := f[r.URL.Path]
	cut := strings.TrimPrefix(text, "cut:")
	switch {
	case !ok:
		http.NotFound(w, r)
	case cut != text:
		// More was promised than comes.
		w.Header().Set("Content-Length", fmt.Sprint(len(cut)+1000))
		fmt.Fprint(w, cut)
	default:
		fmt.Fprint(w, text)
	}
}

// Whatever goes wrong, what was installed before stays as it was.
func TestInstallShChangesNothingWhenSomethingIsWrong(t *testing.T) {
	name := "lockkeeper-1.0.0-" + here.String() + ".tar.gz"
	for what, c := range map[string]struct {
		change func(f fake)
		args   []string
		env    []string
		code   int
		says   string
	}{
		"a wrong checksum":            {change: func(f fake) { f["/"+name] += "x" }, code: 65, says: "and must be"},
		"a checksum that is pinned":   {args: []string{"--sha256", strings.Repeat("1", 64)}, code: 65, says: "--sha256 is 1111"},
		"no archive":                  {change: func(f fake) { delete(f, "/"+name) }, code: 69, says: "cannot download"},
		"no list":                     {change: func(f fake) { delete(f, "/SHA256SUMS") }, code: 69, says: "SHA256SUMS"},
		"a page in place of the list": {change: func(f fake) { f["/SHA256SUMS"] = "<html>welcome</html>" }, code: 69, says: "has no lockkeeper for " + here.String()},
		"two releases in one list":    {change: func(f fake) { f["/SHA256SUMS"] += strings.Replace(f["/SHA256SUMS"], "1.0.0", "1.0.1", 1) }, code: 65, says: "several archives"},
		"a download that is cut":      {change: func(f fake) { f["/"+name] = "cut:" + f["/"+name][:100] }, code: 69, says: "cannot download"},
		"a list that is cut":          {change: func(f fake) { f["/SHA256SUMS"] = "cut:" + f["/SHA256SUMS"][:30] }, code: 69, says: "SHA256SUMS"},
		"no archive but its checksum": {change: func(f fake) {
			sum := sha256.Sum256([]byte("junk"))
			f["/"+name] = "junk"
			f["/SHA256SUMS"] = hex.EncodeToString(sum[:]) + "  " + name + "\n"
		}, code: 65, says: "cannot be unpacked"},
		"another system":      {env: []string{"SYSTEM=OpenBSD"}, code: 69, says: "no release for OpenBSD"},
		"another processor":   {env: []string{"MACHINE=riscv64"}, code: 69, says: "no release for the processor riscv64"},
		"a platform left out": {env: []string{"SYSTEM=Darwin", "MACHINE=arm64"}, code: 69, says: "has no lockkeeper for darwin-arm64"},
		"an unknown argument": {args: []string{"--to", "x"}, code: 64, says: "unknown argument: --to"},
		"a missing value":     {args: []string{"--into"}, code: 64, says: "--into needs a value"},
		"another product":     {args: []string{"--only", "gateway"}, code: 64, says: "--only must be lockctl"},
		"ftp":                 {args: []string{"--from", "ftp://x"}, code: 64, says: "--from must begin with"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			release := fakeRelease(t, "lockkeeper", "lockctl")
			if c.change != nil {
				c.change(release)
			}
			server := httptest.NewServer(release)
			defer server.Close()
			into := t.TempDir()
			for _, program := range []string{"lockkeeper", "lockctl"} {
				if err := os.WriteFile(filepath.Join(into, program), []byte("before"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			// uname says what the case wants.
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "uname"), []byte("#!/bin/sh\ncase $1 in -s) echo ${SYSTEM:-$(/usr/bin/uname -s)};; *) echo ${MACHINE:-$(/usr/bin/uname -m)};; esac\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			got := install(t, append(c.env, "PATH="+bin+":"+os.Getenv("PATH")), append([]string{"--from", server.URL, "--into", into}, c.args...)...)
			got.expect(t, c.code, c.says)
			names, _ := os.ReadDir(into)
			for _, program := range names {
				if string(contents(t, filepath.Join(into, program.Name()))) != "before" {
					t.Errorf("%s was changed", program.Name())
				}
			}
			if len(names) != 2 {
				t.Errorf("%v", names)
			}
		})
	}
}

func TestInstallShNamesADirectoryThatCannotBeWrittenAndAnArchiveThatLacksAProgram(t *testing.T) {
	server := httptest.NewServer(fakeRelease(t, "lockkeeper", "lockctl"))
	defer server.Close()
	taken := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(taken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	install(t, nil, "--from", server.URL, "--into", filepath.Join(taken, "bin")).expect(t, 73, "cannot make")
	into := t.TempDir()
	if err := os.Mkdir(filepath.Join(into, "lockctl"), 0o755); err != nil {
		t.Fatal(err)
	}
	install(t, nil, "--from", server.URL, "--into", into).expect(t, 73, "cannot write "+into+"/lockctl")
	if names, _ := os.ReadDir(into); len(names) != 1 {
		t.Errorf("half of it is there: %v", names)
	}
	half := httptest.NewServer(fakeRelease(t, "lockctl"))
	defer half.Close()
	install(t, nil, "--from", half.URL, "--into", t.TempDir()).expect(t, 65, "has no lockkeeper")
}

func TestInstallShDoesNothingWhenItWasCutItself(t *testing.T) {
	server := httptest.NewServer(fakeRelease(t, "lockkeeper", "lockctl"))
	defer server.Close()
	script := string(contents(t, "../install.sh"))
	for at := 0; at < len(script)-len("main \"$@\"\n"); at += 397 {
		into := filepath.Join(t.TempDir(), "bin")
		shell(t, script[:at], nil, "--from", server.URL, "--into", into)
		if _, err := os.Stat(into); err == nil {
			t.Errorf("%d bytes of it installed something", at)
		}
	}
}

func TestInstallShTakesWhatTheMachineHas(t *testing.T) {
	server := httptest.NewServer(fakeRelease(t, "lockkeeper", "lockctl"))
	defer server.Close()
	path := func(names ...string) string {
		bin := t.TempDir()
		for _, name := range append(names, "tar", "gzip", "mktemp", "sed", "id", "uname", "rm", "mkdir", "cp", "chmod", "mv", "cat") {
			at, err := exec.LookPath(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(at, filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
		return "PATH=" + bin
	}
	install(t, []string{path("wget", "sha256sum")}, "--from", server.URL, "--into", t.TempDir()).expect(t, 0, "installed v1.0.0")
	if _, err := exec.LookPath("shasum"); err == nil { // macOS has it, and no sha256sum
		install(t, []string{path("curl", "shasum", "perl")}, "--from", server.URL, "--into", t.TempDir()).expect(t, 0, "installed v1.0.0")
	}
	install(t, []string{path("sha256sum")}, "--from", server.URL, "--into", t.TempDir()).expect(t, 69, "curl is missing")
	install(t, []string{path("curl")}, "--from", server.URL, "--into", t.TempDir()).expect(t, 69, "neither sha256sum nor shasum")
	install(t, nil, "--help").expect(t, 0, "--sha256 HEX")
	install(t, nil).expect(t, 64, "it is not said where the release is")
}
