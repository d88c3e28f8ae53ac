package templates

import (
	"net/http"
	"strings"
)

// DocPage is what the frame around each page of the documentation needs.
type DocPage struct {
	Title   string
	Version string            // of the gateway
	Source  string            // where the page's Markdown is; "": it has none
	Assets  map[string]string // as Page has it
	Pages   []Link            // as Page has it
	Nav     []DocGroup
	Here    []DocLink // the page's own sections
	Prev    *DocLink  // the page before it in Nav, and the one after it
	Next    *DocLink
}

// DocGroup is a part of the navigation.
type DocGroup struct {
	Title string // "": the first part has none
	Links []DocLink
}

// DocLink is an entry of the navigation.
type DocLink struct {
	Title, URL string
	Current    bool
	Open       bool // Links are shown
	Links      []DocLink
}

// Reference is a page of the API's reference. Members called About are HTML.
type Reference struct {
	DocPage
	About   string
	Spec    string // where the specification is, on the first page
	Groups  []ReferenceGroup
	Schemas []Schema
}

// ReferenceGroup are the operations of one tag: the first page lists them, the group's own page describes them.
type ReferenceGroup struct {
	Title, URL, About string
	Operations        []Operation
}

// Operation is one method of one path, or a message that the gateway sends.
type Operation struct {
	ID, URL          string
	Method, Path     string
	Summary, About   string
	Curl             string // "": the gateway sends it
	Parameters, Body []Field
	BodyTypes        []string // content types
	BodySchema       []TypePart
	BodyRequired     bool
	BodyExample      string
	Responses        []Response
}

// Method in the colour of what it does: reads, writes or removes.
func (o *Operation) methodClass() string {
	switch o.Method {
	case http.MethodGet, http.MethodHead:
		return "chip method chip-held"
	case http.MethodDelete:
		return "chip method chip-bad"
	}
	return "chip method chip-queued"
}

// Field is a parameter, or a member of an object.
type Field struct {
	Name     string
	In       string // of a parameter: path, query, header
	Required bool
	Type     []TypePart
	About    string
	Limits   []string // "default 1", "at most 64 characters"
}

func (f *Field) notes() string { return strings.Join(f.Limits, "; ") }

// TypePart is a piece of a type's name; URL leads to the schema that it names.
type TypePart struct{ Text, URL string }

// Response is one answer of an operation.
type Response struct {
	Status, About string
	Headers       string
	Contents      []Content
}

// Content is one form of an answer.
type Content struct {
	Type    string
	Schema  []TypePart
	Example string
}

// Schema is a type of the API.
type Schema struct {
	Name, About string
	Type        []TypePart
	Notes       string
	Fields      []Field
	Example     string
}

// ProblemKind is the page of a problem of the API.
type ProblemKind struct {
	DocPage
	Code, Cause, Help, Again, Example string
	Status                            string // "409 Conflict"
	Errors                            string // where the documentation tells of errors; "" when it does not
}
