package main

import (
	"cmp"
	"net"

	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/httpapi/proxies"
)

// proxyFlags are the flags about proxies before the gateway.
type proxyFlags struct {
	Trusted []string `name:"trusted-proxies" placeholder:"CIDR" help:"Networks and addresses of the proxies before --listen: what they send in --forwarded-header is the address of the client. unix stands for all users of a Unix socket, uid:33 for one of them. A request that comes from there has no principal by its connection: neither a client certificate nor a user counts."`
	Header  string   `name:"forwarded-header" placeholder:"NAME" help:"The one header in which these proxies say who the client is: X-Forwarded-For (unless given), Forwarded (RFC 7239), or one that has the address alone, such as X-Real-IP. Each of the proxies has to set it, or to add to it. All others are ignored."`
}

func (f *proxyFlags) check() error {
	if len(f.Trusted) == 0 && f.Header != "" {
		return usage("for example --trusted-proxies 10.0.0.0/24", "--forwarded-header needs --trusted-proxies: a header is believed only of proxies that are named")
	}
	if _, err := f.trust(); err != nil {
		return usage("for example --trusted-proxies 10.0.0.0/24,192.0.2.7 --forwarded-header X-Forwarded-For", "--trusted-proxies, --forwarded-header: %w", err)
	}
	return nil
}

// trust are the proxies; nil for none.
func (f *proxyFlags) trust() (*proxies.Trust, error) {
	if len(f.Trusted) == 0 {
		return nil, nil
	}
	return proxies.New(f.Trusted, cmp.Or(f.Header, proxies.XForwardedFor))
}

// shareProxies exempts proxies from the bound on the connections of one address: each stands for many clients.
func shareProxies(limiter *connlimit.Limiter, trust *proxies.Trust) {
	if trust != nil {
		limiter.Share(func(from net.Addr) bool { return trust.Trusts(from.String()) })
	}
}
