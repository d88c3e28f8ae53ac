package auth

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// node is a part of the file. Reading one panics with a *FileError where the part is not what it must be; parse recovers it.
type node struct {
	*yaml.Node
	path string // of the file
}

func (n node) fail(format string, args ...any) {
	panic(&FileError{Path: n.path, Line: n.Line, Column: n.Column, Detail: fmt.Sprintf(format, args...)})
}

// place is the line in a message of the YAML parser, which gives no column.
var place = regexp.MustCompile(`^yaml: line (\d+): `)

// parse reads the text with read. Its error is a *FileError.
func parse(path string, text []byte, read func(root node)) (err error) {
	defer func() {
		if v := recover(); v != nil {
			wrong, ours := v.(*FileError)
			if !ours {
				panic(v)
			}
			err = wrong
		}
	}()
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		wrong := &FileError{Path: path, Line: 1, Column: 1, Detail: "it must be YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
		if at := place.FindStringSubmatch(err.Error()); at != nil {
			wrong.Line, _ = strconv.Atoi(at[1])
			wrong.Detail = "it must be YAML: " + err.Error()[len(at[0]):]
		}
		return wrong
	}
	if len(document.Content) != 1 {
		return &FileError{Path: path, Line: 1, Column: 1, Detail: "it must have a mapping with some of anonymous, issuers, certificates, roles, who"}
	}
	read(node{document.Content[0], path})
	return nil
}

func (n node) child(c *yaml.Node) node { return node{c, n.path} }

// kindName is what a part is, in the words of YAML.
func (n node) kindName() string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.Tag {
	case "!!str":
		return "text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "nothing"
	}
	return "of the type " + n.Tag
}

// entries calls each with the keys and values of a mapping, in their order.
func (n node) entries(what string, each func(key, value node)) {
	if n.Kind != yaml.MappingNode {
		n.fail("%s must be a mapping, and is %s", what, n.kindName())
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.child(n.Content[i]), n.child(n.Content[i+1])
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			key.fail("a key must be a word: anchors and merge keys are not understood, write the entries out")
		}
		if line, twice := seen[key.Value]; twice {
			key.fail("the key %q is in line %d already: leave one of them out", key.Value, line)
		}
		seen[key.Value] = key.Line
		each(key, value)
	}
}

// fields reads a mapping whose keys are known.
func (n node) fields(what string, known map[string]func(node)) (given map[string]node) {
	given = map[string]node{}
	n.entries(what, func(key, value node) {
		read := known[key.Value]
		if read == nil {
			key.fail("%s has no key %q; its keys are %s", what, key.Value, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		read(value)
		given[key.Value] = value
	})
	return given
}

// items calls each with what a list has.
func (n node) items(what string, each func(node)) {
	if n.Kind != yaml.SequenceNode {
		n.fail("%s must be a list, as in [a, b], and is %s", what, n.kindName())
	}
	for _, item := range n.Content {
		each(n.child(item))
	}
}

// oneOrMore calls each with the items of a list, or with the one value in its place.
func (n node) oneOrMore(what string, each func(node)) {
	if n.Kind != yaml.SequenceNode {
		each(n)
		return
	}
	if len(n.Content) == 0 {
		n.fail("%s must have at least one item", what)
	}
	n.items(what, each)
}

// text is a value that is not empty. Numbers and words such as true are text when they are quoted.
func (n node) text(what string) string {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		n.fail("%s must be text (in quotes if it looks like something else), and is %s", what, n.kindName())
	}
	if n.Value == "" {
		n.fail("%s must not be empty", what)
	}
	return n.Value
}

// count is a whole number from 1 on.
func (n node) count(what string) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || v < 1 {
		n.fail("%s must be a whole number from 1 on; leave it out for no bound", what)
	}
	return v
}

// span is a duration above 0.
func (n node) span(what string) time.Duration {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d <= 0 {
		n.fail("%s must be a span of time with its unit, as 30s or 1h; leave it out for no bound", what)
	}
	return d
}

var ratePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)/(s|m|h)$`)

// rate is a number of requests in a second, from text as "50/s".
func (n node) rate(what string) float64 {
	parts := ratePattern.FindStringSubmatch(n.Value)
	var v float64
	err := errors.New("no rate")
	if n.Kind == yaml.ScalarNode && parts != nil {
		v, err = strconv.ParseFloat(parts[1], 64)
	}
	if err != nil || v <= 0 {
		n.fail("%s must be a number of requests in a span, as 50/s, 600/m or 100/h; leave it out for no bound", what)
	}
	return v / map[string]float64{"s": 1, "m": 60, "h": 3600}[parts[2]]
}
