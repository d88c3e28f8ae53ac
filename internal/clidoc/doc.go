// Package clidoc writes the manual page of a program, and what shells need to complete its command lines, from the command line's
// definition itself (kong's model). So neither can name a flag that the program does not have.
//
// A flag or argument whose values only the running program knows has the tag `completion:"command"`: the shell runs the
// command, and offers the lines that it prints. A placeholder FILE or DIR means the names of files.
//
// The package is pure: it reads the model and writes text. The same model gives the same bytes.
package clidoc

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// point is a place in the command line: the program itself, or a command of it.
type point struct {
	node *kong.Node
	path string // "", "webhook", "webhook add"
}

// points are all places, the program first, without what is hidden.
func points(app *kong.Application) (list []point) {
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		list = append(list, point{n, path})
		for _, child := range commands(n) {
			walk(child, strings.TrimSpace(path+" "+child.Name))
		}
	}
	walk(app.Node, "")
	return list
}

func commands(n *kong.Node) (list []*kong.Node) {
	for _, child := range n.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			list = append(list, child)
		}
	}
	return list
}

// own are the flags of a place itself, and not of the program. --help has every place, so only the program has it here.
func (p point) own() (list []*kong.Flag) {
	for _, f := range p.node.Flags {
		if !f.Hidden && (p.path == "" || f.Name != "help") {
			list = append(list, f)
		}
	}
	return list
}

// all are the flags that can be given at a place.
func (p point) all() (list []*kong.Flag) {
	for n := p.node; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if !f.Hidden && !slices.ContainsFunc(list, func(g *kong.Flag) bool { return g.Name == f.Name }) {
				list = append(list, f)
			}
		}
	}
	return list
}

// spellings are what a flag is typed as.
func spellings(f *kong.Flag) (list []string) {
	list = append(list, "--"+f.Name)
	if negatable(f) {
		list = append(list, "--no-"+f.Name)
	}
	if f.Short != 0 {
		list = append(list, "-"+string(f.Short))
	}
	return list
}

func takesValue(f *kong.Flag) bool { return !f.IsBool() && !f.IsCounter() }

// values are those that the definition lists.
func values(v *kong.Value) (list []string) {
	for _, e := range v.EnumSlice() {
		if e != "" {
			list = append(list, e)
		}
	}
	return list
}

// kind says what completes a value: the listed ones, files, a command, or nothing.
type kind struct {
	values  []string
	files   bool
	command string
}

func kindOf(v *kong.Value, placeholder string) kind {
	command := ""
	if v.Tag != nil {
		command = v.Tag.Get("completion")
	}
	return kind{values(v), strings.HasPrefix(placeholder, "FILE") || strings.HasPrefix(placeholder, "DIR"), command}
}

// firstLine is a help text without line breaks, up to its first sentence.
func firstLine(help string) string {
	help = strings.Join(strings.Fields(help), " ")
	if i := strings.Index(help, ". "); i > 0 {
		help = help[:i]
	}
	return strings.TrimSuffix(help, ".")
}

func negatable(f *kong.Flag) bool { return f.Tag != nil && f.Tag.Negatable != "" }
