package tsclient

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// node runs Node.js, and fails with what it has said.
func node(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	out, err := cmd.CombinedOutput()
	assert.Must(t, err == nil, "node %s: %v\n%s", strings.Join(args, " "), err, out)
	return string(out)
}

// tsc is the compiler's program, with the types of Node.js.
func tsc(t *testing.T) []string {
	t.Helper()
	modules := filepath.Join(Dir(), "../../.run/typescript/node_modules")
	installed, _ := os.ReadFile(filepath.Join(modules, "../package-lock.json"))
	wanted := assert.Value(os.ReadFile(filepath.Join(Dir(), "package-lock.json")))(t)
	if string(installed) != string(wanted) {
		assert.Must(t, os.Getenv("LOCKKEEPER_FULL") == "", "scripts/setup test must install the npm packages of clients/typescript")
		t.Skip("scripts/setup test installs the npm packages of clients/typescript")
	}
	return []string{filepath.Join(modules, "typescript/bin/tsc"), "--typeRoots", filepath.Join(modules, "@types")}
}

func TestTheClientsOwnTestsPass(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t, "it starts Node.js")
	list := assert.Value(filepath.Glob(filepath.Join(Dir(), "test/*.test.ts")))(t)
	assert.Must(t, len(list) > 3, "tests: %q", list)
	for _, entry := range list { // beside each other: they wait for most of their time
		t.Run(filepath.Base(entry), func(t *testing.T) {
			t.Parallel()
			out := node(t, Dir(), "--test", "--test-reporter=tap", Bundle(t, entry))
			assert.That(t, regexp.MustCompile(`(?m)^# pass [1-9]`).MatchString(out), "no test ran:\n%s", out)
		})
	}
}

func TestAllTypesOfTheClientItsTestsItsDriverAndItsReadmeCheck(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t, "it starts Node.js")
	node(t, Dir(), append(tsc(t), "-p", filepath.Dir(Readme(t)))...)
}

// A user makes the package, installs it and compiles with it: with npm, and nothing from a registry. A project may be
// stricter than most, have no types of browsers, or have none of Node.js: neither the package nor the copied file may fail to compile in it.
func TestThePackageAndACopyOfItsFileWorkInStrictProjects(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t, "it starts npm")
	compiler, from, dir := tsc(t), filepath.Join(t.TempDir(), "client"), t.TempDir()
	assert.NoError(t, os.CopyFS(from, os.DirFS(Dir())))
	assert.NoError(t, os.RemoveAll(filepath.Join(from, "node_modules")))
	assert.NoError(t, os.Symlink(filepath.Join(filepath.Dir(compiler[0]), "../.."), filepath.Join(from, "node_modules")))
	npm := func(dir string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "npm", append(args, "--offline", "--no-audit", "--no-fund", "--loglevel=error", "--cache", filepath.Join(from, "cache"))...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		out, err := cmd.CombinedOutput()
		assert.Must(t, err == nil, "npm %q: %v\n%s", args, err, out)
		return string(out)
	}
	packed := strings.Fields(npm(from, "pack"))
	archive := filepath.Join(from, packed[len(packed)-1])
	files := strings.Fields(string(assert.Value(exec.Command("tar", "-tzf", archive).Output())(t)))
	slices.Sort(files)
	assert.Equal(t, strings.Join(files, " "), "package/README.md package/dist/lockkeeper.d.ts package/dist/lockkeeper.js package/package.json package/src/lockkeeper.ts")
	declared := string(assert.Value(os.ReadFile(filepath.Join(from, "dist/lockkeeper.d.ts")))(t))
	for _, private := range []string{"class Gateways", "placeLost", "_a:", ": any"} {
		assert.That(t, !strings.Contains(declared, private), "the declarations have %s", private)
	}

	write := func(name, text string) {
		path := filepath.Join(dir, name)
		assert.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("package.json", `{"type": "module"}`)
	npm(dir, "install", archive)
	write("main.mjs", `import { Client } from "lockkeeper-client"; console.log(typeof Client.fromEnv().withLock)`)
	assert.Equal(t, node(t, dir, "main.mjs"), "function\n")
	write("main.cjs", `import("lockkeeper-client").then(({ Client }) => console.log(typeof Client.fromEnv().withLock))`)
	assert.Equal(t, node(t, dir, "main.cjs"), "function\n")

	write("src/copy.ts", string(assert.Value(os.ReadFile(filepath.Join(Dir(), "src/lockkeeper.ts")))(t)))
	write("src/main.ts", `import { Client, LeaseLost, type Lease } from "lockkeeper-client";
import { Client as Copied } from "./copy.js";
export async function main(): Promise<number> {
  await using held: Lease = await new Copied({ urls: undefined }).acquire("a", { waitMs: undefined });
  const value: number = await Client.fromEnv().withLock(["a", { name: "b", shared: true }], async (lease, signal) => signal.aborted ? 0 : lease.fence);
  // @ts-expect-error: the unit is in the name
  await Client.fromEnv().acquire("a", { ttl: 30 });
  // @ts-expect-error: a release is awaited
  const released: boolean = held.release();
  return released ? value : new LeaseLost("a", "b").by.length;
}
`)
	const strict = `"strict": true, "noUncheckedIndexedAccess": true, "noImplicitReturns": true, "noFallthroughCasesInSwitch": true,
		"noImplicitOverride": true, "allowUnusedLabels": false, "noUnusedLocals": true, "noUnusedParameters": true, "noEmit": true, "target": "ES2022"`
	write("node.json", `{"compilerOptions": {`+strict+`, "module": "NodeNext", "lib": ["ES2023"], "types": ["node"], "skipLibCheck": true}, "include": ["src"]}`)
	write("browser.json", `{"compilerOptions": {`+strict+`, "module": "ESNext", "moduleResolution": "bundler", "lib": ["ES2022", "DOM", "DOM.AsyncIterable"],
		"types": [], "isolatedModules": true, "exactOptionalPropertyTypes": true, "skipLibCheck": false}, "include": ["src"]}`)
	node(t, dir, append(compiler, "-p", "node.json")...)
	node(t, dir, append(compiler, "-p", "browser.json")...)
}

// The limit is a promise to those who copy the file and have to read it.
func TestTheClientIsOneFileOfAtMostFiveHundredLines(t *testing.T) {
	list := assert.Value(os.ReadDir(filepath.Join(Dir(), "src")))(t)
	assert.Equal(t, len(list), 1)
	lines := 0
	for line := range strings.Lines(string(assert.Value(os.ReadFile(filepath.Join(Dir(), "src/lockkeeper.ts")))(t))) {
		assert.That(t, len(strings.TrimRight(line, "\n")) <= 120, "longer than 120 columns: %s", line)
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "*") && !strings.HasPrefix(line, "/*") {
			lines++
		}
	}
	assert.That(t, lines <= 500, "%d lines beside comments and blank lines", lines)
	text := string(assert.Value(os.ReadFile(filepath.Join(Dir(), "src/lockkeeper.ts")))(t))
	assert.That(t, !regexp.MustCompile(`(?m)^import |require\(`).MatchString(text), "it needs another file")
}
