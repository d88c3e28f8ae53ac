package clientsuite

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"lockkeeper/internal/test/clientsuite/check"
)

// stat is what /proc tells of a process: its state and its parent. ok is false when it has ended.
func stat(pid int) (state byte, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	_, err = fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %c %d", &state, &parent) // a name may have blanks
	return state, parent, err == nil && state != 'Z'
}

// descendants are the processes below one, parents first.
func descendants(of int) []int {
	children := make(map[int][]int)
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(path))
		if _, parent, ok := stat(pid); err == nil && ok {
			children[parent] = append(children[parent], pid)
		}
	}
	found := slices.Sorted(slices.Values(children[of]))
	for i := 0; i < len(found); i++ {
		found = append(found, slices.Sorted(slices.Values(children[found[i]]))...)
	}
	return found
}

// freeze stops processes for a time, and lets them go on in the same order. The processes may end meanwhile.
func freeze(ctx context.Context, pids []int, length time.Duration) (freezes []check.Freeze) {
	for _, pid := range pids {
		freezes = append(freezes, check.Freeze{PID: pid, From: now()})
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	for _, pid := range pids {
		// A thread runs on until it has been told.
		for state, _, ok := stat(pid); ok && state != 'T' && state != 't'; state, _, ok = stat(pid) {
			time.Sleep(time.Millisecond)
		}
	}
	sleep(ctx, length)
	to := now() // of all: one that goes on may let another one go on
	for i, pid := range pids {
		freezes[i].To = to
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	return freezes
}
