package javaclient

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// mostCode bounds the client: what is copied into other people's sources must be short enough to be read.
const mostCode = 600

func TestTheClientIsShort(t *testing.T) {
	notCode := regexp.MustCompile(`^\s*(//.*|/?\*.*|(import|package) .*|)$`)
	total := 0
	for _, file := range append(Client(t), Sources(t, "shedlock/src/main/java/lockkeeper/shedlock/*.java")...) {
		lines := strings.Split(string(assert.Value(os.ReadFile(file))(t)), "\n")
		for i, line := range lines {
			assert.That(t, len(line) <= 140, "%s:%d has %d columns", filepath.Base(file), i+1, len(line))
			if !notCode.MatchString(line) && !strings.Contains(file, "shedlock") {
				total++
			}
		}
		assert.That(t, len(lines) <= 400, "%s has %d lines", filepath.Base(file), len(lines))
	}
	assert.That(t, total <= mostCode, "the client has %d lines of code, more than %d", total, mostCode)
}

// The tests of the client itself: the suite in internal/test/clientsuite cannot see threads and interrupts.
func TestTheClientsOwnTestsPass(t *testing.T) {
	testkit.NotShort(t, "it starts programs")
	t.Parallel()
	classes := Compile(t, "", Client(t), Sources(t, "testing/FakeGateway.java"), Sources(t, "testing/Tests.java"))
	run(t, Command(classes, "lockkeeper.Tests"))
}

func TestShedLockLocksAndUnlocks(t *testing.T) {
	testkit.NotShort(t, "it starts programs")
	t.Parallel()
	classes := Compile(t, "", Client(t), Sources(t, "testing/FakeGateway.java"), Sources(t, "testing/Tests.java"), shedLock(t),
		Sources(t, "testing/ShedLockTests.java"))
	run(t, Command(classes, "lockkeeper.ShedLockTests"))
}

// shedLock gives the provider, and the stand-ins for ShedLock's own types.
func shedLock(t *testing.T) []string {
	return append(Sources(t, "shedlock/src/main/java/lockkeeper/shedlock/*.java"), Sources(t, "testing/shedlock/net/javacrumbs/shedlock/core/*.java")...)
}

// The examples of the README are the bodies of the methods of one class. What they name but do not declare is in testing/Readme.txt.
func TestEachExampleOfTheReadmeRuns(t *testing.T) {
	testkit.NotShort(t, "it starts programs")
	t.Parallel()
	readme := string(assert.Value(os.ReadFile(filepath.Join(Dir(), "README.md")))(t))
	frame := string(assert.Value(os.ReadFile(filepath.Join(Dir(), "testing/Readme.txt")))(t))
	var methods, calls strings.Builder
	examples := regexp.MustCompile("(?s)```java\n(.*?)```").FindAllStringSubmatch(readme, -1)
	assert.Must(t, len(examples) == 7, "%d examples", len(examples))
	for i, e := range examples {
		fmt.Fprintf(&methods, "static void example%d() throws Exception {\n%s}\n", i, e[1])
		fmt.Fprintf(&calls, "example%d();\n", i)
	}
	source := filepath.Join(t.TempDir(), "Readme.java")
	frame = strings.NewReplacer("EXAMPLES", methods.String(), "CALLS", calls.String()).Replace(frame)
	assert.NoError(t, os.WriteFile(source, []byte(frame), 0o600))
	classes := Compile(t, "", Client(t), Sources(t, "testing/FakeGateway.java"), shedLock(t), []string{source})
	listener := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	assert.NoError(t, listener.Close())
	run(t, Command(classes, "lockkeeper.Readme"), "LOCKKEEPER_URL=http://"+listener.Addr().String())
}

func TestTheJavadocIsWhole(t *testing.T) {
	testkit.NotShort(t, "it starts programs")
	t.Parallel()
	shedLock := Compile(t, "", Client(t), shedLock(t))
	args := []string{"-Xdoclint:all", "-Xwerror", "-quiet", "--release", oldestJava, "-d", t.TempDir(), "-cp", shedLock}
	args = append(append(args, Client(t)...), Sources(t, "shedlock/src/main/java/lockkeeper/shedlock/*.java")...)
	Tool(t, "jdk.javadoc/jdk.javadoc.internal.tool.Main", args...)
}

func run(t *testing.T, command []string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	assert.Must(t, err == nil, "%v\n%s", err, out)
	t.Logf("%s", out)
}
