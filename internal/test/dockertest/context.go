package dockertest

import (
	"bytes"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// Context is what an image is built from.
type Context struct {
	Dockerfile []byte
	Ignore     []byte // .dockerignore
	GoMod      []byte
	Files      fs.FS // the repository
}

// Violation is one rule that is not kept, and the line of the Dockerfile; 0 when no line is to blame.
type Violation struct {
	Line   int
	Reason string
}

func (v Violation) String() string {
	if v.Line == 0 {
		return v.Reason
	}
	return fmt.Sprintf("Dockerfile:%d: %s", v.Line, v.Reason)
}

// image is a parsed Dockerfile under inspection.
type image struct {
	Context
	ignore *patternmatcher.PatternMatcher
	stages []instructions.Stage
	found  []Violation
}

// Check returns every violation in c. An error says that it could not be read at all.
func Check(c Context) ([]Violation, error) {
	i, err := read(c)
	if err != nil {
		return nil, err
	}
	for _, rule := range []func(*image){(*image).bases, (*image).build, (*image).copies, (*image).final, (*image).commandLine, (*image).context} {
		rule(i)
	}
	return i.found, nil
}

// read parses both files; what BuildKit says about them are the first violations.
func read(c Context) (*image, error) {
	patterns, err := ignorefile.ReadAll(bytes.NewReader(c.Ignore))
	if err != nil {
		return nil, fmt.Errorf("reading .dockerignore: %w", err)
	}
	ignore, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, fmt.Errorf("reading .dockerignore: %w", err)
	}
	parsed, err := parser.Parse(bytes.NewReader(c.Dockerfile))
	if err != nil {
		return nil, fmt.Errorf("reading the Dockerfile: %w", err)
	}
	i := &image{Context: c, ignore: ignore}
	for _, w := range parsed.Warnings {
		i.refuse(ranges(w.Location), "BuildKit warns: %s", w.Short)
	}
	// Only the rules that need no solver are called from here; docker build --check calls the rest.
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, at []parser.Range) {
		i.refuse(at, "BuildKit's linter, %s: %s", rule, message)
	}})
	if i.stages, _, err = instructions.Parse(parsed.AST, lint); err != nil {
		return nil, fmt.Errorf("reading the Dockerfile: %w", err)
	}
	return i, nil
}

func (i *image) refuse(at []parser.Range, format string, args ...any) {
	v := Violation{Reason: fmt.Sprintf(format, args...)}
	if len(at) > 0 {
		v.Line = at[0].Start.Line
	}
	i.found = append(i.found, v)
}

func ranges(r *parser.Range) []parser.Range {
	if r == nil {
		return nil
	}
	return []parser.Range{*r}
}

// last is the stage that becomes the image.
func (i *image) last() *instructions.Stage { return &i.stages[len(i.stages)-1] }

// all returns the instructions of one kind, in order.
func all[T instructions.Command](s *instructions.Stage) []T {
	var found []T
	for _, c := range s.Commands {
		if c, ok := c.(T); ok {
			found = append(found, c)
		}
	}
	return found
}

// goVersion is what go.mod asks for: the toolchain if it names one.
func (i *image) goVersion() string {
	asked := ""
	for _, m := range regexp.MustCompile(`(?m)^(?:go |toolchain go)(\S+)$`).FindAllSubmatch(i.GoMod, -1) {
		asked = string(m[1]) // the line "toolchain" stands behind the line "go"
	}
	return asked
}

// excluded reports whether .dockerignore keeps a path out of the build.
func (i *image) excluded(path string) bool {
	out, err := i.ignore.MatchesOrParentMatches(path)
	return out || err != nil
}

// let returns the files of the repository that go into the build.
func (i *image) let() ([]string, error) {
	var in []string
	err := fs.WalkDir(i.Files, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // gone since it was listed
		case d.IsDir() && strings.HasPrefix(path, ".") && path != ".":
			return fs.SkipDir // .git: large, and the rule about the context looks at it
		case d.Type().IsRegular() && !i.excluded(path):
			in = append(in, path)
		}
		return nil
	})
	return in, err
}
