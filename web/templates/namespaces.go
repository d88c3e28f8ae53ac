package templates

// NamespaceRow is one namespace.
type NamespaceRow struct {
	Name    string
	URL     string // of its locks; "" while they cannot be shown
	Root    string // "" while its record has not been read
	Dialect string
	Names   string // of a custom dialect
	Ready   bool   // its locks can be taken here
	Problem string // why it will not be ready; "" for none
	Locks   int    // in use
	Hazards int    // locks with a hazard
	// HazardsURL shows them.
	HazardsURL string
}

// Namespaces is the list of them. Its fragment: "namespaces".
type Namespaces struct {
	Page
	Rows    []NamespaceRow
	Problem string // as in Overview
}

func (r *NamespaceRow) state() string {
	switch {
	case r.Problem != "":
		return "unusable"
	case r.Ready:
		return "ready"
	}
	return "loading"
}

func (r *NamespaceRow) tone() string {
	switch {
	case r.Problem != "":
		return "bad"
	case r.Ready:
		return "good"
	}
	return "warn"
}

// signature changes when a row is worth a glance.
func (r *NamespaceRow) signature() string { return r.state() }

// dialectTitle says which programs wait for the leases of a dialect.
func dialectTitle(dialect string) string {
	switch dialect {
	case "native":
		return "Curator's InterProcessMutex, go-zookeeper, HBase and ZooKeeper's WriteLock wait for its leases"
	case "curator-rw":
		return "Curator's InterProcessReadWriteLock waits for its leases"
	case "kazoo":
		return "Kazoo's locks wait for its leases"
	case "all":
		return "Curator, Kazoo, go-zookeeper, HBase and ZooKeeper's WriteLock wait for its leases"
	case "custom":
		return "a recipe of its own, as configured"
	}
	return ""
}
