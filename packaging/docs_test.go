package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page's commands, in the order of the page, with what has been made here in place of the release that it names. A
// package is installed by the tests of packages.
func TestTheCommandsOfTheInstallPageWorkAsTheyAreWritten(t *testing.T) {
	server := httptest.NewServer(http.FileServer(http.Dir(first.dir)))
	defer server.Close()
	page := string(contents(t, "../docs/operate/install.md"))
	home := t.TempDir()
	ran := map[string]bool{}
	for _, block := range regexp.MustCompile("(?ms)^```(?:sh)?\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		command, dir := block[1], ""
		for _, does := range []string{"install.sh", "sha256sum", "tar -xzf"} {
			if strings.Contains(command, does) {
				ran[does], dir = true, first.dir
			}
		}
		if dir == "" {
			continue
		}
		command = strings.NewReplacer("https://example.com/lockkeeper/v1.2.3", server.URL, "1.2.3", "1.2.3-rc.4", "linux-amd64", here.String(), "/usr/local", home+"/prefix").Replace(command)
		command = strings.Replace(command, "sh -s --", "sh -s -- --into "+home+"/bin", 1) // root's is /usr/local/bin
		if err := os.MkdirAll(filepath.Join(home, "prefix"), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail", "-c", command)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s%v\n%s", command, err, out)
		}
	}
	for _, dir := range []string{"bin", "prefix/bin"} {
		if out := must(t, filepath.Join(home, dir, "lockctl"), "--version"); out != "v1.2.3-rc.4\n" {
			t.Errorf("%s", out)
		}
	}
	if _, err := os.Stat(filepath.Join(home, "prefix/share/man/man8/lockkeeper.8")); err != nil || len(ran) != 3 {
		t.Errorf("%v, %v", ran, err)
	}
	for _, name := range regexp.MustCompile(`\./(lock\S+\.(?:deb|rpm))`).FindAllStringSubmatch(page, -1) {
		made := strings.NewReplacer("1.2.3", "1.2.3~rc.4", "amd64", here.arch, "x86_64", map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[here.arch]).Replace(name[1])
		if _, err := os.Stat(filepath.Join(first.dir, made)); err != nil {
			t.Errorf("the page names %s: %v", name[1], err)
		}
	}
}
