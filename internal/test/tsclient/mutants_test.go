package tsclient

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

var tryMutants = flag.Bool("ts.mutants", os.Getenv("LOCKKEEPER_FULL") != "", "take each protection out of the TypeScript client in turn")

// mutants are changes that the client's own tests must notice. internal/test/clientsuite has those that its transcripts notice.
var mutants = map[string]struct {
	Change
	file string // of the tests
}{
	"the loss of a lease is not told when the work did not notice": {Change{"    await lease.release(); // it also", "    void lease.release().catch(() => {}); // it also"}, "work"},
	"the lock is not released when the work fails":                 {Change{"    await lease.release(failed).catch((lost: LeaseLost) => {", "    await Promise.resolve().catch((lost: LeaseLost) => {"}, "work"},
	"work begins under a grant that came too late":                 {Change{"lease.throwIfLost(); // its time", "// its time"}, "work"},
	"the margin is left out":                                       {Change{"const left = () => deadline - margin - clock()", "const left = () => deadline - clock()"}, "work"},
	"the clock is not looked at":                                   {Change{"if (!signal.aborted && !(left() > 0)) end(unconfirmed());", ""}, "blocked"},
	"a gateway is not asked what became of a late lease":           {Change{"if (late) throw unconfirmed();", ""}, "blocked"},
	"the sleep of a machine is not counted":                        {Change{"if (skew > ahead + 10) asleep += skew - ahead;", ""}, "elsewhere"},
	"a time of day that is set back hides a sleep":                 {Change{"|| skew < ahead) ahead", "|| ahead === Infinity) ahead"}, "elsewhere"},
	"the caller's signal does not reach the work":                  {Change{"within(Infinity, lease.signal, caller)", "within(Infinity, lease.signal)"}, "work"},
	"the caller's signal ends the lease under the work":            {Change{"return guard(await this.#acquire(locks, options), work, options.signal);", "return this.#acquire(locks, options).then((l) => (options.signal?.addEventListener('abort', () => void l.release()), guard(l, work, options.signal)));"}, "work"},
	"a fencing token is rounded":                                   {Change{"!Number.isSafeInteger(fence)", "false"}, "work"},
	"a time to live that is none is believed":                      {Change{"isTime(answer.ttl_ms) && answer.ttl_ms > 0 &&", ""}, "work"},
	"a time to live that is a text is believed":                    {Change{"isTime(answer.ttl_ms) && answer.ttl_ms > 0 &&", "answer.ttl_ms! > 0 &&"}, "work"},
	"a heartbeat is held for longer than it can be":                {Change{"Math.min(ttl / 3, mostHoldMs)", "ttl / 3"}, "work"},
	"heartbeats that are answered at once make a busy loop":        {Change{"if (early > 0) await sleep(early, signal);", ""}, "work"},
	"a heartbeat is held beyond the deadline":                      {Change{"failures > 0 || left() < longest + ttl / 20 ? 0 : longest", "failures > 0 ? 0 : longest"}, "work"},
	"an acquire without an answer is not given back":               {Change{"if (temporary(error)) await gateways.bounded", "if (false) await gateways.bounded"}, "work"},
	"a lease that ended before its answer came is an error":        {Change{"isFinal(error) && error.status === 410 ? placeLost : error", "error"}, "work"},
	"a name leaves its path":                                       {Change{`["", ".", "..", undefined].includes(name)`, "false"}, "work"},
	"the loss of another lease begins a new term":                  {Change{"&& error.leaseId === lease.id)", ")"}, "work"},
	"a token is told in an error":                                  {Change{`if (/^[\x21-\x7e]*$/.test(text.trim())) return`, "if (true) return"}, "work"},
	"timers outlive a lease":                                       {Change{"    clearTimeout(timer);\n    over.abort", "    over.abort"}, "node"},
	"a timer longer than a timer can be ends at once":              {Change{"Math.min(ms, 2 ** 31 - 1)", "ms"}, "work"},
	"a listener stays on the caller's signal":                      {Change{"if (all.size === 0) signal.removeEventListener", "if (false) signal.removeEventListener"}, "node"},
	"an answer is read however long it is":                         {Change{"text.length > mostAnswer", "text.length > 1e8"}, "work"},
	"a signal gets a listener for each who follows it":             {Change{"addEventListener(\"abort\", tellAll)", "addEventListener(\"abort\", (e) => tellAll(e))"}, "node"},
	"the token file is read once":                                  {Change{"const text: string = tokenFile ? await", "const text: string = (this as any).was ??= tokenFile ? await"}, "node"},
	"the next gateway is not asked":                                {Change{"this.#next = (at + 1) % this.#list.length", "this.#next = at"}, "node"},
}

func TestTheTestsNoticeAClientWithoutAProtection(t *testing.T) {
	for name, m := range mutants {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			m.CheckT(t)
			if !*tryMutants {
				return
			}
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-timeout=20000", Bundle(t, filepath.Join(Dir(), "test", m.file+".test.ts"), m.Change))
			cmd.WaitDelay = time.Second
			out, err := cmd.CombinedOutput()
			assert.That(t, err != nil, "no test of %s.test.ts fails", m.file)
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "not ok") || strings.Contains(line, "✖") {
					t.Logf("noticed: %s", strings.TrimSpace(line))
					break
				}
			}
		})
	}
}
