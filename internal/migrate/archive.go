package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// Archive is a whole root, apart from what belongs to the gateways that ran on it.
type Archive struct {
	Header
	// Nodes are all nodes below the root but registrations, guards and locks, each
	// behind its parent.
	Nodes []Node
	// Contenders are those of all locks in the order of their creation.
	Contenders []Contender
}

// Header is the first record of a file.
type Header struct {
	// Format is the version of the format.
	Format int `json:"lockkeeper_export"`
	// Created is when the export began.
	Created time.Time `json:"created"`
	// Root is the exported root, below its chroot.
	Root string `json:"root"`
	// TokensBelow is above every fencing token that was ever given.
	TokensBelow int64 `json:"tokens_below"`
}

// Node is a node below the root.
type Node struct {
	Path string // relative to the root: "/keys/0a1b..."
	Data []byte
}

// Contender is an entry of a lock's queue.
type Contender struct {
	NS, Lock, Name string
	Data           []byte
	Czxid          int64 // of the exported node
	Ctime          int64 // likewise, ms since the Unix epoch
}

// contender is a Contender as its name describes it, with where it goes.
type contender struct {
	*Contender
	parsed recipe.Contender
	dir    string // the lock's path at the target
	naming *recipe.Naming
}

// visibleFrom is the czxid by which its queue knows a contender: that of the lease's first
// one, where a downgrade has replaced it.
func (c *contender) visibleFrom() int64 { return cmp.Or(c.parsed.FirstCzxid, c.Czxid) }

// content is what an archive means for a root.
type content struct {
	fleet      recipe.FleetID
	namespaces map[string]zk.Namespace // with the lock roots of the target
	namings    map[string]*recipe.Naming
	nodes      []Node // as they are to be written, without the version
	version    []byte
	contenders []contender
	locks      int
	tokensLeft int
}

// understand checks everything in the archive and translates it to another root.
// An Error of KindDamaged or KindNotMovable names what does not fit.
func (a *Archive) understand(root string) (*content, error) {
	c := &content{namespaces: map[string]zk.Namespace{}, namings: map[string]*recipe.Naming{}}
	nodes := make(map[string][]byte, len(a.Nodes))
	for _, n := range a.Nodes {
		parent := n.Path[:max(lastSlash(n.Path), 0)]
		if _, ok := nodes[parent]; zk.CheckPath(n.Path) != nil || parent != "" && !ok {
			return nil, damaged("a node %q that has no place", n.Path)
		}
		if _, twice := nodes[n.Path]; twice {
			return nil, damaged("the node %s twice", n.Path)
		}
		if first := firstPart(n.Path); first == zk.NodeGateways || first == zk.NodeGuards || first == zk.NodeLocks || first == zk.NodeImport {
			return nil, damaged("the node %s, which no export writes", n.Path)
		}
		nodes[n.Path] = n.Data
	}
	if err := c.takeRecords(a, nodes); err != nil {
		return nil, err
	}
	for _, n := range a.Nodes {
		switch {
		case n.Path == zk.NodeVersion:
			continue
		case n.Path == zk.NodeSecret:
			// An export of an earlier release does not say whether others could read the secret.
			data, err := layout.MarkSecret(n.Data, true, false)
			if err != nil {
				return nil, err
			}
			n.Data = data
		case n.Path == zk.NodeFenceBase:
			n.Data = fmt.Appendf(nil, "%d", a.TokensBelow)
		case strings.HasPrefix(n.Path, zk.NodeNamespaces+"/"):
			data, err := c.takeNamespace(a, n, root)
			if err != nil {
				return nil, err
			}
			n.Data = data
		}
		c.nodes = append(c.nodes, n)
	}
	if err := checkRoots(c.namespaces, root); err != nil {
		return nil, err
	}
	if err := c.takeContenders(a); err != nil {
		return nil, err
	}
	return c, c.checkGroups()
}

// takeRecords reads the nodes that every root has.
func (c *content) takeRecords(a *Archive, nodes map[string][]byte) error {
	for _, path := range []string{zk.NodeVersion, zk.NodeSecret, zk.NodeFenceBase, zk.NodePromiseWindow} {
		if _, ok := nodes[path]; !ok {
			return damaged("no %s", path)
		}
	}
	c.version = nodes[zk.NodeVersion]
	if err := layout.CheckVersion(c.version); err != nil {
		return err
	}
	secret, err := layout.ParseSecret(nodes[zk.NodeSecret])
	if err == nil {
		c.fleet, err = recipe.ParseFleetID(secret.FleetID)
	}
	if err != nil {
		return damaged("a secret that is none: %w", err)
	}
	var base int64
	if err := json.Unmarshal(nodes[zk.NodeFenceBase], &base); err != nil || base < 0 || a.TokensBelow <= base {
		return damaged("a fence base of %q below tokens of %d", nodes[zk.NodeFenceBase], a.TokensBelow)
	}
	if a.TokensBelow > maxTokens {
		return offline.Refuse(KindNotMovable, "", "fencing tokens have come to %d, and %d is the end", a.TokensBelow, int64(maxTokens))
	}
	return nil
}

// maxTokens leaves the next ZooKeeper room for all its zxids.
const maxTokens = 1 << 62

