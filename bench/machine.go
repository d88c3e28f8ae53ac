package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is what the figures were measured on.
type machine struct {
	processor  string
	cores      int
	memory     string
	kernel     string
	system     string
	goVersion  string
	filesystem string
	fsync      time.Duration // median of a small append made durable
}

// describeMachine looks around. dir is where ZooKeeper will keep its data.
func describeMachine(dir string) (machine, error) {
	m := machine{
		processor: procField("/proc/cpuinfo", "model name"), cores: runtime.NumCPU(),
		system:    strings.Trim(lineField("/etc/os-release", "PRETTY_NAME="), `"`),
		goVersion: runtime.Version(),
	}
	var kb int
	if _, err := fmt.Sscanf(procField("/proc/meminfo", "MemTotal"), "%d kB", &kb); err == nil {
		m.memory = fmt.Sprintf("%d GB", (kb+1<<19)>>20)
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err == nil {
		m.kernel = "Linux " + unix.ByteSliceToString(uts.Release[:]) + " " + unix.ByteSliceToString(uts.Machine[:])
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return machine{}, fmt.Errorf("file system of %s: %w", dir, err)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		return machine{}, fmt.Errorf("%s is in memory, where a durable write costs nothing: run this in a directory on a disk", dir)
	}
	m.filesystem = filesystemName(int64(fs.Type))
	var err error
	m.fsync, err = fsyncTime(filepath.Join(dir, "fsync"))
	return m, err
}

func filesystemName(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	}
	return fmt.Sprintf("file system %#x", magic)
}

// fsyncTime is the median of writes of 512 bytes over preallocated ones, as ZooKeeper's log does, each with fdatasync.
func fsyncTime(path string) (time.Duration, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, fmt.Errorf("fsync: %w", err)
	}
	defer os.Remove(path)
	defer f.Close()
	const writes, size = 200, 512
	if err := f.Truncate(writes * size); err != nil {
		return 0, fmt.Errorf("fsync: %w", err)
	}
	took := make([]time.Duration, 0, writes)
	for i := range writes {
		began := time.Now()
		if _, err := f.WriteAt(bytes.Repeat([]byte{1}, size), int64(i)*size); err != nil {
			return 0, fmt.Errorf("fsync: %w", err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("fsync: %w", err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return percentile(took, 50), nil
}

// describe is the text above the tables.
func (b *bench) describe() string {
	m := b.rig.machine
	var text strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&text, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
	}
	text.WriteString("| the machine | |\n|---|---|\n")
	line("processor", "%s, %d cores, %s of memory", m.processor, m.cores, m.memory)
	line("system", "%s, %s", m.system, m.kernel)
	line("disk", "%s, fsync on; a small write made durable takes %.2f ms", m.filesystem, m.fsync.Seconds()*1e3)
	line("ZooKeeper", "%s, 1000 MB heap, both JIT compilers", b.version)
	line("Go", "%s", m.goVersion)
	line("run", "%s UTC, %d rounds, %v for each side of a line in each", time.Now().UTC().Format("2006-01-02 15:04"), b.rounds, b.d)
	noise := over(b.noise)
	line("noise", "everything else on the machine kept %.2f cores busy (least %.2f, greatest %.2f)", noise.median, noise.least, noise.greatest)
	if len(b.retried) != 0 {
		line("run again", "these parts failed once, and ran again with new servers: %s", strings.Join(b.retried, ", "))
	}
	if len(b.failed) != 0 {
		line("failed", "these parts failed twice, and have no figures: %s", strings.Join(b.failed, ", "))
	}
	return text.String()
}

func procField(path, name string) string {
	_, value, _ := strings.Cut(lineField(path, name), ":")
	return strings.TrimSpace(value)
}

func lineField(path, prefix string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return field(string(text), prefix)
}
