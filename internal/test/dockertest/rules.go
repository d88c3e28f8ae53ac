package dockertest

import (
	"go/version"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

var (
	// An image's name with a whole version, or with a digest.
	pinned = regexp.MustCompile(`^[a-z0-9./_-]+(:[0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9._-]*|.*@sha256:[0-9a-f]{64})$`)
	golang = regexp.MustCompile(`^golang:([0-9.]+)`)
	user   = regexp.MustCompile(`^([0-9]+):([0-9]+)$`)
)

// bases: every image that is built on is named so that it is the same one tomorrow, and compiles this module.
func (i *image) bases() {
	if len(i.stages) < 2 {
		i.refuse(nil, "one stage alone: the image would carry the compiler")
	}
	for n, stage := range i.stages {
		if stage.BaseName != "scratch" && i.stage(stage.BaseName, n) == nil && !pinned.MatchString(stage.BaseName) {
			i.refuse(stage.Location, "%s is not pinned: give a whole version, x.y.z", stage.BaseName)
		}
	}
	m := golang.FindStringSubmatch(i.stages[0].BaseName)
	switch {
	case m == nil:
		i.refuse(i.stages[0].Location, "the build stage is not an official golang image")
	case version.Compare("go"+m[1], "go"+i.goVersion()) < 0:
		i.refuse(i.stages[0].Location, "Go %s is older than the %s that go.mod asks for", m[1], i.goVersion())
	}
	if base := i.last().BaseName; base != "scratch" && !strings.HasPrefix(base, "gcr.io/distroless/static") {
		i.refuse(i.last().Location, "the image is built on %s: a static binary needs nothing of it", base)
	}
}

// stage finds a stage before the n-th by its name or number.
func (i *image) stage(name string, n int) *instructions.Stage {
	for at := range i.stages[:n] {
		if strings.EqualFold(i.stages[at].Name, name) || strconv.Itoa(at) == name {
			return &i.stages[at]
		}
	}
	return nil
}

// compile is the instruction that makes the gateway; nil without one.
func (i *image) compile() *instructions.RunCommand {
	for _, run := range all[*instructions.RunCommand](&i.stages[0]) {
		if strings.Contains(strings.Join(run.CmdLine, " "), "go build") {
			return run
		}
	}
	return nil
}

// build: the binary is static, tells its version, is the same from any directory, and is for the platform asked for.
func (i *image) build() {
	if i.stages[0].Platform != "$BUILDPLATFORM" {
		i.refuse(i.stages[0].Location, "the build stage is not --platform=$BUILDPLATFORM: another platform's compiler would be emulated")
	}
	run := i.compile()
	if run == nil {
		i.refuse(i.stages[0].Location, "the build stage does not build")
		return
	}
	line := strings.Join(run.CmdLine, " ")
	for _, part := range []string{"CGO_ENABLED=0 ", "GOOS=$TARGETOS ", "GOARCH=$TARGETARCH ", "-trimpath ", "-X 'main.release=$VERSION'"} {
		if !strings.Contains(line, part) {
			i.refuse(run.Location(), "the build lacks %s", strings.TrimSpace(part))
		}
	}
	for _, arg := range []string{"TARGETOS", "TARGETARCH", "VERSION"} {
		if !slices.ContainsFunc(all[*instructions.ArgCommand](&i.stages[0]), func(c *instructions.ArgCommand) bool {
			return slices.ContainsFunc(c.Args, func(a instructions.KeyValuePairOptional) bool { return a.Key == arg })
		}) {
			i.refuse(run.Location(), "ARG %s is missing: without it the variable is empty", arg)
		}
	}
	// The parser leaves the mounts' fields empty until variables are put in; ours have none.
	if err := run.Expand(func(word string) (string, error) { return word, nil }); err != nil {
		i.refuse(run.Location(), "a mount is not understood: %v", err)
	}
	for _, target := range []string{"/go/pkg/mod", "/root/.cache/go-build"} {
		if !slices.ContainsFunc(instructions.GetMounts(run), func(m *instructions.Mount) bool {
			return m.Type == instructions.MountTypeCache && m.Target == target
		}) {
			i.refuse(run.Location(), "no cache is mounted at %s", target)
		}
	}
}

// copies: what is copied is there, is let in by .dockerignore, and comes from nowhere else.
func (i *image) copies() {
	for n := range i.stages {
		for _, add := range all[*instructions.AddCommand](&i.stages[n]) {
			i.refuse(add.Location(), "ADD also unpacks, and fetches unchecked files: use COPY")
		}
		for _, c := range all[*instructions.CopyCommand](&i.stages[n]) {
			if c.From != "" {
				if i.stage(c.From, n) == nil {
					i.refuse(c.Location(), "COPY --from=%s: no stage before this one is named so", c.From)
				}
				continue
			}
			for _, source := range c.SourcePaths {
				i.source(c, source)
			}
		}
	}
}

func (i *image) source(c *instructions.CopyCommand, source string) {
	source = path.Clean(strings.TrimPrefix(source, "/"))
	if source == "." {
		return // the whole context; the rule about it looks inside
	}
	found, err := fs.Glob(i.Files, source)
	if err != nil || len(found) == 0 {
		i.refuse(c.Location(), "COPY %s: it does not exist", source)
	}
	for _, name := range found {
		if i.excluded(name) {
			i.refuse(c.Location(), "COPY %s: .dockerignore keeps it out", name)
		}
	}
}

// context: .dockerignore lists what may go in, so that all other files stay out.
func (i *image) context() {
	for _, name := range []string{".git/config", ".env", "zk-auth", "bin/gateway", ".run/data/log.1", "lockkeeper-data/x", "cmd/gateway/main_test.go"} {
		if !i.excluded(name) {
			i.refuse(nil, ".dockerignore lets %s into the build", name)
		}
	}
}
