package cluster

import (
	"time"

	"lockkeeper/internal/locks/recipe"
)

// Gateway is what the replica has shown of a gateway id. Its owner reads the exported fields and changes none.
type Gateway struct {
	Registered bool
	Announced  bool       // its registration is one that events tell of
	Contenders int        // contenders in the replica that carry the id
	Entry      bool       // a succession entry names who took it over
	About      *About     // what its registration says; nil until it has been read
	Guard      GuardWatch // of its guard node

	seen      bool // it was registered at some time
	successor recipe.GatewayID
	reading   bool          // the entry is being read, or makes no sense
	taking    bool          // our takeover is under way
	takenAt   time.Duration // boot: when the entry that names us was seen
	entered   int64         // zxid of the reply by which the entry was read
	asking    bool          // the registration is being read
}

// About is what a registration says.
type About struct {
	Address, Version string
	Started          time.Time
	Seals            int // the newest version of seals that it understands
	Terms            int // the newest terms of leases that it keeps
}

// registered reports whether the gateway is known and registered; g may be nil.
func (g *Gateway) registered() bool { return g != nil && g.Registered }

// contenders is how many contenders carry the id; g may be nil.
func (g *Gateway) contenders() int {
	if g == nil {
		return 0
	}
	return g.Contenders
}
