package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/accesslog"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/embedded/disk"
)

// command runs the gateway's command line and returns its exit code and output.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, &out, &errs, func() {})
	return code, out.String(), errs.String()
}

func file(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	assert.NoError(t, os.WriteFile(path, []byte(content), mode))
	return path
}

func TestWrongUsageIsRefusedWithAHint(t *testing.T) {
	open := file(t, "auth", "digest a:b\n", 0o644)
	odd := file(t, "auth", "sasl a:b\n", 0o600)
	unknown := file(t, "config.yaml", "listen: 127.0.0.1:1\nlisten-on: x\n", 0o600)
	notYAML := file(t, "config.yaml", "{", 0o600)
	two := file(t, "config.yaml", "zk: a:1\n---\nlisten: 0.0.0.0:1\n", 0o600)
	taken := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	emptyZK := file(t, "config.yaml", "zk: ''\n", 0o600)
	store := t.TempDir()
	for _, c := range []struct {
		args string
		code int
		says []string
	}{
		{"--zk= --listen 127.0.0.1:0", 64, []string{"--zk is empty", "hint: "}},
		{"--listen 127.0.0.1:0 --config " + emptyZK, 64, []string{"--zk is empty", "hint: "}},
		{"--zk a:1 --data-dir x", 64, []string{"--data-dir and --zk exclude each other", "hint: "}},
		{"--zk a:1 --embedded-listen 127.0.0.1:0", 64, []string{"--embedded-listen and --zk exclude each other", "hint: "}},
		{"--embedded-listen 0.0.0.0:2181", 64, []string{"--embedded-listen", "no authentication", "--insecure"}},
		{"--embedded-listen 2181", 64, []string{"--embedded-listen", "127.0.0.1:2181"}},
		{"--listen 127.0.0.1:0 --data-dir " + store + " --embedded-listen " + taken.Addr().String(), 64, []string{"hint: another program uses the address", "--embedded-listen"}},
		{"--listen 127.0.0.1:0 --data-dir " + open, 74, []string{"not a directory", "hint: "}},
		{"--zk a:1 --listen 0.0.0.0:8080", 64, []string{"no authentication", "--insecure"}},
		{"--zk a:1 --listen 127.0.0.1:0 --metrics-listen 0.0.0.0:9090", 64, []string{"--metrics-listen", "no authentication", "--insecure", "read the metrics"}},
		{"--zk a:1 --listen 127.0.0.1:0 --metrics-listen :9090", 64, []string{"--metrics-listen", "no authentication", "--insecure"}},
		{"--zk a:1 --listen :8080", 64, []string{"no authentication", "--insecure"}},
		{"--zk a:1 --listen 8080", 64, []string{"--listen", "127.0.0.1:8080"}},
		{"--zk a:1 --allowed-hosts a.example,http://b.example:80", 64, []string{"http://b.example:80", "without scheme, port"}},
		{"--zk a:1 --allowed-hosts *.example", 64, []string{"or wildcard"}},
		{"--zk a:1 --frobnicate", 64, []string{"--frobnicate", "--help"}},
		{"--zk a:1 --log-level loud", 64, []string{"--log-level"}},
		{"--zk a:1 --session-timeout 10", 64, []string{"--session-timeout"}},
		{"--zk a:1 --session-timeout 1ms", 64, []string{"--session-timeout", "between 1s and 5m0s"}},
		{"--zk a:b:c --listen 127.0.0.1:0", 64, []string{"--zk", "hint: for example"}},
		{"--zk a:1 --zk-auth-file /does/not/exist", 78, []string{"--zk-auth-file", "no such file", "digest USER:PASSWORD"}},
		{"--zk a:1 --zk-auth-file " + open, 78, []string{"others can read it", "chmod 600"}},
		{"--zk a:1 --zk-auth-file " + odd, 78, []string{"not understood", "digest USER:PASSWORD"}},
		{"--zk a:1 --config " + unknown, 64, []string{"listen-on"}},
		{"--zk a:1 --config " + notYAML, 64, []string{"reading the configuration"}},
		{"--zk a:1 --config " + two, 64, []string{"more than one document"}},
		{"--zk a:1 --listen 127.0.0.1:99999", 64, []string{"invalid port", "hint: for example --listen 127.0.0.1:8080"}},
		{"--zk a:1 --listen " + taken.Addr().String(), 64, []string{"hint: another program uses the address", "--listen"}},
		{"--zk a:1 --listen 127.0.0.1:0 --metrics-listen " + taken.Addr().String(), 64, []string{"hint: another program uses the address", "--metrics-listen"}},
		{"--zk a:1 --listen 127.0.0.1:0 --fleet-listen " + taken.Addr().String(), 64, []string{"hint: another program uses the address", "--fleet-listen"}},
		{"--zk a:1 --fleet-listen 8081", 64, []string{"--fleet-listen", "hint: for example", "10.0.0.1:8081"}},
		{"--zk a:1 --advertise gateway", 64, []string{"--advertise", "hint: for example"}},
		{"--zk a:1 --advertise 0.0.0.0:8080", 64, []string{"--advertise", "hint: for example"}},
		{"--zk a:1 --advertise https://gateway:8443/path", 64, []string{"--advertise", "https://"}},
		{"--zk a:1 --listen 127.0.0.1:0 --peer-ca-file /does/not/exist", 78, []string{"--peer-ca-file", "no such file"}},
		{"--zk a:1 --listen 127.0.0.1:0 --peer-ca-file " + unknown, 78, []string{"no certificate", "BEGIN CERTIFICATE"}},
		{"--zk-tls --listen 127.0.0.1:0", 64, []string{"--zk-tls", "hint: name the servers with --zk"}},
		{"--zk a:1 --zk-ca-file x", 64, []string{"need --zk-tls", "secureClientPort"}},
		{"--zk a:1 --zk-tls --zk-cert-file x", 64, []string{"must be given together"}},
		{"--zk a:1 --zk-tls --listen 127.0.0.1:0 --zk-ca-file " + unknown, 78, []string{"--zk-ca-file", "no certificate"}},
		{"sweep --zk a:1 --zk-ca-file x", 64, []string{"need --zk-tls"}},
		{"--zk a:1 --trusted-proxies 0.0.0.0/0", 64, []string{"--trusted-proxies", "every address", "10.0.0.0/24"}},
		{"--zk a:1 --trusted-proxies proxy.example.com", 64, []string{"--trusted-proxies", "must be an address"}},
		{"--zk a:1 --trusted-proxies 10.0.0.1 --forwarded-header X:Y", 64, []string{"--forwarded-header", "name of a header"}},
		{"--zk a:1 --compat fleetlock,consul", 64, []string{"--compat", `"consul"`, "fleetlock, terraform"}},
		{"--zk a:1 --compat terraform --compat-hold 745h", 64, []string{"--compat-hold 745h", "between 1m0s and 744h"}},
		{"--zk a:1 --compat fleetlock --fleetlock-limit 0", 64, []string{"--fleetlock-limit 0", "between 1 and"}},
		{"--zk a:1 --forwarded-header Forwarded", 64, []string{"--forwarded-header needs --trusted-proxies"}},
		{"--zk a:1 --config /does/not/exist", 64, []string{"no such file"}},
		{"--zk a:1 --promise-window 1ms --listen 127.0.0.1:0", 78, []string{"promise window"}},
	} {
		code, stdout, stderr := command(t, strings.Fields(c.args)...)
		assert.That(t, code == c.code && stdout == "" && strings.HasPrefix(lastLines(stderr), "error: "),
			"%q: exit %d, stdout %q, stderr:\n%s", c.args, code, stdout, stderr)
		for _, part := range c.says {
			assert.That(t, strings.Contains(stderr, part), "%q does not say %q:\n%s", c.args, part, stderr)
		}
		assert.That(t, !strings.Contains(stderr, "context canceled"), "%q tells more than what is wrong:\n%s", c.args, stderr)
		assert.That(t, !strings.Contains(stderr, "a:b\n"), "%q tells the secret", c.args)
	}
}

