package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// first is the release that the tests look at: everything for Linux on this processor. TestMain alone writes it.
var first = &distribution{release: release{version: "1.2.3-rc.4", commit: strings.Repeat("ab", 20), time: time.Unix(1700000000, 0).UTC()}, products: products}

var here = platform{"linux", runtime.GOARCH}

// full: the long run.
var full = os.Getenv("LOCKKEEPER_FULL") != ""

func TestMain(m *testing.M) {
	code := 1
	dir, err := os.MkdirTemp("", "lockkeeper-release-")
	if err == nil {
		first.dir = filepath.Join(dir, "dist")
		if first.top, err = filepath.Abs(".."); err == nil {
			err = replace(first.dir, func(to string) error {
				d := *first
				d.dir = to
				return d.make(context.Background(), chosen())
			})
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func chosen() []platform {
	if full {
		return platforms
	}
	return []platform{here}
}

// The second build has a directory, a umask, a home and a cache of its own. The long run makes everything twice, and
// compiles it anew; the short one makes lockctl again.
func TestTwoBuildsGiveTheSameBytes(t *testing.T) {
	second := *first
	second.top = filepath.Join(t.TempDir(), "somewhere/else")
	copied(t, first.top, second.top)
	second.dir = t.TempDir()
	if full {
		t.Setenv("GOCACHE", t.TempDir())
	} else {
		second.products = products[1:]
	}
	t.Setenv("TZ", "Pacific/Auckland")
	t.Setenv("LC_ALL", "tr_TR.UTF-8")
	t.Setenv("GOFLAGS", "-ldflags=-w")
	before := syscall.Umask(0o077)
	err := second.make(t.Context(), chosen())
	syscall.Umask(before)
	if err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(second.dir)
	if err != nil || len(names) < 7 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	for _, entry := range names {
		if entry.Name() == "SHA256SUMS" && !full {
			continue // it has fewer lines
		}
		one, two := contents(t, filepath.Join(first.dir, entry.Name())), contents(t, filepath.Join(second.dir, entry.Name()))
		if !bytes.Equal(one, two) {
			t.Errorf("%s differs: %d and %d bytes", entry.Name(), len(one), len(two))
		}
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o444 != 0o444 {
			t.Errorf("%s has the rights of the builder's umask: %v", entry.Name(), info.Mode())
		}
	}
}

// copied copies what git would have of a checkout.
func copied(t *testing.T, from, to string) {
	t.Helper()
	out, err := exec.Command("git", "-C", from, "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		source := filepath.Join(from, name)
		info, err := os.Lstat(source)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(source)
			if err == nil {
				err = os.Symlink(target, filepath.Join(to, name))
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(filepath.Join(to, name), contents(t, source), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// unpacked reads an archive: each file with its header.
func unpacked(t *testing.T, path string) (map[string]*tar.Header, map[string][]byte) {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(contents(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	headers, files := map[string]*tar.Header{}, map[string][]byte{}
	for reader := tar.NewReader(zip); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return headers, files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		headers[header.Name], files[header.Name] = header, data
	}
}

func TestAnArchiveIsATreeForAPrefixAndNothingOfTheBuilderIsInIt(t *testing.T) {
	stem := first.stem(products[0], here)
	headers, files := unpacked(t, filepath.Join(first.dir, stem+".tar.gz"))
	var names []string
	for name, header := range headers {
		if header.Uid != 0 || header.Uname != "root" || !header.ModTime.Equal(first.time) || header.Mode&0o022 != 0 {
			t.Errorf("%s: %+v", name, header)
		}
		if header.Typeflag == tar.TypeReg {
			names = append(names, strings.TrimPrefix(name, stem+"/"))
		}
	}
	slices.Sort(names)
	wants := []string{"bin/lockctl", "bin/lockkeeper", "lib/systemd/system/lockkeeper.service", "share/bash-completion/completions/lockctl",
		"share/bash-completion/completions/lockkeeper", "share/doc/lockkeeper/LICENSE", "share/doc/lockkeeper/THIRD-PARTY-LICENSES",
		"share/fish/vendor_completions.d/lockctl.fish", "share/fish/vendor_completions.d/lockkeeper.fish", "share/man/man1/lockctl.1",
		"share/man/man8/lockkeeper.8", "share/zsh/site-functions/_lockctl", "share/zsh/site-functions/_lockkeeper"}
	if !slices.Equal(names, wants) {
		t.Errorf("the archive has\n%s", strings.Join(names, "\n"))
	}
	for _, name := range []string{"lockctl", "lockkeeper"} {
		data := files[stem+"/bin/"+name]
		home, _ := os.UserHomeDir()
		for _, path := range []string{first.top, filepath.Join(home, "go/pkg")} {
			if bytes.Contains(data, []byte(path)) {
				t.Errorf("%s has a path of the builder: %s", name, path)
			}
		}
		binary, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s is not static", name)
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, data, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(path, "--version").CombinedOutput(); err != nil || string(out) != "v1.2.3-rc.4\n" {
			t.Errorf("%s --version: %v: %s", name, err, out)
		}
	}
	if unit := string(files[stem+"/lib/systemd/system/lockkeeper.service"]); !strings.Contains(unit, "\nExecStart=/usr/local/bin/lockkeeper\n") || !strings.Contains(unit, "\nDynamicUser=yes\n") {
		t.Errorf("the unit:\n%s", unit)
	}
	alone, _ := unpacked(t, filepath.Join(first.dir, first.stem(products[1], here)+".tar.gz"))
	for name := range alone {
		if strings.Contains(strings.TrimPrefix(name, "lockctl"), "lockkeeper") {
			t.Errorf("the archive of lockctl alone has %s", name)
		}
	}
}

func TestSHA256SUMSNamesEachFile(t *testing.T) {
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = first.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	names, err := os.ReadDir(first.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range names {
		if entry.Name() != "SHA256SUMS" && !strings.Contains(string(out), entry.Name()+": OK\n") {
			t.Errorf("%s has no checksum", entry.Name())
		}
	}
	for _, name := range []string{"lockkeeper_1.2.3~rc.4-1_" + here.arch + ".deb", "lockctl_1.2.3~rc.4-1_" + here.arch + ".deb", "lockkeeper-1.2.3-rc.4.tgz", "install.sh"} {
		if _, err := os.Stat(filepath.Join(first.dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestTheBillOfMaterialsNamesWhatIsLinked(t *testing.T) {
	stem := first.stem(products[0], here)
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(contents(t, filepath.Join(first.dir, stem+".cdx.json"))), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	_, files := unpacked(t, filepath.Join(first.dir, stem+".tar.gz"))
	notices := string(files[stem+"/share/doc/lockkeeper/THIRD-PARTY-LICENSES"])
	listed := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		listed[c.Name] = c
		if len(*c.Licenses) == 0 {
			t.Errorf("%s has no licence", c.Name)
		}
		if c.Type == cdx.ComponentTypeLibrary && !strings.Contains(notices, "\n"+c.Name+" "+c.Version+" (") {
			t.Errorf("the licence of %s %s is not passed on", c.Name, c.Version)
		}
	}
	graph := map[string][]string{}
	for _, d := range *bom.Dependencies {
		graph[d.Ref] = *d.Dependencies
	}
	count := 0
	for _, name := range []string{"lockkeeper", "lockctl"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, files[stem+"/bin/"+name], 0o755); err != nil {
			t.Fatal(err)
		}
		sum, err := hash(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := (*listed[name].Hashes)[0].Value; got != sum {
			t.Errorf("the hash of %s is %s, and the bill says %s", name, sum, got)
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range info.Deps {
			count++
			c := listed[module.Path]
			if c.Version != module.Version || !slices.Contains(graph["program:"+name], c.BOMRef) {
				t.Errorf("%s contains %s %s, and the bill says %q", name, module.Path, module.Version, c.Version)
			}
		}
	}
	if listed["std"].Version != strings.TrimPrefix(runtime.Version(), "go") || listed["htmx.org"].Version == "" || count < 20 {
		t.Errorf("%d modules, %v", count, slices.Sorted(maps.Keys(listed)))
	}
	if err := json.Unmarshal(contents(t, filepath.Join(first.dir, stem+".cdx.json")), new(any)); err != nil || !strings.HasPrefix(bom.SerialNumber, "urn:uuid:") {
		t.Error(err, bom.SerialNumber)
	}
}

func TestAModuleWithoutALicenceThatIsKnownIsRefused(t *testing.T) {
	if _, err := identify([]text{{"README", "MIT"}}); err == nil {
		t.Error("a README is taken for a licence")
	}
	if _, err := identify([]text{{"LICENSE", "All rights reserved.\n"}}); err == nil {
		t.Error("no licence is taken for one")
	}
	gpl := "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version."
	if ids, err := identify([]text{{"COPYING", gpl}}); err == nil {
		t.Errorf("%v is taken", ids)
	}
	if ids, err := identify([]text{{"LICENSE", string(contents(t, "../LICENSE"))}}); err != nil || !slices.Equal(ids, []string{"Apache-2.0"}) {
		t.Errorf("%v %v", ids, err)
	}
}

func TestTheVersionIsThatOfGitOrTheOneThatIsGiven(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@localhost"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=@1700000000 +0200", "GIT_AUTHOR_DATE=@1700000000 +0200")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	is := func(env map[string]string, wants string) {
		t.Helper()
		rel, err := releaseOf(t.Context(), dir, func(name string) string { return env[name] })
		got := rel.version
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, wants) {
			t.Errorf("with %v: %q, not %q", env, got, wants)
		}
		if wrong := (*usageError)(nil); err != nil && (!errors.As(err, &wrong) || wrong.hint == "") {
			t.Errorf("%v has no hint", err)
		}
	}
	is(nil, "there is no git here that knows the date")
	is(map[string]string{"SOURCE_DATE_EPOCH": "1"}, "there is no git here that knows the version")
	is(map[string]string{"SOURCE_DATE_EPOCH": "1", "VERSION": "v1.0.0"}, "1.0.0")
	is(map[string]string{"SOURCE_DATE_EPOCH": "today", "VERSION": "v1.0.0"}, "SOURCE_DATE_EPOCH must be seconds")
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "one")
	is(nil, "0.0.0-20231114221320-")
	for version, wants := range map[string]string{"v1.2.3": "1.2.3", "v1.2.3-rc.1+a": "1.2.3-rc.1+a", "1.2.3": "the version must be", "v1.2": "the version must be", "v01.2.3": "the version must be", "v1.2.3; rm": "the version must be"} {
		is(map[string]string{"VERSION": version}, wants)
	}
	git("tag", "v2.0.0")
	is(nil, "2.0.0")
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	is(nil, "2.0.0+dirty")
}

func TestNoDirectoryIsLeftWhenSomethingFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "dist"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dist/old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := errors.New("no")
	if err := replace(filepath.Join(dir, "dist"), func(string) error { return wrong }); !errors.Is(err, wrong) {
		t.Error(err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("%v", names)
	}
	if _, err := os.Stat(filepath.Join(dir, "dist/old")); err != nil {
		t.Error(err)
	}
}
