package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"lockkeeper/internal/unixsock"
)

// healthcheckWithin bounds the question and its answer together. It is below
// the timeout of the Dockerfile's HEALTHCHECK, so that what is wrong is said
// before the engine gives up.
const healthcheckWithin = 3 * time.Second

// healthcheck asks the gateway that runs with the same settings whether it is
// alive: an image without a shell has no curl to ask with. It takes /healthz
// rather than /readyz because a red check means "restart it", and a restart
// cures no outage of ZooKeeper.
func healthcheck(ctx context.Context, c *config, within time.Duration) error {
	network, address, err := c.reachable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// Only the connection has the address. The Host is localhost, which every
	// gateway accepts, with any --allowed-hosts.
	scheme := "http"
	if c.TLS.on() && network != "unix" {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://localhost/healthz", nil)
	if err != nil {
		return err
	}
	client := http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if network == "unix" {
					return unixsock.Dial(ctx, address)
				}
				var d net.Dialer
				return d.DialContext(ctx, network, address)
			},
			DisableKeepAlives: true,
			// Its certificate is for other names than this address. Nothing secret is sent, and any answer but 200 is a failure.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
		// It may be another program's answer.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the gateway at %s did not answer within %v", address, within)
		}
		return &problemError{code: exitFailure, err: fmt.Errorf("the gateway at %s cannot be asked: %w", address, errors.Unwrap(err)),
			hint: "is it running, with the same --listen, LOCKKEEPER_LISTEN or --config?"}
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	var problem struct{ Code string }
	body := io.LimitReader(answer.Body, 4096)
	if json.NewDecoder(body).Decode(&problem) == nil && problem.Code != "" {
		return fmt.Errorf("the gateway at %s answered %s: %q", address, answer.Status, problem.Code)
	}
	return fmt.Errorf("the gateway at %s answered %s", address, answer.Status)
}

// reachable is where to ask what --listen opens. A listener on all addresses,
// of either family, takes IPv4 on loopback too.
func (c *config) reachable() (network, address string, err error) {
	if path, isSocket := c.socket(); isSocket {
		return "unix", path, nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "", "", usage("for example --listen 127.0.0.1:8080", "--listen %q: %w", c.Listen, err)
	}
	if port == "0" || port == "" {
		return "", "", usage("give the port that the gateway has logged with \"listening\"", "--listen %s leaves the choice of a port to the system", c.Listen)
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && addr.Unmap().IsUnspecified():
		host = "127.0.0.1"
	case addr.Is4In6():
		host = addr.Unmap().String() // the gateway refuses the other spelling
	}
	return "tcp", net.JoinHostPort(host, port), nil
}
