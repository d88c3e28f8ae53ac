package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/audit"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/certtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/unixsock"
)

func TestWhatWouldLeadAroundTheRulesIsRefusedAtTheStart(t *testing.T) {
	rules := file(t, "auth.yaml", "anonymous: [read]\n", 0o600)
	identity := file(t, "zk", "digest a:b\n", 0o600)
	open := file(t, "open.yaml", "anonymous: [read]\n", 0o600)
	assert.NoError(t, os.Chmod(open, 0o666)) // whatever the umask is
	cert, key := certtest.New(t, "ca").Issue([]string{"localhost"}).Files()
	withTLS := " --tls-cert-file " + cert + " --tls-key-file " + key
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--plaintext":        {64, "--plaintext is about credentials"},
		"--open-namespace x": {64, "--open-namespace is about --auth-file"},
		"--auth-file " + rules + " --zk a:1 --zk-auth-file " + identity + " --open-namespace default": {64, "must not name default"},
		"--auth-file " + rules + " --embedded-listen 127.0.0.1:0":                                     {64, "--embedded-listen leads around --auth-file"},
		"--auth-file " + rules + " --zk 127.0.0.1:1":                                                  {64, "needs the fleet's ZooKeeper identity"},
		"--auth-file " + rules + " --listen 0.0.0.0:0":                                                {64, "credentials must not cross a network without TLS"},
		"--auth-file " + rules + " --listen 0.0.0.0:0 --insecure":                                     {64, "--plaintext"},
		"--auth-file " + rules + " --metrics-listen 0.0.0.0:0":                                        {64, "--metrics-listen 0.0.0.0:0 is reachable by others, and there is no authentication"},
		"--auth-file " + rules + " --metrics-listen 0.0.0.0:0 --plaintext":                            {64, "--insecure"},
		"--listen 0.0.0.0:0" + withTLS:                                                                {64, "--auth-file"},
		"--listen unix:relative.sock":                                                                 {64, "absolute path"},
		"--listen unix:/x/s.sock --listen-mode 0999":                                                  {64, "--listen-mode"},
		"--listen unix:/x/s.sock --listen-mode 0066":                                                  {64, "--listen-mode"},
		"--listen unix:/x/s.sock" + withTLS:                                                           {64, "speaks no TLS"},
		"--listen unix:/does/not/exist/s.sock":                                                        {64, "no such file or directory"},
		"--listen unix:/x/s.sock --zk 127.0.0.1:1 --zk-auth-file " + identity:                         {64, "--fleet-listen HOST:PORT"},
		"--auth-file /does/not/exist":                                                                 {78, "/does/not/exist: it must be a file that this process can read"},
		"--auth-file " + open:                                                                         {78, "chmod go-w"},
		"--auth-file " + file(t, "a.yaml", "roles:\n  a: [{ns: 'x'}]\n", 0o600):                       {78, "a.yaml:2:7: a grant must have the key locks"},
	} {
		code, _, stderr := command(t, append([]string{"--data-dir", t.TempDir(), "--listen", "127.0.0.1:0"}, strings.Fields(args)...)...)
		if strings.Contains(args, "--zk ") {
			code, _, stderr = command(t, append([]string{"--listen", "127.0.0.1:0"}, strings.Fields(args)...)...)
		}
		assert.That(t, code == want.code && strings.Contains(stderr, want.says) && strings.Contains(stderr, "hint: "), "%s: exit %d\n%s", args, code, stderr)
	}
}

func TestAFileOfRulesIsCheckedWithoutAGateway(t *testing.T) {
	code, stdout, stderr := command(t, "auth", "check", "--auth-file", file(t, "auth.yaml", "roles: {a: []}\n", 0o600))
	assert.That(t, code == 0 && strings.Contains(stdout, "is in order: 1 roles, 0 entries, 0 issuers"), "exit %d\n%s%s", code, stdout, stderr)
	code, stdout, stderr = command(t, "auth", "check", "--auth-file", file(t, "auth.yaml", "\nrolls: []\n", 0o600))
	assert.That(t, code == 78 && stdout == "" && strings.Contains(stderr, "auth.yaml:2:1: ") && strings.Contains(stderr, "hint: "), "exit %d\n%s%s", code, stdout, stderr)
	code, _, stderr = command(t, "auth", "check")
	assert.That(t, code == 64 && strings.Contains(stderr, "gateway auth check --auth-file auth.yaml"), "exit %d\n%s", code, stderr)
}

