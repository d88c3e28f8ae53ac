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
	raw    []byte   // isList, isOther: the JSON, for decodeArray
}

type source int

const (
	fromQuery source = iota
	fromBody
)

type valueKind int

const (
	isText   valueKind = iota // a JSON string, or anything in the query
	isNumber                  // a JSON number, as written
	isBool
	isNull
	isList  // a JSON array of strings
	isOther // a JSON object, or an array of something else
)

// decodeObject reads a JSON object and calls take for each member, in order.
// encoding/json's own decoding would accept unknown members, repeated ones, and
// names in the wrong case; here every member is told by its exact name, and
// take is the one that refuses.
func decodeObject(body []byte, take func(name string, v value) error) error {
	if !utf8.Valid(body) {
		return malformed("the body is not UTF-8")
	}
	// Valid checks the whole text, also what follows the object, so that below
	// only the shape is left to be looked at.
	if !json.Valid(body) {
		return malformed("the body is not one JSON object: " + syntaxError(body))
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return malformed("the body is JSON, but not an object")
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return malformed("the body cannot be read")
		}
		name, _ := token.(string)
		v, err := decodeValue(d, body)
		if err != nil {
			return malformed("the body cannot be read")
		}
		if err := take(name, v); err != nil {
			return err
		}
	}
	return nil
}

func decodeValue(d *json.Decoder, body []byte) (value, error) {
	token, err := d.Token()
	if err != nil {
		return value{}, err
	}
	v := value{source: fromBody}
	switch t := token.(type) {
	case string:
		v.kind, v.text = isText, t
	case json.Number:
		v.kind, v.text = isNumber, t.String()
	case bool:
		v.kind, v.text = isBool, fmt.Sprint(t)
	case nil:
		v.kind = isNull
	case json.Delim:
		v.kind = isOther
		if t == '[' {
			v.kind = isList
		}
		begin := d.InputOffset() - 1
		if err = decodeRest(d, &v); err == nil {
			v.raw = body[begin:d.InputOffset()]
		}
	}
	return v, err
}

// decodeArray splits a JSON array into the JSON of its elements.
func decodeArray(v value) (elements []json.RawMessage, ok bool) {
	if len(v.raw) == 0 || v.raw[0] != '[' {
		return nil, false
	}
	return elements, json.Unmarshal(v.raw, &elements) == nil
}

// decodeRest reads to the end of an array or object whose first delimiter has
// been read. Only arrays of strings are kept.
func decodeRest(d *json.Decoder, v *value) error {
	for depth := 1; depth > 0; {
		token, err := d.Token()
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case json.Delim:
			if t == '[' || t == '{' {
				depth++
				v.kind = isOther
			} else {
				depth--
			}
		case string:
			if v.kind == isList {
				v.list = append(v.list, t)
			}
		default:
			v.kind = isOther
		}
	}
	return nil
}

// syntaxError tells what is wrong with text that is no JSON, and where.
func syntaxError(body []byte) string {
	var any json.RawMessage
	err := json.Unmarshal(body, &any)
	if syntax, ok := err.(*json.SyntaxError); ok {
		return fmt.Sprintf("%v (byte %d)", syntax, syntax.Offset)
	}
	return "syntax error"
}
