package supervise

import (
	"bytes"
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

// newCgroup makes one below that of this process, and returns nil where it cannot: in most containers, and for users to whom the
// system has not delegated their group.
func newCgroup() *cgroup {
	parent := ownCgroup()
	if parent == "" {
		return nil
	}
	path := filepath.Join(parent, fmt.Sprintf("lockctl-%d", os.Getpid()))
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
		_ = os.Remove(all[i])
	}
}
