package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

const timeRule = "you hold it until you sent the request + waited_ms + ttl_ms, by a clock that does not stop while the machine sleeps; " +
	"each heartbeat begins it anew from when you sent it"

var marks = regexp.MustCompile("[`*|]|</?code>")

func TestTheTimeRuleIsInTheSameWordsEverywhere(t *testing.T) {
	r := read(t)
	for _, name := range []string{"README.md", "docs/start.md", "docs/semantics.md", "docs/http.md", "docs/internals/protocol.md",
		"docs/guides/cron.md", "docs/guides/at-most-n.md", "docs/guides/leader-election.md", "openapi.yaml", "web/templates/frame.templ"} {
		text := strings.ToLower(strings.Join(strings.Fields(marks.ReplaceAllString(r.text(t, name), "")), " "))
		assert.That(t, strings.Contains(text, timeRule), "%s must say when a lease is held: %s", name, timeRule)
	}
}

// terms are the words that this project uses in a sense of its own, or that a reader cannot be expected to know.
var terms = strings.Fields(`lease contender foreign holder waiter ticket grant unclaimed hold heartbeat expire release cancel revoke ask break reap
	destroy postmortem gateway fleet session owner guard epoch replica observer barrier takeover succession depose drain namespace dialect hazard
	outbox delivery attempt znode ensemble root chroot semaphore permit shared exclusive downgrade reentrant metadata queue ephemeral
	webhook event settings identity seal czxid zxid lock-delay lock-root fencing-token lease-token idempotency-key promise-window trust-window
	dead-letter dry-run held-heartbeat durable best-effort long-poll`)

func TestNoPageUsesATermThatTheGlossaryLacks(t *testing.T) {
	r := read(t)
	defined := " " + strings.ToLower(strings.Join(r.glossary(), " , ")) + " "
	used := 0
	for _, term := range terms {
		words := strings.ReplaceAll(term, "-", " ")
		pattern := regexp.MustCompile(`(?i)\b` + words + `(s|d|ed)?\b`)
		for name, text := range r.documents {
			if !strings.HasPrefix(name, "docs/") && name != "README.md" || name == "docs/glossary.md" || !pattern.MatchString(text) {
				continue
			}
			used++
			assert.That(t, strings.Contains(defined, " "+words+" "), "%s uses the term %q, which docs/glossary.md must explain", name, words)
			break
		}
	}
	assert.That(t, used > len(terms)/2, "the pages use %d of %d terms: the test looks at the wrong place", used, len(terms))
}

// glossary is the first column of its table: terms that are explained together have commas between them.
func (r *repository) glossary() (list []string) {
	for line := range strings.Lines(r.documents["docs/glossary.md"]) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for term := range strings.SplitSeq(cells[1], ",") {
				list = append(list, strings.TrimSpace(term))
			}
		}
	}
	return list
}

// API words stand between backquotes and have an underscore: fields, codes and reasons.
var apiWord = regexp.MustCompile("`([a-z]+(?:_[a-z0-9]+)+)`")

func TestFieldsAndCodesOfThePagesAreInTheSpecification(t *testing.T) {
	r := read(t)
	specification := r.text(t, "openapi.yaml")
	// nginx's, Kazoo's, those of records in ZooKeeper, and labels of metrics.
	others := map[string]bool{"auth_request": true, "extra_lock_patterns": true, "fence_base": true, "name_key": true, "no_room": true, "given_up": true,
		// And those of the audit log.
		"token_id": true, "lease_principal": true, "token_name": true, "forwarded_to": true, "forwarded_by": true,
		// And those of the access log and of OpenTelemetry.
		"trace_id": true, "parentbased_traceidratio": true,
		// And those of the file of rules.
		"ca_file": true, "token_file": true, "client_id": true, "secret_file": true,
		// And those of other programs' protocols (internal/httpapi/compat).
		"failed_lock_semaphore_full": true, "base_url": true}
	for name, text := range r.documents {
		if !strings.HasPrefix(name, "docs/") && name != "README.md" || path.Dir(name) == "docs/internals" {
			continue
		}
		for _, m := range apiWord.FindAllStringSubmatch(text, -1) {
			known := others[m[1]] || strings.HasPrefix(m[1], "lockkeeper_") || strings.Contains(specification, m[1])
			assert.That(t, known, "%s names %s, which openapi.yaml does not have", name, m[1])
		}
	}
}

// vague are words that say a thing in another way than the glossary, or a person where a program is meant.
var vague = regexp.MustCompile(`(?i)\b(nobody|somebody|someone|whoever|whom|let go|lets go|letting go|take back|taken back|in line for)\b`)

func TestPagesForUsersUseTheWordsOfTheGlossary(t *testing.T) {
	for name, text := range read(t).documents {
		if strings.HasPrefix(name, "docs/internals/") || !strings.HasPrefix(name, "docs/") && name != "README.md" {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			assert.That(t, !vague.MatchString(line), "%s:%d: %q must be said in the glossary's words", name, i+1, vague.FindString(line))
		}
	}
}

// D14: a line that people copy ends no process but the one that they started.
func TestD14NoPageEndsProcessesByName(t *testing.T) {
	byName := regexp.MustCompile(`\b(pgrep|pkill|killall)\b`)
	for name, text := range read(t).documents {
		assert.That(t, !byName.MatchString(text), "%s: %s may name processes of others", name, byName.FindString(text))
	}
}
