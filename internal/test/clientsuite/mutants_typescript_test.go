package clientsuite

import (
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/tsclient"
)

// typescriptMutants are changes of the TypeScript client that a transcript must notice. Its own tests notice others
// (internal/test/tsclient).
var typescriptMutants = []struct {
	name string
	tsclient.Change
	notices string
}{
	{"the work goes on without a deadline", tsclient.Change{Old: "const left = () => deadline - margin - clock()", New: "const left = () => 1e9"},
		"work without a confirmed lease is stopped the margin before the deadline"},
	{"the deadline counts from the answer to the acquire", tsclient.Change{Old: "let deadline = sent + grant.ttl_ms", New: "let deadline = clock() + grant.ttl_ms"},
		"the deadline counts from when the acquire was sent, not from its answer"},
	{"the deadline counts from the answer to a heartbeat", tsclient.Change{Old: "Math.max(deadline, sent + answer.ttl_ms)", New: "Math.max(deadline, clock() + answer.ttl_ms)"},
		"a heartbeat moves the deadline to when it was sent"},
	{"heartbeats move the deadline back", tsclient.Change{Old: "Math.max(deadline, sent + answer.ttl_ms)", New: "sent + answer.ttl_ms"}, "a heartbeat never moves the deadline back"},
	{"the grant of a ticket is not confirmed", tsclient.Change{Old: "current !== grant || grant.waited_ms === undefined", New: "current !== grant"},
		"a grant without waited_ms is confirmed by a heartbeat"},
	{"each repeat has a key of its own", tsclient.Change{Old: `"Idempotency-Key": key,`, New: `"Idempotency-Key": key && randomKey(),`},
		"each repeat of an acquire carries the same key"},
	{"a place in the queue is not given up", tsclient.Change{Old: "await leave(lease);", New: ""}, "a caller that gives up while it waits leaves the queue at once"},
	{"a proxy's answer ends the lease", tsclient.Change{Old: "error instanceof Problem && error.code !== unexpected && [403, 404, 410]", New: "error instanceof Problem && [403, 404, 410]"},
		"a proxy's 410 at a heartbeat does not end the lease"},
	{"a page with 200 confirms the lease", tsclient.Change{Old: "response.ok && (right || done)) return answer", New: "response.ok) return { ttl_ms: 1e9, ...answer }"},
		"a page with 200 at a heartbeat does not confirm the lease"},
	{"the lease token is sent with the API token", tsclient.Change{Old: `const token = request.lease ? "" : await`, New: "const token = await"},
		"the lease is released when the work returns"},
	{"redirects are followed", tsclient.Change{Old: `redirect: "manual"`, New: `redirect: "follow"`}, "a redirect is not followed"},
	{"heartbeats are not held", tsclient.Change{Old: "? 0 : longest;", New: "? 0 : 0;"}, "one heartbeat follows the other, each held for a third of the TTL"},
	{"a proxy says that work is done", tsclient.Change{Old: `answer.done === true && textIn(answer, "at")`, New: "answer.done === true"}, "a proxy does not say that work is done"},
	{"an acquire that does not ask is told that work is done", tsclient.Change{Old: "const done = request.once && ", New: "const done = "},
		"that work is done is no answer to an acquire that does not ask"},
	{"work that is done is run", tsclient.Change{Old: "if (done) return { lock, period, by, at: new Date(at) } as D;", New: `if (done) Object.assign(grant, { lease_id: "x", token: "x", state: "held", ttl_ms: 3000, waited_ms: 0, fencing_token: 1 });`},
		"work that is done is not run, and that is no error"},
	{"work that fails is released as done", tsclient.Change{Old: `options.signal, once.doneOn !== "release")`, New: "options.signal)"}, "work that fails is released as not done"},
	{"work that never began is given back as done", tsclient.Change{Old: `leaving(lease, once?.doneOn !== "release")`, New: "leaving(lease, true)"},
		"work that never began is given back as not done"},
	{"a holder is told again and again", tsclient.Change{Old: "asked = Boolean(ask);", New: ""}, "a holder that is asked to release is told once, and goes on"},
	{"a release is tried once", tsclient.Change{Old: "gateways.bounded(leaving(token, done), releaseMs)", New: "gateways.once(leaving(token, done), new AbortController().signal)"},
		"a release is repeated until a gateway answers"},
	{"Retry-After is not obeyed", tsclient.Change{Old: "sleep(jitter(Math.max(pause, asked)), signal)", New: "sleep(jitter(pause), signal)"}, "Retry-After is obeyed by an acquire"},
	{"a late answer is waited for", tsclient.Change{Old: "Math.min(requestMs, Math.max(ttl / 6, 100))", New: "requestMs"},
		"an answer that is late by a sixth of the TTL is given up, and the next heartbeat is not held"},
}

// Each protection is taken out once, and the transcripts must notice.
func TestTheSuiteNoticesATypeScriptClientWithoutAProtection(t *testing.T) {
	names := make(map[string]transcript)
	for _, c := range transcripts {
		names[c.name] = c
	}
	for _, m := range typescriptMutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			m.CheckT(t)
			c, ok := names[m.notices]
			assert.Must(t, ok, "no transcript is named %q", m.notices)
			if !*tryMutants {
				return
			}
			t.Parallel()
			d := driverT(t, tsclient.Driver(t, m.Change))
			said := judged(t, func(t testing.TB) { c.run(t, d) })
			assert.That(t, said != "", "the transcript %q must fail, and it passes", m.notices)
			t.Logf("noticed: %s", strings.SplitN(said, "\n", 2)[0])
		})
	}
}
