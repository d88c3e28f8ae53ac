package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
)

// Example is the request that the specification shows for an operation, and how its answer is shown.
type Example struct {
	Operation    *openapi3.Operation
	Method, Path string // the path as the document has it
	spec         *Spec
}

// Examples are those of all operations, in the order of their ids.
func (s *Spec) Examples() []*Example {
	var list []*Example
	for path, item := range s.Doc.Paths.Map() {
		for method, operation := range item.Operations() {
			whole := *operation
			whole.Parameters = slices.Concat(item.Parameters, operation.Parameters)
			list = append(list, &Example{Operation: &whole, Method: method, Path: path, spec: s})
		}
	}
	slices.SortFunc(list, func(a, b *Example) int { return strings.Compare(a.Operation.OperationID, b.Operation.OperationID) })
	return list
}

// Request is the request: path parameters, required ones and those with an example, and the body. actual has what is another value here
// than in the document, by the name of the parameter or member.
func (e *Example) Request(actual map[string]any) (path string, options []Option, err error) {
	path = e.Path
	query := url.Values{}
	for _, p := range e.Operation.Parameters {
		value, known := actual[p.Value.Name]
		if !known && p.Value.Example != nil {
			value, known = p.Value.Example, true
		}
		if !known && p.Value.Required && p.Value.Schema.Value.Examples != nil {
			value, known = p.Value.Schema.Value.Examples[0], true
		}
		switch text := fmt.Sprint(value); {
		case !known && p.Value.Required:
			return "", nil, fmt.Errorf("%s: the parameter %s needs an example", e.Operation.OperationID, p.Value.Name)
		case !known:
		case p.Value.In == "path":
			path = strings.Replace(path, "{"+p.Value.Name+"}", url.PathEscape(text), 1)
		case p.Value.In == "query":
			query.Set(p.Value.Name, text)
		default:
			options = append(options, Header(p.Value.Name, text))
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if e.Operation.RequestBody == nil {
		return path, options, nil
	}
	body, ok := e.Operation.RequestBody.Value.Content["application/json"].Example.(map[string]any)
	if !ok {
		return "", nil, fmt.Errorf("%s: the body needs an example, which is an object", e.Operation.OperationID)
	}
	body = maps.Clone(body)
	for name := range body {
		if value, known := actual[name]; known {
			body[name] = value
		}
	}
	text, err := json.Marshal(body)
	return path, append(options, JSON(string(text))), err
}

// Check holds an answer to the request against the example of it: a success with the same members, of the same types.
func (e *Example) Check(a *Answer) error {
	id := e.Operation.OperationID
	response := e.Operation.Responses.Status(a.Status)
	if a.Status >= 400 || response == nil {
		return fmt.Errorf("%s: the answer to the example is %d %s", id, a.Status, a.Body)
	}
	content := response.Value.Content["application/json"]
	if content == nil {
		return nil
	}
	if content.Example == nil {
		return fmt.Errorf("%s: the answer %d needs an example", id, a.Status)
	}
	shown, err := json.Marshal(content.Example)
	if err != nil {
		return err
	}
	place := fmt.Sprintf("/paths/%s/%s/responses/%d/content/application~1json/schema", pointer(e.Path), strings.ToLower(e.Method), a.Status)
	if err := e.spec.judgeJSON(place, shown); err != nil {
		return fmt.Errorf("%s: the example is no answer of it: %w", id, err)
	}
	var got, want any
	if err := json.Unmarshal(a.Body, &got); err != nil {
		return err
	}
	if err := json.Unmarshal(shown, &want); err != nil {
		return err
	}
	if got, want := shapeOf(got), shapeOf(want); got != want {
		return fmt.Errorf("%s: the answer is\n%s, the example\n%s", id, got, want)
	}
	return nil
}

// shapeOf is the names of the members and the types of the values. Of a list the first element stands for all. Spans of time do
// not count: some are left out below a millisecond.
func shapeOf(value any) string {
	switch value := value.(type) {
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if !strings.HasSuffix(name, "_ms") {
				parts = append(parts, name+" "+shapeOf(value[name]))
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		if len(value) == 0 {
			return "[]"
		}
		return "[" + shapeOf(value[0]) + "]"
	default:
		return fmt.Sprintf("%T", value)
	}
}

var (
	statusLine  = regexp.MustCompile(`^        '([0-9]{3})':`)
	exampleLine = regexp.MustCompile(`^(          content: \{application/json: \{schema: (?:\{\$ref: '[^']*'\}|\{oneOf: \[[^]]*\]\}))(?:, example: .*)?\}\}$`)
)

// WithExamples is the text of a specification with the answers to its examples.
func WithExamples(text []byte, answers map[string]*Answer) []byte {
	var lines []string
	operation, status := "", 0
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "      operationId: "); ok {
			operation, status = name, 0
		}
		if m := statusLine.FindStringSubmatch(line); m != nil {
			status, _ = strconv.Atoi(m[1])
		}
		if m, a := exampleLine.FindStringSubmatch(line), answers[operation]; m != nil && a != nil && a.Status == status {
			line = m[1] + ", example: " + inFlow(a.Body) + "}}"
		}
		lines = append(lines, line)
	}
	return []byte(strings.Join(lines, "\n"))
}

// inFlow is JSON as YAML writes it in one line.
func inFlow(body []byte) string {
	var node yaml.Node
	if err := yaml.Unmarshal(body, &node); err != nil {
		return string(bytes.TrimSpace(body)) // JSON is YAML, too
	}
	return flow(node.Content[0])
}

func flow(n *yaml.Node) string {
	var parts []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			parts = append(parts, n.Content[i].Value+": "+flow(n.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, flow(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	if plain.MatchString(n.Value) || n.Tag != "!!str" {
		return n.Value
	}
	return "'" + strings.ReplaceAll(n.Value, "'", "''") + "'"
}

var plain = regexp.MustCompile(`^(?:[a-zA-Z/][a-zA-Z0-9/._ -]*[a-zA-Z0-9._-]|[a-z])$`)

// NoExample are operations whose answer has no JSON to show.
func (e *Example) NoExample() bool {
	for status, r := range e.Operation.Responses.Map() {
		if status != "default" && r.Value.Content["application/json"] != nil {
			return false
		}
	}
	return e.Method == http.MethodGet && strings.HasPrefix(e.Path, "/v1/events")
}
