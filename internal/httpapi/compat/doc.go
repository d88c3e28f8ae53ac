// Package compat has the names of the protocols of other programs that the gateway can speak beside its own. Its packages have
// what these protocols say, and no input or output: internal/httpapi has the routes, and takes and ends the leases.
package compat

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The protocols.
const (
	FleetLock = "fleetlock"
	Terraform = "terraform"
)

// Names are the protocols' names, in the order of the documentation.
func Names() []string { return []string{FleetLock, Terraform} }

// Prefix begins the paths of all of them.
const Prefix = "/compat/"

// Options say which protocols are served, and how.
type Options struct {
	Names []string
	// Hold is for how long a lock is kept that its client neither releases nor asks for again: the protocols have no heartbeats.
	Hold time.Duration
	// FleetLockLimit is how many machines of a group reboot at the same time, where the group's lock has no limit of its own.
	FleetLockLimit int
}

// Has reports whether the protocol is served.
func (o *Options) Has(name string) bool { return slices.Contains(o.Names, name) }

// CheckNames refuses a name that is no protocol's.
func CheckNames(names []string) error {
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("%q is not a protocol that the gateway can speak: it must be one of %s", name, strings.Join(Names(), ", "))
		}
	}
	return nil
}
