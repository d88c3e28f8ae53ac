package pyclient

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// python runs it, and fails with what it has said.
func python(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Python, append([]string{"-B"}, args...)...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	assert.Must(t, err == nil, "python3 %s: %v\n%s", strings.Join(args, " "), err, out)
	return string(out)
}

func TestTheTestsOfTheClient(t *testing.T) {
	testkit.NotShort(t, "it starts programs")
	readAll(t)
	var env []string
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		env = append(env, "LOCKKEEPER_STRESS=5000")
	}
	for _, module := range []string{"test_block", "test_asyncio", "test_client"} {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			python(t, filepath.Join(Dir(), "tests"), env, "-W", "ignore::ResourceWarning", "-m", "unittest", module)
		})
	}
}

// The wheel is built without a network, and what is in it can be imported.
func TestTheClientCanBeInstalled(t *testing.T) {
	testkit.NotShort(t, "it starts programs")
	t.Parallel()
	readAll(t)
	dir := t.TempDir()
	for _, name := range []string{"lockkeeper.py", "pyproject.toml", "README.md"} {
		text := assert.Value(os.ReadFile(filepath.Join(Dir(), name)))(t)
		assert.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	wheel := python(t, dir, nil, "-c", "from setuptools import build_meta; print(build_meta.build_wheel('.'))")
	lines := strings.Fields(wheel)
	name := lines[len(lines)-1]
	assert.That(t, strings.HasPrefix(name, "lockkeeper-1.") && strings.HasSuffix(name, "-py3-none-any.whl"), "the wheel is %s", name)
	said := python(t, t.TempDir(), []string{"PYTHONPATH=" + filepath.Join(dir, name)}, "-c", "import lockkeeper; print(lockkeeper.__file__, lockkeeper.Client())")
	assert.That(t, strings.Contains(said, name), "imported from %s", said)
}
