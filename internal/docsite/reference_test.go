package docsite

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"lockkeeper"
	"lockkeeper/internal/test/assert"
	"lockkeeper/web/templates"
)

// described are the operations of a specification by their ids.
func described(t *testing.T, spec string) map[string]templates.Operation {
	t.Helper()
	r := assert.Value(readReference([]byte(spec), assert.Value(readTree(nil))(t)))(t)
	found := map[string]templates.Operation{}
	for _, g := range r.groups {
		for _, o := range g.Operations {
			found[o.ID] = o
		}
	}
	return found
}

func TestTheReferenceHasEveryOperationWithACurlLine(t *testing.T) {
	spec := assert.Value(readSpec(lockkeeper.OpenAPI))(t)
	shown := described(t, string(lockkeeper.OpenAPI))
	n := 0
	for at, item := range spec.get("paths").members() {
		for method, op := range item.members() {
			id := op.get("operationId").text()
			if id == "" {
				continue
			}
			n++
			o := shown[id]
			assert.Must(t, o.Path == at && o.Method == strings.ToUpper(method), "the reference must have %s %s: %+v", method, at, o)
			page := pageOf(t, ours, strings.TrimSuffix(o.URL, "#"+id))
			section := elements(page, "section")
			i := slices.IndexFunc(section, func(s *html.Node) bool { return get(s, "aria-labelledby") == id })
			assert.Must(t, i >= 0, "%s: no section of %s", o.URL, id)
			line := textOf(elements(section[i], "pre")[0])
			before, _, _ := strings.Cut(at, "{")
			assert.That(t, strings.HasPrefix(line, "curl ") && strings.Contains(line, "localhost:8080"+before), "%s: its line is %s", id, line)
			assert.That(t, method == "get" || method == "post" && strings.Contains(line, " -d ") || strings.Contains(line, "-X "+strings.ToUpper(method)), "%s: its line is %s", id, line)
		}
	}
	assert.That(t, n > 30, "%d operations", n)
}

func TestASchemaHasItsMembersAndAPlace(t *testing.T) {
	page := pageOf(t, ours, schemasURL)
	spec := assert.Value(readSpec(lockkeeper.OpenAPI))(t)
	for name, schema := range spec.get("components", "schemas").members() {
		i := slices.IndexFunc(elements(page, "section"), func(s *html.Node) bool { return get(s, "aria-labelledby") == name })
		assert.Must(t, i >= 0, "there is no section of %s", name)
		text := textOf(elements(page, "section")[i])
		for member := range schema.get("properties").members() {
			assert.That(t, strings.Contains(text, member), "%s lacks %s", name, member)
		}
	}
}

const small = `
openapi: 3.1.0
info: {title: x, description: 'See [start](docs/start.md).'}
tags: [{name: things, description: About *things*.}]
paths:
  /v1/things/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string}}, {name: kind, in: query, schema: {type: string}}]
    get:
      operationId: GetThing
      tags: [things]
      summary: Look at it.
      parameters:
        - {name: Lease-Token, in: header, required: true, schema: {type: string}}
        - {name: wait, in: query, schema: {type: [string, 'null'], default: 0s}}
        - {name: q, in: query, example: a b, schema: {type: string}}
        - {name: kind, in: query, schema: {type: integer}}
      responses:
        '200': {description: ok, content: {application/json: {schema: {$ref: '#/components/schemas/Thing'}, examples: {one: {value: {name: it}}}}}}
        default: {$ref: '#/components/responses/Problem'}
    put:
      operationId: PutThing
      requestBody: {required: true, content: {application/json: {schema: {$ref: '#/components/schemas/Thing'}, example: {name: "it's", n: [1], on: true}}}}
    post:
      operationId: PostThing
      requestBody:
        content:
          application/json: {schema: {$ref: '#/components/schemas/Thing'}}
          application/x-www-form-urlencoded: {schema: {$ref: '#/components/schemas/Thing'}}
    patch:
      operationId: PatchThing
      requestBody: {content: {application/json: {schema: {type: object, properties: {list: {type: array, items: {type: string}, examples: [[a, b]]}}}}}}
  /v1/forms:
    post:
      operationId: PostForm
      requestBody:
        content:
          application/json: {schema: {$ref: '#/components/schemas/Thing'}, example: {ttl: 1m, on: true, thing_id: x}}
          application/x-www-form-urlencoded: {schema: {$ref: '#/components/schemas/Thing'}}
  /v1/leases/{id}:
    parameters: [{name: id, in: path, required: true, example: self}]
    get: {operationId: GetLease}
    delete: {operationId: EndLease, parameters: [{name: Lease-Token, in: header, required: true, example: lk1.x}]}
  /v1/events:
    get:
      operationId: Follow
      responses: {'200': {description: ok, content: {text/event-stream: {schema: {type: string}}}}}
  /v1/socket:
    get: {operationId: Socket, responses: {'101': {description: ok}}}
webhooks:
  message:
    post: {operationId: Receive, responses: {'200': {description: ok}}}
components:
  responses: {Problem: {description: It failed., headers: {Retry-After: {schema: {type: integer}}}}}
  schemas:
    Name: {type: string, maxLength: 1, example: a name}
    Thing:
      allOf:
        - {type: object, required: [name], properties: {name: {$ref: '#/components/schemas/Name', description: What it is called.}}}
        - {properties: {kind: {enum: [a, b]}, of: {oneOf: [{$ref: '#/components/schemas/Name'}, {const: all}]}, many: {type: array, items: {$ref: '#/components/schemas/Name'}}}}
`

