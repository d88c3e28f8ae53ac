package docsite

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// line is a command for a shell as it is written.
type line struct {
	at     string // the path, with its parameters filled in
	query  []string
	before []string // words before the address
}

// curl is the command that calls an operation of a gateway on this machine. It has the parameters and members of the body that
// the operation needs, and those with an example. What has no example is a variable of the shell: $LEASE_TOKEN.
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
		l.before = append(l.before, `-H "`+name+": "+l.sample(p, inQuotes)+`"`)
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
	e := p.example()
	text := e.text()
	if items := e.texts(); len(items) > 1 {
		text = strings.Join(items, ",")
	}
	if text == "" {
		return "$" + l.variable(p.get("name").text())
	}
	return strings.NewReplacer("%2C", ",", "%3A", ":").Replace(escape(text))
}

var notInName = regexp.MustCompile(`[^A-Z0-9]+`)

// variable is the shell's name for a parameter. That of an id begins with what it is the id of.
func (l *line) variable(name string) string {
	if before, _, ok := strings.Cut(l.at, "/{"+name+"}"); ok && name == "id" {
		name = strings.TrimSuffix(before[strings.LastIndex(before, "/")+1:], "s") + "_" + name
	}
	return notInName.ReplaceAllString(strings.ToUpper(name), "_")
}

// body are the words that send a body: the example of one, or else a form or an object of the members that have to be there
// and of those with an example.
func (l *line) body(op value) []string {
	contents := map[string]value{}
	order := []string{}
	for contentType, content := range op.get("requestBody", "content").members() {
		contents[contentType] = content
		order = append(order, contentType)
	}
	at := slices.IndexFunc(order, func(contentType string) bool { return strings.HasSuffix(contentType, "json") })
	if at < 0 {
		return nil
	}
	json := func(text string) []string {
		return []string{"-H " + quote("Content-Type: "+order[at]), "-d " + quote(text)}
	}
	content := contents[order[at]]
	if e := content.example(); e.there() {
		return json(e.compact())
	}
	members := neededMembers(content.get("schema"))
	scalars := !slices.ContainsFunc(members, func(m member) bool { return len(m.example.texts()) != 1 })
	if _, form := contents["application/x-www-form-urlencoded"]; form && scalars {
		var words []string
		for _, m := range members {
			word := m.name + "=" + m.example.text()
			if plainWord.MatchString(word) {
				words = append(words, "-d "+word)
			} else {
				words = append(words, "--data-urlencode "+quote(word))
			}
		}
		return words
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

// plainWord is a word that neither a shell nor a form changes.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9._:,@/=-]+$`)

// member is a member of a body with its example.
type member struct {
	name    string
	example value
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

// inQuotes escapes what stands in double quotes.
func inQuotes(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`).Replace(text)
}

// quote writes one word for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
