package migrate

import (
	"slices"
	"strings"

	"lockkeeper/internal/locks/recipe"
	leaserecord "lockkeeper/internal/locks/record"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// step is a transaction of an import, without what guards it.
type step struct {
	ops    []zk.Op
	leases int
}

// planner cuts work into transactions.
type planner struct {
	size  func(*zk.Op) int
	limit int

	steps []step
	used  int                       // by the last step
	in    map[string]recipe.LeaseID // whose contender the last step creates, by directory
}

// add puts operations that belong together into the last step, or into a new one
// when there is no room for them, or when apart says so.
func (p *planner) add(leases int, apart bool, ops ...zk.Op) error {
	size := 0
	for i := range ops {
		size += p.size(&ops[i])
	}
	if size > p.limit {
		return offline.Refuse(KindNotMovable, "end that lease, or shorten its metadata, and export again", "%s and what belongs to it take %d bytes, and a transaction takes %d", ops[0].Path, size, p.limit)
	}
	if len(p.steps) == 0 || p.used+size > p.limit || apart {
		p.steps, p.used = append(p.steps, step{}), 0
		clear(p.in)
	}
	last := &p.steps[len(p.steps)-1]
	last.ops = append(last.ops, ops...)
	last.leases += leases
	p.used += size
	return nil
}

// plan is everything that an import writes below a root that has nothing but the
// import's own node, and outside of it where existing does not have it: the layout and
// what is in it, the locks' directories, and last the contenders.
func (c *content) plan(root string, existing map[string]bool, size func(*zk.Op) int, limit int) ([]step, error) {
	p := &planner{size: size, limit: limit, in: map[string]recipe.LeaseID{}}
	made := map[string]bool{}
	create := func(path string, data []byte) error {
		if made[path] || existing[path] {
			return nil
		}
		made[path] = true
		return p.add(0, false, zk.Op{Kind: zk.OpCreate, Path: path, Data: data})
	}
	for _, n := range c.nodes {
		if err := create(root+n.Path, n.Data); err != nil {
			return nil, err
		}
	}
	for _, dir := range layout.Directories() { // the export may be of a release that had fewer
		if err := create(root+dir, nil); err != nil {
			return nil, err
		}
	}
	for _, dir := range c.lockDirs(root) {
		if err := create(dir, nil); err != nil {
			return nil, err
		}
	}
	return p.steps, p.addContenders(c.contenders)
}

// lockDirs are the lock roots and the locks' directories, each behind its parent.
// What is above a lock root outside the root is not among them.
func (c *content) lockDirs(root string) []string {
	var dirs []string
	for _, ns := range c.namespaces {
		dirs = append(dirs, ns.Root)
		if rest, inside := strings.CutPrefix(ns.Root, root+"/"); inside {
			for i := range rest {
				if rest[i] == '/' {
					dirs = append(dirs, root+"/"+rest[:i])
				}
			}
		}
	}
	for i := range c.contenders {
		dirs = append(dirs, c.contenders[i].dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// addContenders creates them in their order. Those of one lease that were created in
// one transaction belong together. Two leases of one lock stay apart.
func (p *planner) addContenders(all []contender) error {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].parsed.LeaseID == all[0].parsed.LeaseID && all[n].visibleFrom() == all[0].visibleFrom() {
			n++
		}
		lease := all[:n]
		all = all[n:]
		apart := false
		ops := make([]zk.Op, n)
		for i := range lease {
			other, taken := p.in[lease[i].dir]
			apart = apart || taken && other != lease[i].parsed.LeaseID
			// A downgrade's first czxid is of another ZooKeeper: the token is that of the new node.
			name := lease[i].parsed
			name.FirstCzxid = 0
			ops[i] = zk.Op{Kind: zk.OpCreate, Path: lease[i].dir + "/" + lease[i].naming.Prefix(&name), Data: leaserecord.Renumbered(lease[i].Data, lease[i].parsed.Number), Sequential: true}
		}
		if err := p.add(1, apart, ops...); err != nil {
			return err
		}
		for i := range lease {
			p.in[lease[i].dir] = lease[i].parsed.LeaseID
		}
	}
	return nil
}
