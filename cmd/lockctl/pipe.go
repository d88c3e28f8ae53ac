package main

import (
	"context"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// untilUnread ends the context when the output is a pipe whose reader has gone. A write would tell, but a stream may have nothing to
// write for hours.
func (a *app) untilUnread(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(nil) }
	f, ok := a.stdout.(*os.File)
	if !ok {
		return ctx, stop
	}
	go func() {
		for ctx.Err() == nil {
			fds := []unix.PollFd{{Fd: int32(f.Fd())}}
			n, err := unix.Poll(fds, 500)
			if err != nil && err != unix.EINTR {
				return
			}
			if n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
				cancel(syscall.EPIPE)
			}
		}
	}()
	return ctx, stop
}
