package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
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
	curl    bool   // it sends a request
	status  int    // 0: any success
	shows   string // parts that the answer has, in this order, with an ellipsis between them
	result  string // the documented answer, "" when there is none
	file    string // the command is the content of this file, which the reader saves
}

var (
	fence     = regexp.MustCompile("^\\s*(```+|~~~+)\\s*([A-Za-z0-9_+-]*)")
	sendsCurl = regexp.MustCompile(`(^|\$\(|[;&|]\s*|\s)curl\s+-`)
	saved     = regexp.MustCompile(`^<!-- file (\S+) -->$`)
	expected  = regexp.MustCompile(`^([1-5][0-9][0-9])?\s*(.*)$`)
)

// examples finds the commands of a page: the lines of its blocks of shell (sh). A comment behind the block
//
//	<!-- answers
//	201 "state":"held"
//	409 "code":"held_by_other" … "owner":"me"
//	-->
//
// has a line for each request of it (for each command, where no request is among them): a status, and parts of the answer in
// their order. A request without a line is answered with success. A block of JSON right behind it is the answer to its last request. A comment <!-- file NAME --> before a block says that the reader saves the block under that name.
func examples(page string) (found []example, err error) {
	list := strings.Split(page, "\n")
	first, file := 0, "" // the first example of the last block
	for i := 0; i < len(list); i++ {
		if m := saved.FindStringSubmatch(list[i]); m != nil {
			file = m[1]
			continue
		}
		if list[i] == "<!-- answers" {
			end := i + 1 + slices.Index(list[i+1:], "-->")
			if err := answered(found[first:], list[i+1:end]); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			i = end
			continue
		}
		m := fence.FindStringSubmatch(list[i])
		if m == nil {
			continue
		}
		begin := i + 1
		for i = begin; i < len(list) && strings.TrimSpace(list[i]) != m[1]; i++ {
		}
		if m[2] != "json" {
			first = len(found)
		}
		switch block := list[begin:min(i, len(list))]; {
		case m[2] == "json":
			// The answer to the last request of the block before.
			if first < len(found) && found[len(found)-1].curl {
				found[len(found)-1].result = strings.Join(block, "\n")
			}
		case file != "":
			found = append(found, example{line: begin + 1, command: strings.Join(block, "\n") + "\n", file: file})
		case m[2] == "sh":
			if found, err = commands(found, block, begin+1); err != nil {
				return nil, err
			}
		case slices.ContainsFunc(block, func(line string) bool { return sendsCurl.MatchString(line) && m[2] != "yaml" }):
			return nil, fmt.Errorf("line %d: a block with a request must be one of sh, so that a test runs it", begin)
		}
		file = ""
	}
	return found, nil
}

// commands adds those of a block. A command ends where bash takes it for complete.
func commands(found []example, block []string, line int) ([]example, error) {
	for i := 0; i < len(block); i++ {
		if text := strings.TrimSpace(block[i]); text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		e := example{line: line + i, command: block[i]}
		for !complete(e.command) {
			if i++; i == len(block) {
				return nil, fmt.Errorf("line %d: the command does not end in its block", e.line)
			}
			e.command += "\n" + block[i]
		}
		e.curl = sendsCurl.MatchString(e.command)
		found = append(found, e)
	}
	return found, nil
}

var compound = regexp.MustCompile(`(?m)^\s*(if|while|until|for|case|\w+\(\))\b|<<|\{$`)

func complete(command string) bool {
	if strings.HasSuffix(command, `\`) || unfinished(command) {
		return false
	}
	return !compound.MatchString(command) || exec.Command("bash", "-n", "-c", command).Run() == nil
}

// answered gives the requests of a block what the lines of the comment behind it say.
func answered(block []example, lines []string) error {
	requests := slices.ContainsFunc(block, func(e example) bool { return e.curl })
	for _, line := range lines {
		at := slices.IndexFunc(block, func(e example) bool { return e.curl || !requests })
		if at < 0 {
			return fmt.Errorf("the block has no command for %q", line)
		}
		m := expected.FindStringSubmatch(line)
		_, _ = fmt.Sscan(m[1], &block[at].status) // three digits, or none
		block[at].shows = m[2]
		block = block[at+1:]
	}
	return nil
}

// unfinished: the command goes on in the next line, inside quotes.
func unfinished(command string) bool {
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
		"```sh", "# a remark", "curl -s localhost:8080/v1/info", "TOKEN=abc", "curl -s \\", "  localhost:8080/x", "```",
		"<!-- answers", "200", `409 "a":1 … "b"`, "-->", "",
		"<!-- file job.sh -->", "```bash", "curl -s localhost:8080/y", "```", "",
		"```sh", "if curl -s localhost:8080/z", "then", "  sh job.sh", "fi", `eval "$(curl -s localhost:8080/env)"`, "curl -d '{", `"ttl": "10s"}' localhost:8080/y`, "```",
		"<!-- answers", "", `"held"`, "-->", "```json", `{"the":"result"}`, "```",
		"```go", "curl := 1", "```",
	}, "\n")
	want := []example{
		{line: 8, command: "curl -s localhost:8080/v1/info", curl: true, status: 200},
		{line: 9, command: "TOKEN=abc"},
		{line: 10, command: "curl -s \\\n  localhost:8080/x", curl: true, status: 409, shows: `"a":1 … "b"`},
		{line: 20, command: "curl -s localhost:8080/y\n", file: "job.sh"},
		{line: 24, command: "if curl -s localhost:8080/z\nthen\n  sh job.sh\nfi", curl: true},
		{line: 28, command: `eval "$(curl -s localhost:8080/env)"`, curl: true, shows: `"held"`},
		{line: 29, command: "curl -d '{\n\"ttl\": \"10s\"}' localhost:8080/y", curl: true, result: `{"the":"result"}`},
	}
	got, err := examples(page)
	assert.That(t, err == nil && slices.Equal(got, want), "%v: found\n%+v\nwant\n%+v", err, got, want)
	for name, page := range map[string]string{
		"a request in a block that is not run":     "```\ncurl -s localhost:8080/\n```\n",
		"a request in a block of another language": "```console\n$ curl -s localhost:8080/\n```\n",
		"an answer without a request":              "```sh\nX=1\n```\n<!-- answers\n200\n200\n-->\n",
		"a command without an end":                 "```sh\nif true; then\n```\n",
	} {
		_, err := examples(page)
		assert.That(t, err != nil, "%s must be refused", name)
	}
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