// Each flag that is asked for is enough.
func TestAnAddressThatOthersReachNeedsTLSOrAWordAboutIt(t *testing.T) {
	cert, key := "c", "k"
	for _, c := range []config{
		{Listen: "0.0.0.0:0", Auth: authFlags{File: "a"}, TLS: tlsFlags{CertFile: cert, KeyFile: key}},
		{Listen: "0.0.0.0:0", Auth: authFlags{File: "a", Plaintext: true}},
		{Listen: "0.0.0.0:0", Insecure: true},
		{Listen: "127.0.0.1:0", Auth: authFlags{File: "a"}},
		{Listen: "127.0.0.1:0", MetricsListen: "0.0.0.0:0", Auth: authFlags{File: "a"}, Insecure: true},
		{Listen: "unix:/x/s", ListenMode: "0600", ZK: "a:1", FleetListen: "10.0.0.1:8081"},
		{Listen: "unix:/x/s", ListenMode: "0600", ZK: "a:1", Advertise: "https://a:443"},
	} {
		assert.NoError(t, c.checkAddresses())
	}
	at := &net.UnixAddr{Name: "/x/s", Net: "unix"}
	assert.Equal(t, (&config{}).advertised(at), "", "a socket is advertised")
}

// running serves a gateway with a store of its own until the test ends.
func running(t *testing.T, c *config) *written {
	t.Helper()
	c.DataDir, c.Root, c.CreateRoot, c.SessionTimeout, c.LogLevel, c.AccessLog = t.TempDir(), "/lockkeeper", true, 10*time.Second, "info", "all"
	ctx, stop := context.WithCancel(t.Context())
	ended, log := make(chan error, 1), &written{}
	go func() { ended <- serve(ctx, c, log) }()
	t.Cleanup(func() {
		stop()
		assert.Nil(t, <-ended, "serving ended with")
		if t.Failed() {
			t.Log(log)
		}
	})
	testkit.EventuallyNil(t, 30*time.Second, func() error { return healthcheck(t.Context(), c, 5*time.Second) }, "the gateway is healthy")
	return log
}

// asked sends a request and returns the status and the body.
func asked(t *testing.T, client *http.Client, method, url, credential string) (int, string) {
	t.Helper()
	r := assert.Value(http.NewRequestWithContext(t.Context(), method, url, nil))(t)
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	answer := assert.Value(client.Do(r))(t)
	defer answer.Body.Close()
	return answer.StatusCode, string(assert.Value(io.ReadAll(answer.Body))(t))
}

