package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lockkeeper/internal/childproc"
	"lockkeeper/internal/zk/zkreal"
)

const (
	gatewayBinary = "bin/gateway"
	runDir        = ".run"
	readyWithin   = 60 * time.Second
	drainWithin   = 30 * time.Second // how long the gateway may take to stop
)

// failure is an error with what to do about it and the exit code it means.
type failure struct {
	code int
	hint string
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(code int, hint, format string, args ...any) error {
	return &failure{code: code, hint: hint, err: fmt.Errorf(format, args...)}
}

func main() {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup means it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // a second signal ends us at once, and the kernel ends the children
	err := run(ctx)
	if err == nil {
		return
	}
	code := 1
	fmt.Fprintln(os.Stderr, "error:", err)
	if f := (*failure)(nil); errors.As(err, &f) {
		code = f.code
		if f.hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", f.hint)
		}
	}
	os.Exit(code)
}

// run returns nil when ctx ended it.
func run(ctx context.Context) error {
	set, err := settingsFrom(os.Getenv)
	if err != nil {
		return err
	}
	if _, err := os.Stat(gatewayBinary); err != nil {
		return fail(64, "start it with: make run", "no %s here: %w", gatewayBinary, err)
	}
	unlock, err := lockRunDir()
	if err != nil {
		return err
	}
	defer unlock()
	if err := portFree(set.listen, "LISTEN", "make run LISTEN=127.0.0.1:8081"); err != nil {
		return err
	}
	if err := portFree(fmt.Sprintf("127.0.0.1:%d", set.zkPort), "ZK_PORT", "make run ZK_PORT=2182"); err != nil {
		return err
	}

	zk, err := startZooKeeper(ctx, set.zkPort)
	if zk == nil {
		return err
	}
	defer zk.Stop()
	fmt.Printf("ZooKeeper serves on %s, data in %s/zookeeper\n", zk.Addr(), runDir)

	gateway, err := startGateway(set, zk.Addr())
	if err != nil {
		return err
	}
	defer func() {
		if gateway.Stop(drainWithin) {
			fmt.Fprintf(os.Stderr, "the gateway did not stop within %v and was killed\n", drainWithin)
		}
	}()
	isReady, err := awaitReady(ctx, set.url()+"/readyz", gateway.Done())
	if err != nil {
		return err
	}
	if isReady {
		fmt.Printf("The gateway is ready. Take a lock for 30 seconds:\n\n  curl -sX POST '%s/v1/locks/deploy/leases?ttl=30s&owner=me'\n\nCtrl-C stops both.\n", set.url())
	}
	select {
	case <-ctx.Done():
		fmt.Println("stopping the gateway, then ZooKeeper")
		return nil
	case <-gateway.Done():
		return fmt.Errorf("the gateway ended: %w", ended(gateway.Wait()))
	case <-zk.Done():
		return fmt.Errorf("ZooKeeper ended; the end of its log:\n%s", zk.LogTail(20))
	}
}

// ended turns exit code 0, which nobody asked for, into an error too.
func ended(err error) error {
	if err == nil {
		return errors.New("exit code 0, without being asked to")
	}
	return err
}

// settings are what the environment may change.
type settings struct {
	listen       string
	zkPort       int
	gatewayFlags []string
}

func settingsFrom(getenv func(string) string) (settings, error) {
	s := settings{listen: "127.0.0.1:8080", zkPort: 2181, gatewayFlags: strings.Fields(getenv("GATEWAY_FLAGS"))}
	if v := getenv("LISTEN"); v != "" {
		s.listen = v
	}
	if _, port, err := net.SplitHostPort(s.listen); err != nil || !isPort(port) {
		return s, fail(64, "for example LISTEN=127.0.0.1:8081", "LISTEN=%q is not host:port", s.listen)
	}
	if v := getenv("ZK_PORT"); v != "" {
		if !isPort(v) {
			return s, fail(64, "for example ZK_PORT=2182", "ZK_PORT=%q is not a port from 1 to 65535", v)
		}
		s.zkPort, _ = strconv.Atoi(v)
	}
	return s, nil
}

func isPort(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 1 && n <= 65535
}

// url is where a client on this machine finds the gateway.
func (s settings) url() string {
	host, port, _ := net.SplitHostPort(s.listen) // checked before
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// lockRunDir makes sure that no other devrun uses this directory: two ZooKeeper servers on one data directory destroy it,
// and ZooKeeper itself does not look. The lock ends with the process, so a killed one leaves nothing to clean up.
func lockRunDir() (unlock func(), err error) {
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return nil, fmt.Errorf("directory for run data: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(runDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock of run data: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fail(69, "stop the other make run first", "%s is in use by another make run: %w", runDir, err)
	}
	return func() { f.Close() }, nil
}

// portFree asks for the port before anything is started, so that the message can name what changes it.
func portFree(addr, variable, example string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fail(69, fmt.Sprintf("stop what listens there, or set %s: %s", variable, example), "%s=%s: %w", variable, addr, err)
	}
	return l.Close()
}

// startZooKeeper returns nil without an error when ctx ends first; the process that was being started dies with ours.
func startZooKeeper(ctx context.Context, port int) (*zkreal.Server, error) {
	dir, err := filepath.Abs(filepath.Join(runDir, "zookeeper"))
	if err != nil {
		return nil, fmt.Errorf("directory of ZooKeeper: %w", err)
	}
	type result struct {
		server *zkreal.Server
		err    error
	}
	started := make(chan result, 1)
	go func() {
		s, err := zkreal.Start(zkreal.WithDir(dir), zkreal.WithPort(port), zkreal.WithLogLevel("warn"))
		started <- result{s, err}
	}()
	select {
	case r := <-started:
		if errors.Is(r.err, zkreal.ErrNotInstalled) {
			return nil, fail(69, "scripts/setup installs it", "start ZooKeeper: %w", r.err)
		}
		if r.err != nil {
			return nil, fmt.Errorf("start ZooKeeper: %w", r.err)
		}
		return r.server, nil
	case <-ctx.Done():
		return nil, nil
	}
}

func startGateway(set settings, zkAddr string) (*childproc.Process, error) {
	args := append([]string{"--zk", zkAddr, "--listen", set.listen, "--create-root"}, set.gatewayFlags...)
	cmd := exec.Command(gatewayBinary, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	p, err := childproc.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return p, nil
}

// awaitReady polls url until it answers 200. It returns false without an error when ctx or the gateway ends first: the
// caller sees that too.
func awaitReady(ctx context.Context, url string, gatewayDone <-chan struct{}) (bool, error) {
	deadline := time.NewTimer(readyWithin)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx, url)
		if err == nil {
			return true, nil
		}
		select {
		case <-tick.C:
		case <-gatewayDone:
			return false, nil
		case <-ctx.Done():
			return false, nil
		case <-deadline.C:
			return false, fmt.Errorf("the gateway is not ready after %v: %w", readyWithin, err)
		}
	}
}

func ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
