package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	zklayout "lockkeeper/internal/zk/layout"
)

var aToken = regexp.MustCompile(`^lkt_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}\n$`)

// listed is what gateway token list -o json prints.
func listed(t *testing.T, where ...string) (all []tokenShape) {
	t.Helper()
	code, stdout, stderr := command(t, append([]string{"token", "list", "-o", "json"}, where...)...)
	assert.Must(t, code == 0 && json.Unmarshal([]byte(stdout), &all) == nil, "exit %d, stdout %s, stderr %s", code, stdout, stderr)
	return all
}

// The life of a token by the three commands, wherever tokens are.
func tokenLife(t *testing.T, by string, where ...string) {
	t.Helper()
	with := func(args ...string) []string { return append(args, where...) }
	code, stdout, stderr := command(t, with("token", "create", "--name", "ci-shop", "--ttl", "2d")...)
	assert.Must(t, code == 0 && aToken.MatchString(stdout), "exit %d, stdout %q, stderr %s", code, stdout, stderr)
	made := strings.TrimSpace(stdout)
	id := made[4:12]
	assert.That(t, strings.Contains(stderr, "created token "+id+" of ci-shop; it expires ") && !strings.Contains(stderr, made), "stderr: %s", stderr)
	code, stdout, stderr = command(t, with("token", "create", "--name", "ops", "--ttl", "8h", "--admin")...)
	assert.Must(t, code == 0, "exit %d, stderr %s", code, stderr)
	admin := strings.TrimSpace(stdout)
	all := listed(t, where...)
	assert.Must(t, len(all) == 2, "listed: %+v", all)
	first := all[0]
	assert.That(t, first.ID == id && first.Name == "ci-shop" && first.State == token.Active && !first.Admin && strings.HasPrefix(first.CreatedBy, by) && first.Expires.Sub(*first.Created) == 48*time.Hour, "%+v", first)
	assert.That(t, all[1].Admin && all[1].Name == "ops", "%+v", all[1])
	code, stdout, _ = command(t, with("token", "list")...)
	assert.That(t, code == 0 && strings.Count(stdout, "\n") == 3 && strings.Contains(stdout, id+"  ci-shop  active") && !strings.Contains(stdout, made[13:]) && !strings.Contains(stdout, admin[13:]), "list: %s", stdout)
	code, stdout, stderr = command(t, with("token", "revoke", "ci-shop")...)
	assert.That(t, code == 0 && stdout == "revoked "+id+" ci-shop\n", "exit %d, %q, %s", code, stdout, stderr)
	assert.That(t, listed(t, where...)[0].State == token.Revoked, "%+v", listed(t, where...))
	for args, says := range map[string]string{"ci-shop": "revoked already", "nothing": "there is no such token"} {
		code, _, stderr = command(t, with("token", "revoke", args)...)
		assert.That(t, code == exitUsage && strings.Contains(stderr, says), "revoke %s: exit %d, %s", args, code, stderr)
	}
	for range 2 {
		code, _, stderr = command(t, with("token", "create", "--name", "twice", "--ttl", "never")...)
		assert.That(t, code == 0 && strings.Contains(stderr, "never expires"), "exit %d: %s", code, stderr)
	}
	code, _, stderr = command(t, with("token", "revoke", "twice")...)
	assert.That(t, code == exitUsage && strings.Contains(stderr, "2 tokens have the name twice") && strings.Contains(stderr, "hint: gateway token revoke "), "exit %d: %s", code, stderr)
}

func TestTokensByTheFleetsIdentity(t *testing.T) {
	auth := file(t, "auth", "digest fleet:sesame\n", 0o600)
	cfg := zk.Config{Servers: []string{embeddedtest.RunT(t).Addr()}, CreateRoot: true, Auth: &zk.DigestAuth{User: "fleet", Password: "sesame"}}
	where := []string{"--zk", cfg.Servers[0], "--zk-auth-file", auth}
	code, _, stderr := command(t, append([]string{"token", "create", "--name", "ci"}, where...)...)
	assert.That(t, code == exitConfig && strings.Contains(stderr, "start a gateway of this release"), "without a layout: exit %d, %s", code, stderr)
	assert.Value(zklayout.Open(t.Context(), cfg))(t)
	tokenLife(t, "uid:", where...)
	other := file(t, "other", "digest fleet:wrong\n", 0o600)
	for name, c := range map[string]struct {
		where string
		says  string
		code  int
	}{
		"without an identity": {"--zk " + cfg.Servers[0], "--zk-auth-file", exitUsage},
		"with another one":    {"--zk " + cfg.Servers[0] + " --zk-auth-file " + other, "another ZooKeeper user", exitConfig},
	} {
		for _, args := range []string{"create --name ci", "list", "revoke twice"} {
			code, stdout, stderr := command(t, strings.Fields("token "+args+" "+c.where)...)
			assert.That(t, code == c.code && stdout == "" && strings.Contains(stderr, c.says), "%s, %s: exit %d, %q, %s", name, args, code, stdout, stderr)
		}
	}
}

func TestTokensOfAStoreThatNoGatewayHasOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	code, _, stderr := command(t, "token", "create", "--name", "ci", "--data-dir", dir)
	assert.That(t, code == exitUsage && strings.Contains(stderr, "has no store"), "without a store: exit %d, %s", code, stderr)
	laidOutStore(t, dir)
	tokenLife(t, "uid:", "--data-dir", dir)
}

// laidOutStore makes a data directory as a gateway leaves it.
func laidOutStore(t *testing.T, dir string) {
	t.Helper()
	addr, _ := oneLease(t)
	export := filepath.Join(t.TempDir(), "x.export")
	for _, args := range []string{"export --zk " + addr + " --output " + export, "import --data-dir " + dir + " --input " + export} {
		code, _, stderr := command(t, strings.Fields(args)...)
		assert.Must(t, code == 0, "%s: exit %d:\n%s", args, code, stderr)
	}
}

func TestTokensOverTheSocketOfTheGatewayThatRuns(t *testing.T) {
	testkit.NoLeaks(t)
	dir := filepath.Join(t.TempDir(), "data")
	n := node(t, dir)
	user, password := n.Identity()
	cfg := zk.Config{Servers: []string{embeddedServer}, Dial: n.Dial, Auth: &zk.DigestAuth{User: user, Password: password}, CreateRoot: true}
	assert.Value(zklayout.Open(t.Context(), cfg))(t)
	o := assert.Value(zklayout.OpenOffline(t.Context(), cfg))(t)
	defer o.Close()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	store := token.NewStore(token.Options{Tree: token.Tree{Nodes: offline.Nodes{Offline: o}, Root: o.Root()}, Log: logger})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx) }()
	a := assert.Value(openAdmin(dir, n, adminTokens{store, logger}.routes, logger))(t)
	testkit.Eventually(t, 30*time.Second, func() bool { _, err := store.List(); return err == nil }, "the store is read")
	tokenLife(t, "uid:", "--data-dir", dir)
	a.close()
	stop()
	assert.NoError(t, <-ended)
	assert.That(t, !regexp.MustCompile(`lkt_|[0-9A-Za-z]{43}`).MatchString(log.String()), "the log has a token: %s", log.String())
	assert.That(t, strings.Contains(log.String(), `msg="token created"`) && strings.Contains(log.String(), `msg="token revoked"`), "the log: %s", log.String())
}

func TestATokenThatCannotBeIsRefusedBeforeAnythingIsOpened(t *testing.T) {
	for args, says := range map[string]string{
		"--name ci --ttl 90":             "with a unit",
		"--name ci --ttl 0d":             "between 1m and 3650d",
		"--name ci --ttl 3651d":          "between 1m and 3650d",
		"--name ci --ttl 99999999999d":   "between 1m and 3650d",
		"--name ci --ttl=-1h":            "between 1m and 3650d",
		"--name ci* --ttl 1h":            "--name",
		"--name ops --admin --ttl never": "must expire",
		"--name ops --admin --ttl 367d":  "must expire",
		"--ttl 1h":                       "--name",
		"--name ci --zk a:1":             "--zk-auth-file",
		"--name ci --data-dir /no/where": "has no store",
	} {
		code, stdout, stderr := command(t, append([]string{"token", "create"}, strings.Fields(args)...)...)
		assert.That(t, code == exitUsage && stdout == "" && strings.Contains(stderr, says), "%s: exit %d, %q, %s", args, code, stdout, stderr)
	}
}
