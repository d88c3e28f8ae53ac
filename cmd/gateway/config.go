package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/accesslog"
	"lockkeeper/internal/secretfile"
	"lockkeeper/internal/zk"
)

// config is every setting. Each is a flag, a variable LOCKKEEPER_... and a key
// of the configuration file, in this order of precedence.
type config struct {
	ZK               string        `name:"zk" placeholder:"HOST:PORT,.../CHROOT" help:"The ZooKeeper servers, 3.6 or later, with an optional chroot. Without them the gateway keeps everything itself, in --data-dir."`
	DataDir          string        `name:"data-dir" placeholder:"DIR" help:"Where a gateway without --zk keeps everything; made when it is missing. Default: ./lockkeeper-data."`
	EmbeddedListen   string        `name:"embedded-listen" placeholder:"HOST:PORT" help:"Where a gateway without --zk serves other ZooKeeper clients, for example 127.0.0.1:2181; nowhere unless given. A client that can connect there can take, end and hinder locks, but reads no secret. Anything but loopback needs --insecure."`
	ZKAuthFile       string        `name:"zk-auth-file" placeholder:"FILE" help:"File with the fleet's ZooKeeper identity, one line: digest USER:PASSWORD. It takes precedence over --zk-cert-file. Must not be readable by others. A gateway without --zk has an identity of its own unless this one is given, from the first start on."`
	ZKConnectTimeout time.Duration `name:"zk-connect-timeout" default:"30s" help:"How long to try at the start before giving up with exit code 69; 0 tries for ever."`
	Root             string        `name:"root" default:"/lockkeeper" help:"Where the gateways keep everything, below the chroot."`
	CreateRoot       bool          `name:"create-root" default:"true" negatable:"" help:"Create the root when it is missing. With --no-create-root a wrong --zk or --root is an error instead of an empty lock service. A gateway without --zk always creates it."`
	Namespace        []string      `name:"namespace" placeholder:"NAME=ROOT[:DIALECT]" help:"Add a namespace: locks below another root, under the names by which other programs respect each other there (native, curator-rw, kazoo, all, or custom with names of your own; native unless given). Recorded for good, for all gateways; what contradicts the record is an error. Repeatable."`
	SessionTimeout   time.Duration `name:"session-timeout" default:"10s" help:"ZooKeeper's session timeout: how soon a gateway that was killed is succeeded."`
	PromiseWindow    time.Duration `name:"promise-window" default:"0s" help:"How long a gateway may speak for its leases without a confirmed write. Recorded when the root is created (10s unless given), the same for all gateways; 0 takes what is recorded."`

	Listen        string        `name:"listen" default:"127.0.0.1:8080" help:"Where to serve HTTP: HOST:PORT, or unix: and the absolute path of a Unix socket, where the user of the client's process is its identity (uid:1000). Anything but loopback and a socket needs --auth-file and TLS, or --plaintext, or --insecure."`
	ListenMode    string        `name:"listen-mode" default:"0660" help:"The mode of the Unix socket of --listen unix:..., which decides what users can connect."`
	Insecure      bool          `name:"insecure" help:"Serve on addresses that others can reach what has no authentication there: everything without --auth-file, so that every client that can reach --listen is administrator, takes, ends, destroys every lock and changes every webhook; with it --metrics-listen."`
	AllowedHosts  []string      `name:"allowed-hosts" placeholder:"NAME" help:"Names by which clients may address this gateway, besides localhost and IP addresses."`
	FleetListen   string        `name:"fleet-listen" placeholder:"HOST:PORT" help:"Where to answer other gateways, and no clients: a request without the fleet's seal is refused here, and one with it on --listen, so --insecure is not needed. On --listen unless given."`
	Advertise     string        `name:"advertise" placeholder:"[https://]HOST:PORT" help:"Where other gateways reach this one; what they are asked and cannot answer is sent here. That of --fleet-listen unless given, or of --listen; give it when that is not an address that the others can reach, as 0.0.0.0 is not. With https:// they use TLS, which this gateway speaks with --tls-cert-file; else something before it has to. Without http:// or https:// it is https:// with --tls-cert-file."`
	PeerCAFile    string        `name:"peer-ca-file" placeholder:"FILE" help:"Certificates (PEM) that those of other gateways' https:// addresses have to be signed by; those that the system trusts unless given."`
	MetricsListen string        `name:"metrics-listen" placeholder:"HOST:PORT" help:"Serve /metrics here instead of on --listen. The same Host names are allowed as there, and anything but loopback needs --insecure."`
	DrainDelay    time.Duration `name:"drain-delay" default:"0s" help:"On SIGTERM, how long /readyz is red before requests are refused: time for a load balancer to notice."`

	TLS     tlsFlags   `embed:""`
	Proxies proxyFlags `embed:""`
	ZKTLS   zkTLSFlags `embed:""`
	Auth    authFlags  `embed:""`

	Limits limits `embed:""`

	Compat compatFlags `embed:""`

	WebhookAllowPrivate bool     `name:"webhook-allow-private" help:"Deliver webhooks to any address, also private, loopback, link-local and cloud metadata ones. Without it those are refused, each time a connection is made."`
	WebhookAllow        []string `name:"webhook-allow" placeholder:"CIDR|HOST" help:"Networks, addresses and host names inside your own network to which webhooks are delivered all the same."`
	WebhookProxy        string   `name:"webhook-proxy" placeholder:"URL" help:"Deliver webhooks through this proxy (http, https, socks5, socks5h). It resolves names, so it has to refuse the addresses itself. No proxy unless given; HTTP_PROXY is ignored."`

	History historyFlags `embed:""`

	Traces traceFlags `embed:""`

	LogFormat string `name:"log-format" default:"text" enum:"text,json" help:"text or json, on standard error."`
	LogLevel  string `name:"log-level" default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error. Heartbeats, probes and checks of fencing tokens that succeed are logged at debug."`
	AuditLog  string `name:"audit-log" placeholder:"FILE|stderr" help:"Append a line of JSON for each change, each refusal and each end of a lease, with principal and address. A file is made with mode 0600, and opened again on SIGHUP. No request waits for it: what cannot be written is counted."`
	AccessLog string `name:"access-log" default:"all" enum:"all,errors,off" help:"Which requests get a line in the log: all that --log-level lets through, those that were answered with a problem (errors), or none (off). A defect of the gateway itself is logged in any case. Lines are written 10 ms after their requests at the latest: a crash loses those."`
}

