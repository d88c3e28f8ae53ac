package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// value is what a request says for one field.
type value struct {
	source source
	kind   valueKind
	text   string   // isText, isNumber; with isBool "true" or "false"
	list   []string // isList
	raw    []byte   // isList, isOther: the JSON
}

type source int

const (
	fromQuery source = iota // or a path, or a header
	fromBody                // of JSON
	fromForm
)

// plain reports whether the value came as text: what is no string is read from it, too.
func (v value) plain() bool { return v.source != fromBody }

type valueKind int

const (
	isText   valueKind = iota // a JSON string, or anything that is not from a body
	isNumber                  // a JSON number, as written
	isBool
	isNull
	isList  // a JSON array of strings
	isOther // a JSON object, or an array of something else
)

// decodeObject reads a JSON object and calls take for each member, in order. encoding/json's own decoding would accept
// unknown members, repeated ones, and names in the wrong case; here every member is found by its exact name, and take is the
// one that refuses.
func decodeObject(body []byte, take func(name string, v value) error) error {
	if !utf8.Valid(body) {
		return malformed("the body is not UTF-8")
	}
	// The whole text is checked first, also what follows the object, so that below only the shape is left to be looked at.
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		detail := "syntax error"
		if syntax, ok := err.(*json.SyntaxError); ok {
			detail = fmt.Sprintf("%v (byte %d)", syntax, syntax.Offset)
		}
		return malformed("the body is not one JSON object: " + detail)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return malformed("the body is JSON, but not an object")
	}
	for d.More() {
		token, err := d.Token()
		name, _ := token.(string)
		var raw json.RawMessage
		if err == nil {
			err = d.Decode(&raw)
		}
		if err != nil {
			return malformed("the body cannot be read")
		}
		if err := take(name, valueOf(raw)); err != nil {
			return err
		}
	}
	return nil
}

// valueOf is the value of a member, which is JSON.
func valueOf(raw json.RawMessage) value {
	v := value{source: fromBody, text: string(raw)}
	switch raw[0] {
	case '"':
		_ = json.Unmarshal(raw, &v.text)
	case 't', 'f':
		v.kind = isBool
	case 'n':
		v.kind = isNull
	case '{', '[':
		v.kind, v.text, v.raw = isOther, "", raw
		var list []*string // null is no string
		if json.Unmarshal(raw, &list) != nil {
			break
		}
		v.kind, v.list = isList, make([]string, len(list))
		for i, s := range list {
			if s == nil {
				v.kind, v.list = isOther, nil
				break
			}
			v.list[i] = *s
		}
	default:
		v.kind = isNumber
	}
	return v
}

// decodeArray splits a JSON array into the JSON of its elements.
func decodeArray(v value) (elements []json.RawMessage, ok bool) {
	if len(v.raw) == 0 || v.raw[0] != '[' {
		return nil, false
	}
	return elements, json.Unmarshal(v.raw, &elements) == nil
}
