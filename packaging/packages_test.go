package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func tool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v\nhint: scripts/setup test installs what these tests need", err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_PAGER=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := tool(t, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func debian(name string) string {
	return filepath.Join(first.dir, name+"_1.2.3~rc.4-1_"+here.arch+".deb")
}

// With dpkg itself, in a tree that is not this machine's: its scripts are run with DPKG_ROOT.
func TestTheDebianPackageIsInstalledUpgradedRemovedAndPurged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("dpkg installs as root alone")
	}
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) string {
		t.Helper()
		return must(t, "dpkg", append([]string{"--root=" + root, "--log=" + root + "/log", "--force-script-chrootless", "--force-depends"}, args...)...)
	}
	at := func(path string) string { return filepath.Join(root, path) }
	said := dpkg("--install", debian("lockkeeper"), debian("lockctl"))
	if !strings.Contains(said, "to start it: systemctl enable --now lockkeeper") {
		t.Errorf("it does not say what to do next:\n%s", said)
	}
	for _, name := range []string{"lockkeeper", "lockctl"} {
		if out := must(t, at("usr/bin/"+name), "--version"); out != "v1.2.3-rc.4\n" {
			t.Errorf("%s --version: %s", name, out)
		}
	}
	if out := must(t, at("usr/bin/lockkeeper"), "--help"); !strings.HasPrefix(out, "Usage: lockkeeper ") {
		t.Errorf("it calls itself by another name: %.60s", out)
	}
	if users := string(contents(t, at("etc/passwd"))); !strings.Contains(users, "lockkeeper:x:") || !strings.Contains(users, ":/var/lib/lockkeeper:/usr/sbin/nologin\n") {
		t.Errorf("the user: %s", users)
	}
	if info, err := os.Stat(at("var/lib/lockkeeper")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data's directory: %v %v", info, err)
	}
	if enabled, _ := filepath.Glob(at("etc/systemd/system/*/*")); len(enabled) != 0 {
		t.Errorf("it is enabled unasked: %v", enabled)
	}
	// Settings of the administrator's survive an upgrade, and data survive a removal.
	settings := "LOCKKEEPER_LISTEN=127.0.0.1:9999\n"
	for path, text := range map[string]string{"etc/lockkeeper/gateway.env": settings, "var/lib/lockkeeper/data": "locks"} {
		if err := os.WriteFile(at(path), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if said := dpkg("--force-confold", "--install", debian("lockkeeper")); strings.Contains(said, "to start it") {
		t.Errorf("an upgrade speaks as if it were new:\n%s", said)
	}
	dpkg("--remove", "lockkeeper")
	if string(contents(t, at("etc/lockkeeper/gateway.env"))) != settings || string(contents(t, at("var/lib/lockkeeper/data"))) != "locks" {
		t.Error("settings or data are gone")
	}
	if _, err := os.Stat(at("usr/bin/lockkeeper")); err == nil {
		t.Error("the program is still there")
	}
	dpkg("--purge", "lockkeeper", "lockctl")
	for _, path := range []string{"etc/lockkeeper", "var/lib/lockkeeper", "usr/bin/lockctl", "usr/share/man"} {
		if _, err := os.Stat(at(path)); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

func TestTheUnitOfThePackageIsWhatSystemdUnderstandsAndTrusts(t *testing.T) {
	root := t.TempDir()
	must(t, "dpkg-deb", "--extract", debian("lockkeeper"), root)
	unit := filepath.Join(root, "usr/lib/systemd/system/lockkeeper.service")
	text := string(contents(t, unit))
	if !strings.Contains(text, "\nUser=lockkeeper\nGroup=lockkeeper\n") || strings.Contains(text, "DynamicUser=") || !strings.Contains(text, "\nExecStart=/usr/bin/lockkeeper\n") ||
		!strings.Contains(text, "\nEnvironmentFile=-/etc/lockkeeper/gateway.env\n") {
		t.Errorf("the unit:\n%s", text)
	}
	if err := os.WriteFile(unit, []byte(strings.Replace(text, "/usr/bin/lockkeeper", filepath.Join(root, "usr/bin/lockkeeper"), 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "systemd-analyze", "verify", "--man=no", unit); strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	if out, err := tool(t, "systemd-analyze", "security", "--offline=true", "--threshold=15", unit); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	must(t, "systemd-sysusers", "--root="+root, "lockkeeper.conf")
	if users := string(contents(t, filepath.Join(root, "etc/passwd"))); !strings.Contains(users, "lockkeeper:x:") {
		t.Errorf("the user: %s", users)
	}
	// Each setting in the file, which are comments, is one of the gateway's.
	set := []string{}
	for line := range strings.Lines(string(contents(t, filepath.Join(root, "etc/lockkeeper/gateway.env")))) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "#LOCKKEEPER_"); ok {
			set = append(set, name)
		} else if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			t.Errorf("it sets something unasked: %s", line)
		}
	}
	help := must(t, filepath.Join(root, "usr/bin/lockkeeper"), "--help")
	for _, name := range set {
		name, _, _ = strings.Cut(name, "=")
		if !strings.Contains(strings.Join(strings.Fields(help), " "), "$LOCKKEEPER_"+name+")") {
			t.Errorf("LOCKKEEPER_%s is no setting", name)
		}
	}
	if len(set) < 6 {
		t.Errorf("%v", set)
	}
}

func TestTheRPMIsInstalledAndVerified(t *testing.T) {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[here.arch]
	for _, name := range []string{"lockkeeper", "lockctl"} {
		path := filepath.Join(first.dir, name+"-1.2.3~rc.4-1."+arch+".rpm")
		if out, err := tool(t, "rpm", "--checksig", "--nosignature", path); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if out := must(t, "rpm", "--query", "--package", "--queryformat", "%{NAME} %{VERSION} %{LICENSE} %{BUILDHOST} %{BUILDTIME}", path); out != name+" 1.2.3~rc.4 Apache-2.0 localhost 1700000000" {
			t.Errorf("the rpm is %s", out)
		}
		if os.Getuid() != 0 {
			continue
		}
		// Its scripts would be run in the new root, which has no shell.
		root := t.TempDir()
		must(t, "rpm", "--root", root, "--install", "--nodeps", "--noscripts", path)
		if out := must(t, filepath.Join(root, "usr/bin", name), "--version"); out != "v1.2.3-rc.4\n" {
			t.Errorf("%s --version: %s", name, out)
		}
		must(t, "rpm", "--root", root, "--verify", "--nodeps", name)
	}
	path := filepath.Join(first.dir, "lockkeeper-1.2.3~rc.4-1."+arch+".rpm")
	if out := must(t, "rpm", "--query", "--package", "--configfiles", path); strings.TrimSpace(out) != "/etc/lockkeeper/gateway.env" {
		t.Errorf("settings that an upgrade keeps: %s", out)
	}
	if out := must(t, "rpm", "--query", "--package", "--scripts", path); !strings.Contains(out, "systemctl") {
		t.Errorf("scripts: %s", out)
	}
}

func TestMaintainersScriptsAreWhatAShellUnderstands(t *testing.T) {
	out, err := tool(t, "shellcheck", "--shell=sh", "--severity=warning", "files/postinst", "files/prerm", "files/postrm", "../install.sh")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, name := range []string{"files/postinst", "files/prerm", "files/postrm", "../install.sh"} {
		must(t, "dash", "-n", name)
	}
}
