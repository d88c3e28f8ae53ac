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
	warnOfExposures(logger, []exposed{{"--listen", at("127.0.0.1:8080"), "x"}, {"--metrics-listen", at("[::1]:9090"), "x"}, {"--embedded-listen", nil, "x"}})
	assert.That(t, out.Len() <= 0, "for what only this machine reaches: %s", &out)
	warnOfExposures(logger, []exposed{{"--listen", at("[::]:8080"), "is administrator"}, {"--metrics-listen", at("192.0.2.1:9090"), "can read the metrics"}})
	for _, want := range []string{
		`level=WARN msg="--insecure: every client that can reach [::]:8080 is administrator; there is no authentication" flag=--listen`,
		`level=WARN msg="--insecure: every client that can reach 192.0.2.1:9090 can read the metrics; there is no authentication" flag=--metrics-listen`,
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
			line := `; there is no authentication" flag=` + flag
			assert.That(t, strings.Contains(out.String(), line) == warns,
				"%s %s warns: %v, want %v:\n%s", flag, listen, !warns, warns, &out)
		}
		assert.That(t, strings.Contains(out.String(), "is administrator") == warns, "%s: the log says\n%s", listen, &out)
	}
}
