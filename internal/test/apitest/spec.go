package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"lockkeeper"
	"lockkeeper/internal/docsite"
	"lockkeeper/internal/httpapi/api"
)

// Spec is openapi.yaml, ready to judge responses. Its schemas are JSON Schema 2020-12, as OpenAPI 3.1 has it.
type Spec struct {
	Doc      *openapi3.T
	Statuses map[string]int // of the codes of problems

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema // by the place in the document
}

// Load reads the specification once per process.
var Load = sync.OnceValues(func() (*Spec, error) { return NewSpec(lockkeeper.OpenAPI) })

// specURL names the document for the references in it.
const specURL = "file:///openapi.yaml"

// NewSpec reads a specification.
func NewSpec(text []byte) (*Spec, error) {
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("reading the specification: %w", err)
	}
	if err := doc.Validate(context.Background(), openapi3.IsOpenAPI31OrLater()); err != nil {
		return nil, fmt.Errorf("the specification: %w", err)
	}
	s := &Spec{Doc: doc, Statuses: map[string]int{}, compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	s.compiler.DefaultDraft(jsonschema.Draft2020)
	s.compiler.AssertFormat()
	tree, err := closed(text)
	if err == nil {
		err = s.compiler.AddResource(specURL, tree)
	}
	if err != nil {
		return nil, fmt.Errorf("the specification: %w", err)
	}
	if codes := doc.Components.Schemas["ProblemCode"]; codes != nil {
		for _, group := range regexp.MustCompile(`([45][0-9][0-9]):\s([^.]*)\.`).FindAllStringSubmatch(codes.Value.Description, -1) {
			for code := range strings.SplitSeq(group[2], ",") {
				s.Statuses[strings.Trim(code, " `\n")], _ = strconv.Atoi(group[1])
			}
		}
	}
	return s, nil
}

// closed is the document with schemas that allow no member besides those that they name. Requests stay open.
func closed(text []byte) (any, error) {
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	components, _ := tree["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	for name, schema := range schemas {
		if schema, ok := schema.(map[string]any); ok && schema["properties"] != nil && schema["additionalProperties"] == nil && name != "AcquireFields" {
			schema["additionalProperties"] = false
		}
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(data))
}

// Judge holds a value against the schema at a place of the document, such as "/components/schemas/Event".
func (s *Spec) Judge(place string, value any) error {
	s.mu.Lock()
	schema := s.compiled[place]
	if schema == nil {
		var err error
		if schema, err = s.compiler.Compile(specURL + "#" + place); err != nil {
			s.mu.Unlock()
			return err
		}
		s.compiled[place] = schema
	}
	s.mu.Unlock()
	return schema.Validate(value)
}

// judgeJSON does the same for JSON.
func (s *Spec) judgeJSON(place string, body []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return s.Judge(place, value)
}

// Check reports how a response departs from the specification. req is the
// request as it was sent; its body is not looked at.
func (s *Spec) Check(req *http.Request, status int, header http.Header, body []byte) error {
	if err := checkEvery(req, status, header); err != nil {
		return err
	}
	method := req.Method
	if method == http.MethodHead {
		if len(body) > 0 {
			return fmt.Errorf("the answer to HEAD has a body")
		}
		method = http.MethodGet
	}
	switch path, operation := s.route(req, method); {
	case operation == nil && isDocument(req.URL.Path):
		return nil
	case operation == nil:
		return s.checkUnrouted(req, status, header, body)
	default:
		if err := s.checkResponse(req, path, method, operation, status, header, body); err != nil {
			return fmt.Errorf("%s %d: %w", operation.OperationID, status, err)
		}
	}
	if req.Method == http.MethodHead {
		return nil
	}
	return s.checkFailure(req, status, header, body)
}

// isDocument: the specification names what is served there and does not describe it.
func isDocument(path string) bool {
	return path == "/metrics" || path == "/openapi.yaml" || strings.HasPrefix(path, "/problems/")
}

