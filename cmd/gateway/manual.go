package main

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"lockkeeper/internal/clidoc"
)

// packagedName is what the program is called where a package or install.sh has put it.
const packagedName = "lockkeeper"

// nameOf is what the program calls itself, by the path that it was started with.
func nameOf(path string) string {
	if filepath.Base(path) == packagedName {
		return packagedName
	}
	return "gateway"
}

// mentions are the places in texts where the program is called by its name: "gateway backup", "gateway --help".
var mentions = regexp.MustCompile(`\bgateway( +--[a-z]| (?:auth|backup|completion|config|export|healthcheck|import|man|restore|secret|serve|sweep|token|version)\b)|(?m:^  gateway$)`)

// called writes a text as a program of this name says it.
func called(name, text string) string {
	if name == "gateway" {
		return text
	}
	return mentions.ReplaceAllStringFunc(text, func(mention string) string { return strings.Replace(mention, "gateway", name, 1) })
}

// rename has the texts of a command line speak of the program by its name.
func rename(n *kong.Node, name string) {
	n.Help, n.Detail = called(name, n.Help), called(name, n.Detail)
	for _, f := range n.Flags {
		f.Help = called(name, f.Help)
	}
	for _, p := range n.Positional {
		p.Help = called(name, p.Help)
	}
	for _, child := range n.Children {
		rename(child, name)
	}
}

// manual writes the manual page.
func manual(w io.Writer, app *kong.Application) error {
	return clidoc.Man(w, app, clidoc.Page{Section: 8, Version: version(), Parts: []clidoc.Part{
		{Title: "EXIT STATUS", Text: exitCodes},
		{Title: "SEE ALSO", Text: "lockctl(1). The documentation is at /docs of each gateway."},
	}})
}

// exitCodes are those at the top of this package's documentation.
const exitCodes = `   0  in good order
   1  anything else
  64  usage
  69  ZooKeeper was never reached, or was lost in the middle of a sweep
  74  the store in --data-dir, or a file, is damaged or cannot be read or written
  75  another process has the store, or a gateway is registered at what is to be swept: it may be free later
  78  configuration: the store or the layout is of a newer release, the server too old, authentication refused,
      a namespace that contradicts the record, a layout that others made or that cannot be closed to them`
