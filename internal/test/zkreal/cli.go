package zkreal

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// CLI runs Debian's zkCli.sh against addr with the given commands ("ls /", "delete /a/b", ...), one session for all, and
// returns what it printed on both of its outputs, without the greeting. A command that ZooKeeper refuses is no error
// here: zkCli prints the refusal ("Node does not exist: /a") and goes on. err is set when zkCli itself could not be run,
// found no server, or took longer than a minute.
//
// The events of watches stand last: zkCli prints them from a thread of its own, also in the midst of an answer's line.
func CLI(addr string, commands ...string) (out string, err error) {
	if _, err := os.Stat(cliScript); err != nil {
		return "", fmt.Errorf("%w (missing: %s)", ErrNotInstalled, cliScript)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, cliScript, "-waitforconnection", "-server", addr)
	cmd.Env = append(os.Environ(), "JVMFLAGS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx128m")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\nquit\n")
	cmd.WaitDelay = time.Second // the script's JVM holds the pipe; do not wait for it after the minute
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both // one pipe: what is created and what is refused goes to stderr, in order
	err = cmd.Run()
	out = withoutGreeting(eventsLast(both.String()))
	if err != nil {
		return out, fmt.Errorf("zkCli.sh: %w: %s", err, out)
	}
	return out, nil
}

// cliEvent matches the two messages of an event, each with the line feeds that zkCli prints around it in one call.
var cliEvent = regexp.MustCompile(`\n(WATCHER::|WatchedEvent [^\n]*)\n`)

// eventsLast moves the messages of watches behind the answers, so that no answer is torn by one.
func eventsLast(out string) string {
	events := strings.Join(cliEvent.FindAllString(out, -1), "")
	return cliEvent.ReplaceAllString(out, "") + events
}

// withoutGreeting drops what zkCli says to every command.
func withoutGreeting(out string) string {
	var kept strings.Builder
	for line := range strings.Lines(out) {
		switch text := strings.TrimSpace(line); {
		case text == "", text == "WATCHER::", text == "Welcome to ZooKeeper!",
			strings.HasPrefix(text, "Connecting to "), strings.HasPrefix(text, "JLine support is "),
			strings.HasPrefix(text, "SLF4J: "), strings.HasPrefix(text, "WatchedEvent state:SyncConnected type:None"),
			strings.HasPrefix(text, "WatchedEvent state:Closed type:None"):
			continue
		}
		kept.WriteString(line)
	}
	return kept.String()
}