// problemError is an error of the configuration, with what to do about it.
type problemError struct {
	code int
	err  error
	hint string
}

func (e *problemError) Error() string { return e.err.Error() }
func (e *problemError) Unwrap() error { return e.err }

func usage(hint, format string, args ...any) error {
	return &problemError{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// check finds contradictions before anything is started.
func (c *config) check() error {
	for flag, is := range map[string]string{"--data-dir": c.DataDir, "--embedded-listen": c.EmbeddedListen} {
		if c.ZK != "" && is != "" {
			return usage("leave one of them out: with --zk those servers keep everything, without it this gateway does, in --data-dir",
				"%s and --zk exclude each other", flag)
		}
	}
	if err := c.checkAddresses(); err != nil {
		return err
	}
	if err := c.checkAuth(); err != nil {
		return err
	}
	if err := c.checkNames(); err != nil {
		return err
	}
	if err := c.TLS.check(); err != nil {
		return err
	}
	if err := c.Proxies.check(); err != nil {
		return err
	}
	if err := c.ZKTLS.check(c.ZK); err != nil {
		return err
	}
	if err := c.Limits.check(); err != nil {
		return err
	}
	if err := c.Compat.check(); err != nil {
		return err
	}
	if err := c.History.check(); err != nil {
		return err
	}
	if _, err := c.webhookAddresses(); err != nil {
		return err
	}
	if _, err := c.Traces.endpoint(os.Getenv); err != nil {
		return err
	}
	if _, err := c.webhookProxy(); err != nil {
		return err
	}
	for _, d := range []struct {
		flag     string
		is       time.Duration
		from, to time.Duration
	}{
		{"--session-timeout", c.SessionTimeout, time.Second, 5 * time.Minute},
		{"--drain-delay", c.DrainDelay, 0, 10 * time.Minute},
		{"--zk-connect-timeout", c.ZKConnectTimeout, 0, 24 * time.Hour},
	} {
		if d.is < d.from || d.is > d.to {
			return usage("see gateway --help", "%s %v must be between %v and %v", d.flag, d.is, d.from, d.to)
		}
	}
	return nil
}

// checkNames checks where other gateways and clients find this one.
func (c *config) checkNames() error {
	if _, _, err := net.SplitHostPort(c.FleetListen); c.FleetListen != "" && err != nil {
		return usage("for example --fleet-listen 10.0.0.1:8081", "--fleet-listen %q: %w", c.FleetListen, err)
	}
	if c.Advertise != "" {
		if base, err := fleet.BaseURL(c.Advertise); err != nil || unspecified(base) {
			return usage("for example --advertise gateway-1.example.com:8080, or https://gateway-1.example.com:443", "--advertise %q must be an address at which others can reach this gateway: HOST:PORT, or https:// before it", c.Advertise)
		}
	}
	for _, name := range c.AllowedHosts {
		if name == "" || strings.ContainsAny(name, ":/*? ") {
			return usage("for example --allowed-hosts locks.example.com,gateway", "--allowed-hosts %q must be a host's name without scheme, port or wildcard", name)
		}
	}
	return nil
}

// unspecified reports whether an address or URL has a host that stands for all addresses.
func unspecified(address string) bool {
	_, rest, isURL := strings.Cut(address, "://")
	if !isURL {
		rest = address
	}
	host, _, err := net.SplitHostPort(rest)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// advertised is the address for other gateways: "" when there is none that they could reach. It is https:// where the
// listener speaks TLS, unless --advertise says otherwise.
func (c *config) advertised(listener net.Addr) string {
	address := c.Advertise
	if address == "" {
		if address = listener.String(); listener.Network() == "unix" || unspecified(address) {
			return ""
		}
	}
	if c.TLS.on() && !strings.Contains(address, "://") {
		return "https://" + address
	}
	return address
}

// loopback reports whether only this machine can reach the host.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// zookeeper is the configuration of internal/zk.
func (c *config) zookeeper(logger *slog.Logger, metrics zk.Metrics) (zk.Config, error) {
	servers, chroot, create := []string{embeddedServer}, "", true
	if c.ZK != "" {
		var err error
		if servers, chroot, err = zk.ParseServers(c.ZK); err != nil {
			return zk.Config{}, usage("for example --zk zk1:2181,zk2:2181,zk3:2181/apps", "--zk %q: %w", c.ZK, err)
		}
		create = c.CreateRoot
	}
	auth, err := readAuth(c.ZKAuthFile)
	if err != nil {
		return zk.Config{}, err
	}
	namespaces, err := c.namespaces(chroot)
	if err != nil {
		return zk.Config{}, err
	}
	return zk.Config{Servers: servers, Chroot: chroot, Auth: auth, CloseLocks: c.ZK != "" && c.authenticates(), Root: c.Root, SessionTimeout: c.SessionTimeout,
		CreateRoot: create, Namespaces: namespaces, PromiseWindow: c.PromiseWindow, Logger: logger, Metrics: metrics}, nil
}

// readAuth reads the fleet's identity. A file that others can read is refused:
// the identity in it can end every lock.
func readAuth(path string) (*zk.DigestAuth, error) {
	if path == "" {
		return nil, nil
	}
	refuse := func(hint, format string, args ...any) error {
		return &problemError{code: exitConfig, err: fmt.Errorf("--zk-auth-file "+path+": "+format, args...), hint: hint}
	}
	data, err := secretfile.Read(path, 4096)
	if _, open := errors.AsType[*secretfile.OpenError](err); open {
		return nil, refuse("chmod 600 "+path, "%w", err)
	}
	if err != nil {
		return nil, refuse("create it with one line: digest USER:PASSWORD", "%w", err)
	}
	scheme, identity, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	user, password, ok := strings.Cut(strings.TrimSpace(identity), ":")
	if scheme != "digest" || !ok || user == "" || password == "" || strings.ContainsAny(identity, "\n\r") {
		return nil, refuse("it must have one line: digest USER:PASSWORD", "not understood")
	}
	return &zk.DigestAuth{User: user, Password: password}, nil
}

// level is the least of a line in the log.
func (c *config) level() (level slog.Level) {
	_ = level.UnmarshalText([]byte(c.LogLevel)) // one of the enum
	return level
}

// accessLog is where a part of the gateway logs requests.
func (c *config) accessLog(to *accesslog.Writer, part string) *accesslog.Log {
	return &accesslog.Log{To: to, JSON: c.LogFormat == "json", Level: c.level(), Which: accesslog.Which(c.AccessLog), Part: part}
}

// logger writes where the configuration says.
func (c *config) logger(w io.Writer) *slog.Logger {
	level := c.level()
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: utcMillis}))
	}
	return slog.New(inUTC{slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})})
}

// utcMillis writes the time in UTC with milliseconds, always three digits.
func utcMillis(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	return a
}

// inUTC does the same for text, whose handler writes milliseconds by itself.
type inUTC struct{ slog.Handler }

func (h inUTC) Handle(ctx context.Context, r slog.Record) error {
	r.Time = r.Time.UTC()
	return h.Handler.Handle(ctx, r)
}

func (h inUTC) WithAttrs(attrs []slog.Attr) slog.Handler { return inUTC{h.Handler.WithAttrs(attrs)} }
func (h inUTC) WithGroup(name string) slog.Handler       { return inUTC{h.Handler.WithGroup(name)} }
