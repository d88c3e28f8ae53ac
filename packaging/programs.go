package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// program is one that is released: how it is called where it is installed, and where its source is.
type program struct {
	name, pkg string
	section   string // of the manual
}

var (
	gateway = program{"lockkeeper", "./cmd/gateway", "8"}
	lockctl = program{"lockctl", "./cmd/lockctl", "1"}
)

// built is a program that was built for one platform.
type built struct {
	program
	path string
	info *buildinfo.BuildInfo
}

// environment is what the Go tool is given: of this machine's settings, those alone that say where files are.
func environment(p platform) []string {
	env := []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off", "GOENV=off"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOROOT", "GOPATH", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOTOOLCHAIN",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// build makes a static program without paths, a build id or a trace of git: rel alone says what it is.
func (d *distribution) build(ctx context.Context, p platform, prog program, dir string) (*built, error) {
	path := filepath.Join(dir, p.String(), prog.name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid= -X main.release=v"+d.version, "-o", path, prog.pkg)
	cmd.Dir, cmd.Env = d.top, environment(p)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s for %s: %w\n%s", prog.name, p, err, out)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading what %s was built from: %w", path, err)
	}
	return &built{prog, path, info}, nil
}

// manual returns what a program says of itself: its manual page and its completions, by their paths below a prefix.
// They are the same on every platform, so the one of this machine is asked.
func (d *distribution) manual(ctx context.Context, prog program, dir string) ([]file, error) {
	here := platform{runtime.GOOS, runtime.GOARCH}
	b, err := d.build(ctx, here, prog, filepath.Join(dir, "here"))
	if err != nil {
		return nil, err
	}
	var files []file
	for _, page := range []struct {
		path string
		args []string
	}{
		{"share/man/man" + prog.section + "/" + prog.name + "." + prog.section, []string{"man"}},
		{"share/bash-completion/completions/" + prog.name, []string{"completion", "bash"}},
		{"share/zsh/site-functions/_" + prog.name, []string{"completion", "zsh"}},
		{"share/fish/vendor_completions.d/" + prog.name + ".fish", []string{"completion", "fish"}},
	} {
		cmd := exec.CommandContext(ctx, b.path, page.args...)
		cmd.Env = []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", d.time.Unix()), "TZ=UTC", "LC_ALL=C"}
		var said, complaints bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &complaints
		if err := cmd.Run(); err != nil || said.Len() == 0 {
			return nil, fmt.Errorf("%s %s: %w\n%s", prog.name, strings.Join(page.args, " "), err, complaints.Bytes())
		}
		files = append(files, file{path: page.path, mode: 0o644, data: said.Bytes()})
	}
	return files, nil
}
