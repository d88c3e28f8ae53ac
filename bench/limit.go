package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The processor time that ZooKeeper gets where it is to be the bottleneck: so much of each period.
const (
	limitPeriod = 10 * time.Millisecond
	limitShare  = 0.25 // of one core
)

// limited makes ZooKeeper the bottleneck: its processor time is limited while the sides work.
func (b *bench) limited(ctx context.Context) error {
	if err := b.onOne(ctx); err != nil {
		return err
	}
	sides := only(b.sides, append([]string{gatewaySide}, directSides...)...)
	for _, s := range sides { // what ZooKeeper's JVM compiles would take long with so little time
		if _, err := s.turn(ctx, work{clients: 64, d: b.d}); err != nil {
			return err
		}
	}
	how, lift, err := limit(ctx, b.single.store.pids()[0])
	if err != nil {
		return err
	}
	defer lift()
	var lines []line
	for _, n := range []int{64, 256} {
		lines = append(lines, line{name: fmt.Sprintf("%d clients, own locks", n), work: work{clients: n}, sides: sides})
	}
	t, err := b.compare(ctx, lines, b.d)
	if err != nil {
		return err
	}
	b.section("ZooKeeper is the bottleneck", fmt.Sprintf("ZooKeeper gets %g of one core, by %s. Gateway and clients get what they ask for.\n\n", limitShare, how)+t.markdown())
	b.limitedTable = t
	for i, l := range lines {
		b.target(fmt.Sprintf("ZooKeeper as the bottleneck, %d clients ÷ zk.Lock (the better)", l.work.clients), atLeast, 2.5,
			t.against(i, gatewaySide, t.best(i, zkLockSharedSide, zkLockOwnSide)))
	}
	return nil
}

// three measures on an ensemble of three servers.
func (b *bench) three(ctx context.Context) error {
	b.endOne()
	s, err := b.rig.startSetting(ctx, 3)
	if err != nil {
		return err
	}
	defer b.rig.endAll()
	b.version = s.store.version()
	sides := append([]side{s.gatewaySide()}, s.directSides()...)
	t, err := b.compare(ctx, []line{
		{name: "1 client", work: work{clients: 1}, sides: only(sides, gatewaySide, zkLockSharedSide, curatorSharedSide)},
		{name: "16 clients, own locks", work: work{clients: 16}, sides: sides},
		{name: "64 clients, own locks", work: work{clients: 64}, sides: sides},
		{name: "16 clients, one lock", work: work{clients: 16, hot: true}, sides: sides},
	}, b.d)
	if err != nil {
		return err
	}
	b.section("Three ZooKeeper servers", "Three servers, and a quorum of two for each write, on the same machine. ZooKeeper's figures are those of all three together.\n\n"+t.markdown())
	return nil
}

// limit bounds the processor time of a process and its threads. It says how, and lift ends it.
func limit(ctx context.Context, pid int) (how string, lift func(), err error) {
	for _, group := range []func(int) (string, func(), error){limitByGroupV2, limitByGroupV1} {
		if how, lift, err = group(pid); err == nil {
			return how, lift, nil
		}
	}
	return limitBySignals(ctx, pid)
}

func limitByGroupV1(pid int) (string, func(), error) {
	const root = "/sys/fs/cgroup/cpu"
	dir, lift, err := groupOf(root, pid, map[string]string{"cpu.cfs_period_us": micro(limitPeriod), "cpu.cfs_quota_us": quota()})
	return fmt.Sprintf("a control group (version 1): %s µs of each %s µs", quota(), micro(limitPeriod)), lift, inDir(dir, err)
}

func limitByGroupV2(pid int) (string, func(), error) {
	const root = "/sys/fs/cgroup"
	if controllers, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control")); err != nil || !strings.Contains(string(controllers), "cpu") {
		return "", nil, fmt.Errorf("no control groups of version 2 with processors: %q, %w", controllers, err)
	}
	dir, lift, err := groupOf(root, pid, map[string]string{"cpu.max": quota() + " " + micro(limitPeriod)})
	return fmt.Sprintf("a control group (version 2): %s µs of each %s µs", quota(), micro(limitPeriod)), lift, inDir(dir, err)
}

func micro(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

func quota() string { return micro(time.Duration(limitShare * float64(limitPeriod))) }

func inDir(dir string, err error) error {
	if err != nil {
		return fmt.Errorf("control group %s: %w", dir, err)
	}
	return nil
}

// groupOf makes a control group below root with these settings and moves the process there. lift moves it to root again.
func groupOf(root string, pid int, settings map[string]string) (dir string, lift func(), err error) {
	dir = filepath.Join(root, fmt.Sprintf("lockkeeper-bench-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return dir, nil, err
	}
	lift = func() {
		_ = os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		_ = os.Remove(dir)
	}
	for name, value := range settings {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
			lift()
			return dir, nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		lift()
		return dir, nil, err
	}
	return dir, lift, nil
}

// limitBySignals stops the process for a part of each period: where no control group may be made.
func limitBySignals(ctx context.Context, pid int) (string, func(), error) {
	const period = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			_ = wait(ctx, time.Duration((1-limitShare)*float64(period)))
			_ = syscall.Kill(pid, syscall.SIGCONT)
			_ = wait(ctx, time.Duration(limitShare*float64(period)))
		}
	}()
	lift := func() {
		cancel()
		<-ended
	}
	return fmt.Sprintf("stopping it (SIGSTOP, SIGCONT) for %.0f of each %.0f ms", (1-limitShare)*float64(period.Milliseconds()), float64(period.Milliseconds())), lift, nil
}
