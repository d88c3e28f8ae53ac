package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed Curator.java
var curatorSource []byte

// Where Debian's packages put what the driver of Curator needs.
const (
	javaBinary = "/usr/bin/java"
	jarDir     = "/usr/share/java/"
)

// curator is the program whose threads are clients of Curator's InterProcessMutex.
type curator struct {
	*program
	orders io.WriteCloser
	lines  *bufio.Scanner
}

// startCurator compiles the driver and starts it. It gets both of the JVM's compilers, as any program in Java has them.
func (r *rig) startCurator(ctx context.Context, s *store) (*curator, error) {
	var jars []string
	for _, name := range []string{"curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "guava", "slf4j-api", "slf4j-simple"} {
		jars = append(jars, jarDir+name+".jar")
	}
	classPath := strings.Join(jars, ":")
	classes := filepath.Join(r.dir, "curator")
	if err := os.MkdirAll(classes, 0o700); err != nil {
		return nil, err
	}
	source := filepath.Join(classes, "Curator.java")
	if err := os.WriteFile(source, curatorSource, 0o600); err != nil {
		return nil, err
	}
	// The compiler is a module of Debian's Java runtime: no JDK is needed.
	compile := exec.CommandContext(ctx, javaBinary, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-d", classes, "-cp", classPath, source)
	if output, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the driver of Curator: %w\n%s\nhint: scripts/setup bench installs what it needs", err, output)
	}
	cmd := exec.Command(javaBinary, "-XX:+UseSerialGC", "-Xmx1g", "-Xss256k", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classes+":"+classPath, "Curator", s.addrs(), strconv.Itoa(maxClients))
	c := &curator{}
	var err error
	if c.orders, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	answers, written, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = written
	c.program, err = startProgram("curator", cmd)
	_ = written.Close() // the child has its own descriptor
	if err != nil {
		_ = answers.Close()
		return nil, err
	}
	r.atEnd(func() {
		c.stop()
		_ = answers.Close()
	})
	c.lines = bufio.NewScanner(answers)
	if line, err := c.line(); err != nil || line != "ready" {
		return nil, fmt.Errorf("driver of Curator: %q, %w\n%s", line, err, c.logTail())
	}
	// What a JVM compiles on its first thousands of cycles, the driver's and ZooKeeper's, is compiled before anything is measured.
	_, err = c.run(work{clients: 64, d: compileFor}, "own", func() {})
	return c, err
}

// compileFor is how long Curator's clients work before anything is measured.
const compileFor = 3 * time.Second

// line is the next that the driver prints.
func (c *curator) line() (string, error) {
	if !c.lines.Scan() {
		return "", fmt.Errorf("the driver of Curator has ended: %w", c.Wait())
	}
	return c.lines.Text(), nil
}

// run has the driver do the work.
func (c *curator) run(w work, connections string, begin func()) (s sample, err error) {
	locks := "own"
	if w.hot {
		locks = "hot"
	}
	if err := c.order("%s %s %d %d\n", connections, locks, w.clients, w.d.Milliseconds()); err != nil {
		return s, err
	}
	if line, err := c.line(); err != nil || line != "prepared" {
		return s, fmt.Errorf("driver of Curator: %q, %w", line, err)
	}
	begin()
	if err := c.order("go\n"); err != nil {
		return s, err
	}
	line, err := c.line()
	if err != nil {
		return s, err
	}
	s.elapsed = w.d
	_, err = fmt.Sscan(line, &s.done, (*nanos)(&s.acquire.p50), (*nanos)(&s.acquire.p99), (*nanos)(&s.release.p50), (*nanos)(&s.release.p99))
	if err != nil {
		return s, fmt.Errorf("driver of Curator: %s", line)
	}
	return s, nil
}

func (c *curator) order(format string, values ...any) error {
	if _, err := fmt.Fprintf(c.orders, format, values...); err != nil {
		return fmt.Errorf("driver of Curator: %w", err)
	}
	return nil
}

// nanos is a duration that fmt.Sscan reads as a number of nanoseconds.
type nanos time.Duration

// Scan implements fmt.Scanner.
func (n *nanos) Scan(state fmt.ScanState, _ rune) error {
	var v int64
	_, err := fmt.Fscan(state, &v)
	*n = nanos(v)
	return err
}
