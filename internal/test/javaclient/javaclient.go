// Package javaclient compiles the Java client in clients/java and programs for it, for tests that run them. It is test support; no shipped
// code may import it.
//
// It needs Debian's Java runtime alone: compiler and javadoc are modules of it, and it has the list of what Java 11 had (ct.sym). Maven
// is not asked: what a test compiles are the same sources with the same options.
package javaclient

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

const (
	java       = "/usr/bin/java"
	toolLimit  = 2 * time.Minute
	oldestJava = "11"
)

// quick are the flags of a JVM that lives for seconds.
var quick = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m", "-XX:-UsePerfData"}

// Dir is the directory of the client.
func Dir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../clients/java")
}

// Driver compiles the program that speaks the protocol of internal/test/clientsuite, and returns its command.
func Driver(t testing.TB) []string {
	t.Helper()
	classes := Compile(t, "", Client(t), Sources(t, "testing/Driver.java"))
	return Command(classes, "lockkeeper.Driver")
}

// Client gives the sources of the client.
func Client(t testing.TB) []string { return Sources(t, "client/src/main/java/lockkeeper/*.java") }

// Sources gives the files that a pattern below Dir names. It opens them, so that go test repeats a result when one of them has changed.
func Sources(t testing.TB, pattern string) []string {
	t.Helper()
	files := assert.Value(filepath.Glob(filepath.Join(Dir(), pattern)))(t)
	assert.Must(t, len(files) != 0, "no sources: %s", pattern)
	for _, f := range files {
		assert.Value(os.ReadFile(f))(t)
	}
	return files
}

// Compile compiles the sources as the project does for Java 11, where each warning is an error, and returns the directory of the classes.
func Compile(t testing.TB, classPath string, sources ...[]string) (classes string) {
	t.Helper()
	classes = t.TempDir()
	args := []string{"-Xlint:all,-serial", "-Werror", "-proc:none", "--release", oldestJava, "-d", classes, "-cp", classPath}
	for _, s := range sources {
		args = append(args, s...)
	}
	Tool(t, "jdk.compiler/com.sun.tools.javac.Main", args...)
	return classes
}

// Tool runs a tool that is a module of the Java runtime, and returns what it said.
func Tool(t testing.TB, module string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), toolLimit)
	defer cancel()
	argv := append(append([]string{}, quick...), "-m", module)
	out, err := exec.CommandContext(ctx, java, append(argv, args...)...).CombinedOutput()
	assert.Must(t, err == nil, "%s: %v\n%s\nhint: scripts/setup test installs what these tests need", module, err, out)
	return string(out)
}

// Command is how a program is started whose classes are in the directories.
func Command(classPath, main string, args ...string) []string {
	argv := append(append([]string{java}, quick...), "-Djava.net.preferIPv4Stack=true", "-cp", classPath, main)
	return append(argv, args...)
}