// checkFailure: problems are JSON, and lines for a shell where the query asks for those.
func (s *Spec) checkFailure(req *http.Request, status int, header http.Header, body []byte) error {
	text := isText(header)
	switch asked := strings.Contains(req.URL.RawQuery, "format=env"); {
	case status < 400 || !text && !asked:
		return s.checkProblem(status, header, body)
	case !text:
		return fmt.Errorf("status %d: a shell asked, and is answered with %q", status, header.Get("Content-Type"))
	case !asked && !strings.Contains(req.URL.RawQuery, "format") && !strings.Contains(req.Header.Get("Accept"), "text/plain") && req.Header.Get("Content-Type") == "":
		return fmt.Errorf("status %d: shell lines that were not asked for", status)
	case !shellFailure.Match(body):
		return fmt.Errorf("status %d: these are no shell lines of a failure", status)
	}
	p := shellProblem(body)
	if p.Status != status || s.Statuses[string(p.Code)] != status {
		return fmt.Errorf("status %d: the lines say %d and %s", status, p.Status, p.Code)
	}
	return nil
}

// Answers for a shell: a lease, and a problem.
var (
	shellLease = regexp.MustCompile(`^LEASE_ID=[a-z0-9]+\nLEASE_TOKEN=[A-Za-z0-9._-]+\nFENCING_TOKEN=[0-9]*\nLEASE_STATE=(held|waiting)\nLEASE_TTL_MS=[0-9]*\n` +
		`LEASE_WAITED_MS=[0-9]*\nNOTIFY_SECRET=(whsec_[A-Za-z0-9+/]+=*)?\nLEASE_ERROR=\nLEASE_STATUS=20[0-2]\n$`)
	shellFailure = regexp.MustCompile(`^LEASE_ID=\nLEASE_TOKEN=\nFENCING_TOKEN=\nLEASE_STATE=\nLEASE_TTL_MS=\nLEASE_WAITED_MS=\nNOTIFY_SECRET=\n` +
		`LEASE_ERROR=[a-z_]+\nLEASE_STATUS=[45][0-9][0-9]\nfalse\n$`)
)

// shellProblem is what a failure's shell lines tell.
func shellProblem(body []byte) *api.Problem {
	p := &api.Problem{}
	for line := range strings.Lines(string(body)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "LEASE_ERROR":
			p.Code = api.ProblemCode(value)
		case "LEASE_STATUS":
			p.Status, _ = strconv.Atoi(value)
		}
	}
	return p
}

// checkEvery: what every answer has. No page may frame an answer or load it as a part of itself.
func checkEvery(req *http.Request, status int, header http.Header) error {
	if id := header.Get("Lockkeeper-Request-Id"); !requestID.MatchString(id) {
		return fmt.Errorf("status %d with Lockkeeper-Request-Id %q", status, id)
	}
	if status == http.StatusSwitchingProtocols {
		return nil // no browser shows a handshake
	}
	if cache := header.Get("Cache-Control"); cache != "no-store" && (cache != "no-cache" || !isDocument(req.URL.Path)) {
		return fmt.Errorf("status %d with Cache-Control %q", status, cache)
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Cross-Origin-Resource-Policy": "same-origin",
		"X-Content-Type-Options": "nosniff",
	} {
		got := header.Values(name)
		if len(got) == 1 && got[0] == docsite.ContentPolicy {
			continue // the page of a problem
		}
		if len(got) != 1 || got[0] != want {
			return fmt.Errorf("status %d with %s %q, want %q", status, name, got, want)
		}
	}
	return nil
}

var requestID = regexp.MustCompile(`^[A-Za-z0-9._:@/+~-]{1,64}$`)

func isText(header http.Header) bool {
	return strings.HasPrefix(header.Get("Content-Type"), "text/plain")
}

