package clientsuite

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

var tryMutants = flag.Bool("suite.mutants", os.Getenv("LOCKKEEPER_FULL") != "", "take each protection out of the Go client in turn")

// mutant is the Go client without one of its protections: with one text of its source replaced by another.
type mutant struct {
	name     string
	file     string // in client/
	old, new string
	notices  string // the transcript that must fail
}

var mutants = []mutant{
	{"the work goes on without a deadline", "lease.go", "return l.deadline - l.margin - l.client.now()", "return 24 * time.Hour",
		"work without a confirmed lease is stopped the margin before the deadline"},
	{"the margin is left out", "lease.go", "return l.deadline - l.margin - l.client.now()", "return l.deadline - l.client.now()",
		"work without a confirmed lease is stopped the margin before the deadline"},
	{"a margin that is given is left out", "lease.go", "ttl: ttl, margin: a.margin,", "ttl: ttl,",
		"a margin that is given counts"},
	{"the deadline counts from the answer to the acquire", "request.go", "})\n\treturn sent, err", "})\n\treturn c.now(), err",
		"the deadline counts from when the acquire was sent, not from its answer"},
	{"the deadline counts from the answer to a heartbeat", "lease.go", "l.extend(sent + ms(answer.TTL))", "l.extend(l.client.now() + ms(answer.TTL) + 0*sent)",
		"a heartbeat moves the deadline to when it was sent"},
	{"heartbeats move the deadline back", "lease.go", "max(l.deadline, deadline)", "deadline", "a heartbeat never moves the deadline back"},
	{"the grant of a ticket is not confirmed", "acquire.go", `answer.State == "held" && answer.Waited != nil`, `answer.Waited = new(int64); answer.State == "held"`,
		"a grant without waited_ms is confirmed by a heartbeat"},
	{"each repeat has a key of its own", "request.go", `h.Set("Idempotency-Key", r.key)`, `h.Set("Idempotency-Key", r.key+strconv.Itoa(time.Now().Nanosecond()))`,
		"each repeat of an acquire carries the same key"},
	{"what an acquire without an answer took is not given back", "acquire.go", "waits := c.leaveUnheard(ctx, a, r)", "waits := false",
		"a caller that gives up gives back what an acquire without an answer took"},
	{"a place in the queue is not given up", "acquire.go", "ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)\n\tdefer stop()\n\t_, _ = c.repeated", "ctx, stop := context.WithTimeout(ctx, 0)\n\tdefer stop()\n\t_, _ = c.repeated",
		"a caller that gives up while it waits leaves the queue at once"},
	{"a proxy's answer ends the lease", "errors.go", "return e.Code != unexpectedAnswer && (", "return (",
		"a proxy's 410 at a heartbeat does not end the lease"},
	{"the lease token is sent with the API token", "request.go", "h.Set(\"Lease-Token\", r.lease)\n\t\treturn nil", "h.Set(\"Lease-Token\", r.lease)",
		"the lease is released when the work returns"},
	{"redirects are followed", "client.go", "return http.ErrUseLastResponse", "return nil", "a redirect is not followed"},
	{"heartbeats are not held", "lease.go", "for hold := l.hold();", "for hold := l.hold() * 0;", "one heartbeat follows the other, each held for a third of the TTL"},
	{"work that is done is run", "acquire.go", "if answer.Done {\n\t\treturn nil, a.done(answer)\n\t}", "if answer.Done {\n\t\tanswer.TTL = 3000\n\t\treturn c.keep(ctx, a, answer, c.now()+ms(3000))\n\t}",
		"work that is done is not run, and that is no error"},
	{"a proxy says that work is done", "acquire.go", "r.once && a.Done && !a.At.IsZero()", "r.once && a.Done", "a proxy does not say that work is done"},
	{"an acquire that does not ask is told that work is done", "acquire.go", "r.once && a.Done && !a.At.IsZero()", "a.Done", "that work is done is no answer to an acquire that does not ask"},
	{"work that fails is released as done", "do.go", "done || !l.doneOnRelease", "done || true", "work that fails is released as not done"},
	{"work that never began is given back as done", "acquire.go", "leaving(token, a.body.DoneOn != onRelease)", "leaving(token, true)",
		"work that never began is given back as not done"},
	{"a failure is told also where the grant makes work done", "do.go", "done || !l.doneOnRelease", "done", "without done_on=release a failure is not told"},
	{"a holder is told again and again", "lease.go", "asked = answer.RevokeRequested != nil", "asked = false", "a holder that is asked to release is told once, and goes on"},
}

// Each protection is taken out once, and the suite must notice.
func TestTheSuiteNoticesAClientWithoutAProtection(t *testing.T) {
	names := make(map[string]transcript)
	for _, c := range transcripts {
		names[c.name] = c
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			overlay := m.overlay(t)
			c, ok := names[m.notices]
			assert.Must(t, ok, "no transcript is named %q", m.notices)
			if !*tryMutants {
				return
			}
			t.Parallel()
			d := driverT(t, []string{buildGo(t, t.TempDir(), "-overlay="+overlay)})
			said := judged(t, func(t testing.TB) { c.run(t, d) })
			assert.That(t, said != "", "the transcript %q must fail, and it passes", m.notices)
			t.Logf("noticed: %s", strings.SplitN(said, "\n", 2)[0])
		})
	}
}

// The same for the seeded runs: what the lines of the work say is enough to notice.
func TestTheSeededRunsNoticeAClientWithoutADeadline(t *testing.T) {
	if !*tryMutants {
		t.Skip("make test-full tries the mutants")
	}
	f := newFleet(t)
	m := mutants[0]
	l := language{name: "mutant", make: func(t testing.TB, dir string) []string { return []string{buildGo(t, dir, "-overlay="+m.overlay(t))} }}
	found := make(map[string]int)
	runs(t, l, f, 1, 48, 24, func(_ uint64, o *outcome) {
		for _, text := range o.wrong {
			found[strings.SplitN(text, ":", 2)[0]]++
		}
	})
	assert.That(t, found["overlap"] > 0, "in 48 runs of a client that has no deadline no work overlaps another: %v", found)
	t.Logf("found: %v", found)
}

// overlay writes the changed source and what tells the go command of it.
func (m mutant) overlay(t testing.TB) string {
	t.Helper()
	source, err := filepath.Abs(filepath.Join("../../../client", m.file))
	assert.NoError(t, err)
	text := string(assert.Value(os.ReadFile(source))(t))
	assert.Must(t, strings.Count(text, m.old) == 1, "%s must have %q once, so that it can be taken out: change the mutant with the client", m.file, m.old)
	dir := t.TempDir()
	changed := filepath.Join(dir, m.file)
	assert.NoError(t, os.WriteFile(changed, []byte(strings.Replace(text, m.old, m.new, 1)), 0o600))
	replace := assert.Value(json.Marshal(map[string]map[string]string{"Replace": {source: changed}}))(t)
	overlay := filepath.Join(dir, "overlay.json")
	assert.NoError(t, os.WriteFile(overlay, replace, 0o600))
	return overlay
}