// takeNamespace translates the lock root of a namespace, and leaves the rest of its record.
func (c *content) takeNamespace(a *Archive, n Node, root string) ([]byte, error) {
	var ns zk.Namespace
	record := map[string]json.RawMessage{}
	err := json.Unmarshal(n.Data, &ns)
	if err == nil {
		err = json.Unmarshal(n.Data, &record)
	}
	if err == nil {
		err = zk.CheckPath(ns.Root)
	}
	if err != nil {
		return nil, damaged("the namespace record %s: %w", n.Path, err)
	}
	if rest, inside := strings.CutPrefix(ns.Root, a.Root+"/"); inside {
		ns.Root = root + "/" + rest
	}
	name := strings.TrimPrefix(n.Path, zk.NodeNamespaces+"/")
	c.namespaces[name] = ns
	if c.namings[name], err = namingOf(name, ns); err != nil {
		return nil, err
	}
	if record["root"], err = json.Marshal(ns.Root); err == nil {
		n.Data, err = json.Marshal(record)
	}
	return n.Data, err
}

// namingOf is how the contenders of a recorded namespace are named.
func namingOf(name string, ns zk.Namespace) (*recipe.Naming, error) {
	naming, err := recipe.ParseNaming(cmp.Or(ns.Dialect, string(recipe.Native)))
	if err != nil {
		return nil, offline.Refuse(KindNotMovable, "use the release that made it, or a later one", "namespace %s has the dialect %q, which this release does not know: %w", name, ns.Dialect, err)
	}
	return naming, nil
}

// checkRoots refuses lock roots in which contenders would stand among other
// nodes of a layout.
func checkRoots(namespaces map[string]zk.Namespace, root string) error {
	if err := layout.CheckOverlaps(namespaces); err != nil {
		return err
	}
	for name, ns := range namespaces {
		if ns.Root == root || strings.HasPrefix(root, ns.Root+"/") {
			return offline.Refuse(KindNotMovable, "choose another --root", "the root %s is below %s, the lock root of namespace %s", root, ns.Root, name)
		}
		rest, inside := strings.CutPrefix(ns.Root, root+"/")
		if inside && "/"+rest != zk.NodeLocks && slices.Contains(layout.Directories(), firstPart("/"+rest)) {
			return damaged("the lock root %s of namespace %s", ns.Root, name)
		}
	}
	return nil
}

// takeContenders checks the contenders and puts them into the order in which they
// are created.
func (c *content) takeContenders(a *Archive) error {
	queues := map[string]*recipe.Queue{} // by directory
	c.contenders = make([]contender, len(a.Contenders))
	for i := range a.Contenders {
		from := &a.Contenders[i]
		ns, known := c.namespaces[from.NS]
		dir := ns.Root + "/" + from.Lock
		if !known {
			return damaged("the contender %s of an unknown namespace %q", from.Name, from.NS)
		}
		naming := c.namings[from.NS]
		parsed, ok := naming.Parse(c.fleet, from.Name)
		switch {
		case strings.Contains(from.Lock, "/") || zk.CheckPath(dir) != nil:
			return damaged("the contender %s of a lock %q", from.Name, from.Lock)
		case !ok || !parsed.Ours || parsed.Unknown || parsed.Ephemeral:
			return damaged("%q in lock %s, which is no contender of this fleet that can be moved", from.Name, from.Lock)
		case from.Czxid <= 0 || from.Czxid >= a.TokensBelow || parsed.FirstCzxid > from.Czxid:
			return damaged("the contender %s with the czxid %d", from.Name, from.Czxid)
		}
		c.contenders[i] = contender{Contender: from, parsed: parsed, dir: dir, naming: naming}
		q := queues[dir]
		if q == nil {
			q = new(recipe.Queue)
			queues[dir] = q
		}
		if own := parsed; !q.Insert(&own) { // not the one that is about to be sorted
			return damaged("the contender %s twice", from.Name)
		}
	}
	c.locks = len(queues)
	slices.SortStableFunc(c.contenders, func(a, b contender) int {
		return cmp.Or(cmp.Compare(a.visibleFrom(), b.visibleFrom()), cmp.Compare(a.parsed.LeaseID, b.parsed.LeaseID), cmp.Compare(a.dir, b.dir),
			recipe.Compare(a.parsed.Number, a.Name, b.parsed.Number, b.Name))
	})
	return c.checkOrder(queues)
}

// checkOrder makes sure that the order of creation is that of every queue. It always
// is, unless nodes were made by hand.
func (c *content) checkOrder(queues map[string]*recipe.Queue) error {
	passed := make(map[string]int, len(queues))
	for i := range c.contenders {
		at := &c.contenders[i]
		q := queues[at.dir]
		if !q.Ordered() || q.At(passed[at.dir]).Name != at.Name {
			return offline.Refuse(KindNotMovable, "end the leases in it, or delete those of its nodes that were made by hand",
				"the queue of lock %s in namespace %s has no order that can be kept", at.Lock, at.NS)
		}
		passed[at.dir]++
	}
	return nil
}

// checkGroups makes sure that a lease over several locks was made at once, and can be
// again: made in pieces, two of them could wait for each other for ever.
func (c *content) checkGroups() error {
	visibleFrom := map[recipe.LeaseID]int64{}
	for i := range c.contenders {
		at := &c.contenders[i]
		if at.parsed.Groups < 2 {
			continue
		}
		if first, known := visibleFrom[at.parsed.LeaseID]; known && first != at.visibleFrom() {
			return offline.Refuse(KindNotMovable, "end that lease, or delete those of its nodes that were made by hand",
				"the lease %s over several locks was not made in one transaction: %s in lock %s", at.parsed.LeaseID, at.Name, at.Lock)
		}
		visibleFrom[at.parsed.LeaseID] = at.visibleFrom()
	}
	return nil
}

// firstPart is the child of the root that a path is at or below.
func firstPart(path string) string {
	if i := strings.IndexByte(path[1:], '/'); i >= 0 {
		return path[:i+1]
	}
	return path
}

func damaged(format string, args ...any) error {
	return offline.Refuse(KindDamaged, "export again; a file that was cut off or edited cannot be used", "the export has "+format, args...)
}
