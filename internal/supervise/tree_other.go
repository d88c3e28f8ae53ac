//go:build !linux

package supervise

import (
	"errors"
	"strconv"
	"syscall"
	"time"
)

// There are no subreapers and no parent death signals here.
func canSeeDescendants() error                 { return nil }
func becomeSubreaper() error                   { return nil }
func parentDeathSignal(_ *syscall.SysProcAttr) {}

// tree is the command's process group: what leaves it is lost sight of.
type tree struct{ group int }

func newTree() *tree { return &tree{} }

func (t *tree) descendants() []int {
	if t.group == 0 || errors.Is(syscall.Kill(-t.group, 0), syscall.ESRCH) {
		return nil
	}
	return []int{-t.group}
}

func (t *tree) each(signals ...syscall.Signal) map[int]error {
	failed := map[int]error{}
	for _, group := range t.descendants() {
		for _, sig := range signals {
			if err := syscall.Kill(group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				failed[group] = err
			}
		}
	}
	return failed
}

func (t *tree) kill() map[int]error { return t.each(syscall.SIGSTOP, syscall.SIGKILL) }

// awaitRest waits for the members of the group that are no children of this process.
func (t *tree) awaitRest() {
	for len(t.descendants()) > 0 {
		time.Sleep(20 * time.Millisecond)
	}
}

func nameOf(group int) string { return "process group " + strconv.Itoa(-group) }
