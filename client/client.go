package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Client takes locks from the gateways of one fleet.
type Client struct {
	bases []*url.URL
	http  *http.Client
	token func() (string, error)
	now   func() time.Duration // goes on while the machine sleeps
	try   time.Duration        // Config.TryFor

	next atomic.Uint32 // the gateway that is asked first: the last one that answered
}

// Config says which gateways a Client asks, and how.
type Config struct {
	// URLs are gateways of one fleet, such as http://127.0.0.1:8080 or unix:/run/lockkeeper.sock. The Client asks the next
	// one when one does not answer.
	URLs []string

	// Token is sent as Authorization: Bearer with each acquire. TokenFile names a file that holds it, and is read for each
	// acquire, so that the token in it can change. At most one of the two is set; neither is needed where the gateway asks for none.
	Token     string
	TokenFile string

	// TryFor bounds how long a request that does not wait for a lock tries to find a gateway that answers. 30 s unless given.
	TryFor time.Duration

	// TLS is how gateways with https:// are reached: whose certificates are trusted, and which certificate the client shows. nil
	// trusts what the system trusts. It has no effect together with HTTP.
	TLS *tls.Config

	// HTTP is what requests are sent with; nil is a client of its own. Its Timeout must be zero, because heartbeats are held
	// open, and it must not follow redirects with the headers of a request.
	HTTP *http.Client
}

// The environment that FromEnv reads.
const (
	EnvURL       = "LOCKKEEPER_URL"
	EnvToken     = "LOCKKEEPER_TOKEN"
	EnvTokenFile = "LOCKKEEPER_TOKEN_FILE"
)

// FromEnv makes a Client of LOCKKEEPER_URL (several URLs with commas between them; http://127.0.0.1:8080 when it is not set),
// and of LOCKKEEPER_TOKEN or LOCKKEEPER_TOKEN_FILE.
func FromEnv() (*Client, error) {
	return New(Config{
		URLs:      strings.Split(cmp.Or(os.Getenv(EnvURL), "http://127.0.0.1:8080"), ","),
		Token:     os.Getenv(EnvToken),
		TokenFile: os.Getenv(EnvTokenFile),
	})
}

// New makes a Client. It sends no request.
func New(config Config) (*Client, error) {
	c := &Client{http: config.HTTP, now: bootClock, try: cmp.Or(config.TryFor, tryWithin)}
	if len(config.URLs) == 0 {
		return nil, errors.New("lockkeeper: Config.URLs is empty: give the URL of a gateway, such as http://127.0.0.1:8080")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	// All requests to a gateway would be streams of one HTTP/2 connection: none would get through once that is dead and looks alive.
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	if config.TLS != nil {
		transport.TLSClientConfig = config.TLS.Clone()
	}
	for _, text := range config.URLs {
		base, err := parseBase(strings.TrimSpace(text), transport)
		if err != nil {
			return nil, err
		}
		c.bases = append(c.bases, base)
	}
	if c.http == nil {
		// A redirect would carry the tokens to another address.
		c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if config.Token != "" && config.TokenFile != "" {
		return nil, fmt.Errorf("lockkeeper: both a token and a token file are given (%s, %s): leave one out", EnvToken, EnvTokenFile)
	}
	c.token = func() (string, error) { return config.Token, nil }
	if config.TokenFile != "" {
		c.token = func() (string, error) {
			text, err := os.ReadFile(config.TokenFile)
			return strings.TrimSpace(string(text)), err
		}
	}
	return c, nil
}

// perGateway is how long one gateway may take to answer, most at most: where there are several, none takes the time of the others.
func (c *Client) perGateway(most time.Duration) time.Duration {
	if len(c.bases) > 1 {
		return min(most, c.try/time.Duration(len(c.bases)))
	}
	return most
}

// socketOf is the path of the Unix socket that a base stands for.
func socketOf(base *url.URL) (path string, ok bool) {
	name, ok := strings.CutPrefix(base.Host, "unix-")
	if !ok {
		return "", false
	}
	text, err := hex.DecodeString(strings.TrimSuffix(name, ".localhost"))
	return string(text), err == nil
}

// parseBase reads the URL of a gateway. It teaches transport the way to a Unix socket.
func parseBase(text string, transport *http.Transport) (*url.URL, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		// The name of the host says which socket it is: transport keeps connections by host.
		host := fmt.Sprintf("unix-%x.localhost", path)
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == host+":80" {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			}
			return dial(ctx, network, address)
		}
		return &url.URL{Scheme: "http", Host: host}, nil
	}
	base, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("lockkeeper: the gateway's URL cannot be read: %w", err)
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, fmt.Errorf("lockkeeper: %q is no URL of a gateway: it must be like http://127.0.0.1:8080, https://locks.example.com or unix:/run/lockkeeper.sock", text)
	case base.User != nil, base.RawQuery != "", base.Fragment != "":
		return nil, fmt.Errorf("lockkeeper: the URL of a gateway (%s) must have no user, query or fragment; the token goes into %s", base.Redacted(), EnvToken)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	return base, nil
}
