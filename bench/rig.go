package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// rig starts the programs that are measured, in a directory of its own on a disk, and ends them. One goroutine uses it.
type rig struct {
	dir     string
	binary  string // the gateway's, in dir
	machine machine
	ends    []func() // of what runs, in the order in which it started
}

// newRig builds the gateway. Everything that it writes is below parent. The caller must close the rig.
func newRig(ctx context.Context, parent string) (*rig, error) {
	r := &rig{}
	if err := r.prepare(ctx, parent); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) prepare(ctx context.Context, parent string) error {
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
	return buildGateway(ctx, ".", r.binary)
}

// buildGateway builds the gateway of the source tree at root.
func buildGateway(ctx context.Context, root, binary string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "lockkeeper/cmd/gateway")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the gateway: %w\n%s", err, output)
	}
	return nil
}

// atEnd has f called when what runs now is ended.
func (r *rig) atEnd(f func()) { r.ends = append(r.ends, f) }

// endAll stops everything that runs, the last first.
func (r *rig) endAll() {
	for _, end := range slices.Backward(r.ends) {
		end()
	}
	r.ends = nil
}

// close stops everything and removes the directory. A failure here does not change the figures, so it is ignored.
func (r *rig) close() {
	r.endAll()
	if r.dir != "" {
		_ = os.RemoveAll(r.dir)
	}
}

// gateway is a gateway, or the bare handler, with its clients.
type gateway struct {
	*program
	http *httpClients
}

// startGateway runs the gateway with its default settings but for where its ZooKeeper is and what else arguments say.
func (r *rig) startGateway(ctx context.Context, arguments ...string) (*gateway, error) {
	return r.startGatewayOf(ctx, r.binary, arguments...)
}

func (r *rig) startGatewayOf(ctx context.Context, binary string, arguments ...string) (*gateway, error) {
	listen, err := freeAddr()
	if err != nil {
		return nil, err
	}
	return r.serve(ctx, "gateway", exec.Command(binary, append(slices.Clone(arguments), "--listen", listen)...), listen)
}

// serve starts a program that listens there, and returns once it says that it is ready.
func (r *rig) serve(ctx context.Context, name string, cmd *exec.Cmd, listen string) (*gateway, error) {
	p, err := startProgram(name, cmd)
	if err != nil {
		return nil, err
	}
	g := &gateway{p, newHTTPClients("http://" + listen)}
	r.atEnd(g.end)
	return g, g.awaitReady(ctx)
}

func (g *gateway) end() {
	g.http.close()
	g.stop()
}

// awaitReady polls until the program can grant locks.
func (g *gateway) awaitReady(ctx context.Context) error {
	return g.await(ctx, func() error {
		return g.http.do(ctx, http.MethodGet, g.http.base+"/readyz", "", http.StatusOK, nil)
	})
}

// await polls until done returns no error, for up to two minutes.
func (p *program) await(ctx context.Context, done func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := done()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.Done():
			return fmt.Errorf("the program ended (%v):\n%s", p.Wait(), p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("the program is not ready: %w\n%s", errors.Join(err, ctx.Err()), p.logTail())
		}
	}
}
