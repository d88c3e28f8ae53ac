package httpapi

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// guard refuses what a page in a browser could send to a gateway that has no authentication: requests across origins,
// and requests for a host name that an attacker's DNS points at loopback (DNS rebinding).
type guard struct {
	hosts    map[string]bool
	origin   *http.CrossOriginProtection
	refusals *refusals
}

func newGuard(allowed []string) guard {
	g := guard{hosts: map[string]bool{"localhost": true}, origin: http.NewCrossOriginProtection(), refusals: new(refusals)}
	for _, name := range allowed {
		g.hosts[strings.TrimSuffix(strings.ToLower(name), ".")] = true
	}
	return g
}

func (g *guard) check(r *http.Request) *problem {
	if !g.hostAllowed(r.Host) {
		return &problem{code: codeHostNotAllowed, detail: "ask for an address (not 0.0.0.0, [::] or [::ffff:...]), for localhost, or for a name that the gateway was given with --allowed-hosts"}
	}
	if crossOrigin(r) || g.origin.Check(r) != nil {
		return &problem{code: codeCrossOrigin, detail: "a browser sent this for a page of another origin"}
	}
	return nil
}

func (g *guard) hostAllowed(host string) bool {
	name := hostname(host)
	if g.hosts[name] {
		return true
	}
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		// Browsers reach this machine at 0.0.0.0, [::] and [::ffff:127.0.0.1], too, and send neither Origin nor
		// Sec-Fetch-Site with a page's GET there. No client needs these spellings.
		return !addr.Is4In6() && !addr.WithZone("").IsUnspecified()
	}
	return g.hosts[strings.TrimSuffix(strings.ToLower(name), ".")]
}

// hostname cuts the port off, and nothing else.
func hostname(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.Contains(host[i:], "]") && (host[0] == '[' || strings.IndexByte(host, ':') == i) {
		return host[:i]
	}
	return host
}

// crossOrigin is stricter than http.CrossOriginProtection, which lets GET, HEAD and OPTIONS pass: those read queues and
// hold long polls open. A navigation (following a link) is let through; its page cannot read the answer.
func crossOrigin(r *http.Request) bool {
	for _, name := range [...]string{"Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode"} {
		if len(r.Header[name]) > 1 {
			return true // Get below would see the first alone
		}
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		if r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			return true
		}
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	// Over TLS, a page without it is of another origin. Without TLS it is not known whether a proxy has ended it.
	return err != nil || u.Host != r.Host || r.TLS != nil && u.Scheme != "https"
}

// door is what a listener lets in.
type door int

const (
	anyDoor door = iota
	publicDoor
	fleetDoor
)

func (d door) check(r *http.Request) *problem {
	switch {
	case d == publicDoor && sealed(r):
		return sealRefused(errors.New("a request with a seal came to --listen, and gateways have --fleet-listen"))
	case d == fleetDoor && !sealed(r):
		return &problem{code: codeSealRefused, detail: "this address is for the gateways of this fleet (--fleet-listen); clients use that of --listen"}
	}
	return nil
}