func TestAnEmptyVariableIsNoGatewayWithAStoreOfItsOwn(t *testing.T) {
	t.Setenv("LOCKKEEPER_ZK", "")
	code, _, stderr := command(t, "--listen", "127.0.0.1:0", "--data-dir", t.TempDir())
	assert.That(t, code == 64 && strings.Contains(stderr, "--zk is empty"), "exit %d\n%s", code, stderr)
}

func TestThePrintedDataDirectoryIsTheOneInForce(t *testing.T) {
	for args, line := range map[string]string{
		"config print":                  "data-dir: ./lockkeeper-data\n",
		"config print --data-dir /x":    "data-dir: /x\n",
		"config print --zk localhost:1": "data-dir: \"\"\n",
	} {
		code, stdout, stderr := command(t, strings.Fields(args)...)
		if code != 0 || !strings.Contains(stdout, line) {
			t.Errorf("%s: exit %d, no %q in\n%s%s", args, code, line, stdout, stderr)
			continue
		}
		// Nothing in that file excludes anything else: what is wrong is the port alone.
		again := file(t, "again.yaml", stdout, 0o600)
		_, _, stderr = command(t, "--config", again, "--listen", "127.0.0.1:99999")
		assert.That(t, strings.Contains(stderr, "invalid port"), "%s: with what it prints a gateway says\n%s", args, stderr)
	}
}

func TestAStoreThatCannotBeUsedSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		hint string
	}{
		{&disk.Error{Kind: disk.ErrLocked, Path: "/d/f", Hint: "stop it"}, 75, "stop it"},
		{fmt.Errorf("loading: %w", &disk.Error{Kind: disk.ErrDamaged, Path: "/d/f", Hint: "restore it"}), 74, "restore it"},
		{&disk.Error{Kind: disk.ErrNewer, Path: "/d/f", Hint: "run that"}, 78, "run that"},
		{&disk.Error{Path: "/d/f", Err: fs.ErrPermission}, 74, "can this user write to /d"},
		{&net.OpError{Op: "listen", Err: syscall.EADDRINUSE}, 64, "--embedded-listen"},
		{&net.OpError{Op: "listen", Err: errors.New("no such address")}, 64, "--embedded-listen"},
	} {
		var said bytes.Buffer
		code := report(&said, storeProblem("/d", c.err))
		assert.That(t, code == c.code && (strings.Contains(said.String(), "hint: "+c.hint) || strings.Contains(said.String(), c.hint)),
			"%v: exit %d\n%s", c.err, code, said.String())
		assert.That(t, strings.Count(said.String(), c.hint) <= 1, "it is said twice:\n%s", said.String())
	}
	assert.That(t, storeProblem("/d", nil) == nil, "no error is a problem")
}

func TestABackupAndARestoreSayWhatIsMissing(t *testing.T) {
	here, made := t.TempDir(), file(t, "made", "", 0o600)
	for _, c := range []struct {
		args string
		code int
		says []string
	}{
		{"backup --data-dir " + here, 64, []string{"--output"}},
		{"backup --output " + here + "/x --zk a:1", 64, []string{"--zk", "gateway export"}},
		{"backup --output " + here + "/x --data-dir " + here, 64, []string{"no store", "hint: "}},
		{"restore --data-dir " + here, 64, []string{"--input"}},
		{"restore --input " + here + "/none --data-dir " + here, 64, []string{"--input", "no such file", "gateway backup"}},
		{"restore --input " + made + " --data-dir " + here, 74, []string{"damaged"}},
		{"restore --input " + made + " --data-dir " + filepath.Dir(made), 64, []string{"not empty", "hint: "}},
		{"restore --input " + made + " --data-dir " + here + " --root x", 64, []string{"--root"}},
		{"restore --input " + made + " --zk a:1", 64, []string{"gateway import"}},
	} {
		code, _, stderr := command(t, strings.Fields(c.args)...)
		assert.That(t, code == c.code, "%s: exit %d\n%s", c.args, code, stderr)
		for _, part := range c.says {
			assert.That(t, strings.Contains(stderr, part), "%q does not say %q:\n%s", c.args, part, stderr)
		}
	}
}

func TestASignalBeforeZooKeeperIsReachedStopsWithoutAnError(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	signal()
	c := config{ZK: "127.0.0.1:1", Root: "/lockkeeper", CreateRoot: true, SessionTimeout: 10 * time.Second, Listen: "127.0.0.1:0"}
	assert.Nil(t, serve(ctx, &c, io.Discard), "serving ended with")
}

// lastLines is the output from its first error: line on.
func lastLines(s string) string {
	if i := strings.Index(s, "error: "); i >= 0 {
		return s[i:]
	}
	return s
}

func TestAFlagBeatsAVariableBeatsTheFile(t *testing.T) {
	path := file(t, "config.yaml", "listen: 127.0.0.1:1\nlog-level: warn\nallowed-hosts: [a.example, b.example]\nsession-timeout: 20s\n", 0o600)
	t.Setenv("LOCKKEEPER_LOG_LEVEL", "error")
	t.Setenv("LOCKKEEPER_SESSION_TIMEOUT", "30s")
	code, stdout, stderr := command(t, "config", "print", "--config", path, "--session-timeout", "40s")
	assert.Must(t, code == 0, "exit %d: %s", code, stderr)
	for _, line := range []string{"listen: 127.0.0.1:1", "log-level: error", "session-timeout: 40s", "- a.example", "root: /lockkeeper", "create-root: true"} {
		assert.That(t, strings.Contains(stdout, line+"\n"), "missing %q in\n%s", line, stdout)
	}
	// What it prints is a configuration file.
	again := file(t, "again.yaml", stdout, 0o600)
	code, second, stderr := command(t, "config", "print", "--config", again)
	assert.That(t, code == 0 && strings.Contains(second, "session-timeout: 30s"), "exit %d: %s\n%s", code, stderr, second)
}

