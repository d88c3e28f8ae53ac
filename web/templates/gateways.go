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
