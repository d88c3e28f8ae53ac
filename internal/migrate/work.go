package migrate

import (
	"strings"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// Summary is what an archive holds, for people.
type Summary struct {
	Locks, Held, Waiting, Keys, Tokens int
	// TokensLeft are the API tokens that are left behind: in an export those that others than the fleet could have made, in an import all
	// where nothing would keep others from making more.
	TokensLeft int
	// Ephemeral leases and Foreign contenders are left behind, by their paths.
	Ephemeral, Foreign []string
}

func (c *content) summary() Summary {
	s := Summary{Locks: c.locks, Held: c.held(), TokensLeft: c.tokensLeft}
	s.Waiting = c.leases() - s.Held
	for _, n := range c.nodes {
		switch {
		case strings.HasPrefix(n.Path, zk.NodeKeys+"/"):
			s.Keys++
		case isToken(n.Path):
			s.Tokens++
		}
	}
	return s
}

// leases counts them.
func (c *content) leases() int {
	ids := make(map[recipe.LeaseID]struct{}, len(c.contenders))
	for i := range c.contenders {
		ids[c.contenders[i].parsed.LeaseID] = struct{}{}
	}
	return len(ids)
}

// held counts the leases that hold all their locks by the order of the queues.
func (c *content) held() int {
	queues := make(map[string]*recipe.Queue, c.locks)
	for i := range c.contenders {
		at := &c.contenders[i]
		q := queues[at.dir]
		if q == nil {
			q = new(recipe.Queue)
			queues[at.dir] = q
		}
		q.Insert(&at.parsed)
	}
	waiting := map[recipe.LeaseID]struct{}{}
	slots := map[recipe.LeaseID]uint64{} // of leases over several locks, those that are missing
	for i := range c.contenders {
		at := &c.contenders[i]
		id := at.parsed.LeaseID
		if !queues[at.dir].LeaseHolds(at.Name) {
			waiting[id] = struct{}{}
		}
		if n := at.parsed.Groups; n > 1 {
			missing, known := slots[id]
			if !known {
				missing = 1<<n - 1
			}
			slots[id] = missing &^ (1 << (at.parsed.Group - 1))
		}
	}
	for id, missing := range slots {
		if missing != 0 {
			waiting[id] = struct{}{}
		}
	}
	return c.leases() - len(waiting)
}

func lastSlash(path string) int { return strings.LastIndexByte(path, '/') }
