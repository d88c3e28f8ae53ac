package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/zkreal"
)

const (
	readyWithin = 60 * time.Second
	stopWithin  = 30 * time.Second
)

// zooKeeperFlags undo what zkreal does for quick tests: the server gets both of the JVM's compilers and the heap of
// Debian's zkEnv.sh. The serial collector stays: it is the better one on two cores.
var zooKeeperFlags = []zkreal.Option{
	zkreal.WithJVMFlag("-XX:TieredStopAtLevel=4"),
	zkreal.WithJVMFlag("-Xmx1000m"),
	zkreal.WithLogLevel("warn"),
}

// rig is everything that runs: ZooKeeper, the gateway, and the clients of both. One goroutine uses it.
type rig struct {
	dir     string // temporary, on a disk
	binary  string // the gateway's, in dir
	machine machine
	zk      *zkreal.Server
	gateway *childproc.Process
	log     *os.File // what the gateway logs, in memory
	http    *httpClients
	direct  *directClients
}

// newRig returns once the gateway serves and all connections are there. Everything that it writes is in a directory of
// its own below parent. The caller must close the rig.
func newRig(ctx context.Context, parent string) (*rig, error) {
	r := &rig{}
	if err := r.start(ctx, parent); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) start(ctx context.Context, parent string) error {
	parent, err := filepath.Abs(parent)
	if err != nil {
		return fmt.Errorf("directory for the run: %w", err)
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return fmt.Errorf("directory for the run: %w", err)
	}
	if r.dir, err = os.MkdirTemp(parent, "bench-"); err != nil {
		return fmt.Errorf("directory for the run: %w", err)
	}
	if r.machine, err = describeMachine(r.dir); err != nil {
		return err
	}
	r.binary = filepath.Join(r.dir, "gateway-program")
	build := exec.CommandContext(ctx, "go", "build", "-o", r.binary, "lockkeeper/cmd/gateway")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the gateway: %w\n%s", err, output)
	}
	options := append([]zkreal.Option{zkreal.WithDir(filepath.Join(r.dir, "zookeeper"))}, zooKeeperFlags...)
	if r.zk, err = zkreal.Start(options...); err != nil {
		return fmt.Errorf("start ZooKeeper: %w", err)
	}
	if err := r.startGateway(ctx, "--zk", r.zk.Addr(), "--webhook-allow", "127.0.0.1"); err != nil {
		return err
	}
	r.direct = &directClients{}
	return r.direct.connect(ctx, r.zk.Addr())
}

// startGateway runs the gateway with its default settings but for where its ZooKeeper is, and which webhooks it may deliver. Its log, a line for each request,
// goes to memory: on a disk it would be in the way of ZooKeeper's fsync, thrown away it could not say why a run failed.
func (r *rig) startGateway(ctx context.Context, where ...string) error {
	fd, err := unix.MemfdCreate("gateway.log", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memory for the gateway's log: %w", err)
	}
	r.log = os.NewFile(uintptr(fd), "gateway.log")
	appended, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("log of the gateway: %w", err)
	}
	defer appended.Close() // the child has its own descriptor
	listen, err := freeAddr()
	if err != nil {
		return err
	}
	cmd := exec.Command(r.binary, append(where, "--listen", listen)...)
	cmd.Stdout, cmd.Stderr = appended, appended
	if r.gateway, err = childproc.Start(cmd); err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	r.http = newHTTPClients("http://" + listen)
	return r.awaitServing(ctx)
}

// freeAddr is an address on which no process listens, below the range from which outgoing connections get their ports.
func freeAddr() (string, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(9000))); err == nil {
			defer l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}

// awaitServing polls until the gateway grants locks: its trust window is open and its replica current.
func (r *rig) awaitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := r.http.serves(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.gateway.Done():
			return fmt.Errorf("the gateway ended while starting (%v):\n%s", r.gateway.Wait(), r.logTail())
		case <-ctx.Done():
			return fmt.Errorf("the gateway does not serve: %w\n%s", errors.Join(err, ctx.Err()), r.logTail())
		}
	}
}

// serves is nil when the gateway says that it can grant locks.
func (h *httpClients) serves(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.base+"/v1/info", nil)
	if err != nil {
		return err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var info struct {
		Zookeeper struct {
			FenceOpen      bool `json:"fence_open"`
			ReplicaCurrent bool `json:"replica_current"`
		} `json:"zookeeper"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil {
		return fmt.Errorf("/v1/info answers %s: %w", resp.Status, err)
	}
	if !info.Zookeeper.FenceOpen || !info.Zookeeper.ReplicaCurrent {
		return fmt.Errorf("fence open: %v, replica current: %v", info.Zookeeper.FenceOpen, info.Zookeeper.ReplicaCurrent)
	}
	return nil
}

// forgetLog keeps the log from growing with the run.
func (r *rig) forgetLog() error {
	if err := r.log.Truncate(0); err != nil {
		return fmt.Errorf("log of the gateway: %w", err)
	}
	return nil
}

// logTail is the last of what the gateway has logged.
func (r *rig) logTail() string {
	const most = 8 << 10
	info, err := r.log.Stat()
	if err != nil {
		return "no log: " + err.Error()
	}
	from := max(info.Size()-most, 0)
	var tail strings.Builder
	if _, err := io.Copy(&tail, io.NewSectionReader(r.log, from, most)); err != nil {
		return "no log: " + err.Error()
	}
	return tail.String()
}

// close stops everything and removes the directory. A failure here does not change the figures, so it is ignored.
func (r *rig) close() {
	if r.direct != nil {
		r.direct.close()
	}
	if r.http != nil {
		r.http.close()
	}
	if r.gateway != nil {
		r.gateway.Stop(stopWithin)
	}
	if r.log != nil {
		_ = r.log.Close()
	}
	if r.zk != nil {
		r.zk.Close()
	}
	if r.dir != "" {
		_ = os.RemoveAll(r.dir)
	}
}
