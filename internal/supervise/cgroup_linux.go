package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cgroup is a control group (version 2) of the command's own. Its methods are harmless on nil.
type cgroup struct {
	path string
	dir  *os.File
}

// useCgroups is false in tests that look at what happens without.
var useCgroups = true

// newCgroup makes one below that of this process, and returns nil where it cannot: in most containers, and for users
// without a group that the system has delegated to them.
func newCgroup() *cgroup {
	parent := ownCgroup()
	if parent == "" || !useCgroups {
		return nil
	}
	sweep(parent)
	path := pathOf(parent, os.Getpid())
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil
	}
	c := &cgroup{path: path}
	var err error
	if _, err = os.Stat(filepath.Join(path, "cgroup.kill")); err == nil { // Linux 5.14
		c.dir, err = os.Open(path)
	}
	if err != nil {
		c.remove()
		return nil
	}
	return c
}

func pathOf(parent string, keeper int) string {
	return filepath.Join(parent, fmt.Sprintf("lockctl-%d", keeper))
}

// sweep removes what keepers left behind that were killed.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, "lockctl-*"))
	for _, path := range left {
		var keeper int
		if _, err := fmt.Sscanf(filepath.Base(path), "lockctl-%d", &keeper); err == nil && syscall.Kill(keeper, 0) == syscall.ESRCH {
			_ = os.Remove(path) // refused while a process is in it
		}
	}
}

// removeCgroupOf removes what a keeper left behind that was killed.
func removeCgroupOf(keeper int) {
	if parent := ownCgroup(); parent != "" {
		(&cgroup{path: pathOf(parent, keeper)}).remove()
	}
}

// ownCgroup is the directory of this process's group, and empty when there is none of version 2.
func ownCgroup() string {
	groups, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	var within string
	for line := range bytes.Lines(groups) {
		if path, ok := bytes.CutPrefix(line, []byte("0::")); ok {
			within = strings.TrimSpace(string(path))
		}
	}
	if within == "" {
		return ""
	}
	for line := range bytes.Lines(mounts) {
		// "36 35 98:0 ROOT MOUNTPOINT OPTIONS ... - TYPE ..."
		before, after, _ := strings.Cut(string(line), " - ")
		fields := strings.Fields(before)
		if !strings.HasPrefix(after, "cgroup2 ") || len(fields) < 5 {
			continue
		}
		below, err := filepath.Rel(fields[3], within)
		if err != nil || strings.HasPrefix(below, "..") {
			continue
		}
		return filepath.Join(fields[4], below)
	}
	return ""
}

func (c *cgroup) use(attr *syscall.SysProcAttr) {
	attr.UseCgroupFD = c != nil
	if c != nil {
		attr.CgroupFD = int(c.dir.Fd())
	}
}

// kill freezes what is in the group, so that none of it acts on another one's death, and kills it.
func (c *cgroup) kill() {
	if c == nil {
		return
	}
	if os.WriteFile(filepath.Join(c.path, "cgroup.freeze"), []byte("1"), 0) == nil {
		for range 20 {
			if events, _ := os.ReadFile(filepath.Join(c.path, "cgroup.events")); bytes.Contains(events, []byte("frozen 1")) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	_ = os.WriteFile(filepath.Join(c.path, "cgroup.kill"), []byte("1"), 0)
}

// remove takes the group away, with those that the command has made in it.
func (c *cgroup) remove() {
	if c == nil {
		return
	}
	if c.dir != nil {
		c.dir.Close()
	}
	var all []string
	_ = filepath.WalkDir(c.path, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	for i := len(all) - 1; i >= 0; i-- {
		// A process that has been reaped may be counted for a moment longer.
		for begun := time.Now(); errors.Is(os.Remove(all[i]), syscall.EBUSY) && time.Since(begun) < 100*time.Millisecond; {
			time.Sleep(time.Millisecond)
		}
	}
}
