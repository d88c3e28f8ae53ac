package mutants

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/test/assert"
)

var write = flag.Bool("mutants.write", false, "write the table of docs/internals/fail-points.md")

// TestTheTableHasThePointsOfTheCode needs no compiler: it runs always.
func TestTheTableHasThePointsOfTheCode(t *testing.T) {
	code := pointsIn(t, root(t))
	names, points := map[string]bool{}, map[string]bool{}
	for _, m := range Table {
		assert.That(t, !names[m.Name], "two mutants are called %s", m.Name)
		names[m.Name] = true
		assert.That(t, m.Seed != 0 || m.Scenario != "" || m.Backed != "" || m.Open != "",
			"mutant %s: the table must say what shows it: a seed, a scenario or another mutant", m.Name)
		for _, point := range m.Points() {
			points[point] = true
			assert.That(t, code[point] != nil,
				"mutant %s: the code must have fault.On(%q) where the protection stands, or the table must go without it", m.Name, point)
			assert.That(t, slices.Contains(fault.Names, point), "mutant %s: internal/fault/names.go must name %s", m.Name, point)
		}
	}
	for point, where := range code {
		assert.That(t, points[point], "%v: the table must have a mutant for the point %q", where, point)
	}
	for _, name := range fault.Names {
		assert.That(t, points[name], "internal/fault/names.go names %s, which is not in the table", name)
	}
	for _, m := range Table {
		assert.That(t, m.Backed == "" || names[m.Backed], "%s is backed by %s, which is not in the table", m.Name, m.Backed)
	}
}

// TestTheDocumentHasTheTable compares docs/internals/fail-points.md with the code and the table; with -mutants.write it writes.
func TestTheDocumentHasTheTable(t *testing.T) {
	code := pointsIn(t, root(t))
	want := "| fail point | where it stands | without it | noticed by | what is seen |\n|---|---|---|---|---|\n"
	for _, m := range Table {
		var places []string
		for _, point := range m.Points() {
			places = append(places, code[point]...)
		}
		slices.Sort(places)
		want += fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", m.Name, strings.Join(slices.Compact(places), ", "), m.Without, m.noticed(), m.Shows)
	}
	name := filepath.Join(root(t), "docs/internals/fail-points.md")
	document := assert.Value(os.ReadFile(name))(t)
	before, _, found := strings.Cut(string(document), "| fail point |")
	assert.Must(t, found, "docs/internals/fail-points.md must have a table of fail points at its end")
	if string(document) == before+want {
		return
	}
	assert.Must(t, *write,
		"docs/internals/fail-points.md is not what the code and the table say: go test ./internal/test/sim/mutants -mutants.write")
	assert.NoError(t, os.WriteFile(name, []byte(before+want), 0o644))
}

// noticed says what shows the mutant.
func (m Mutant) noticed() string {
	switch {
	case m.Backed != "":
		return fmt.Sprintf("`%s`", m.Backed)
	case m.Scenario != "":
		return fmt.Sprintf("`Test%s...`", m.Scenario)
	case m.Open != "":
		return "nothing as yet: " + m.Open
	}
	return fmt.Sprintf("seed %d", m.Seed)
}

// pointsIn is the name of each fail point of the shipped code, with the packages in which it stands.
func pointsIn(t *testing.T, dir string) map[string][]string {
	t.Helper()
	points, files := map[string][]string{}, token.NewFileSet()
	for _, top := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(dir, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && isPoint(call.Fun) {
					point := nameOf(call.Args)
					if point == "" {
						t.Errorf("%s: the name of a fail point must be a literal", files.Position(call.Pos()))
					} else {
						pkg := assert.Value(filepath.Rel(dir, filepath.Dir(path)))(t)
						points[point] = append(points[point], filepath.ToSlash(pkg))
					}
				}
				return true
			})
			return nil
		})
		assert.NoError(t, err)
	}
	assert.Must(t, len(points) != 0, "no fail point was found in the code")
	return points
}

func isPoint(called ast.Expr) bool {
	s, ok := called.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "fault" && s.Sel.Name == "On"
}

// nameOf is the one argument, "" when it is not a literal.
func nameOf(args []ast.Expr) string {
	if len(args) != 1 {
		return ""
	}
	lit, ok := args[0].(*ast.BasicLit)
	if !ok {
		return ""
	}
	name, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return name
}
