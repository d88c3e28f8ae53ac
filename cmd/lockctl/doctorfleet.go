package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"lockkeeper/client"
)

// certificate looks at what a gateway shows, and for how long it is good.
func (x *examination) certificate(ctx context.Context, base string) {
	host, secure := hostOf(base)
	if host == "" {
		return
	}
	if !secure {
		if !loopback(host) {
			x.warn("tls", "give the gateway --tls-cert-file and --tls-key-file, and use https://", "%s is read by everyone on the way, tokens too", base)
		}
		return
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "443")
	}
	config, err := x.a.tls()
	if err != nil {
		x.fail("tls", "", "%s", plain(err))
		return
	}
	ctx, stop := context.WithTimeout(ctx, x.a.Timeout)
	defer stop()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", host)
	var wrong *tls.CertificateVerificationError
	switch {
	case errors.As(err, &wrong):
		x.fail("tls", unreachable(err), "%s: %s", base, plain(wrong.Err))
		return
	case err != nil:
		return // reach says so
	}
	defer conn.Close()
	// The chain ends when the first of its certificates does.
	chain := conn.(*tls.Conn).ConnectionState().VerifiedChains[0]
	first := chain[0]
	for _, c := range chain {
		if c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	left := int(time.Until(first.NotAfter).Hours() / 24)
	if left < 14 {
		x.warn("tls", "replace it: the gateway reads its files again when they change", "%s: the certificate of %q is good for %d days more", base, first.Subject.CommonName, left)
		return
	}
	x.ok("tls", "%s: the chain of %d certificates is good for %d days more", base, len(chain), left)
}

func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// fleet asks one gateway about what all of them share.
func (x *examination) fleet(ctx context.Context, base string) {
	c, err := x.a.clientOf([]string{base})
	if err != nil {
		return
	}
	x.gateways(ctx, c)
	x.namespaces(ctx, c)
	x.hazards(ctx, c)
	x.webhooks(ctx, c)
}

// ask gets a list; false when it is not for this caller, or cannot be had.
func (x *examination) ask(ctx context.Context, c *client.Client, check, path string, answer any) bool {
	err := c.Call(ctx, client.Request{Path: path}, answer)
	var p *client.Problem
	switch {
	case errors.As(err, &p) && p.Status == 403:
		return false
	case err != nil && ctx.Err() == nil:
		x.fail(check, "", "%s", plain(err))
	}
	return err == nil
}

func (x *examination) gateways(ctx context.Context, c *client.Client) {
	var answer struct {
		Items []struct {
			ID        string     `json:"gateway_id"`
			Address   string     `json:"address"`
			Version   string     `json:"version"`
			ZooKeeper *zooKeeper `json:"zookeeper"`
			Commits   *struct {
				P50 float64 `json:"p50_ms"`
				P99 float64 `json:"p99_ms"`
			} `json:"commits"`
		} `json:"items"`
		Left []struct {
			ID      string `json:"gateway_id"`
			Ago     int64  `json:"left_ago_ms"`
			Deposed bool   `json:"deposed"`
		} `json:"left"`
	}
	if !x.ask(ctx, c, "fleet", "/v1/gateways", &answer) {
		return
	}
	for _, l := range answer.Left {
		if l.Deposed {
			x.warn("fleet", "look at its log, and at its way to ZooKeeper", "gateway %s was deposed %s ago: it committed nothing", l.ID, span(l.Ago))
		}
	}
	for _, g := range answer.Items {
		if c := g.Commits; c != nil {
			x.ok("commits", "p50 %.3g ms, p99 %.3g ms in the last minutes", c.P50, c.P99)
		}
	}
	versions := map[string]bool{}
	for _, g := range answer.Items {
		if g.Version != "" {
			versions[g.Version] = true
		}
	}
	switch n := len(answer.Items); {
	case len(versions) > 1:
		x.warn("fleet", "finish the upgrade", "%d gateways of %d releases", n, len(versions))
	case n == 1:
		x.ok("fleet", "one gateway")
	default:
		x.ok("fleet", "%d gateways of one release", n)
	}
}

func (x *examination) namespaces(ctx context.Context, c *client.Client) {
	var answer struct {
		Items []struct {
			NS      string `json:"ns"`
			Problem string `json:"problem"`
			Ready   bool   `json:"ready"`
		} `json:"items"`
	}
	if !x.ask(ctx, c, "namespaces", "/v1/namespaces", &answer) {
		return
	}
	good := 0
	for _, n := range answer.Items {
		switch {
		case n.Problem != "":
			x.fail("namespaces", "docs/operate/namespaces.md", "%s: %s", n.NS, n.Problem)
		case !n.Ready:
			x.warn("namespaces", "wait, and look again", "%s has not been read yet", n.NS)
		default:
			good++
		}
	}
	if good == len(answer.Items) {
		x.ok("namespaces", "%d", good)
	}
}

const (
	hazardPages = 5 // of mostOnPage locks: the answer comes soon, whatever there is
	hazardsMost = 10
)

func (x *examination) hazards(ctx context.Context, c *client.Client) {
	looked, found, cursor := 0, 0, ""
	for range hazardPages {
		var answer struct {
			Items      []lockView `json:"items"`
			NextCursor string     `json:"next_cursor"`
		}
		q := url.Values{"limit": {"1000"}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		if !x.ask(ctx, c, "hazards", "/v1/locks?"+q.Encode(), &answer) {
			return
		}
		looked += len(answer.Items)
		for _, l := range answer.Items {
			for _, h := range l.Hazards {
				if found++; found <= hazardsMost {
					x.warn("hazards", h.Detail, "%s: %s", l.Lock, h.Code)
				}
			}
		}
		if cursor = answer.NextCursor; cursor == "" {
			break
		}
	}
	switch {
	case found > hazardsMost:
		x.warn("hazards", "lockctl ls shows the others", "%d more", found-hazardsMost)
	case found == 0 && cursor != "":
		x.ok("hazards", "none at the first %d locks; the metric lockkeeper_hazards counts all", looked)
	case found == 0 && looked == 1:
		x.ok("hazards", "none at 1 lock")
	case found == 0:
		x.ok("hazards", "none at %d locks", looked)
	}
}

func (x *examination) webhooks(ctx context.Context, c *client.Client) {
	var answer struct {
		Items []json.RawMessage `json:"items"`
	}
	if !x.ask(ctx, c, "webhooks", "/v1/webhooks", &answer) || len(answer.Items) == 0 {
		return
	}
	good := 0
	for _, raw := range answer.Items {
		var w webhookView
		if json.Unmarshal(raw, &w) != nil {
			continue
		}
		d := &w.Deliveries
		switch {
		case d.DeadLetters > 0:
			x.warn("webhooks", "lockctl webhook dead-letters "+w.ID+"; lockctl webhook replay "+w.ID, "%s has %d dead letters", w.ID, d.DeadLetters)
		case d.Dropped > 0:
			x.warn("webhooks", "its receiver takes too little: lockctl webhook attempts "+w.ID, "%s has lost %d messages", w.ID, d.Dropped)
		case w.state() != "on":
			x.warn("webhooks", "lockctl webhook show "+w.ID, "%s is %s", w.ID, w.state())
		default:
			good++
		}
	}
	if good == len(answer.Items) {
		x.ok("webhooks", "%d, and each is on", good)
	}
}
