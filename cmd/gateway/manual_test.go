package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestWhatIsInstalledAsLockkeeperCallsItselfSo(t *testing.T) {
	assert.Equal(t, nameOf("/usr/bin/lockkeeper"), "lockkeeper", "its name")
	assert.Equal(t, nameOf("bin/gateway"), "gateway", "its name")
	for from, to := range map[string]string{
		"run gateway secret rotate --offline":         "run lockkeeper secret rotate --offline",
		"gateway --help lists the flags":              "lockkeeper --help lists the flags",
		"text\n\n  gateway\n  gateway   --zk zk:2181": "text\n\n  lockkeeper\n  lockkeeper   --zk zk:2181",
		"a gateway without --zk, and its tokens":      "a gateway without --zk, and its tokens",
		"stop every gateway":                          "stop every gateway",
	} {
		assert.Equal(t, called("lockkeeper", from), to, "what lockkeeper says")
		assert.Equal(t, called("gateway", from), from, "what gateway says")
	}
	defer func(before []string) { os.Args = before }(os.Args)
	os.Args = []string{"/usr/bin/lockkeeper"}
	var stdout, stderr bytes.Buffer
	assert.Equal(t, run([]string{"man"}, &stdout, &stderr, func() {}), 0, "man ends with")
	page := stdout.String()
	assert.That(t, strings.HasPrefix(page, ".TH LOCKKEEPER 8 ") && strings.Contains(page, "lockkeeper backup") && !strings.Contains(page, "gateway backup"),
		"the manual page speaks of another program:\n%s", page)
	source, err := os.ReadFile("main.go")
	assert.NoError(t, err)
	for _, code := range regexp.MustCompile(`(?m)^\texit\w+ += (\d+)$`).FindAllSubmatch(source, -1) {
		assert.That(t, regexp.MustCompile(`(?m)^ *`+string(code[1])+`  `).MatchString(page), "the manual page does not have the exit code %s", code[1])
	}
	assert.Equal(t, run([]string{"backup", "--nonsense"}, &stdout, &stderr, func() {}), 64, "usage ends with")
	assert.That(t, strings.Contains(stderr.String(), "hint: lockkeeper --help"), "%s", stderr.String())
}

func TestTheManualPageIsInTheHelp(t *testing.T) {
	_, stdout, _ := command(t, "--help")
	assert.That(t, regexp.MustCompile(`(?m)^  man +Print the manual page\.$`).MatchString(stdout), "the help does not name it:\n%s", stdout)
}

// A status makes no secret, so it warns of the one that is there.
func TestOnlyWhatMakesASecretWarnsOfANewOne(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is said comes before ZooKeeper is asked
	c := &config{ZK: "127.0.0.1:1", Root: "/lockkeeper"}
	for name, run := range map[string]func(stderr *bytes.Buffer) error{
		"status": func(stderr *bytes.Buffer) error { return (&secretStatusCommand{}).run(ctx, c, stderr, stderr) },
		"rotate": func(stderr *bytes.Buffer) error { return (&rotateCommand{DropAfter: "24h"}).run(ctx, c, stderr) },
	} {
		var stderr bytes.Buffer
		assert.That(t, run(&stderr) != nil, "%s reached a ZooKeeper", name)
		said := stderr.String()
		assert.That(t, strings.Contains(said, "every client of ZooKeeper can read") && strings.Contains(said, "new secret") == (name == "rotate"), "%s says: %s", name, said)
	}
}