func TestTheLineOfAnOperation(t *testing.T) {
	shown := described(t, small)
	for id, want := range map[string]string{
		"GetThing":   `curl -H "Lease-Token: $LEASE_TOKEN" "localhost:8080/v1/things/$THING_ID?q=a+b"`,
		"PutThing":   `curl -X PUT "localhost:8080/v1/things/$THING_ID" -H 'Content-Type: application/json' -d '{"name":"it'\''s","n":[1],"on":true}'`,
		"PostThing":  `curl "localhost:8080/v1/things/$THING_ID" --data-urlencode 'name=a name'`,
		"PatchThing": `curl -X PATCH "localhost:8080/v1/things/$THING_ID" -H 'Content-Type: application/json' -d '{"list":["a","b"]}'`,
		"PostForm":   `curl localhost:8080/v1/forms -d ttl=1m -d on=true -d "thing_id=$THING_ID"`,
		"GetLease":   `curl "localhost:8080/v1/leases/$LEASE_ID"`,
		"EndLease":   `curl -X DELETE -H "Lease-Token: $LEASE_TOKEN" localhost:8080/v1/leases/self`,
		"Follow":     `curl -N localhost:8080/v1/events`,
		"Receive":    "", // the gateway sends it
	} {
		assert.Equal(t, shown[id].Curl, want, "the line of %s", id)
	}
	assert.That(t, strings.Contains(shown["Socket"].Curl, "Upgrade: websocket"), "the line of a WebSocket is %s", shown["Socket"].Curl)
}

func typeText(parts []templates.TypePart) (text string) {
	for _, p := range parts {
		text += p.Text
	}
	return text
}

func TestTypesAndAnswers(t *testing.T) {
	shown := described(t, small)
	o := shown["GetThing"]
	assert.Equal(t, o.Summary, "Look at it", "summary")
	assert.Equal(t, o.URL, "/docs/api/things#GetThing", "address")
	assert.Equal(t, typeText(o.Parameters[2].Type)+"; "+o.Parameters[2].Limits[0], "string or null; default 0s", "a parameter's type")
	assert.Equal(t, o.Parameters[0].Name, "id", "the parameter of the path")
	assert.That(t, len(o.Parameters) == 5 && typeText(o.Parameters[4].Type) == "integer", "one of the path that the operation replaces: %+v", o.Parameters)
	assert.Equal(t, o.Responses[0].Contents[0].Example, `{"name":"it"}`, "example of an answer")
	assert.Equal(t, o.Responses[0].Contents[0].Schema[0].URL, "/docs/api/schemas#Thing", "schema of an answer")
	assert.That(t, o.Responses[1].Status == "other" && o.Responses[1].Headers == "Retry-After" && strings.Contains(o.Responses[1].About, "It failed."), "%+v", o.Responses[1])
	var fields []string
	for _, f := range shown["PostThing"].Body {
		fields = append(fields, f.Name+": "+typeText(f.Type))
	}
	assert.Slices(t, fields, []string{"name: Name", "kind: a | b", "of: Name or all", "many: array of Name"})
	name := shown["PostThing"].Body[0]
	assert.That(t, name.Required && strings.Contains(name.About, "What it is called."), "%+v", name)
	assert.Equal(t, shown["PutThing"].BodyExample, `{"name":"it's","n":[1],"on":true}`, "example of a body")
}

// What stands in a specification is text: none of it becomes an element of a page.
func TestTheSpecificationIsEscaped(t *testing.T) {
	const evil = `[b](javascript:alert(2)) "'><script>alert(1)</script><img src=x onerror=alert(1)>[a](javascript:alert(1))</code></pre>`
	hostile := strings.NewReplacer("Look at it.", "|-\n        "+evil, "About *things*.", "|-\n      "+evil).Replace(strings.ReplaceAll(small, "tags: [{name: things, description: About *things*.}]", "tags:\n  - name: things\n    description: About *things*."))
	for _, plain := range []string{"description: ok", "description: It failed.", "example: a b", "enum: [a, b]", "const: all", "description: What it is called.", "default: 0s", "{name: it}"} {
		key, _, _ := strings.Cut(plain, ":")
		quoted := `"` + strings.ReplaceAll(evil, `"`, `\"`) + `"`
		switch key {
		case "enum":
			quoted = "[" + quoted + "]"
		case "{name":
			quoted += "}"
		}
		hostile = strings.ReplaceAll(hostile, plain, key+": "+quoted)
	}
	s := &Site{OpenAPI: []byte(hostile)}
	for _, at := range htmlPages(t, s) {
		page := pageOf(t, s, at)
		for _, e := range elements(page, "script", "img") {
			assert.That(t, e.Data == "script" && isStatic(get(e, "src")), "%s: an element of the specification's: %v", at, e.Attr)
		}
		for d := range page.Descendants() {
			for _, a := range d.Attr {
				assert.That(t, !strings.HasPrefix(a.Key, "on") && !strings.HasPrefix(a.Val, "javascript:"), "%s: %s=%q", at, a.Key, a.Val)
			}
		}
	}
	operations := textOf(pageOf(t, s, "/docs/api/things"))
	assert.That(t, strings.Contains(operations, "<script>alert(1)</script>"), "the text is missing: %s", operations)
}
