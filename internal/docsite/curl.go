package docsite

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// line is a command for a shell as it is written.
type line struct {
	at     string // the path, with its parameters filled in
	own    bool   // the request says in a header which lease it is about
	query  []string
	before []string // words before the address
}

// curl is the command that calls an operation of a gateway on this machine. It has the parameters and members of the body that
// the operation needs, and those with an example. What has no example is a variable of the shell, and so are headers, ids and
// tokens, of which an example would find nothing: $LEASE_TOKEN.
func curl(method, at string, op value, parameters []value) string {
	l := line{at: at, before: []string{"curl"}}
	if op.get("responses", "200", "content", "text/event-stream").there() {
		l.before = append(l.before, "-N")
	}
	body := l.body(op)
	if method != http.MethodGet && (method != http.MethodPost || len(body) == 0) {
		l.before = append(l.before, "-X "+method)
	}
	if op.get("responses", "101").there() {
		l.before = append(l.before, "-N", "-H 'Connection: Upgrade'", "-H 'Upgrade: websocket'", "-H 'Sec-WebSocket-Version: 13'",
			`-H "Sec-WebSocket-Key: $(openssl rand -base64 16)"`)
	}
	l.own = slices.ContainsFunc(parameters, func(p value) bool { return p.get("in").text() == "header" && p.get("required").isTrue() })
	for _, p := range parameters {
		l.parameter(p, len(body) > 0)
	}
	return strings.Join(append(append(l.before, l.target()), body...), " ")
}

// parameter adds a parameter where it belongs. With a body, the optional ones that may be in it instead are left out.
func (l *line) parameter(p value, body bool) {
	name, given := p.get("name").text(), p.get("required").isTrue() || p.get("example").there() || p.get("examples").there()
	switch in := p.get("in").text(); {
	case in == "path":
		l.at = strings.ReplaceAll(l.at, "{"+name+"}", l.sample(p, url.PathEscape))
	case !given:
	case in == "header":
		l.before = append(l.before, `-H "`+name+": "+l.sample(p, nil)+`"`)
	case in == "query" && (!body || p.get("required").isTrue()):
		l.query = append(l.query, name+"="+l.sample(p, url.QueryEscape))
	}
}

func (l *line) target() string {
	target := "localhost:8080" + l.at
	if len(l.query) > 0 {
		target += "?" + strings.Join(l.query, "&")
	}
	switch {
	case strings.Contains(target, "$"):
		return `"` + target + `"`
	case strings.ContainsAny(target, "?&*"):
		return "'" + target + "'"
	}
	return target
}

// sample is the example of a parameter, escaped, or a variable of the shell with its name.
func (l *line) sample(p value, escape func(string) string) string {
	name, e := p.get("name").text(), p.example()
	text := e.text()
	if items := e.texts(); len(items) > 1 {
		text = strings.Join(items, ",")
	}
	if text == "" || p.get("in").text() == "header" || isHandle(name) && (text != "self" || !l.own) {
		return "$" + l.variable(name)
	}
	return strings.NewReplacer("%2C", ",", "%3A", ":").Replace(escape(text))
}

// isHandle reports whether a name is that of an id or a token.
func isHandle(name string) bool {
	return name == "id" || strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "token")
}

var notInName = regexp.MustCompile(`[^A-Z0-9]+`)

// variable is the shell's name for a parameter. That of an id begins with what it is the id of.
func (l *line) variable(name string) string {
	if before, _, ok := strings.Cut(l.at, "/{"+name+"}"); ok && name == "id" {
		name = strings.TrimSuffix(before[strings.LastIndex(before, "/")+1:], "s") + "_" + name
	}
	return notInName.ReplaceAllString(strings.ToUpper(name), "_")
}

// body are the words that send a body: the example of one, or else the members that have to be there and those with an
// example. They are a form when the operation takes one and they are no objects or lists.
func (l *line) body(op value) []string {
	contents := op.get("requestBody", "content")
	var contentType string
	var content value
	for name, c := range contents.members() {
		if content.n == nil && strings.HasSuffix(name, "json") {
			contentType, content = name, c
		}
	}
	json := func(text string) []string {
		return []string{"-H " + quote("Content-Type: "+contentType), "-d " + quote(text)}
	}
	var members []member
	switch e := content.example(); {
	case content.n == nil:
		return nil
	case e.there() && e.n.Kind != yaml.MappingNode:
		return json(e.compact())
	case e.there():
		for name, example := range e.members() {
			members = append(members, member{name, example})
		}
	default:
		members = neededMembers(content.get("schema"))
	}
	if contents.get("application/x-www-form-urlencoded").there() && !slices.ContainsFunc(members, member.nested) {
		return l.form(members)
	}
	if len(members) == 0 {
		return nil
	}
	var object bytes.Buffer
	for i, m := range members {
		object.WriteByte("{,"[min(i, 1)])
		writeString(&object, m.name)
		object.WriteByte(':')
		m.example.write(&object)
	}
	return json(object.String() + "}")
}

// form are the words that send scalars.
func (l *line) form(members []member) (words []string) {
	for _, m := range members {
		word := m.name + "=" + m.example.text()
		switch {
		case isHandle(m.name):
			words = append(words, `-d "`+m.name+"=$"+l.variable(m.name)+`"`)
		case plainWord.MatchString(word):
			words = append(words, "-d "+word)
		default:
			words = append(words, "--data-urlencode "+quote(word))
		}
	}
	return words
}

// plainWord is a word that neither a shell nor a form changes.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9._:,@/=-]+$`)

// member is a member of a body with its example.
type member struct {
	name    string
	example value
}

// nested: it is no scalar, or null, which no form can say.
func (m member) nested() bool {
	return m.example.n.Kind != yaml.ScalarNode || m.example.n.Tag == "!!null"
}

// neededMembers are the members of a schema with an example of their own, and those that have to be there whose type has one.
func neededMembers(schema value) []member {
	s := schema.target()
	var list []member
	for _, part := range s.get("allOf").list() {
		list = append(list, neededMembers(part)...)
	}
	required := s.get("required").texts()
	for name, property := range s.get("properties").members() {
		e := property.ownExample()
		if !e.there() && slices.Contains(required, name) {
			e = property.example()
		}
		if e.there() {
			list = append(list, member{name, e})
		}
	}
	return list
}

// quote writes one word for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