func TestNamespacesComeFromFlagsVariableAndFile(t *testing.T) {
	want := "namespace:\n    - python=/app/locks:kazoo\n    - java=/curator\n    - zoo=/zoo:custom exclusive={id}-W- shared={id}-R- foreign-shared=-R{1,2}-$\n"
	inFile := file(t, "config.yaml", "namespace: ['python=/app/locks:kazoo', java=/curator, 'zoo=/zoo:custom exclusive={id}-W- shared={id}-R- foreign-shared=-R{1,2}-$']\n", 0o600)
	custom := `zoo=/zoo:custom exclusive={id}-W- shared={id}-R- foreign-shared=-R{1\,2}-$`
	for _, args := range [][]string{
		{"--namespace", "python=/app/locks:kazoo", "--namespace", "java=/curator", "--namespace", custom},
		{"--namespace=python=/app/locks:kazoo,java=/curator," + custom},
		{"--config", inFile},
	} {
		code, stdout, stderr := command(t, append([]string{"config", "print"}, args...)...)
		assert.That(t, code == 0 && strings.Contains(stdout, want), "%q: exit %d\n%s%s", args, code, stdout, stderr)
		again := file(t, "again.yaml", stdout, 0o600)
		_, second, _ := command(t, "config", "print", "--config", again)
		assert.That(t, second == stdout, "%q: printed\n%s\nand then\n%s", args, stdout, second)
	}
	t.Setenv("LOCKKEEPER_NAMESPACE", "python=/app/locks:kazoo,java=/curator,"+custom)
	_, stdout, _ := command(t, "config", "print")
	assert.That(t, strings.Contains(stdout, want), "from the variable:\n%s", stdout)
	code, stdout, _ := command(t, "config", "print", "--namespace", "a=/b")
	assert.That(t, code == 0 && strings.Contains(stdout, "namespace:\n    - a=/b\n"), "a flag does not beat the variable:\n%s", stdout)
}

func TestANamespaceFlagIsReadAsWritten(t *testing.T) {
	c := config{Root: "/lockkeeper", Namespace: []string{"a=/app/locks", "b=/app/b:all", "c=/x:y/z", "d=/x:q:native", "e=/lockkeeper/e:curator-rw",
		"f=/f:custom exclusive={id}-W-", "g=/x:y/g:custom exclusive={id}-W- shared={id}/R-", "h=/h:custom   shared={id}:R-  exclusive={id}:W- foreign-shared=[/:]R-$"}}
	_, err := c.namespaces("")
	assert.That(t, err != nil && strings.Contains(err.Error(), "'/'"), "a slash in a name: %v", err)
	c.Namespace = slices.DeleteFunc(c.Namespace, func(s string) bool { return s[0] == 'g' })
	got, err := c.namespaces("")
	want := map[string]zk.Namespace{"a": {Root: "/app/locks", Dialect: "native"}, "b": {Root: "/app/b", Dialect: "all"}, "c": {Root: "/x:y/z", Dialect: "native"},
		"d": {Root: "/x:q", Dialect: "native"}, "e": {Root: "/lockkeeper/e", Dialect: "curator-rw"},
		"f": {Root: "/f", Dialect: "custom exclusive={id}-W-"}, "h": {Root: "/h", Dialect: "custom exclusive={id}:W- shared={id}:R- foreign-shared=[/:]R-$"}}
	assert.That(t, err == nil && maps.Equal(got, want), "%v, %v", got, err)
}

func TestNamespacesThatContradictThemselvesAreErrorsBeforeZooKeeperIsAsked(t *testing.T) {
	for _, c := range []struct {
		flags string
		code  int
		says  string
	}{
		{"python", 64, "is not NAME=ROOT[:DIALECT]"},
		{"python=/app:zoo", 64, "the dialect \"zoo\": there is no such dialect"},
		{"python=/app:", 64, "there is no such dialect"},
		{"python=/app:custom", 64, "needs the names of its exclusive contenders"},
		{"a_/b=/app", 64, "has a character that it may not have"},
		{"=/app", 64, "1 to 64 characters"},
		{"a=/app a=/b", 64, "a is there twice"},
		{"a=app", 78, "does not start with a slash"},
		{"a=/app b=/app", 78, "overlap"},
		{"a=/app b=/app/b:kazoo", 78, "overlap"},
		{"a=/lockkeeper", 78, "contains --root"},
		{"a=/", 78, "empty or relative component"},
		{"a=/lockkeeper/keys", 78, "no place for locks"},
		{"a=/lockkeeper/locks", 78, "no place for locks"},
		{"a=/zookeeper", 78, "ZooKeeper's own"},
	} {
		args := []string{"--zk", "127.0.0.1:1", "--listen", "127.0.0.1:0"}
		for _, flag := range strings.Fields(c.flags) {
			args = append(args, "--namespace", flag)
		}
		code, _, stderr := command(t, args...)
		assert.That(t, code == c.code && strings.Contains(stderr, c.says) && strings.Contains(stderr, "hint: "),
			"%s: exit %d\n%s", c.flags, code, stderr)
	}
}