// route finds the operation of a request; nil when there is none. A path's own
// words win over parameters, as in chi and in OpenAPI.
func (s *Spec) route(req *http.Request, method string) (route string, found *openapi3.Operation) {
	asked := strings.Split(req.URL.EscapedPath(), "/")
	if req.URL.Path == "/v1/check-fence" && slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, method) {
		method = http.MethodGet // it takes the method of the request that a proxy asks about
	}
	fewest := len(asked)
	for path, item := range s.Doc.Paths.Map() {
		operation := item.GetOperation(method)
		if parameters, ok := match(asked, strings.Split(path, "/")); ok && operation != nil && parameters < fewest {
			fewest, route, found = parameters, path, operation
		}
	}
	return route, found
}

func match(asked, pattern []string) (parameters int, ok bool) {
	if len(asked) != len(pattern) {
		return 0, false
	}
	for i, segment := range pattern {
		switch {
		case strings.HasPrefix(segment, "{"):
			parameters++
			ok = asked[i] != ""
		default:
			ok = asked[i] == segment
		}
		if !ok {
			return 0, false
		}
	}
	return parameters, true
}

// checkResponse holds status, headers and body against an operation.
func (s *Spec) checkResponse(req *http.Request, path, method string, operation *openapi3.Operation, status int, header http.Header, body []byte) error {
	response, key := operation.Responses.Status(status), strconv.Itoa(status)
	if response == nil && status >= 400 {
		response, key = operation.Responses.Default(), "default"
	}
	if response == nil {
		return fmt.Errorf("the operation does not have this status")
	}
	if err := plausible(operation, req, status); err != nil {
		return err
	}
	if path == "/v1/check-fence" {
		method = http.MethodGet
	}
	place := "/paths/" + pointer(path) + "/" + strings.ToLower(method) + "/responses/" + key
	if response.Ref != "" {
		place = strings.TrimPrefix(response.Ref, "#")
	}
	for name, h := range response.Value.Headers {
		at := place + "/headers/" + name + "/schema"
		if h.Ref != "" {
			at = strings.TrimPrefix(h.Ref, "#") + "/schema"
		}
		if err := s.checkHeader(name, h.Value, at, header); err != nil {
			return err
		}
	}
	contentType, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	content := response.Value.Content
	switch {
	case req.Method == http.MethodHead && contentType == "": // an answer without a body
		return nil
	case len(content) == 0 && len(body) > 0:
		return fmt.Errorf("a body where there is none")
	case len(content) == 0:
		return nil
	case isText(header):
		return checkText(operation, req, status, body)
	case content[contentType] == nil:
		return fmt.Errorf("the Content-Type is %q", contentType)
	case req.Method == http.MethodHead || !strings.HasSuffix(contentType, "json"): // streams are judged event by event (CheckEvent)
		return nil
	}
	return s.judgeJSON(place+"/content/"+pointer(contentType)+"/schema", body)
}

// pointer escapes a name in a JSON pointer that is a fragment of a URL.
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}

// plausible: a problem that the operation cannot meet is not covered by "default".
func plausible(operation *openapi3.Operation, req *http.Request, status int) error {
	has := func(header string) bool {
		return slices.ContainsFunc(operation.Parameters, func(p *openapi3.ParameterRef) bool { return p.Value.Name == header })
	}
	switch {
	case status == http.StatusPreconditionFailed && !has("If-Match"),
		status == http.StatusUpgradeRequired && operation.OperationID != "WatchEventsSocket",
		status == http.StatusUnsupportedMediaType && operation.RequestBody == nil,
		status == http.StatusMethodNotAllowed,
		status == http.StatusConflict && req.Method == http.MethodGet:
		return fmt.Errorf("the operation cannot be answered so")
	}
	return nil
}

