package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"lockkeeper"
	"lockkeeper/internal/httpapi/api"
)

// Spec is openapi.yaml, ready to judge responses.
type Spec struct {
	Doc *openapi3.T
}

func init() {
	// Streams are judged event by event (CheckEvent); of their answers there is
	// only the header to look at.
	for _, contentType := range []string{"text/html", "text/event-stream", "application/jsonl", "application/x-ndjson"} {
		openapi3filter.RegisterBodyDecoder(contentType, openapi3filter.PlainBodyDecoder)
	}
}

// Load reads the specification once per process.
var Load = sync.OnceValues(func() (*Spec, error) { return NewSpec(lockkeeper.OpenAPI) })

// NewSpec reads a specification.
func NewSpec(text []byte) (*Spec, error) {
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("reading the specification: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("the specification: %w", err)
	}
	for _, schema := range doc.Components.Schemas {
		if v := schema.Value; v.Type.Is("object") && len(v.Properties) > 0 {
			v.AdditionalProperties = openapi3.AdditionalProperties{Has: new(false)}
		}
	}
	return &Spec{Doc: doc}, nil
}

// Check reports how a response departs from the specification. req is the
// request as it was sent; its body is not looked at.
func (s *Spec) Check(req *http.Request, status int, header http.Header, body []byte) error {
	if err := checkEmbedding(status, header); err != nil {
		return err
	}
	if req.Method == http.MethodHead {
		return s.checkHead(req, status, header, body)
	}
	route := s.route(req, req.Method)
	if route == nil {
		return s.checkUnrouted(req, status, header, body)
	}
	if err := s.checkResponse(req, route, status, header, body); err != nil {
		return err
	}
	return s.checkFailure(req, status, header, body)
}

// checkFailure: problems are JSON, and lines for a shell where the query asks for those.
func (s *Spec) checkFailure(req *http.Request, status int, header http.Header, body []byte) error {
	text := strings.HasPrefix(header.Get("Content-Type"), "text/plain")
	switch asked := strings.Contains(req.URL.RawQuery, "format=env"); {
	case status < 400 || !text && !asked:
		return checkProblem(status, header, body)
	case !text:
		return fmt.Errorf("status %d: a shell asked, and is answered with %q", status, header.Get("Content-Type"))
	case !asked && !strings.Contains(req.URL.RawQuery, "format") && !strings.Contains(req.Header.Get("Accept"), "text/plain") && req.Header.Get("Content-Type") == "":
		return fmt.Errorf("status %d: shell lines that were not asked for", status)
	}
	if err := s.Doc.Components.Schemas["LeaseEnvFailure"].Value.VisitJSON(string(body)); err != nil {
		return fmt.Errorf("status %d: %w", status, err)
	}
	p := shellProblem(body)
	if p.Status != status {
		return fmt.Errorf("status %d: the lines say %d", status, p.Status)
	}
	if err := s.Doc.Components.Schemas["ProblemCode"].Value.VisitJSON(string(p.Code)); err != nil {
		return fmt.Errorf("status %d: %w", status, err)
	}
	return nil
}

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

// checkEmbedding: no page may frame an answer or load it as a part of itself.
func checkEmbedding(status int, header http.Header) error {
	if status == http.StatusSwitchingProtocols {
		return nil // no browser shows a handshake
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Cross-Origin-Resource-Policy": "same-origin",
		"X-Content-Type-Options": "nosniff",
	} {
		if got := header.Values(name); len(got) != 1 || got[0] != want {
			return fmt.Errorf("status %d with %s %q, want %q", status, name, got, want)
		}
	}
	return nil
}

// route finds the operation of a request; nil when there is none. A path's own
// words win over parameters, as in chi and in OpenAPI.
func (s *Spec) route(req *http.Request, method string) *routers.Route {
	asked := strings.Split(req.URL.EscapedPath(), "/")
	var found *routers.Route
	fewest := len(asked)
	for path, item := range s.Doc.Paths.Map() {
		operation := item.GetOperation(method)
		if parameters, ok := match(asked, strings.Split(path, "/")); ok && operation != nil && parameters < fewest {
			fewest = parameters
			found = &routers.Route{Spec: s.Doc, Path: path, PathItem: item, Method: method, Operation: operation}
		}
	}
	return found
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

func (s *Spec) checkResponse(req *http.Request, route *routers.Route, status int, header http.Header, body []byte) error {
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, Route: route},
		Status:                 status,
		Header:                 header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		return fmt.Errorf("%s %d: %w", route.Operation.OperationID, status, err)
	}
	// The library accepts any body where no content is described.
	if response := route.Operation.Responses.Status(status); len(response.Value.Content) == 0 && len(body) > 0 {
		return fmt.Errorf("%s %d: a body where there is none", route.Operation.OperationID, status)
	}
	return nil
}

// checkHead: HEAD is GET without the body.
func (s *Spec) checkHead(req *http.Request, status int, header http.Header, body []byte) error {
	if len(body) > 0 {
		return fmt.Errorf("the answer to HEAD has a body")
	}
	route := s.route(req, http.MethodGet)
	if route == nil {
		if status != http.StatusNotFound && status != http.StatusMethodNotAllowed && !guarded(status) {
			return fmt.Errorf("status %d for HEAD of a path without GET", status)
		}
		return nil
	}
	if route.Operation.Responses.Status(status) == nil {
		return fmt.Errorf("%s: HEAD answered %d, which GET does not list", route.Operation.OperationID, status)
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
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed && !guarded(status) {
		return fmt.Errorf("status %d for a path or method that the specification does not have", status)
	}
	if status == http.StatusMethodNotAllowed && header.Get("Allow") == "" {
		return fmt.Errorf("405 without Allow")
	}
	if header.Get("Lockkeeper-Request-Id") == "" || header.Get("Cache-Control") != "no-store" {
		return fmt.Errorf("status %d without Lockkeeper-Request-Id or Cache-Control", status)
	}
	switch contentType := header.Get("Content-Type"); contentType {
	case "text/plain; charset=utf-8":
	case "application/problem+json":
		var value any
		if err := json.Unmarshal(body, &value); err != nil {
			return fmt.Errorf("status %d: %w", status, err)
		}
		if err := s.Doc.Components.Schemas["Problem"].Value.VisitJSON(value); err != nil {
			return fmt.Errorf("status %d: %w", status, err)
		}
	default:
		return fmt.Errorf("status %d with Content-Type %q", status, contentType)
	}
	return s.checkFailure(req, status, header, body)
}

func guarded(status int) bool {
	return status == http.StatusForbidden || status == http.StatusMisdirectedRequest
}

// checkProblem holds a problem against its own headers.
func checkProblem(status int, header http.Header, body []byte) error {
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
	if p.Status != status || p.Type != "/problems/"+string(p.Code) {
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
