package zk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/backoff"
)

// Defaults and bounds of Config.
const (
	DefaultPort           = 2181
	DefaultRoot           = "/lockkeeper"
	DefaultSessionTimeout = 10 * time.Second
	DefaultPromiseWindow  = 10 * time.Second
	MinPromiseWindow      = 500 * time.Millisecond
	MaxPromiseWindow      = 10 * time.Minute
)

// Metrics is told what this package does. Its methods are called from many goroutines and must not block.
type Metrics interface {
	// Op is called once per ZooKeeper request: op is "multi", "create", "getData", "getChildren", "exists", "connect"
	// or "addWatch"; outcome is "ok", "refused" (ZooKeeper said no) or "unknown" (the connection failed).
	Op(op, outcome string, took time.Duration)
	// Batch is called once per transaction sent, with the number of Writes in it.
	Batch(writes int)
}

// Config says how to reach ZooKeeper and where the layout lives.
type Config struct {
	// Servers are host:port addresses; at least one. Names are resolved again at each attempt to connect.
	Servers []string
	// Chroot is "" or an absolute path such as "/apps/x". It is put before
	// every path in one place, the connection; no other code sees it.
	Chroot string
	// Auth is the fleet's identity, or Certificate is where Dial shows one that ZooKeeper knows. With neither every node is open to
	// every client.
	Auth        *DigestAuth
	Certificate *CertificateAuth
	// CloseLocks keeps the queues of the default namespace to the fleet: no other client of ZooKeeper reads, joins or ends
	// them, nor reads anything else below Root. It needs an identity.
	CloseLocks bool
	// Root is where the layout lives below Chroot; "" is DefaultRoot.
	Root string
	// SessionTimeout is what is asked for; the server may clamp it. 0 is DefaultSessionTimeout.
	SessionTimeout time.Duration
	// CreateRoot allows creating Chroot, Root and the layout below.
	CreateRoot bool
	// PromiseWindow is W of the trust window. 0 means what is recorded, and DefaultPromiseWindow when the layout is
	// created. A value that contradicts the record is an error.
	PromiseWindow time.Duration
	// Namespaces are those that the fleet is to have besides the default one, by name. What is not recorded is added to
	// the record for good, what contradicts the record is an error.
	Namespaces map[string]Namespace
	// Dial opens a connection; nil is a net.Dialer. It gets host:port as in Servers.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Clock is read for the trust window; nil is SystemClock.
	Clock Clock
	// Random is where the jitter of retries and the order of servers come from, nothing secret; nil is the runtime's
	// own source. It must be safe for concurrent use. Simulations give one that repeats itself.
	Random rand.Source
	// Logger may be nil for none.
	Logger *slog.Logger
	// Metrics may be nil for none.
	Metrics Metrics
}

// Identified reports whether the fleet has an identity.
func (c *Config) Identified() bool { return c.Auth != nil || c.Certificate != nil }

// WithDefaults fills in what was left out and checks the rest.
func (c Config) WithDefaults() (Config, error) {
	if len(c.Servers) == 0 {
		return c, &FatalError{Kind: KindConfig, Err: errors.New("no ZooKeeper servers given")}
	}
	if c.Root == "" {
		c.Root = DefaultRoot
	}
	if c.SessionTimeout == 0 {
		c.SessionTimeout = DefaultSessionTimeout
	}
	if c.SessionTimeout < 0 {
		return c, &FatalError{Kind: KindConfig, Err: fmt.Errorf("session timeout %v is negative", c.SessionTimeout)}
	}
	if c.PromiseWindow != 0 && (c.PromiseWindow < MinPromiseWindow || c.PromiseWindow > MaxPromiseWindow) {
		return c, &FatalError{Kind: KindConfig,
			Err: fmt.Errorf("promise window %v is outside %v to %v", c.PromiseWindow, MinPromiseWindow, MaxPromiseWindow)}
	}
	if c.Chroot == "/" {
		c.Chroot = ""
	}
	if c.Chroot != "" {
		if err := CheckPath(c.Chroot); err != nil {
			return c, &FatalError{Kind: KindConfig, Err: fmt.Errorf("chroot: %w", err)}
		}
	}
	if err := CheckPath(c.Root); err != nil {
		return c, &FatalError{Kind: KindConfig, Err: fmt.Errorf("root: %w", err)}
	}
	if c.Dial == nil {
		c.Dial = dialAnyAddress
	}
	if c.Clock == nil {
		c.Clock = SystemClock{}
	}
	if c.Random == nil {
		c.Random = backoff.Runtime{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	return c, nil
}

// Full is the path as ZooKeeper knows it.
func (c *Config) Full(path string) string {
	if c.Chroot == "" {
		return path
	}
	if path == "/" {
		return c.Chroot
	}
	return c.Chroot + path
}

// Below takes the chroot off a path that ZooKeeper answered.
func (c *Config) Below(path string) string {
	if c.Chroot == "" {
		return path
	}
	if rest, ok := strings.CutPrefix(path, c.Chroot); ok {
		if rest == "" {
			return "/"
		}
		return rest
	}
	return path
}

// CheckPath accepts an absolute path other than "/" as ZooKeeper does: no
// empty, "." or ".." component, no control character.
func CheckPath(path string) error {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return fmt.Errorf("path %q does not start with a slash", path)
	}
	for name := range strings.SplitSeq(rest, "/") {
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("path %q has an empty or relative component", path)
		}
	}
	if i := strings.IndexFunc(path, func(r rune) bool {
		return r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff
	}); i >= 0 {
		return fmt.Errorf("path %q has a character that ZooKeeper does not allow", path)
	}
	return nil
}

// ParseServers reads a connection string as ZooKeeper's own clients do: "host:2181,host,[::1]:2182/chroot/path". The
// port is DefaultPort where left out; the chroot belongs to all servers.
func ParseServers(s string) (servers []string, chroot string, err error) {
	if i := strings.IndexByte(s, '/'); i >= 0 {
		s, chroot = s[:i], s[i:]
		if chroot == "/" {
			chroot = ""
		} else if err := CheckPath(chroot); err != nil {
			return nil, "", fmt.Errorf("chroot: %w", err)
		}
	}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			return nil, "", fmt.Errorf("server list %q has an empty entry", s)
		}
		host, port, err := net.SplitHostPort(part)
		if err != nil {
			host, port = strings.Trim(part, "[]"), strconv.Itoa(DefaultPort)
			if strings.ContainsAny(host, "[]") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
				return nil, "", fmt.Errorf("server %q: %w", part, err)
			}
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
			return nil, "", fmt.Errorf("server %q is not host:port", part)
		}
		servers = append(servers, net.JoinHostPort(host, port))
	}
	return servers, chroot, nil
}

type noMetrics struct{}

func (noMetrics) Op(string, string, time.Duration) {}
func (noMetrics) Batch(int)                        {}

// NativeDialect is the dialect of a namespace whose record names none.
const NativeDialect = "native"

// Namespace is a record below /namespaces: where the locks of a namespace are and how their contenders are named. It
// never changes once it is written: the leases that are in the lock root have the names that it says.
type Namespace struct {
	Root    string `json:"root"`
	Dialect string `json:"dialect"` // as recipe.ParseNaming reads it; "" in old records: native
}

// Equal reports whether two records say the same.
func (n Namespace) Equal(other Namespace) bool {
	return n.Root == other.Root && cmp.Or(n.Dialect, NativeDialect) == cmp.Or(other.Dialect, NativeDialect)
}
