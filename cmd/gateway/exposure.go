package main

import (
	"log/slog"
	"net"
)

// exposed is an address that the gateway serves, and what every client that can reach it may do.
type exposed struct {
	flag  string
	at    net.Addr // nil: it serves nothing there
	means string
}

// exposures are the gateway's addresses.
func exposures(main, metrics net.Listener, own *ownStore) []exposed {
	list := []exposed{
		{"--listen", main.Addr(), "is administrator, and takes, ends and destroys every lock"},
		{"--embedded-listen", own.addr(), "can take, end and hinder every lock"},
	}
	if metrics != nil {
		list = append(list, exposed{"--metrics-listen", metrics.Addr(), "can read the metrics"})
	}
	return list
}

// warnOfExposures says what --insecure means, for each address that others than this machine can reach.
func warnOfExposures(logger *slog.Logger, list []exposed) {
	for _, e := range list {
		if e.at == nil {
			continue
		}
		if host, _, err := net.SplitHostPort(e.at.String()); err != nil || !loopback(host) {
			logger.Warn("--insecure: every client that can reach "+e.at.String()+" "+e.means+"; there is no authentication", "flag", e.flag)
		}
	}
}