func TestHelpNamesEveryFlagAndHowToStart(t *testing.T) {
	code, stdout, _ := command(t, "--help")
	assert.That(t, code == 0, "exit %d", code)
	for _, part := range []string{"--zk", "--data-dir", "./lockkeeper-data", "backup", "restore", "--listen", "--promise-window", "LOCKKEEPER_", "curl -sX POST", "config print"} {
		assert.That(t, strings.Contains(stdout, part), "--help does not mention %q", part)
	}
	assert.That(t, !strings.Contains(stdout, ",...,..."), "--help shows a list of lists")
	code, stdout, _ = command(t, "version")
	assert.That(t, code == 0 && strings.TrimSpace(stdout) != "", "version: exit %d, %q", code, stdout)
}

func TestD26TheVersionIsAFlagToo(t *testing.T) {
	code, stdout, stderr := command(t, "--version")
	assert.That(t, code == 0 && strings.TrimSpace(stdout) == version(), "--version: exit %d, %q %q", code, stdout, stderr)
}

func TestLogTimesAreUTCWithMilliseconds(t *testing.T) {
	for format, pattern := range map[string]string{"text": `^time=(\S+) `, "json": `"time":"([^"]+)"`} {
		var out bytes.Buffer
		c := config{LogFormat: format, LogLevel: "info"}
		handler := c.logger(&out).With("part", "x").Handler()
		at := time.Date(2026, 11, 21, 12, 0, 0, 790_000_000, time.FixedZone("east", 3600))
		assert.NoError(t, handler.Handle(t.Context(), slog.NewRecord(at, slog.LevelInfo, "hello", 0)))
		m := regexp.MustCompile(pattern).FindStringSubmatch(out.String())
		assert.That(t, m != nil && m[1] == "2026-11-21T11:00:00.790Z", "%s: %s", format, out.String())
	}
}

func TestTheAccessLogLooksLikeTheRestOfTheLog(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 790_000_000, time.FixedZone("east", 3600))
	for _, format := range []string{"text", "json"} {
		var want, got bytes.Buffer
		c := config{LogFormat: format, LogLevel: "info", AccessLog: "all"}
		r := slog.NewRecord(at, slog.LevelInfo, "request", 0)
		r.AddAttrs(slog.String("owner", "me & you"))
		assert.NoError(t, c.logger(&want).With("part", "http").Handler().Handle(t.Context(), r))

		g := gateway{accessLog: accesslog.NewWriter(&got, nil)}
		end := g.logRequests()
		log, line := c.accessLog(g.accessLog, "http"), accesslog.Line{}
		log.Begin(&line, slog.LevelInfo, "request")
		line.String("owner", "me & you")
		log.End(&line, at)
		end() // writes what is left
		assert.Equal(t, got.String(), want.String(), format)
	}
}

func TestTheAccessLogIsAsTheFlagsSay(t *testing.T) {
	for flag, want := range map[string]string{"--log-level=info": "all", "--access-log=errors": "errors", "--access-log=off": `"off"`, "--config=" + file(t, "off.yaml", "access-log: off\n", 0o600): `"off"`} {
		code, stdout, stderr := command(t, "config", "print", flag)
		assert.That(t, code == 0 && strings.Contains(stdout, "access-log: "+want), "%s: exit %d\n%s%s", flag, code, stdout, stderr)
	}
	code, _, stderr := command(t, "--access-log=some")
	assert.That(t, code == 64 && strings.Contains(stderr, "--access-log"), "--access-log=some: exit %d: %s", code, stderr)
	c := config{LogFormat: "json", LogLevel: "warn", AccessLog: "errors"}
	log := c.accessLog(nil, "metrics")
	assert.That(t, log.JSON && log.Level == slog.LevelWarn && log.Which == accesslog.Errors && log.Part == "metrics", "%+v", log)
}
