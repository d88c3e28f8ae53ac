package main

import (
	"strings"
	"time"

	"lockkeeper/internal/httpapi/compat"
	"lockkeeper/internal/locks"
)

// compatFlags are the flags about the protocols of other programs.
type compatFlags struct {
	Names          []string      `name:"compat" placeholder:"NAME" help:"Protocols of other programs to serve below /compat, with the same locks: fleetlock (machines that ask before they reboot), terraform (the lock of Terraform's and OpenTofu's HTTP backend). None unless given; give all gateways the same."`
	Hold           time.Duration `name:"compat-hold" default:"744h" help:"For how long a lock that was taken by one of --compat is kept when its client neither releases it nor asks for it again: these clients send no heartbeats. At most 744h, 31 days."`
	FleetLockLimit int           `name:"fleetlock-limit" default:"1" help:"How many machines of a group of FleetLock may reboot at the same time, where the lock fleetlock:GROUP has no limit of its own (PUT /v1/locks/fleetlock:GROUP)."`
}

func (f *compatFlags) check() error {
	if err := compat.CheckNames(f.Names); err != nil {
		return usage("for example --compat "+strings.Join(compat.Names(), ","), "--compat: %w", err)
	}
	if len(f.Names) == 0 {
		return nil
	}
	if f.Hold < time.Minute || f.Hold > locks.MaxReserve {
		return usage("see gateway --help", "--compat-hold %v must be between %v and %v", f.Hold, time.Minute, locks.MaxReserve)
	}
	if f.FleetLockLimit < 1 || f.FleetLockLimit > locks.MaxLimit {
		return usage("see gateway --help", "--fleetlock-limit %d must be between 1 and %d", f.FleetLockLimit, locks.MaxLimit)
	}
	return nil
}

// options are what the API serves.
func (f *compatFlags) options() compat.Options {
	return compat.Options{Names: f.Names, Hold: f.Hold, FleetLockLimit: f.FleetLockLimit}
}
