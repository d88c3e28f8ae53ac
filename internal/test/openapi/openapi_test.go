// Package openapi holds openapi.yaml against the generators and linters that other people use: TypeScript's types, redocly and
// spectral. scripts/setup installs them, with the checksums of testdata/package-lock.json.
package openapi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

const root = "../../.."

// tool is a program of an npm package. Without Node.js 20 and the packages the test is skipped, and fails where everything has to run.
func tool(t *testing.T, dir string, program string, args ...string) (output string, err error) {
	t.Helper()
	testkit.NotShort(t, "it starts Node.js")
	modules, pathErr := filepath.Abs(root + "/.run/openapi/node_modules")
	assert.NoError(t, pathErr)
	installed, _ := os.ReadFile(root + "/.run/openapi/package-lock.json")
	wanted, readErr := os.ReadFile("testdata/package-lock.json")
	assert.NoError(t, readErr)
	version, _ := exec.Command("node", "--version").Output()
	if string(installed) != string(wanted) || len(version) < 3 || string(version) < "v20" {
		assert.Must(t, os.Getenv("LOCKKEEPER_FULL") == "", "scripts/setup test must install Node.js 20 and the npm packages; Node.js is %q", version)
		t.Skipf("scripts/setup test installs Node.js 20 and the npm packages; Node.js is %q", version)
	}
	cmd := exec.CommandContext(t.Context(), "node", append([]string{filepath.Join(modules, program)}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestD13AGeneratedTypeScriptClientTypeChecksWithoutACast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := assert.Value(filepath.Abs(root + "/openapi.yaml"))(t)
	out, err := tool(t, dir, "openapi-typescript/bin/cli.js", spec, "-o", "api.d.ts")
	assert.Must(t, err == nil, "openapi-typescript: %v\n%s", err, out)
	modules := assert.Value(filepath.Abs(root + "/.run/openapi/node_modules"))(t)
	assert.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	for _, name := range []string{"client.ts", "wrong.ts", "tsconfig.json", "package.json"} {
		text := assert.Value(os.ReadFile("testdata/" + name))(t)
		assert.That(t, !strings.HasSuffix(name, ".ts") || !strings.Contains(string(text), " as ") && !strings.Contains(string(text), "any;"), "%s has a cast", name)
		assert.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	out, err = tool(t, dir, "typescript/bin/tsc", "-p", ".")
	assert.That(t, err == nil, "tsc: %v\n%s", err, out)
}

func TestD28RedoclyAndSpectralFindNothing(t *testing.T) {
	t.Parallel()
	out, err := tool(t, root, "@redocly/cli/bin/cli.js", "lint", "openapi.yaml")
	assert.That(t, err == nil && !strings.Contains(out, "You have "), "redocly: %v\n%s", err, out)
	out, err = tool(t, root, "@stoplight/spectral-cli/dist/index.js", "lint", "--fail-severity=hint", "openapi.yaml")
	assert.That(t, err == nil, "spectral: %v\n%s", err, out)
}

// A linter that reads nothing finds nothing.
func TestTheLintersFindWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := string(assert.Value(os.ReadFile(root + "/openapi.yaml"))(t))
	text = strings.Replace(text, "operationId: Acquire\n", "operationId: Release\n", 1)
	text = strings.Replace(text, "#/components/schemas/LockList", "#/components/schemas/NoList", 1)
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "openapi.yaml"), []byte(text), 0o600))
	for _, name := range []string{"redocly.yaml", ".spectral.yaml"} {
		assert.NoError(t, os.WriteFile(filepath.Join(dir, name), assert.Value(os.ReadFile(root+"/"+name))(t), 0o600))
	}
	out, err := tool(t, dir, "@redocly/cli/bin/cli.js", "lint", "openapi.yaml")
	assert.That(t, err != nil && strings.Contains(out, "NoList"), "redocly: %v\n%s", err, out)
	out, err = tool(t, dir, "@stoplight/spectral-cli/dist/index.js", "lint", "openapi.yaml")
	assert.That(t, err != nil && strings.Contains(out, "unique"), "spectral: %v\n%s", err, out)
}
