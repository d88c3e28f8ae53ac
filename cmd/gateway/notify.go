package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifyEvery is how often the state is read.
const notifyEvery = 100 * time.Millisecond

// notifier notifies systemd (sd_notify(3)): that the gateway is ready, once it can
// serve requests; of its status; that it is stopping; and, where the unit has a
// watchdog, that its loops run.
type notifier struct {
	notify       func(state string)
	watchdog     time.Duration // 0: none
	ready, alive func() error
}

// newNotifier is nil without NOTIFY_SOCKET. The variables are for this process,
// not for its children.
func newNotifier(logger *slog.Logger, ready, alive func() error) *notifier {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	watchdog, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		logger.Warn("there will be no watchdog", "err", err)
	}
	return &notifier{watchdog: watchdog, ready: ready, alive: alive, notify: func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			logger.Warn("systemd could not be notified", "state", state, "err", err)
		}
	}}
}

// run notifies until ctx ends. It sends STOPPING=1 as soon as leaving is done, and goes on
// to feed the watchdog, because a handover takes time. When a loop has stopped the watchdog is not
// fed: systemd ends the process, and another gateway takes its leases over.
func (n *notifier) run(ctx, leaving context.Context) {
	tick := time.NewTicker(notifyEvery)
	defer tick.Stop()
	up, status, fed := false, "", time.Time{}
	left := leaving.Done()
	for {
		if left != nil {
			switch err := n.ready(); {
			case err == nil && !up:
				up, status = true, "serving"
				n.notify(daemon.SdNotifyReady + "\nSTATUS=" + status)
			case err == nil && status != "serving":
				status = "serving"
				n.notify("STATUS=" + status)
			case err != nil && status != err.Error():
				status = err.Error()
				n.notify("STATUS=" + status)
			}
		}
		// A third of the time, so that one that comes late does no harm.
		if now := time.Now(); n.watchdog > 0 && now.Sub(fed) >= n.watchdog/3 && n.alive() == nil {
			fed = now
			n.notify(daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-left:
			left = nil
			n.notify(daemon.SdNotifyStopping + "\nSTATUS=handing over")
		case <-ctx.Done():
			return
		}
	}
}
