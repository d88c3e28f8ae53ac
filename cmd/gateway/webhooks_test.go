package main

import (
	"bytes"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestWhereWebhooksMayGoIsSaidByFlagsThatAreCheckedAtTheStart(t *testing.T) {
	for _, c := range []struct {
		config
		want string // of the error; "": none
	}{
		{config{}, ""},
		{config{WebhookAllowPrivate: true}, ""},
		{config{WebhookAllow: []string{"10.0.0.0/8", "192.168.1.7", "receiver.internal", "fd00::/8"}}, ""},
		{config{WebhookAllow: []string{"10.0.0.0/99"}}, "--webhook-allow"},
		{config{WebhookAllow: []string{"http://receiver"}}, "--webhook-allow"},
		{config{WebhookAllow: []string{"10.0.0.0/8"}, WebhookAllowPrivate: true}, "--webhook-allow-private"},
		{config{WebhookProxy: "http://proxy:3128"}, ""},
		{config{WebhookProxy: "socks5://127.0.0.1:1080"}, ""},
		{config{WebhookProxy: "proxy:3128"}, "--webhook-proxy"},
		{config{WebhookProxy: "ftp://proxy"}, "--webhook-proxy"},
		{config{WebhookProxy: "http://proxy/path"}, "--webhook-proxy"},
		{config{WebhookProxy: "http://user:hunter2@proxy:3128"}, "--webhook-proxy"},
	} {
		c.Listen = "127.0.0.1:8080"
		c.SessionTimeout = 10_000_000_000
		err := c.check()
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v %v %q: %v", c.WebhookAllowPrivate, c.WebhookAllow, c.WebhookProxy, err)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("the password is told: %v", err)
		}
	}
}

func TestWebhookSettingsComeFromTheEnvironmentToo(t *testing.T) {
	t.Setenv("LOCKKEEPER_WEBHOOK_ALLOW", "10.0.0.0/8,receiver.internal")
	t.Setenv("LOCKKEEPER_WEBHOOK_PROXY", "http://proxy:3128")
	var out, errs bytes.Buffer
	assert.MustEqual(t, run([]string{"config", "print", "--webhook-allow-private"}, &out, &errs, func() {}), 0, "%v", errs.String())
	for _, want := range []string{"webhook-allow:\n    - 10.0.0.0/8\n    - receiver.internal\n", "webhook-allow-private: true\n", "webhook-proxy: http://proxy:3128\n"} {
		assert.That(t, strings.Contains(out.String(), want), "%q is not in\n%s", want, out.String())
	}
}
