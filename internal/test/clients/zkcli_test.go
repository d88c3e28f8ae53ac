package clients

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// cliCommands are given to zkCli in one session; answers depend on nothing but them.
var cliCommands = []string{
	"create /n one", "create /n again", "create /no/parent", "get /n", "get -s /n", "set -s /n two", "set -v 7 /n three", "get /n",
	"create -s /n/s- x", "create -s /n/s- y", "create -e /n/e mine", "create /n/e/child",
	"create -c /n/c", "create -t 3600000 /n/t", "create /n/p p", "stat /n/e", "stat /n/c", "stat /n/t", "stat /nowhere",
	"ls /n", "ls -s /n", "ls -R /n", "ls /nowhere", "ls /", "ls -R /zookeeper", "get /zookeeper/config", "config",
	"getEphemerals", "getEphemerals /n", "getAllChildrenNumber /n", "sync /n", "whoami",

	"getAcl -s /n", "getAcl /nowhere", "addauth digest user:secret", "whoami", "create /n/auth x auth::cdrwa", "getAcl -s /n/auth",
	"setAcl -s /n world:anyone:ra", "getAcl -s /n", "create /n/refused", "delete /n/p", "ls /n", "setAcl -v 9 /n/c world:anyone:r",
	"setAcl /n digest:nonsense", "setAcl /n world:somebody:r", "setAcl -R /n world:anyone:cdrwa", "getAcl /n/c",

	"delete -v 9 /n/p", "delete /n/p", "delete /n/p", "delete /n", "delete /nowhere",
	"setquota -n 5 /n", "listquota /n", "setquota -b 1000 /n", "create /n/q1", "set /n 12345", "listquota /n",
	"create /n/q2", "create /n/q3", "create /n/q4", "listquota /n", "setquota -n 5 /n/q1", "delquota -n /n", "listquota /n",
	"delete /n/q1", "listquota /n", "delquota /n", "listquota /n", "ls -R /zookeeper",
	"removewatches /n", "reconfig -add server.2=localhost:1:2:participant;3", "deleteall /n", "ls /",
}

// What two servers cannot have in common: numbers of transactions and sessions, times, the temporary directory.
var cliOwn = []*regexp.Regexp{
	regexp.MustCompile(`0x[0-9a-f]+`),
	regexp.MustCompile(`[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d [A-Z]+ \d{4}`),
	regexp.MustCompile(`\d\d:\d\d:\d\d[.,]\d{3}|\d{4}-\d\d-\d\d`),
}

// cliCounts are the lines that show what a quota's statistics count. Ours count nothing.
var cliCounts = regexp.MustCompile(`(?m)^(Output stat for|\[Warning\]: the (count|bytes) quota you create is less) .*\n`)

func TestZkCliIsAnsweredTheSameByBothServers(t *testing.T) {
	var (
		answers = make([]string, len(servers))
		running sync.WaitGroup
	)
	for i, s := range servers {
		addr := s.start(t).Addr()
		running.Go(func() {
			var err error
			answers[i], err = zkreal.CLI(addr, cliCommands...)
			assert.Nil(t, err, "%s", s.name)
		})
	}
	running.Wait()
	assert.That(t, strings.Contains(answers[1], "Output stat for /n count=0,bytes=0\n"),
		"ours does not show a quota's statistics:\n%s", answers[1])
	for i, a := range answers {
		for _, own := range cliOwn {
			a = own.ReplaceAllString(a, "*")
		}
		answers[i] = cliCounts.ReplaceAllString(a, "")
	}
	theirs, ours := strings.Split(answers[0], "\n"), strings.Split(answers[1], "\n")
	if len(theirs) < 2*len(cliCommands) {
		t.Errorf("zkCli has said little:\n%s", answers[0])
	}
	for i := range min(len(theirs), len(ours)) {
		if theirs[i] != ours[i] {
			t.Fatalf("line %d: theirs %q, ours %q\ntheirs:\n%s\nours:\n%s", i+1, theirs[i], ours[i], answers[0], answers[1])
		}
	}
	assert.That(t, len(theirs) == len(ours), "theirs has %d lines, ours %d", len(theirs), len(ours))
}
