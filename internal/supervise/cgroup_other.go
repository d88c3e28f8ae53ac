//go:build !linux

package supervise

import "syscall"

type cgroup struct{}

func newCgroup() *cgroup                   { return nil }
func (*cgroup) use(_ *syscall.SysProcAttr) {}
func (*cgroup) kill()                      {}
func (*cgroup) remove()                    {}

func removeCgroupOf(_ int) {}
