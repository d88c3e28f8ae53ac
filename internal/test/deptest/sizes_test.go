package deptest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestTheLargeTypesStayWithinTheirBounds(t *testing.T) {
	for _, b := range bounds {
		names, err := filepath.Glob(filepath.Join("../../..", b.Package, "*.go"))
		assert.NoError(t, err)
		var files []*ast.File
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			assert.NoError(t, err)
			files = append(files, file)
		}
		if over := b.Check(files); over != "" {
			t.Error(over)
		}
	}
}

func TestATypeBeyondItsBoundIsFound(t *testing.T) {
	// A type with so many methods in two files, by pointer and by value, and so many fields.
	source := func(methods, fields int) (files []*ast.File) {
		texts := []string{"package p\ntype T struct {\n\tembedded\n", "package p\ntype other struct{ x int }\nfunc (other) alone() {}\nfunc T1() {}\n"}
		for i := 1; i < fields; i++ {
			texts[0] += fmt.Sprintf("\tf%d int\n", i)
		}
		texts[0] += "}\n"
		for i := range methods {
			texts[i%2] += fmt.Sprintf("func (%sT) m%d() {}\n", []string{"t *", "t ", "*", ""}[i%4], i)
		}
		for i, text := range texts {
			file, err := parser.ParseFile(token.NewFileSet(), fmt.Sprint(i, ".go"), text, parser.SkipObjectResolution)
			assert.NoError(t, err)
			files = append(files, file)
		}
		return files
	}
	b := Bound{Package: "p", Type: "T", Methods: 180, Fields: 25}
	for _, c := range []struct {
		methods, fields int
		want            string // part of it; "" when it is within its bound
	}{
		{180, 25, ""},
		{181, 25, "p.T has 181 methods"},
		{180, 26, "p.T has 26 fields"},
	} {
		got := b.Check(source(c.methods, c.fields))
		assert.That(t, c.want == "" && got == "" || c.want != "" && strings.Contains(got, c.want), "%d methods, %d fields: %q", c.methods, c.fields, got)
	}
	b.Fields = 0
	assert.Equal(t, b.Check(source(180, 100)), "")
	b.Type = "gone"
	assert.That(t, strings.Contains(b.Check(source(1, 1)), "no type gone"), "a bound on a type that is not there")
}
