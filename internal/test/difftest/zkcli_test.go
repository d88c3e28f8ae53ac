package difftest

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// cliCommands use each way in which zkCli watches, and the commands that its watches see. What zkCli does without watches is
// compared in internal/test/clients.
var cliCommands = []string{
	"version", "create /cli one", "get -w /cli", "set /cli two", "set /cli three", "stat -w /cli", "ls -w /cli",
	"create -s -e /cli/s- x", "ls -s /cli", "create -c /cli/k",
	"create -t 600000 /cli/t", "addWatch -m PERSISTENT /cli", "addWatch /cli/k", "addWatch -m WRONG /cli",
	"create /cli/k/x", "create /cli/k/x/y", "set /cli/k/x/y z", "get -s -w /cli/k/x",
	"removewatches /cli/k/x", "removewatches /cli/k", "set /cli/k/x z", "delete /cli/k/x", "deleteall /cli/k",
	"getEphemerals /cli", "getAllChildrenNumber /cli", "sync /cli",
	"addauth digest u:p", "create /cli/a x auth::cdrwa", "getAcl /cli/a", "setAcl -s /cli/a world:anyone:r,auth::w",
	"getAcl -s /cli/a", "stat -w /cli/none", "create /cli/none", "ls -R -w /cli", "get -w /cli/missing",
	"config -s", "set /cli four",
	"delete /cli/t", "delete /cli/a", "delete /cli/none", // deleteall takes them in the order of a list
	"deleteall /cli", "stat /cli", "sync /", // zkCli's exit status is that of the last command
}

var (
	cliOwn   = regexp.MustCompile(`0x[0-9a-f]+|[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d [A-Z]+ \d{4}`)
	cliTrace = regexp.MustCompile(`^\d{4}-\d\d-\d\d |^\d+ \[`) // log lines of zkCli itself
)

// TestZkCliSeesTheSameEvents compares what zkCli prints. Events come from a thread of their own: they are compared in their own
// order, apart from the answers.
func TestZkCliSeesTheSameEvents(t *testing.T) {
	pair := serversT(t)
	var answers, events [2][]string
	var wg sync.WaitGroup
	for i, target := range []Target{pair.A, pair.B} {
		wg.Go(func() {
			out, err := zkreal.CLI(target.Addr, cliCommands...)
			assert.Nil(t, err, "%s", target.Name)
			for line := range strings.Lines(out) {
				line = cliOwn.ReplaceAllString(strings.TrimSpace(line), "*")
				switch {
				case cliTrace.MatchString(line):
				case strings.Contains(line, "WatchedEvent "):
					events[i] = append(events[i], line)
				default:
					answers[i] = append(answers[i], line)
				}
			}
		})
	}
	wg.Wait()
	assert.That(t, len(answers[0]) >= len(cliCommands) && len(events[0]) >= 12,
		"zkCli said little: %d lines, %d events", len(answers[0]), len(events[0]))
	for what, got := range map[string][2][]string{"answers": answers, "events": events} {
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s differ\n%s:\n%s\n%s:\n%s", what, pair.A.Name, strings.Join(got[0], "\n"), pair.B.Name,
				strings.Join(got[1], "\n"))
		}
	}
}
