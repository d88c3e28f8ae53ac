package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes descendants whose parents have died children of this process.
func becomeSubreaper() error {
	return os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// canSeeDescendants refuses to run where no descendant would be found, or another process in its stead: without /proc, or with the
// one of another PID namespace (unshare --pid without --mount-proc).
func canSeeDescendants() error {
	if pid, err := os.Readlink("/proc/self"); err != nil || pid != strconv.Itoa(os.Getpid()) {
		return errors.New("/proc must be mounted, and be that of this PID namespace: without it no descendant of the command can be found")
	}
	return nil
}

// parentDeathSignal makes the kernel kill a process whose parent's thread ends.
func parentDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// tree is all descendants of this process, but for those that it had before.
type tree struct {
	spared map[int]bool // children that were there before
	group  int          // the command's process group; where descendants are seen it is not needed
}

// newTree leaves the children that this process has by now alone: those of a shell that became this program by exec.
func newTree() *tree {
	t := &tree{spared: map[int]bool{}}
	for _, pid := range childrenOf(os.Getpid()) {
		t.spared[pid] = true
	}
	return t
}

// descendants lists them, parents before children.
func (t *tree) descendants() []int {
	var all []int
	for next := t.children(); len(next) > 0; {
		all = append(all, next...)
		var below []int
		for _, pid := range next {
			below = append(below, childrenOf(pid)...)
		}
		next = below
	}
	return all
}

func (t *tree) children() []int {
	return slices.DeleteFunc(childrenOf(os.Getpid()), func(pid int) bool { return t.spared[pid] })
}

// childrenOf lists the children of a process. It is exact while the process stands still.
func childrenOf(pid int) []int {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if len(threads) == 0 && !kernelListsChildren() {
		return childrenByScan(pid)
	}
	var children []int
	for _, thread := range threads {
		text, _ := os.ReadFile(thread) // an error: the thread has ended
		for field := range bytes.FieldsSeq(text) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// kernelListsChildren is false for kernels without CONFIG_PROC_CHILDREN.
var kernelListsChildren = sync.OnceValue(func() bool {
	_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	return err == nil
})

func childrenByScan(pid int) []int {
	var children []int
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		if child, err := strconv.Atoi(filepath.Base(dir)); err == nil && parentOf(child) == pid {
			children = append(children, child)
		}
	}
	return children
}

// parentOf gives the parent of a process, and 0 when the process is gone.
func parentOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// "pid (name) state ppid ...", where the name can have anything in it.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

// isDescendant follows the parents of a process up to this one.
func isDescendant(pid int) bool {
	self := os.Getpid()
	for range 10000 { // no loop: but the chain changes while it is read
		switch pid = parentOf(pid); {
		case pid == self:
			return true
		case pid <= 1:
			return false
		}
	}
	return false
}

// signalTo sends a signal to a descendant, and to nothing else: the number of a process that has ended may be another one's by now.
func signalTo(pid int, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil: // a kernel before 5.3
		if !isDescendant(pid) {
			return nil
		}
		err = unix.Kill(pid, sig)
	default:
		defer unix.Close(fd)
		if !isDescendant(pid) { // asked after the process was pinned by its file descriptor
			return nil
		}
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// freeze stops all descendants, until a look finds none that is not stopped or about to be. A process that has SIGSTOP before it
// cannot finish a fork.
func (t *tree) freeze() {
	stopped := map[int]bool{}
	for range 1000 {
		found := false
		for _, pid := range t.descendants() {
			if !stopped[pid] {
				stopped[pid], found = true, true
				_ = signalTo(pid, syscall.SIGSTOP)
			}
		}
		if !found {
			return
		}
	}
}

// each sends the signals to all descendants, and gives the errors by process.
func (t *tree) each(signals ...syscall.Signal) map[int]error {
	failed := map[int]error{}
	for _, pid := range t.descendants() {
		for _, sig := range signals {
			if err := signalTo(pid, sig); err != nil {
				failed[pid] = err
			}
		}
	}
	return failed
}

// kill freezes and kills all descendants that it sees. It says which are alive after that, and why.
func (t *tree) kill() map[int]error {
	t.freeze()
	return t.each(syscall.SIGKILL)
}

// awaitRest returns at once: when wait4 says that there is no child, there is no descendant.
func (t *tree) awaitRest() {}

// nameOf is what ps shows.
func nameOf(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return string(bytes.TrimSpace(name))
}
