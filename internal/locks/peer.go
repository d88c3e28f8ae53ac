package locks

import "time"

// Route says where requests about a lease go.
type Route struct {
	Gateway string // id of the owner
	Address string // as it advertises itself: "host:port" or "https://host:port"; "" while its registration has not been read
	// Zxid is how far this gateway has seen: a replica that has come so far shows
	// what made that gateway the owner.
	Zxid int64
	// Lease is the lease in question.
	Lease string
}

// Peer is a gateway as the replica shows it.
type Peer struct {
	Gateway, Address, Version string // Address and Version are "" while the registration has not been read
	Started                   time.Time
	Self                      bool
	Registered                bool
	Leases                    int           // contenders it owns, its chain's included
	Succeeded                 []string      // ids that it has taken over, with their successors' successors, in order
	GuardAge                  time.Duration // since its guard was last seen to move; -1: not known
}
