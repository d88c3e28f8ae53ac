package locks

import "time"

// Route says which gateway answers requests about a lease.
type Route struct {
	Gateway string // id of the owner
	Address string // as it advertises itself: "host:port" or "https://host:port"; "" while its registration has not been read
	// Zxid is what this gateway's replica has seen. A replica at this zxid shows what made that gateway the owner.
	Zxid int64
	// Lease is the lease in question.
	Lease string
	Seals int // as in Peer
}

// Peer is a gateway as the replica shows it.
type Peer struct {
	Gateway, Address, Version string // Address and Version are "" while the registration has not been read
	Seals                     int    // the newest version of seals that it understands; 0: not known, or of a release that did not say it
	Started                   time.Time
	Self                      bool
	Registered                bool
	Leases                    int           // contenders that it owns, those of its chain included
	Succeeded                 []string      // ids that it has taken over, and those that they had taken over, in order
	GuardAge                  time.Duration // since its guard was last seen to change; -1: not known
}

// LeftGateway is a gateway whose registration has gone.
type LeftGateway struct {
	Gateway   string
	Ago       time.Duration
	Deposed   bool   // it was registered and committed nothing
	Leases    int    // contenders that it ran, those of its chain included
	Successor string // the gateway that took them over; "" while none has, or there was nothing to take over
}

// OldLeases are leases that were created until a point in ZooKeeper's order.
type OldLeases struct {
	N       int      // of this gateway
	Some    []string // ids of a few of them
	Unowned int      // contenders of gateways that are gone and have no registered successor
}
