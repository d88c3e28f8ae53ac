package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifyEvery is how often it is looked whether there is something to tell.
const notifyEvery = 100 * time.Millisecond

// notifier tells systemd (sd_notify(3)) how the gateway is: that it has come up, once it can
// serve requests; how it goes since; that it is on its way out; and, where the unit has a
// watchdog, that its loops turn.
type notifier struct {
	tell         func(state string)
	watchdog     time.Duration // 0: none
	ready, alive func() error
}

// newNotifier is nil when nobody has asked to be told. The variables are for this process,
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
	return &notifier{watchdog: watchdog, ready: ready, alive: alive, tell: func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			logger.Warn("systemd could not be told", "state", state, "err", err)
		}
	}}
}

// run tells until ctx ends. It says STOPPING=1 as soon as leaving is done, and goes on
// to feed the watchdog: a handover takes its time. Who does not turn any more is not
// spoken for: systemd ends the process then, and its leases pass on to another gateway.
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
				n.tell(daemon.SdNotifyReady + "\nSTATUS=" + status)
			case err == nil && status != "serving":
				status = "serving"
				n.tell("STATUS=" + status)
			case err != nil && status != err.Error():
				status = err.Error()
				n.tell("STATUS=" + status)
			}
		}
		// A third of the time, so that one that comes late does no harm.
		if now := time.Now(); n.watchdog > 0 && now.Sub(fed) >= n.watchdog/3 && n.alive() == nil {
			fed = now
			n.tell(daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-left:
			left = nil
			n.tell(daemon.SdNotifyStopping + "\nSTATUS=handing over")
		case <-ctx.Done():
			return
		}
	}
}
