package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"lockkeeper/client"
)

// doctorCommand is lockctl doctor.
type doctorCommand struct{}

// Help is what --help adds.
func (*doctorCommand) Help() string {
	return `A line for each thing that was looked at: ok, warn or fail, and what to do. Each gateway of --url is asked. The exit code is 1 when
something fails.`
}

// finding is what was found about one thing.
type finding struct {
	Status string `json:"status"` // ok, warn or fail
	Check  string `json:"check"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// examination collects findings.
type examination struct {
	a     *app
	found []finding
}

func (x *examination) add(status, check, hint, format string, args ...any) {
	x.found = append(x.found, finding{status, check, visible(fmt.Sprintf(format, args...)), visible(hint)})
}

func (x *examination) ok(check, format string, args ...any) { x.add("ok", check, "", format, args...) }

func (x *examination) warn(check, hint, format string, args ...any) {
	x.add("warn", check, hint, format, args...)
}

func (x *examination) fail(check, hint, format string, args ...any) {
	x.add("fail", check, hint, format, args...)
}

func (*doctorCommand) Run(ctx context.Context, a *app) error {
	x := &examination{a: a}
	if _, err := a.client(); err != nil {
		return err
	}
	x.settings()
	fleets := map[string]string{} // the ids of the fleets, with the first URL of each
	answering := ""
	for _, base := range a.URL {
		base = strings.TrimSpace(base)
		x.certificate(ctx, base)
		info := x.gateway(ctx, base)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if info == nil {
			continue
		}
		if answering == "" {
			answering = base
		}
		if info.Fleet != "" && fleets[info.Fleet] == "" {
			fleets[info.Fleet] = base
		}
	}
	if len(fleets) > 1 {
		x.fail("fleet", "--url must name gateways of one fleet: a lock of one is free at the other", "the URLs lead to %d fleets", len(fleets))
	}
	if answering != "" {
		x.fleet(ctx, answering)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return x.report()
}

// settings looks at what this machine says.
func (x *examination) settings() {
	path := x.a.TokenFile
	if path == "" {
		path = os.Getenv(client.EnvTokenFile)
	}
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		x.fail("token file", "", "%v", err)
	case info.Mode().Perm()&0o077 != 0:
		x.warn("token file", "chmod 600 "+path, "%s can be read by other users", path)
	default:
		x.ok("token file", "%s is for its owner alone", path)
	}
}

// infoView is what doctor reads of GET /v1/info.
type infoView struct {
	Version   string    `json:"version"`
	Mode      string    `json:"mode"`
	Gateway   string    `json:"gateway_id"`
	Fleet     string    `json:"fleet_id"`
	ZooKeeper zooKeeper `json:"zookeeper"`
}

type zooKeeper struct {
	Servers       []string `json:"servers"`
	State         string   `json:"state"`
	FenceOpen     bool     `json:"fence_open"`
	Current       bool     `json:"replica_current"`
	SecretExposed bool     `json:"secret_exposed"`
}

// gateway asks one gateway about itself; nil when it does not answer.
func (x *examination) gateway(ctx context.Context, base string) *infoView {
	c, err := x.a.clientOf([]string{base})
	if err != nil {
		x.fail("reach", "", "%s: %s", base, plain(err))
		return nil
	}
	begun := time.Now()
	answer, err := c.Open(ctx, client.Request{Path: "/v1/whoami"})
	took := time.Since(begun)
	var p *client.Problem
	if err != nil && !(errors.As(err, &p) && p.Code != "unexpected_answer") {
		_, hint := classify(err)
		x.fail("reach", strings.ReplaceAll(hint, "? lockctl doctor asks each of them", "?"), "%s: %s", base, plain(err))
		return nil
	}
	x.ok("reach", "%s answers in %v", base, took.Round(time.Millisecond/10))
	if err != nil {
		_, hint := ofProblem(p)
		x.fail("token", strings.ReplaceAll(hint, ": lockctl doctor looks at it", ""), "%s: %s", base, p.Detail)
		return nil
	}
	var me whoAmI
	err = json.NewDecoder(answer.Body).Decode(&me)
	answer.Body.Close()
	if err != nil {
		x.fail("reach", "is it a gateway?", "%s: the answer cannot be read: %v", base, err)
		return nil
	}
	x.clock(base, answer.Header.Get("Date"), begun.Add(took/2))
	x.who(base, &me)
	if me.Kind == "anonymous" && me.Authentication && len(me.Grants) == 0 {
		return nil
	}
	info := &infoView{}
	switch err := c.Call(ctx, client.Request{Path: "/v1/info"}, info); {
	case errors.As(err, &p) && p.Status == 403:
		x.warn("version", "the verb read of some lock is needed: "+p.Detail, "%s does not say what it is", base)
		return info
	case err != nil:
		x.fail("version", "", "%s: %s", base, plain(err))
		return nil
	}
	x.ok("version", "%s is %s (%s, gateway %s)", base, info.Version, info.Mode, info.Gateway)
	if err := c.Call(ctx, client.Request{Path: "/readyz"}, nil); err != nil {
		x.fail("ready", "its log says why; a gateway that drains is about to go", "%s: %s", base, plain(err))
	}
	x.zooKeeper(base, &info.ZooKeeper)
	return info
}

// clock compares the clocks. Leases do not depend on them: what people read does, and so do certificates and JWTs.
func (x *examination) clock(base, date string, here time.Time) {
	there, err := time.Parse(time.RFC1123, date)
	if err != nil {
		return
	}
	// The header has whole seconds.
	off := here.Sub(there.Add(500 * time.Millisecond)).Round(time.Second)
	switch {
	case off.Abs() > 30*time.Second:
		x.warn("clock", "set both clocks by NTP: leases do not depend on them, but certificates, JWTs and what people read do", "%s: its clock differs by %v", base, -off)
	default:
		x.ok("clock", "%s has the same time, to the second or so", base)
	}
}

func (x *examination) who(base string, me *whoAmI) {
	given := os.Getenv(client.EnvToken) != "" || os.Getenv(client.EnvTokenFile) != "" || x.a.TokenFile != ""
	switch {
	case !me.Authentication && given:
		x.warn("token", "an operator sets --auth-file where the token should count", "%s asks no client who it is: it does not look at the token", base)
	case !me.Authentication:
		x.ok("token", "%s asks no client who it is: every client that reaches it may do everything", base)
	case len(me.Grants) == 0 && me.Kind == "anonymous":
		x.fail("token", "LOCKKEEPER_TOKEN or --token-file must have an API token of this fleet", "%s wants a token, and none is given", base)
	case len(me.Grants) == 0:
		x.warn("token", "an operator gives it roles in --auth-file", "%s takes you for %s, which may do nothing", base, me.Name)
	default:
		x.ok("token", "%s takes you for %s", base, me.Name)
	}
	if at, err := time.Parse(time.RFC3339Nano, me.Expires); err == nil && time.Until(at) < 14*24*time.Hour {
		x.warn("token", "gateway token create makes the next one", "it expires at %s", shortTime(me.Expires))
	}
}

func (x *examination) zooKeeper(base string, z *zooKeeper) {
	switch {
	case z.State != "connected":
		x.fail("zookeeper", "are its servers running, and does the gateway reach them? "+strings.Join(z.Servers, ", "), "%s has no connection (%s)", base, z.State)
	case !z.FenceOpen:
		x.fail("zookeeper", "it grants nothing until ZooKeeper confirms a write: look at the servers", "%s is connected, and its writes are not confirmed", base)
	case !z.Current:
		x.warn("zookeeper", "it reads the queues: wait, and look again", "%s is connected, and does not know the present state yet", base)
	default:
		x.ok("zookeeper", "%s is connected, and its writes are confirmed", base)
	}
	if z.SecretExposed {
		x.warn("secret", "gateway secret rotate, then gateway secret drop --now", "others than the fleet can read what lease tokens are made with, or could once")
	}
}

// report prints what was found.
func (x *examination) report() error {
	failed := 0
	for _, f := range x.found {
		if f.Status == "fail" {
			failed++
		}
	}
	if !x.a.tables() {
		if err := x.a.printJSON(map[string]any{"ok": failed == 0, "checks": x.found}); err != nil {
			return err
		}
	} else if err := x.lines(); err != nil {
		return err
	}
	if failed > 0 {
		return exitCode(exitFailure)
	}
	return nil
}

func (x *examination) lines() error {
	colours := map[string]string{"ok": "\x1b[32m", "warn": "\x1b[33m", "fail": "\x1b[31m"}
	for _, f := range x.found {
		status := fmt.Sprintf("%-4s", f.Status)
		if colour(x.a.stdout) {
			status = colours[f.Status] + status + "\x1b[0m"
		}
		if _, err := fmt.Fprintf(x.a.stdout, "%s  %-10s  %s\n", status, f.Check, f.Detail); err != nil {
			return err
		}
		if f.Hint != "" {
			if _, err := fmt.Fprintf(x.a.stdout, "      hint: %s\n", f.Hint); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostOf is where a URL leads; "" for a Unix socket.
func hostOf(base string) (host string, secure bool) {
	u, err := url.Parse(base)
	if err != nil || strings.HasPrefix(base, "unix:") {
		return "", false
	}
	return u.Host, u.Scheme == "https"
}
