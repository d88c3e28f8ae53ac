package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// One sentence for each address that others can reach, none for loopback.
func TestInsecureSaysAtTheStartWhatItMeans(t *testing.T) {
	at := func(address string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)) }
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	warnOfExposures(logger, []exposed{{"--metrics-listen", at("[::1]:9090"), "x"}, {"--embedded-listen", nil, "x"}})
	assert.That(t, out.Len() <= 0, "for what only this machine reaches: %s", &out)
	warnOfExposures(logger, []exposed{{"--listen", at("[::]:8080"), "is administrator"}, {"--metrics-listen", at("192.0.2.1:9090"), "can read the metrics"}})
	for _, want := range []string{
		`level=WARN msg="--insecure: every client that can reach [::]:8080 is administrator; there is no authentication (docs/operate/security.md)" flag=--listen`,
		`level=WARN msg="--insecure: every client that can reach 192.0.2.1:9090 can read the metrics; there is no authentication (docs/operate/security.md)" flag=--metrics-listen`,
	} {
		assert.That(t, strings.Contains(out.String(), want), "the log lacks %s:\n%s", want, &out)
	}
}

func TestAGatewayThatOthersReachWarnsOfIt(t *testing.T) {
	for listen, warns := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		ctx, signal := context.WithCancel(t.Context())
		signal()
		var out bytes.Buffer
		c := config{ZK: "127.0.0.1:1", Root: "/lockkeeper", CreateRoot: true, SessionTimeout: 10 * time.Second, Listen: listen, MetricsListen: listen,
			Insecure: true, Advertise: "gateway.example:8080"}
		assert.Nil(t, serve(ctx, &c, &out), "%s: serving ended with", listen)
		for _, flag := range []string{"--listen", "--metrics-listen"} {
			line := `; there is no authentication (docs/operate/security.md)" flag=` + flag
			assert.That(t, strings.Contains(out.String(), line) == warns,
				"%s %s warns: %v, want %v:\n%s", flag, listen, !warns, warns, &out)
		}
		assert.That(t, strings.Contains(out.String(), "is administrator") == warns, "%s: the log says\n%s", listen, &out)
	}
}

func TestWithoutConfigurationOneSentenceSaysThatEveryClientMayDoEverything(t *testing.T) {
	const sentence = "may do everything, because there is no --auth-file; docs/operate/security.md says how to give each client its rights"
	rules := file(t, "auth.yaml", "anonymous: [read]\n", 0o600)
	for name, c := range map[string]struct {
		config config
		warns  int
	}{
		"the defaults": {config{Listen: "127.0.0.1:0"}, 1},
		"a socket":     {config{Listen: "unix:" + t.TempDir() + "/s.sock", ListenMode: "0660"}, 1},
		"rules":        {config{Listen: "127.0.0.1:0", Auth: authFlags{File: rules}}, 0},
	} {
		ctx, signal := context.WithCancel(t.Context())
		signal()
		var out bytes.Buffer
		c.config.DataDir, c.config.Root, c.config.CreateRoot, c.config.SessionTimeout = t.TempDir(), "/lockkeeper", true, 10*time.Second
		assert.Nil(t, serve(ctx, &c.config, &out), "%s: serving ended with", name)
		assert.That(t, strings.Count(out.String(), sentence) == c.warns && strings.Count(out.String(), "level=WARN") == c.warns, "%s:\n%s", name, &out)
	}
}
