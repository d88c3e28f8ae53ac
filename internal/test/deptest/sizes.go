package deptest

import (
	"fmt"
	"go/ast"
)

// Bound is how large a type may grow. A type at its bound has a part that can be a type of its own: state that few methods use,
// or rules that need none of it.
type Bound struct {
	Package, Type   string
	Methods, Fields int // at most; 0 fields: any number
}

// bounds are those of the types around which everything else would gather. The Manager's methods are those that are declared on it, not
// those of what is embedded in it.
var bounds = []Bound{
	{"internal/locks/manager", "Manager", 180, 25},
	{"internal/locks/manager", "lease", 180, 0},
}

// Check says how the type in the package's files is beyond its bound; "" when it is not.
func (b Bound) Check(files []*ast.File) string {
	found, methods, fields := false, 0, 0
	for _, file := range files {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && receiver(d.Recv.List[0].Type) == b.Type {
					methods++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if t, is := spec.(*ast.TypeSpec); is && t.Name.Name == b.Type {
						found = true
						fields = fieldsOf(t.Type)
					}
				}
			}
		}
	}
	switch {
	case !found:
		return fmt.Sprintf("%s has no type %s: mend the bound in internal/test/deptest/sizes.go", b.Package, b.Type)
	case methods > b.Methods:
		return fmt.Sprintf("%s.%s has %d methods, and at most %d are allowed: a part of it can be a type of its own", b.Package, b.Type, methods, b.Methods)
	case b.Fields > 0 && fields > b.Fields:
		return fmt.Sprintf("%s.%s has %d fields, and at most %d are allowed: what few methods use can be a type of its own", b.Package, b.Type, fields, b.Fields)
	}
	return ""
}

// receiver is the name of a receiver's type.
func receiver(t ast.Expr) string {
	switch e := t.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr: // of a type with a parameter
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// fieldsOf is how many fields a struct declares; an embedded one counts as one.
func fieldsOf(t ast.Expr) (n int) {
	s, is := t.(*ast.StructType)
	if !is {
		return 0
	}
	for _, f := range s.Fields.List {
		n += max(len(f.Names), 1)
	}
	return n
}
