package docsite

import (
	"fmt"
	"slices"
	"strings"

	"lockkeeper/web/templates"
)

// schemasURL is where the types are.
const schemasURL = templates.ReferencePath + "/schemas"

// typeOf names the type of a schema.
func typeOf(schema value) []templates.TypePart {
	if name := schema.refName(); name != "" {
		return []templates.TypePart{{Text: name, URL: schemasURL + "#" + name}}
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if list := schema.get(key).list(); len(list) > 0 {
			return joined(list, " or ")
		}
	}
	if list := schema.get("allOf").list(); len(list) > 0 {
		return joined(list, " with ")
	}
	if values := schema.get("enum").texts(); len(values) > 0 {
		return word(strings.Join(values, " | "))
	}
	if only := schema.get("const"); only.there() {
		return word(only.text())
	}
	types := schema.get("type").texts()
	if slices.Contains(types, "array") {
		return append(word("array of "), typeOf(schema.get("items"))...)
	}
	name := strings.Join(types, " or ")
	if name == "" {
		name = "any"
	}
	if schema.get("nullable").isTrue() {
		name += " or null"
	}
	if format := schema.get("format").text(); format != "" {
		name += " (" + format + ")"
	}
	return word(name)
}

func word(text string) []templates.TypePart { return []templates.TypePart{{Text: text}} }

func joined(list []value, with string) (parts []templates.TypePart) {
	for i, schema := range list {
		if i > 0 {
			parts = append(parts, templates.TypePart{Text: with})
		}
		parts = append(parts, typeOf(schema)...)
	}
	return parts
}

// bounds are the members of a schema that bound its values, in the words of a reader.
var bounds = []struct{ key, words string }{
	{"default", "default %s"}, {"minimum", "at least %s"}, {"maximum", "at most %s"}, {"exclusiveMinimum", "more than %s"},
	{"exclusiveMaximum", "less than %s"}, {"minLength", "at least %s characters"}, {"maxLength", "at most %s characters"},
	{"minItems", "at least %s items"}, {"maxItems", "at most %s items"}, {"pattern", "matches %s"},
}

// limits are what a schema says of its values besides their type. Those of one with a name stand beside that.
func limits(schema value) (list []string) {
	s := schema.target()
	for _, b := range bounds {
		v := s.get(b.key)
		if !v.there() || b.key != "default" && schema.refName() != "" {
			continue
		}
		text := fmt.Sprintf(b.words, v.json())
		if v.text() == "1" {
			text = strings.TrimSuffix(text, "s")
		}
		list = append(list, text)
	}
	if s.get("deprecated").isTrue() {
		list = append(list, "deprecated")
	}
	return list
}

// fields are the members of an object, those of all parts of an allOf included.
func (r *reference) fields(schema value) ([]templates.Field, error) {
	s := schema.target()
	var list []templates.Field
	for _, part := range s.get("allOf").list() {
		inherited, err := r.fields(part)
		if err != nil {
			return nil, err
		}
		list = append(list, inherited...)
	}
	required := s.get("required").texts()
	for name, member := range s.get("properties").members() {
		about, err := r.about(member)
		if err != nil {
			return nil, err
		}
		list = append(list, templates.Field{Name: name, Required: slices.Contains(required, name), Type: typeOf(member), About: about, Limits: limits(member)})
	}
	return list, nil
}

// schemas describes all types.
func (r *reference) schemas() (list []templates.Schema, err error) {
	for name, schema := range r.spec.get("components", "schemas").members() {
		s := templates.Schema{Name: name, Type: typeOf(schema), Notes: strings.Join(limits(schema), "; "), Example: schema.target().example().json()}
		if s.About, err = r.markdown(schema.get("description").text()); err != nil {
			return nil, err
		}
		if s.Fields, err = r.fields(schema); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}