func (s *Spec) checkHeader(name string, h *openapi3.Header, place string, header http.Header) error {
	values := header.Values(name)
	switch {
	case len(values) == 0 && h.Required:
		return fmt.Errorf("the header %s is missing", name)
	case len(values) == 0:
		return nil
	case len(values) > 1:
		return fmt.Errorf("the header %s comes twice", name)
	}
	var value any = values[0]
	if h.Schema.Value.Type.Is("integer") || name == "Fencing-Token" {
		value = json.Number(values[0])
	}
	if err := s.Judge(place, value); err != nil {
		return fmt.Errorf("the header %s: %w", name, err)
	}
	return nil
}

// checkText: an operation with the parameter format answers text where that, or the Accept header, asks for it.
func checkText(operation *openapi3.Operation, req *http.Request, status int, body []byte) error {
	if status >= 400 {
		return nil // checkFailure
	}
	i := slices.IndexFunc(operation.Parameters, func(p *openapi3.ParameterRef) bool { return p.Value.Name == "format" })
	query := req.URL.RawQuery
	switch {
	case i < 0:
		return fmt.Errorf("the operation does not answer text")
	case !strings.Contains(query, "format=env") && !strings.Contains(query, "format=text") && !strings.Contains(req.Header.Get("Accept"), "text/plain"):
		return fmt.Errorf("text that was not asked for")
	case slices.Contains(operation.Parameters[i].Value.Schema.Value.Enum, any("env")) && req.Method != http.MethodHead && !shellLease.Match(body):
		return fmt.Errorf("these are no shell lines of a lease")
	}
	return nil
}

// checkUnrouted: what is not in the specification is a 404 or 405 problem, or
// was refused before it was routed.
func (s *Spec) checkUnrouted(req *http.Request, status int, header http.Header, body []byte) error {
	if req.Method == http.MethodOptions && status == http.StatusNoContent {
		if header.Get("Allow") == "" || len(body) > 0 {
			return fmt.Errorf("204 for OPTIONS with Allow %q and the body %q", header.Get("Allow"), body)
		}
		return nil
	}
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed && status != http.StatusTooManyRequests && !guarded(status) {
		return fmt.Errorf("status %d for a path or method that the specification does not have", status)
	}
	if status == http.StatusMethodNotAllowed && header.Get("Allow") == "" {
		return fmt.Errorf("405 without Allow")
	}
	switch contentType := header.Get("Content-Type"); {
	case isText(header) || req.Method == http.MethodHead:
	case contentType == "application/problem+json":
		if err := s.judgeJSON("/components/schemas/Problem", body); err != nil {
			return fmt.Errorf("status %d: %w", status, err)
		}
	default:
		return fmt.Errorf("status %d with Content-Type %q", status, contentType)
	}
	if req.Method == http.MethodHead {
		return nil
	}
	return s.checkFailure(req, status, header, body)
}

func guarded(status int) bool {
	return status == http.StatusForbidden || status == http.StatusMisdirectedRequest
}

// checkProblem holds a problem against its own headers.
func (s *Spec) checkProblem(status int, header http.Header, body []byte) error {
	if status < 400 {
		if header.Get("Retry-After") != "" {
			return fmt.Errorf("status %d with Retry-After", status)
		}
		return nil
	}
	var p api.Problem
	if err := json.Unmarshal(body, &p); err != nil {
		return fmt.Errorf("status %d: %w", status, err)
	}
	if p.Status != status || p.Type != "/problems/"+string(p.Code) || s.Statuses[string(p.Code)] != status {
		return fmt.Errorf("status %d: the problem says %d and %s", status, p.Status, p.Type)
	}
	if p.RequestID != header.Get("Lockkeeper-Request-Id") {
		return fmt.Errorf("status %d: the problem has request_id %q, the header %q", status, p.RequestID, header.Get("Lockkeeper-Request-Id"))
	}
	after := ""
	if p.RetryAfterMS != nil {
		after = strconv.FormatInt((*p.RetryAfterMS+999)/1000, 10)
	}
	if got := header.Get("Retry-After"); got != after {
		return fmt.Errorf("status %d: Retry-After %q, and retry_after_ms is worth %q", status, got, after)
	}
	return nil
}
