package main

import (
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// checkAddresses refuses addresses that others can reach and that have no authentication, unless the flags ask for it.
func (c *config) checkAddresses() error {
	if path, isSocket := c.socket(); isSocket {
		if err := c.checkSocket(path); err != nil {
			return err
		}
	} else if err := c.checkAddress("--listen", c.Listen, "127.0.0.1:8080", "take and end locks", c.authenticates()); err != nil {
		return err
	}
	for _, address := range []struct{ flag, is, example, others string }{
		{"--embedded-listen", c.EmbeddedListen, "127.0.0.1:2181", "take and end locks"},
		{"--metrics-listen", c.MetricsListen, "127.0.0.1:9090", "read the metrics"},
	} {
		if address.is == "" {
			continue
		}
		if err := c.checkAddress(address.flag, address.is, address.example, address.others, false); err != nil {
			return err
		}
	}
	return nil
}

// checkAddress checks one address. authenticated: it asks each client for a credential.
func (c *config) checkAddress(flag, is, example, others string, authenticated bool) error {
	host, _, err := net.SplitHostPort(is)
	switch {
	case err != nil:
		return usage("for example "+flag+" "+example, "%s %q: %w", flag, is, err)
	case loopback(host):
		return nil
	case authenticated && !c.TLS.on() && !c.Auth.Plaintext:
		return usage("give --tls-cert-file and --tls-key-file; or add --plaintext if something before this gateway speaks TLS with the clients",
			"%s %s is reachable by others, and credentials must not cross a network without TLS", flag, is)
	case !authenticated && !c.Insecure && flag == "--listen":
		return usage("say who may do what with --auth-file (docs/operate/security.md), listen on 127.0.0.1 behind a proxy that authenticates, or add --insecure if every client that can reach it may "+others,
			"%s %s is reachable by others, and there is no authentication", flag, is)
	case !authenticated && !c.Insecure:
		return usage("listen on 127.0.0.1, or add --insecure if every client that can reach it may "+others,
			"%s %s is reachable by others, and there is no authentication", flag, is)
	}
	return nil
}

// socketPrefix begins a --listen that is the path of a Unix socket.
const socketPrefix = "unix:"

// socket is the path of the Unix socket that --listen names, if it names one.
func (c *config) socket() (path string, ok bool) { return strings.CutPrefix(c.Listen, socketPrefix) }

func (c *config) socketMode() (fs.FileMode, error) {
	mode, err := strconv.ParseUint(c.ListenMode, 8, 32)
	if err != nil || mode > 0o777 || mode&0o600 != 0o600 {
		return 0, usage("for example --listen-mode 0660", "--listen-mode %q must be a file's mode in octal digits that lets the gateway's own user read and write", c.ListenMode)
	}
	return fs.FileMode(mode), nil
}

// checkSocket checks a --listen that is a Unix socket. Other gateways cannot reach it, and it speaks no TLS.
func (c *config) checkSocket(path string) error {
	switch {
	case !filepath.IsAbs(path):
		return usage("for example --listen unix:/run/lockkeeper/gateway.sock", "--listen %s must have an absolute path after unix:", c.Listen)
	case c.ZK != "" && c.FleetListen == "" && c.Advertise == "":
		return usage("add --fleet-listen HOST:PORT, an address that the other gateways reach",
			"--listen %s is no address at which other gateways could reach this one: they send here what clients ask about its leases", c.Listen)
	case c.TLS.on() && c.FleetListen == "":
		return usage("leave --tls-cert-file out, or give --fleet-listen", "--tls-cert-file has no listener: --listen %s speaks no TLS, because no network is in between", c.Listen)
	}
	_, err := c.socketMode()
	return err
}

// exposed is an address that the gateway serves without authentication, and what every client that can reach it may do.
type exposed struct {
	flag  string
	at    net.Addr // nil: it serves nothing there
	means string
}

// exposures are the gateway's addresses that have no authentication.
func (c *config) exposures(main, metrics net.Listener, own *ownStore) (list []exposed) {
	if !c.authenticates() {
		list = append(list, exposed{"--listen", main.Addr(), "is administrator, and takes, ends and destroys every lock"})
	}
	list = append(list, exposed{"--embedded-listen", own.addr(), "can take, end and hinder every lock"})
	if metrics != nil {
		list = append(list, exposed{"--metrics-listen", metrics.Addr(), "can read the metrics"})
	}
	return list
}

// warnOfExposures says what --insecure means, for each address that others than this machine can reach. Where only this machine
// reaches --listen, it says that its clients may do everything all the same.
func warnOfExposures(logger *slog.Logger, list []exposed) {
	for _, e := range list {
		switch {
		case e.at == nil:
		case reachedByOthers(e.at):
			logger.Warn("--insecure: every client that can reach "+e.at.String()+" "+e.means+"; there is no authentication (docs/operate/security.md)", "flag", e.flag)
		case e.flag == "--listen":
			logger.Warn("every client that can reach " + e.at.String() + " may do everything, because there is no --auth-file; docs/operate/security.md says how to give each client its rights")
		}
	}
}

func reachedByOthers(at net.Addr) bool {
	host, _, err := net.SplitHostPort(at.String())
	return at.Network() != "unix" && (err != nil || !loopback(host))
}
