package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// example is one command of a page, with what the page says about its answer.
type example struct {
	line    int
	command string
	curl    bool   // it sends a request; otherwise it sets a variable
	status  int    // documented, 0 when it is not: any success
	result  string // documented answer, "" when there is none
	shows   string // parts that the answer has, in this order, with an ellipsis between them
}

var (
	fence      = regexp.MustCompile("^\\s*(```+|~~~+)\\s*([A-Za-z0-9_+-]*)")
	command    = regexp.MustCompile(`^(curl\s|eval "\$\(curl\s|[A-Za-z_][A-Za-z0-9_]*=)`)
	sendsCurl  = regexp.MustCompile(`(^|\$\()curl\s`)
	inComment  = regexp.MustCompile(`\s#.*\b([1-5][0-9][0-9])\b`)
	statusLine = regexp.MustCompile(`^HTTP/[0-9.]+ ([1-5][0-9][0-9])`)
)

// examples finds the commands of a page in its fenced shell blocks: lines that begin with curl, and those that set
// variables for them. Lines of an answer may follow a command in its block, or be the next block when that is JSON; a
// status may stand in a comment behind the command or in a line HTTP/1.1 201, and parts of the answer in a comment below it
// that begins with an arrow.
func examples(page string) []example {
	var (
		found   []example
		closing string // of the block that is open
		lang    string
		answers = -1 // the example to which a result would belong
	)
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if m := fence.FindStringSubmatch(lines[i]); m != nil {
			switch {
			case closing == "":
				closing, lang = m[1], m[2]
				if lang != "json" && !isShell(lang) {
					answers = -1
				}
			case strings.HasPrefix(m[1], closing):
				closing = ""
				if lang == "json" {
					answers = -1
				}
			}
			continue
		}
		switch {
		case closing == "":
		case lang == "json":
			if answers >= 0 {
				found[answers].result += lines[i] + "\n"
			}
		case !isShell(lang):
		case command.MatchString(strings.TrimPrefix(line, "$ ")):
			e := example{line: i + 1, command: strings.TrimPrefix(line, "$ ")}
			for i+1 < len(lines) && unfinished(e.command) {
				i++
				e.command += "\n" + strings.TrimPrefix(strings.TrimSpace(lines[i]), "> ")
			}
			e.curl = sendsCurl.MatchString(e.command)
			if m := inComment.FindStringSubmatch(e.command); m != nil {
				_, _ = fmt.Sscan(m[1], &e.status) // three digits
			}
			found = append(found, e)
			answers = -1
			if e.curl {
				answers = len(found) - 1
			}
		case answers >= 0 && strings.HasPrefix(line, "# → "):
			found[answers].shows = strings.TrimPrefix(line, "# → ")
		case answers < 0 || line == "" || strings.HasPrefix(line, "#"):
		default:
			if m := statusLine.FindStringSubmatch(line); m != nil {
				_, _ = fmt.Sscan(m[1], &found[answers].status)
			} else if strings.HasPrefix(line, "{") || found[answers].result != "" {
				found[answers].result += lines[i] + "\n"
			}
		}
	}
	if !slices.ContainsFunc(found, func(e example) bool { return e.curl }) {
		return nil
	}
	return found
}

func isShell(lang string) bool {
	return slices.Contains([]string{"", "sh", "shell", "bash", "console"}, lang)
}

