package dockertest

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/testkit"
)

// The build stage, run here: its own command line, on exactly the files that .dockerignore lets in, with the caches of
// this machine in place of the mounted ones. Then the final stage's own commands, with the paths of this machine.
func TestTheBuildStageMakesAStaticGatewayThatTheHealthCheckFindsAlive(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t, "it builds the gateway")
	if runtime.GOOS != "linux" {
		t.Skip("the image is for Linux, and its binary is started here")
	}
	i, gateway := built(t)

	binary := assert.Value(elf.Open(gateway))(t)
	defer binary.Close()
	assert.That(t, !slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }),
		"the binary asks for a dynamic linker, which an image from scratch does not have")
	out, err := exec.Command(gateway, "version").CombinedOutput()
	assert.That(t, err == nil && string(out) == "v1.2.3\n", "version: %v: %s", err, out)

	out, err = exec.Command(filepath.Join(filepath.Dir(gateway), "lockctl"), "--version").CombinedOutput()
	assert.That(t, err == nil && string(out) == "v1.2.3\n", "lockctl --version: %v: %s", err, out)

	// As the image starts it when nothing but ZooKeeper's address is given.
	var environment []string
	for _, c := range all[*instructions.EnvCommand](i.last()) {
		for _, pair := range c.Env {
			environment = append(environment, pair.String())
		}
	}
	unasked := exec.Command(gateway, "--zk", "127.0.0.1:1")
	unasked.Env = environment
	if out, _ := unasked.CombinedOutput(); unasked.ProcessState.ExitCode() != 64 || !strings.Contains(string(out), "--insecure") {
		t.Errorf("a gateway that others can reach starts unasked, or does not say why not: exit %d: %s", unasked.ProcessState.ExitCode(), out)
	}

	// Alive without ZooKeeper: it is not the process's fault. The check gets the address as the gateway did, by the variable.
	check := all[*instructions.HealthCheckCommand](i.last())[0].Health.Test[2:]
	address, stop := started(t, gateway)
	if out, err := healthcheck(t, gateway, check, address); err != nil {
		t.Errorf("the health check of a gateway that is alive: %v: %s", err, out)
	}
	stop()
	if out, err := healthcheck(t, gateway, check, address); err == nil || !strings.Contains(out, "cannot be asked") {
		t.Errorf("the health check of a gateway that has ended: %v: %s", err, out)
	}
}

// built runs the build stage's command and returns the path of the gateway.
func built(t *testing.T) (*image, string) {
	t.Helper()
	i := assert.Value(read(repository(t)))(t)
	names, err := i.let()
	assert.Must(t, err == nil && len(names) >= 20, "the build's context has %d files (%v)", len(names), err)
	source := t.TempDir()
	for _, name := range names {
		data := assert.Value(os.ReadFile(filepath.Join(top, name)))(t)
		to := filepath.Join(source, name)
		assert.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		assert.NoError(t, os.WriteFile(to, data, 0o644))
	}
	build := exec.Command("sh", "-c", strings.Join(i.compile().CmdLine, " "))
	build.Dir = source
	build.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH, "VERSION=v1.2.3")
	out, err := build.CombinedOutput()
	assert.Must(t, err == nil, "the build stage's command: %v\n%s", err, out)
	return i, filepath.Join(source, "gateway")
}

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

// started runs the gateway at a port of the system's choice, and returns its address once it listens.
func started(t *testing.T, gateway string) (address string, stop func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	log := assert.Value(os.Create(path))(t)
	defer log.Close()
	cmd := exec.Command(gateway, "--zk", "127.0.0.1:1")
	cmd.Env, cmd.Stderr = []string{"LOCKKEEPER_LISTEN=127.0.0.1:0"}, log
	process := assert.Value(childproc.Start(cmd))(t)
	stop = func() { process.Stop(20 * time.Second) }
	t.Cleanup(stop)
	testkit.Eventually(t, 30*time.Second, func() bool {
		said, _ := os.ReadFile(path)
		if m := listening.FindSubmatch(said); m != nil {
			address = string(m[1])
		}
		return address != ""
	}, "the gateway does not listen")
	return address, stop
}

func healthcheck(t *testing.T, gateway string, args []string, address string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, gateway, args...)
	cmd.Env = []string{"LOCKKEEPER_LISTEN=" + address}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
