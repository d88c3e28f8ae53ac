package templates

import "time"

// GatewayRow is one gateway of the fleet.
type GatewayRow struct {
	ID        string
	Self      bool   // the one that shows the page
	Address   string // "" while its registration has not been read
	Version   string
	Started   time.Time // zero while it has not been read
	Leases    int       // contenders whose leases it runs
	Partial   bool      // Leases is left out: it would count what viewers may not read
	Succeeded int       // gateways that it has succeeded, while anything is left of them
	State     string    // what is known of its health: "serving", ...
	Tone      string    // "good", "warn", "bad"
	Seen      string    // more of it; "" for nothing
	SeenAt    time.Time // when it last wrote, or left; zero when not known
	Left      bool      // it is not registered any more
	Deposed   bool      // with Left: it was registered and committed nothing
	Successor string    // with Left: the gateway that took its leases over; "" while none has
	Figures   GatewayFigures
}

// GatewayFigures are what a gateway says of itself.
type GatewayFigures struct {
	P50, P99 time.Duration // of its commits in the last minutes; 0 when there were none, or it does not say
	Opened   time.Time     // its ZooKeeper session; zero when it has none, or does not say
	Lag      time.Duration // how far its replica is behind at most
	Silent   string        // why it says nothing; "" when it does
}

// fate is what became of the leases of a gateway that has left; "" when that is not for the viewer, or not known. Their successor's
// name follows where it ends with "went to".
func (r *GatewayRow) fate() string {
	switch {
	case r.Partial && r.Successor != "":
		return "its leases went to"
	case r.Partial:
		return ""
	case r.Leases == 0:
		return "it ran no leases"
	case r.Successor == "":
		return "its " + counted(r.Leases, "lease") + " will go to another gateway"
	}
	return "its " + counted(r.Leases, "lease") + " went to"
}

// ServerRow is one ZooKeeper server.
type ServerRow struct {
	Address     string
	Mode        string // "leader", ...; "" when it does not say
	Version     string
	Zxid        string
	Connections int
	Lag         string // behind the first of them; "" for none
	Problem     string
}

// Gateways is the page of the fleet. Its fragment: "gateways".
type Gateways struct {
	Page
	Rows    []GatewayRow
	Servers []ServerRow // none: ZooKeeper is part of the gateway, or none was asked yet
}

// signature changes when a row is worth a glance.
func (r *GatewayRow) signature() string { return r.State }

func (r *ServerRow) signature() string { return r.Mode + r.Problem }

func (r *ServerRow) tone() string {
	switch {
	case r.Problem != "":
		return "bad"
	case r.Mode == "":
		return "warn"
	}
	return "good"
}

func (r *ServerRow) state() string {
	switch r.Mode {
	case "leader", "follower", "observer", "standalone", "read-only":
		return r.Mode
	}
	return "unknown"
}
