package docsite

import (
	"cmp"
	"slices"
	"strings"

	"lockkeeper/web/templates"
)

// messagesTag is the group of what the gateway sends (webhooks, in OpenAPI 3.1).
const messagesTag = "messages"

// reference is the description of the API.
type reference struct {
	spec   value
	tree   *tree
	groups []templates.ReferenceGroup
}

// methods are those of a path that are operations.
var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// readReference reads a specification. Links in its descriptions are those of a file at the top of the repository.
func readReference(text []byte, t *tree) (*reference, error) {
	spec, err := readSpec(text)
	if err != nil {
		return nil, err
	}
	r := &reference{spec: spec, tree: t}
	for _, tag := range spec.get("tags").list() {
		about, err := r.markdown(tag.get("description").text())
		if err != nil {
			return nil, err
		}
		r.group(tag.get("name").text()).About = about
	}
	for at, item := range spec.get("paths").members() {
		if err := r.addPath(at, item, ""); err != nil {
			return nil, err
		}
	}
	for name, item := range spec.get("webhooks").members() {
		if err := r.addPath(name, item, messagesTag); err != nil {
			return nil, err
		}
	}
	r.groups = slices.DeleteFunc(r.groups, func(g templates.ReferenceGroup) bool { return len(g.Operations) == 0 })
	return r, nil
}

// group finds the group of a tag, or begins it.
func (r *reference) group(tag string) *templates.ReferenceGroup {
	tag = cmp.Or(tag, "other")
	at := templates.ReferencePath + "/" + slug(tag)
	for i := range r.groups {
		if r.groups[i].URL == at {
			return &r.groups[i]
		}
	}
	r.groups = append(r.groups, templates.ReferenceGroup{Title: sentence(tag), URL: at})
	return &r.groups[len(r.groups)-1]
}

// addPath adds the operations of a path; sent is the group of what the gateway sends.
func (r *reference) addPath(at string, item value, sent string) error {
	item = item.target()
	for method, op := range item.members() {
		if !slices.Contains(methods, method) {
			continue
		}
		o, err := r.operation(strings.ToUpper(method), at, item, op, sent == "")
		if err != nil {
			return err
		}
		tag := sent
		if tags := op.get("tags").texts(); tag == "" && len(tags) > 0 {
			tag = tags[0]
		}
		g := r.group(tag)
		o.URL = g.URL + "#" + o.ID
		g.Operations = append(g.Operations, o)
	}
	return nil
}

func (r *reference) operation(method, at string, item, op value, called bool) (o templates.Operation, err error) {
	o = templates.Operation{ID: cmp.Or(op.get("operationId").text(), slug(method+" "+at)), Method: method, Path: at}
	o.Summary = strings.TrimSuffix(cmp.Or(op.get("summary").text(), o.ID), ".")
	if o.About, err = r.about(op); err != nil {
		return o, err
	}
	parameters := parametersOf(item, op)
	for _, p := range parameters {
		f := templates.Field{Name: p.get("name").text(), In: p.get("in").text(), Required: p.get("required").isTrue(), Type: typeOf(p.get("schema")), Limits: limits(p.get("schema"))}
		if f.About, err = r.about(p); err != nil {
			return o, err
		}
		o.Parameters = append(o.Parameters, f)
	}
	if called {
		o.Curl = curl(method, at, op, parameters)
	}
	if err = r.body(&o, op.get("requestBody")); err != nil {
		return o, err
	}
	for status, answer := range op.get("responses").members() {
		a, err := r.response(status, answer)
		if err != nil {
			return o, err
		}
		o.Responses = append(o.Responses, a)
	}
	return o, nil
}

// parametersOf are the parameters of an operation: those of its path that it does not replace, and its own.
func parametersOf(item, op value) (all []value) {
	own := op.get("parameters").list()
	for _, p := range item.get("parameters").list() {
		replaced := func(other value) bool {
			return other.get("name").text() == p.get("name").text() && other.get("in").text() == p.get("in").text()
		}
		if !slices.ContainsFunc(own, replaced) {
			all = append(all, p.target())
		}
	}
	for _, p := range own {
		all = append(all, p.target())
	}
	return all
}

func (r *reference) body(o *templates.Operation, body value) (err error) {
	o.BodyRequired = body.get("required").isTrue()
	for contentType, content := range body.get("content").members() {
		o.BodyTypes = append(o.BodyTypes, contentType)
		if o.BodySchema != nil {
			continue // the others are other forms of the same
		}
		schema := content.get("schema")
		o.BodySchema, o.BodyExample = typeOf(schema), content.example().json()
		if o.Body, err = r.fields(schema); err != nil {
			return err
		}
	}
	return nil
}

func (r *reference) response(status string, answer value) (a templates.Response, err error) {
	a = templates.Response{Status: status}
	if status == "default" {
		a.Status = "other"
	}
	if a.About, err = r.about(answer); err != nil {
		return a, err
	}
	var headers []string
	for name := range answer.get("headers").members() {
		headers = append(headers, name)
	}
	a.Headers = strings.Join(headers, ", ")
	for contentType, content := range answer.get("content").members() {
		a.Contents = append(a.Contents, templates.Content{Type: contentType, Schema: typeOf(content.get("schema")), Example: content.example().json()})
	}
	return a, nil
}

// about is what the specification says of a value: where it stands, or else of what it refers to.
func (r *reference) about(v value) (string, error) {
	for name, member := range v.members() {
		if name == "description" {
			return r.markdown(member.text())
		}
	}
	return r.markdown(v.get("description").text())
}

// markdown renders a text of the specification.
func (r *reference) markdown(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	render := renderer{resolve: func(href string) link { return r.tree.resolve(specName, href) }}
	a, err := render.render([]byte(text))
	return a.html, err
}

// links are the reference's pages in the navigation.
func (r *reference) links() []templates.DocLink {
	var list []templates.DocLink
	for _, g := range r.groups {
		list = append(list, templates.DocLink{Title: g.Title, URL: g.URL})
	}
	return append(list, templates.DocLink{Title: "Schemas", URL: schemasURL})
}

// addTo adds the reference's pages to a site.
func (r *reference) addTo(b *built) error {
	about, err := r.markdown(r.spec.get("info", "description").text())
	if err != nil {
		return err
	}
	first := templates.Reference{DocPage: b.page("API reference", templates.ReferencePath), About: about, Spec: "/" + specName, Groups: r.groups}
	if err := b.addRendered(templates.ReferencePath, templates.ReferencePage(first)); err != nil {
		return err
	}
	for _, g := range r.groups {
		p := templates.Reference{DocPage: b.page("API: "+g.Title, g.URL), About: g.About, Groups: []templates.ReferenceGroup{g}}
		for _, o := range g.Operations {
			p.Here = append(p.Here, templates.DocLink{Title: o.Summary, URL: "#" + o.ID})
		}
		if err := b.addRendered(g.URL, templates.OperationsPage(p)); err != nil {
			return err
		}
	}
	schemas, err := r.schemas()
	if err != nil {
		return err
	}
	p := templates.Reference{DocPage: b.page("API: Schemas", schemasURL), Schemas: schemas}
	for _, s := range schemas {
		p.Here = append(p.Here, templates.DocLink{Title: s.Name, URL: "#" + s.Name})
	}
	return b.addRendered(schemasURL, templates.SchemasPage(p))
}