// unfinished: the command goes on in the next line, after a backslash or inside quotes.
func unfinished(command string) bool {
	if strings.HasSuffix(command, `\`) {
		return true
	}
	var quote rune
	escaped := false
	for _, r := range command {
		switch {
		case escaped:
			escaped = false
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		}
	}
	return quote != 0
}

// inOrder looks for documented parts of an answer, one behind the other.
func inOrder(parts, got string) error {
	for part := range strings.SplitSeq(parts, " … ") {
		_, rest, found := strings.Cut(got, part)
		if !found {
			return fmt.Errorf("the answer lacks %s, or not in this order: %s", part, parts)
		}
		got = rest
	}
	return nil
}

// volatile members differ from run to run; only their type is documented.
var volatile = []string{"lease_id", "token", "znode", "fencing_token", "expires_in_ms", "waited_ms", "age_ms", "rev", "request_id", "last_zxid",
	"gateway_id", "fleet_id", "version", "fence_margin_ms", "servers", "session", "retry_after_ms", "highest"}

// sameShape compares an answer with what is documented: the same members, the same values where they do not depend on
// the run; an ellipsis in a documented string stands for anything. What is documented with a part left out ("...") is no
// JSON; then its members have to occur.
func sameShape(documented, got string) error {
	var want, have any
	if err := json.Unmarshal([]byte(got), &have); err != nil {
		return fmt.Errorf("the answer is no JSON, as documented: %w", err)
	}
	if json.Unmarshal([]byte(documented), &want) != nil {
		for _, m := range regexp.MustCompile(`"([a-z_]+)":`).FindAllStringSubmatch(documented, -1) {
			if !strings.Contains(got, m[0]) {
				return fmt.Errorf("the answer lacks the documented member %s", m[1])
			}
		}
		return nil
	}
	return compare("", want, have)
}

func compare(name string, want, have any) error {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is documented as an object and is %v", name, have)
		}
		if wk, hk := slices.Sorted(maps.Keys(w)), slices.Sorted(maps.Keys(h)); !slices.Equal(wk, hk) {
			return fmt.Errorf("the documented members of %q are %v, those of the answer %v", name, wk, hk)
		}
		for key := range w {
			if err := compare(key, w[key], h[key]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		h, ok := have.([]any)
		if !ok || !slices.Contains(volatile, name) && len(h) != len(w) {
			return fmt.Errorf("%s is documented as %v and is %v", name, want, have)
		}
		for i := range min(len(w), len(h)) {
			if err := compare(name, w[i], h[i]); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case fmt.Sprintf("%T", want) != fmt.Sprintf("%T", have):
		return fmt.Errorf("%s is documented as %v and is %v", name, want, have)
	case want == have, slices.Contains(volatile, name):
		return nil
	}
	if pattern, ok := want.(string); ok && strings.Contains(pattern, "…") {
		parts := strings.Split(regexp.QuoteMeta(pattern), "…")
		if regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(have.(string)) {
			return nil
		}
	}
	return fmt.Errorf("%s is documented as %v and is %v", name, want, have)
}

func TestExamplesAreFoundInAPage(t *testing.T) {
	t.Parallel()
	page := strings.Join([]string{
		"# A page", "curl outside", "```", "make run   # not an example", "```",
		"```sh", "curl -s localhost:8080/v1/info   # 200", "```", "The answer:", "```json", `{"a":1,`, ` "b":"x"}`, "```",
		"```console", "$ TOKEN=abc", "$ curl -s \\", ">   localhost:8080/x", "HTTP/1.1 409 Conflict", `{"code":"held_by_other"}`, "```",
		"```", "curl -s localhost:8080/z", "# → \"a\":1 … \"b\"", "# a remark", "```",
		"~~~bash", `eval "$(curl -s localhost:8080/env)"`, "curl -d '{", `"ttl": "10s"}' localhost:8080/y`, "echo done", "~~~",
		"```json", `{"the":"result"}`, "```",
		"```go", "curl := 1", "```",
	}, "\n")
	want := []example{
		{line: 7, command: "curl -s localhost:8080/v1/info   # 200", curl: true, status: 200, result: "{\"a\":1,\n \"b\":\"x\"}\n"},
		{line: 15, command: "TOKEN=abc"},
		{line: 16, command: "curl -s \\\n  localhost:8080/x", curl: true, status: 409, result: "{\"code\":\"held_by_other\"}\n"},
		{line: 22, command: "curl -s localhost:8080/z", curl: true, shows: `"a":1 … "b"`},
		{line: 27, command: `eval "$(curl -s localhost:8080/env)"`, curl: true},
		{line: 28, command: "curl -d '{\n\"ttl\": \"10s\"}' localhost:8080/y", curl: true, result: "{\"the\":\"result\"}\n"},
	}
	got := examples(page)
	assert.That(t, slices.Equal(got, want), "found\n%+v\nwant\n%+v", got, want)
	assert.That(t, examples("```sh\nX=1\nmake\n```\n") == nil, "a page without curl")
}

func TestDocumentedAnswersAreCompared(t *testing.T) {
	t.Parallel()
	documented := `{"lease_id":"lk…","lock":"deploy","znode":"/a/…-0","ttl_ms":10000,"expires_in_ms":10000,"holders":[{"owner":"me"}]}`
	for name, c := range map[string]struct {
		got  string
		same bool
	}{
		"the same":            {`{"lease_id":"lkabc","lock":"deploy","znode":"/a/b-0","ttl_ms":10000,"expires_in_ms":9998,"holders":[{"owner":"me"}]}`, true},
		"another value":       {`{"lease_id":"lkabc","lock":"deploy","znode":"/a/b-0","ttl_ms":20000,"expires_in_ms":9998,"holders":[{"owner":"me"}]}`, false},
		"a member is missing": {`{"lease_id":"lkabc","lock":"deploy","znode":"/a/b-0","ttl_ms":10000,"holders":[{"owner":"me"}]}`, false},
		"a member more":       {`{"lease_id":"lkabc","lock":"deploy","znode":"/a/b-0","ttl_ms":10000,"expires_in_ms":9998,"holders":[{"owner":"me"}],"x":1}`, false},
		"another type":        {`{"lease_id":"lkabc","lock":"deploy","znode":"/a/b-0","ttl_ms":10000,"expires_in_ms":"9s","holders":[{"owner":"me"}]}`, false},
		"deep inside":         {`{"lease_id":"lkabc","lock":"deploy","znode":"/a/b-0","ttl_ms":10000,"expires_in_ms":9998,"holders":[{"owner":"you"}]}`, false},
		"no JSON":             {`LEASE_ID=x`, false},
	} {
		err := sameShape(documented, c.got)
		assert.That(t, (err == nil) == c.same, "%s: %v", name, err)
	}
	assert.That(t, sameShape(`{"code":"held_by_other","holders":[{...}]}`, `{"code":"held_by_other"}`) != nil,
		"a member of an abridged answer is missing")
	for parts, want := range map[string]bool{`"a":1`: true, `"a":1 … "b":2`: true, `"b":2 … "a":1`: false, `"a":1 … "a":1`: false, `"c"`: false} {
		err := inOrder(parts, `{"a":1,"x":0,"b":2}`)
		assert.That(t, (err == nil) == want, "%s: %v", parts, err)
	}
	assert.Nil(t, compare("owner", "m…", "me"))
	assert.That(t, compare("owner", "m…", "you") != nil, "an ellipsis stands for anything, not the rest")
}