func TestTheRulesDecideAndABrokenFileLeavesThemInForce(t *testing.T) {
	rules := file(t, "auth.yaml", "roles: {ci: [{ns: default, locks: \"shop:*\", verbs: [acquire]}]}\nwho: [{token: \"ci-*\", roles: [ci]}]\n", 0o600)
	logFile := filepath.Join(t.TempDir(), "audit.log")
	c := &config{Listen: testkit.FreeAddr(t), Auth: authFlags{File: rules}, AuditLog: logFile}
	log := running(t, c)
	base := "http://" + c.Listen
	testkit.EventuallyNil(t, 30*time.Second, func() error {
		return askAdminJSON(t.Context(), c.DataDir, "GET", "/tokens", nil, new([]tokenShape))
	}, "tokens can be made")
	made := assert.Value(tokensOverSocket{c.DataDir}.create(t.Context(), tokenRequest{Name: "ci-shop", TTL: time.Hour}))(t)
	take := func(lock, credential string) int {
		status, _ := asked(t, http.DefaultClient, "POST", base+"/v1/locks/"+lock+"/leases?ttl=5s", credential)
		return status
	}
	assert.Equal(t, take("shop:x", ""), 401)
	assert.Equal(t, take("shop:x", made.Token), 201)
	assert.Equal(t, take("desk:x", made.Token), 403)

	metric := func(is string) bool {
		admin := assert.Value(tokensOverSocket{c.DataDir}.create(t.Context(), tokenRequest{Name: "root", TTL: time.Hour, Admin: true}))(t)
		_, text := asked(t, http.DefaultClient, "GET", base+"/metrics", admin.Token)
		return strings.Contains(text, "\nlockkeeper_auth_file_refused "+is+"\n")
	}
	assert.That(t, metric("0"), "the metric says that the file is refused")
	assert.NoError(t, os.WriteFile(rules, []byte("roles: {}\nwho: [{token: x}]\n"), 0o600))
	testkit.Eventually(t, 30*time.Second, func() bool { return strings.Contains(log.String(), rules+":2:7: ") }, "the log has the line at fault")
	assert.That(t, metric("1"), "the metric does not say that the file is refused")
	assert.Equal(t, take("shop:y", made.Token), 201, "by the old rules")
	assert.NoError(t, os.WriteFile(rules, []byte("anonymous: [acquire]\n"), 0o600))
	testkit.Eventually(t, 30*time.Second, func() bool { return take("shop:z", "") == 201 }, "the corrected file is in force")
	testkit.EventuallyNil(t, 30*time.Second, func() error {
		if got := audits(t, logFile); got != "auth.loaded:0 auth.refused:2 auth.loaded:0 " {
			return errors.New(got)
		}
		return nil
	}, "the audit log has the refusal between two contents in force")
}

// audits are the lines of an audit log that are about the file of rules.
func audits(t *testing.T, path string) (all string) {
	t.Helper()
	for line := range strings.Lines(string(assert.Value(os.ReadFile(path))(t))) {
		var l audit.Line
		assert.NoError(t, json.Unmarshal([]byte(line), &l))
		if strings.HasPrefix(l.Event, "auth.") {
			all += l.Event + ":" + strconv.Itoa(l.FileLine) + " "
			assert.That(t, l.File != "" && (l.Event == "auth.refused") == (l.Reason != ""), "%s", line)
		}
	}
	return all
}

func TestAFileThatIsRefusedAtTheStartIsInTheAuditLog(t *testing.T) {
	rules, logFile := file(t, "auth.yaml", "\nrolls: {}\n", 0o600), filepath.Join(t.TempDir(), "audit.log")
	code, _, stderr := command(t, "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--auth-file", rules, "--audit-log", logFile)
	assert.That(t, code == 78 && strings.Contains(stderr, rules+":2:1: "), "exit %d\n%s", code, stderr)
	assert.Equal(t, audits(t, logFile), "auth.refused:2 ")
}

// reads is a stream of events as lines of JSON. It returns a function that reads up to a line that has the text.
func reads(ctx context.Context, t *testing.T, base, credential string) func(upTo string) string {
	t.Helper()
	r := assert.Value(http.NewRequestWithContext(ctx, "GET", base+"/v1/events?format=jsonl&type=*", nil))(t)
	r.Header.Set("Authorization", "Bearer "+credential)
	answer := assert.Value(http.DefaultClient.Do(r))(t)
	t.Cleanup(func() { _ = answer.Body.Close() })
	assert.Equal(t, answer.StatusCode, 200)
	lines := bufio.NewScanner(answer.Body)
	return func(upTo string) (all string) {
		t.Helper()
		for lines.Scan() {
			all += lines.Text() + "\n"
			if strings.Contains(lines.Text(), upTo) {
				return all
			}
		}
		t.Fatalf("the stream has no %s: %v\n%s", upTo, lines.Err(), all)
		return ""
	}
}

