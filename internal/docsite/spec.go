package docsite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value is a place in a specification. The zero value is what is not there.
type value struct {
	doc *yaml.Node // the whole
	n   *yaml.Node
}

func readSpec(text []byte) (value, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return value{}, fmt.Errorf("reading the specification: %w", err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return value{}, errors.New("the specification must be a mapping")
	}
	return value{doc.Content[0], doc.Content[0]}, nil
}

// get follows keys, and references on the way; what it returns may be a reference.
func (v value) get(keys ...string) value {
	for _, key := range keys {
		v = v.target()
		found := value{doc: v.doc}
		for name, member := range v.members() {
			if name == key {
				found = member
			}
		}
		v = found
	}
	return v
}

func (v value) there() bool { return v.n != nil }

// text is a scalar as it stands in the document, "" of anything else.
func (v value) text() string {
	if v.n == nil || v.n.Kind != yaml.ScalarNode {
		return ""
	}
	return v.n.Value
}

func (v value) isTrue() bool { return v.text() == "true" }

// list is the items of a sequence; a scalar is one of them.
func (v value) list() []value {
	if v.n == nil {
		return nil
	}
	if v.n.Kind == yaml.ScalarNode {
		return []value{v}
	}
	var list []value
	if v.n.Kind == yaml.SequenceNode {
		for _, n := range v.n.Content {
			list = append(list, value{v.doc, n})
		}
	}
	return list
}

func (v value) texts() []string {
	var list []string
	for _, item := range v.list() {
		list = append(list, item.text())
	}
	return list
}

// members are those of a mapping, in the document's order.
func (v value) members() iter.Seq2[string, value] {
	return func(yield func(string, value) bool) {
		if v.n == nil || v.n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(v.n.Content); i += 2 {
			if !yield(v.n.Content[i].Value, value{v.doc, v.n.Content[i+1]}) {
				return
			}
		}
	}
}

// reference is what $ref holds; "" when the value is none.
func (v value) reference() string {
	for name, member := range v.members() {
		if name == "$ref" {
			return member.text()
		}
	}
	return ""
}

// refName is the name of the component that the value refers to.
func (v value) refName() string {
	if ref := v.reference(); ref != "" {
		return path.Base(ref)
	}
	return ""
}

// target is what a reference leads to, and the value itself when it is none.
func (v value) target() value {
	for range 10 { // a reference to itself ends somewhere
		ref, ok := strings.CutPrefix(v.reference(), "#/")
		if !ok {
			break
		}
		to := value{v.doc, v.doc}
		for key := range strings.SplitSeq(ref, "/") {
			key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
			next := value{doc: v.doc}
			for name, member := range to.members() {
				if name == key {
					next = member
				}
			}
			to = next
		}
		v = to
	}
	return v
}

// json is the value as JSON, indented when it takes more than a line; a string stands as it is.
func (v value) json() string {
	if v.n == nil {
		return ""
	}
	if v.n.Kind == yaml.ScalarNode && v.n.Tag == "!!str" {
		return v.n.Value
	}
	text := v.compact()
	var indented bytes.Buffer
	if len(text) > 72 && json.Indent(&indented, []byte(text), "", "  ") == nil {
		return indented.String()
	}
	return text
}

// compact is the value as JSON on one line.
func (v value) compact() string {
	var out bytes.Buffer
	v.write(&out)
	return out.String()
}

// write writes JSON with the members in the document's order.
func (v value) write(out *bytes.Buffer) {
	switch v.n.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		first := true
		for name, member := range v.members() {
			if !first {
				out.WriteByte(',')
			}
			first = false
			writeString(out, name)
			out.WriteByte(':')
			member.write(out)
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range v.list() {
			if i > 0 {
				out.WriteByte(',')
			}
			item.write(out)
		}
		out.WriteByte(']')
	default:
		if v.n.Tag == "!!int" || v.n.Tag == "!!float" || v.n.Tag == "!!bool" || v.n.Tag == "!!null" {
			out.WriteString(v.n.Value)
			return
		}
		writeString(out, v.text())
	}
}

func writeString(out *bytes.Buffer, text string) {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false) // the templates do it
	_ = e.Encode(text)     // a string is always encoded
	out.Truncate(out.Len() - 1)
}

// example is the example of a parameter, a body, an answer or a schema, or the first of several.
func (v value) example() value {
	if e := v.ownExample(); e.there() {
		return e
	}
	t := v.target()
	if e := t.ownExample(); e.there() {
		return e
	}
	if schema := t.get("schema"); schema.there() {
		return schema.example()
	}
	return value{doc: v.doc}
}

// ownExample is the example that stands at the value itself, not at what it refers to.
func (v value) ownExample() value {
	for name, e := range v.members() {
		if name == "example" {
			return e
		}
		if list := e.list(); name == "examples" && len(list) > 0 { // of a schema
			return list[0]
		}
		if name == "examples" { // of a parameter or a content, each with a name
			for _, named := range e.members() {
				return named.get("value")
			}
		}
	}
	return value{doc: v.doc}
}
