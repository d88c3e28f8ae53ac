package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

const (
	java         = "/usr/bin/java" // Debian's, as its libraries
	jars         = "/usr/share/java/"
	compileLimit = 2 * time.Minute
)

// classPath is what Curator's programs need, and a logger that writes to stderr.
var classPath = classPathOf("curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "guava",
	"slf4j-api", "slf4j-simple")

func classPathOf(names ...string) string {
	var files []string
	for _, n := range names {
		files = append(files, jars+n+".jar")
	}
	return strings.Join(files, ":")
}

// quick are the flags of a JVM that lives for seconds.
var quick = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m", "-XX:-UsePerfData"}

func TestCuratorWorks(t *testing.T) {
	testkit.NotShort(t, "it starts servers and programs")
	classes := compileT(t, "testdata/curator")
	eachServer(t, func(addr, control, rounds string) []string {
		argv := append([]string{java}, quick...)
		return append(argv, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
			"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS", "-Djava.net.preferIPv4Stack=true",
			"-cp", classes+":"+classPath, "Main", addr, control, rounds)
	})
}

// compileT compiles the Java sources in dir. The compiler is a module of Debian's Java runtime: no JDK is needed.
func compileT(t *testing.T, dir string) (classes string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(dir, "*.java"))
	assert.Must(t, err == nil && len(sources) != 0, "no sources in %s: %v", dir, err)
	_, err = os.Stat(jars + "curator-recipes.jar")
	assert.Must(t, err == nil, "%v\nhint: scripts/setup test installs what these tests need", err)
	classes = t.TempDir()
	args := append([]string{}, quick...)
	args = append(args, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-d", classes, "-cp", classPath)
	ctx, cancel := context.WithTimeout(t.Context(), compileLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, java, append(args, sources...)...).CombinedOutput()
	assert.Must(t, err == nil, "javac: %v\n%s", err, out)
	return classes
}
