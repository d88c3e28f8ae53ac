package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// part is what others made and a program contains: a module, Go's own library, a script of the pages.
type part struct {
	name, version string
	sum           string // go.sum's, "" for what is no module
	purl          string // https://github.com/package-url/purl-spec
	licences      []string
	texts         []text
}

type text struct{ name, content string }

// Files in which licences and notices stand, at the top of a module.
var legal = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|copyright|notice|patents)([.-][a-z0-9.-]+)?$`)

// grants are those among them that allow something.
var grants = regexp.MustCompile(`(?i)^(licen|copying)`)

// collections have the licences of other modules, also of some that no program contains (modernc.org/sqlite lists its whole module
// graph). They are passed on as they stand. What the programs contain is a part of its own, and judged there.
var collections = regexp.MustCompile(`(?i)(3rd|third)[-_]?party`)

// Each of these lets a binary be passed on with its text beside it. What is not here has to be looked at first.
var permissive = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "0BSD", "CC0-1.0", "Unlicense", "Zlib"}

// parts lists what the programs contain, in the order of names.
func (d *distribution) parts(ctx context.Context, programs []*built) ([]part, error) {
	dirs, err := d.modules(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]part{}
	for _, b := range programs {
		for _, module := range b.info.Deps {
			if module.Replace != nil {
				return nil, fmt.Errorf("%s is replaced by %s: whose licence is it?", module.Path, module.Replace.Path)
			}
			if found[module.Path].name == "" {
				texts, err := read(dirs[module.Path])
				if err != nil {
					return nil, fmt.Errorf("the licence of %s: %w", module.Path, err)
				}
				found[module.Path] = part{name: module.Path, version: module.Version, sum: module.Sum, purl: "pkg:golang/" + module.Path + "@" + escaped(module.Version), texts: texts}
			}
		}
		if b.program == gateway {
			page, err := htmx(d.top)
			if err != nil {
				return nil, err
			}
			found[page.name] = page
		}
		library, err := d.standard(ctx, b.info)
		if err != nil {
			return nil, err
		}
		found[library.name] = library
	}
	parts := slices.SortedFunc(maps.Values(found), func(a, b part) int { return strings.Compare(a.name, b.name) })
	for i := range parts {
		if parts[i].licences, err = identify(parts[i].texts); err != nil {
			return nil, fmt.Errorf("%s %s: %w", parts[i].name, parts[i].version, err)
		}
	}
	return parts, nil
}

// modules says where the source of each module is.
func (d *distribution) modules(ctx context.Context) (map[string]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-json=Path,Dir", "all")
	cmd.Dir, cmd.Env = d.top, environment(platform{runtime.GOOS, runtime.GOARCH})
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing modules: %w", err)
	}
	dirs := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var module struct{ Path, Dir string }
		if err := decoder.Decode(&module); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, err
		}
		dirs[module.Path] = module.Dir
	}
}

// standard is Go's own library, with the licence of the Go that builds.
func (d *distribution) standard(ctx context.Context, info *buildinfo.BuildInfo) (part, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOROOT")
	cmd.Dir, cmd.Env = d.top, environment(platform{runtime.GOOS, runtime.GOARCH})
	root, err := cmd.Output()
	if err != nil {
		return part{}, fmt.Errorf("asking for GOROOT: %w", err)
	}
	version := strings.TrimPrefix(info.GoVersion, "go")
	texts, err := read(strings.TrimSpace(string(root)))
	return part{name: "std", version: version, purl: "pkg:golang/std@" + version, texts: texts}, err
}

// htmx is what web/static/vendor has for the dashboard's pages; its version stands in the README beside.
func htmx(top string) (part, error) {
	about, err := os.ReadFile(filepath.Join(top, "web/static/README.md"))
	if err != nil {
		return part{}, err
	}
	version := regexp.MustCompile("npm `htmx\\.org@([0-9.]+)`").FindSubmatch(about)
	if version == nil {
		return part{}, errors.New("web/static/README.md does not say which htmx is vendored")
	}
	licence, err := os.ReadFile(filepath.Join(top, "web/static/vendor/LICENSE.htmx"))
	return part{name: "htmx.org", version: string(version[1]), purl: "pkg:npm/htmx.org@" + string(version[1]), texts: []text{{"LICENSE", string(licence)}}}, err
}

func read(dir string) ([]text, error) {
	if dir == "" {
		return nil, errors.New("its source is not there")
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var texts []text
	for _, entry := range names {
		if !entry.Type().IsRegular() || !legal.MatchString(entry.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, text{entry.Name(), strings.TrimSpace(strings.ReplaceAll(string(data), "\r\n", "\n")) + "\n"})
	}
	return texts, nil
}

// identify names the licences in texts by their SPDX identifiers.
func identify(texts []text) ([]string, error) {
	var ids []string
	for _, t := range texts {
		if !grants.MatchString(t.name) || collections.MatchString(t.name) {
			continue
		}
		for _, match := range licensecheck.Scan([]byte(t.content)).Match {
			if match.IsURL {
				continue
			}
			if !slices.Contains(permissive, match.ID) {
				return nil, fmt.Errorf("%s has the licence %s: may it be passed on as a part of ours? If so, add it to the list in licences.go", t.name, match.ID)
			}
			ids = append(ids, match.ID)
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("no licence is found")
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// notices is the text that is passed on with the programs.
func notices(parts []part) []byte {
	var b bytes.Buffer
	b.WriteString("The programs contain the work of others. Its licences and notices follow.\n")
	for _, p := range parts {
		fmt.Fprintf(&b, "\n%s\n%s %s (%s)\n", strings.Repeat("=", 80), p.name, p.version, strings.Join(p.licences, ", "))
		for _, t := range p.texts {
			fmt.Fprintf(&b, "%s\n%s:\n\n%s", strings.Repeat("-", 80), t.name, t.content)
		}
	}
	return b.Bytes()
}