// The detail names roles, principals and files, so it is for administrators: not for a team, and not for a reader of every lock.
func TestAdministratorsAloneAreToldOfTheRulesOnTheEventStream(t *testing.T) {
	const text = "roles: {team: [{ns: default, locks: \"shop:*\", verbs: [acquire]}], all: [{ns: \"*\", locks: \"*\", verbs: [read, acquire, operate]}], ops: [{ns: \"*\", locks: \"*\", verbs: [admin]}]}\n" +
		"who: [{token: team, roles: [team]}, {token: all, roles: [all]}, {token: ops, roles: [ops]}]\n"
	rules := file(t, "auth.yaml", text, 0o600)
	c := &config{Listen: testkit.FreeAddr(t), Auth: authFlags{File: rules}}
	running(t, c)
	base := "http://" + c.Listen
	testkit.EventuallyNil(t, 30*time.Second, func() error {
		return askAdminJSON(t.Context(), c.DataDir, "GET", "/tokens", nil, new([]tokenShape))
	}, "tokens can be made")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	credential, stream := map[string]string{}, map[string]func(string) string{}
	for _, name := range []string{"team", "all", "ops", "root"} {
		made := assert.Value(tokensOverSocket{c.DataDir}.create(t.Context(), tokenRequest{Name: name, TTL: time.Hour, Admin: name == "root"}))(t)
		credential[name], stream[name] = made.Token, reads(ctx, t, base, made.Token)
	}

	assert.NoError(t, os.WriteFile(rules, []byte("roles: {}\nwho: [{token: x}]\n"), 0o600))
	for _, name := range []string{"ops", "root"} {
		all := stream[name](`"type":"auth.refused"`)
		assert.That(t, strings.Contains(all, `"detail":"auth.yaml:2:7: `) && strings.Contains(all, `"gateway":"`) && !strings.Contains(all, filepath.Dir(rules)), "%s reads %s", name, all)
	}
	assert.NoError(t, os.WriteFile(rules, []byte(text+"# corrected\n"), 0o600))
	for _, name := range []string{"ops", "root"} {
		stream[name](`"type":"auth.loaded"`)
	}
	status, body := asked(t, http.DefaultClient, "POST", base+"/v1/locks/shop:x/leases?ttl=5s", credential["team"])
	assert.That(t, status == 201, "%d %s", status, body)
	for _, name := range []string{"team", "all"} {
		all := stream[name](`"type":"lease.granted"`)
		assert.That(t, !strings.Contains(all, `"type":"auth.`), "%s reads %s", name, all)
	}
}

func TestTheUserOfASocketIsThePrincipal(t *testing.T) {
	me := strconv.Itoa(os.Geteuid())
	rules := file(t, "auth.yaml", "roles: {mine: [{ns: default, locks: \"mine\", verbs: [acquire]}]}\nwho: [{uid: "+me+", roles: [mine]}]\n", 0o600)
	path := filepath.Join(t.TempDir(), "s.sock")
	c := &config{Listen: "unix:" + path, ListenMode: "0640", Auth: authFlags{File: rules}}
	log := running(t, c)
	info, err := os.Stat(path)
	assert.That(t, err == nil && info.Mode().Perm() == 0o640, "%v %v", info, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return unixsock.Dial(ctx, path)
	}}}
	status, body := asked(t, client, "GET", "http://localhost/v1/whoami", "")
	assert.That(t, status == 200 && strings.Contains(body, `"name":"uid:`+me+`"`), "%d %s", status, body)
	testkit.Eventually(t, 30*time.Second, func() bool {
		status, body = asked(t, client, "POST", "http://localhost/v1/locks/mine/leases?ttl=5s", "")
		return status == 201
	}, "the user takes the lock")
	assert.That(t, strings.Contains(body, `"owner":"uid:`+me+`"`), "%s", body)
	status, body = asked(t, client, "POST", "http://localhost/v1/locks/other/leases?ttl=5s", "")
	assert.That(t, status == 403, "%d %s", status, body)
	testkit.Eventually(t, 30*time.Second, func() bool { return strings.Contains(log.String(), "client_ip=uid:"+me) }, "the access log has the user")
	assert.That(t, !strings.Contains(log.String(), "level=WARN msg=\"every client"), "%s", log)
}
