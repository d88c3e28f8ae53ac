// Package docs holds the documents against the repository: their links, and the files, packages and tests that they name.
package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// history is what says how things were: names in it need not be there any more.
var history = map[string]bool{"CHANGELOG.md": true, "docs/internals/decisions.md": true}

var (
	link     = regexp.MustCompile(`\]\(([^()\s]*)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInURL = regexp.MustCompile("[^a-z0-9 _-]")
	named    = regexp.MustCompile(`([\w./-]*)\b([a-z]\w*\.go)\b`)
	tests    = regexp.MustCompile(`\bTest[A-Z]\w+`) // a whole name or its beginning
	packages = regexp.MustCompile(`(?:^|[^\w/])((?:internal|cmd)/[a-z0-9]+(?:/[a-z0-9]+)*)(\w*\.go)?`)
	function = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// repository is what the documents may name.
type repository struct {
	files     map[string]bool   // and directories
	documents map[string]string // with their text
	tests     string            // their names, each after a space
}

func TestLinksLeadSomewhere(t *testing.T) {
	r := read(t)
	for name, text := range r.documents {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // another site
			}
			page := name
			if target != "" {
				page = path.Join(path.Dir(name), target)
			}
			if !r.files[page] {
				t.Errorf("%s: the link to %s must lead to a file", name, m[1])
			} else if anchor != "" && !r.hasHeading(page, anchor) {
				t.Errorf("%s: the link to %s must lead to a heading", name, m[1])
			}
		}
	}
}

func (r *repository) hasHeading(page, anchor string) bool {
	for _, h := range heading.FindAllStringSubmatch(r.documents[page], -1) {
		if strings.ReplaceAll(notInURL.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

// TestNamedFilesAndTestsAreThere reads a file without a directory as one of the directory that the line named before.
func TestNamedFilesAndTestsAreThere(t *testing.T) {
	r := read(t)
	for name, text := range r.documents {
		if history[name] {
			continue
		}
		for line := range strings.Lines(text) {
			dir := ""
			for _, m := range named.FindAllStringSubmatch(line, -1) {
				if m[1] != "" {
					dir = strings.TrimSuffix(m[1], "/")
				}
				assert.That(t, r.hasFile(path.Join(dir, m[2])),
					"%s names %s, which is no file of the repository", name, path.Join(dir, m[2]))
			}
			for _, test := range tests.FindAllString(line, -1) {
				assert.That(t, strings.Contains(r.tests, " "+test), "%s names %s, which is no test", name, test)
			}
			for _, m := range packages.FindAllStringSubmatch(line, -1) {
				assert.That(t, m[2] != "" || r.files[m[1]], "%s names %s, which is no directory of the repository", name, m[1])
			}
		}
	}
}

func TestTheArchitectureNamesEveryPackage(t *testing.T) {
	r := read(t)
	dirs := map[string]bool{}
	for file := range r.files {
		if dir := path.Dir(file); path.Ext(file) == ".go" && strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "internal/test") {
			dirs[dir] = true
		}
	}
	for dir := range dirs {
		assert.That(t, strings.Contains(strings.ReplaceAll(r.documents["ARCHITECTURE.md"], dir+"/", ""), dir),
			"ARCHITECTURE.md must have %s in its list of packages", dir)
	}
}

// hasFile says whether a file has that path, from the top or from internal or internal/locks.
func (r *repository) hasFile(name string) bool {
	if !strings.Contains(name, "/") {
		for file := range r.files {
			if path.Base(file) == name {
				return true
			}
		}
	}
	for _, from := range []string{"", "internal", "internal/locks"} {
		if r.files[path.Join(from, name)] {
			return true
		}
	}
	return false
}

// text is the content of any file.
func (r *repository) text(t *testing.T, name string) string {
	t.Helper()
	content := assert.Value(os.ReadFile(filepath.Join("../../..", name)))(t)
	return string(content)
}

func read(t *testing.T) *repository {
	t.Helper()
	r := &repository{files: map[string]bool{}, documents: map[string]string{}}
	root, err := filepath.Abs("../../..")
	assert.NoError(t, err)
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && len(name) > 1 && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		r.files[name] = true
		isDocument, isTest := path.Ext(name) == ".md" && !strings.Contains(name, "testdata/"), strings.HasSuffix(name, "_test.go")
		if !isDocument && !isTest {
			return nil
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if isDocument {
			r.documents[name] = string(content)
		}
		if isTest {
			for _, m := range function.FindAllStringSubmatch(string(content), -1) {
				r.tests += " " + m[1]
			}
		}
		return err
	})
	assert.NoError(t, err)
	return r
}
