package interop

import (
	"regexp"
	"slices"
	"strconv"

	"github.com/go-zookeeper/zk"
)

// homeMadeLock is the readers' and writers' lock of ZooKeeper's page of recipes as people write it for themselves, and knows
// nothing of Lockkeeper: ephemeral children host-R-0000000001 and host-W-0000000002. A reader waits for the nearest writer before it, a writer
// for the contender before it. It ignores every other name.
type homeMadeLock struct {
	conn   *zk.Conn
	dir    string
	letter string // R or W
	node   string
}

var homeMadeName = regexp.MustCompile(`^.+-(R|W)-(-?\d+)$`)

func (h *homeMadeLock) Lock() error {
	var err error
	if h.node, err = h.conn.Create(h.dir+"/read-host-7-"+h.letter+"-", []byte("host 7"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
		return err
	}
	for {
		children, _, err := h.conn.Children(h.dir)
		if err != nil {
			return err
		}
		before := h.before(children)
		if before == "" {
			return nil
		}
		there, _, changed, err := h.conn.ExistsW(h.dir + "/" + before)
		if err != nil {
			return err
		}
		if there {
			<-changed // also when it is written to: then it looks again
		}
	}
}

// before is the node that it waits for, "" for none.
func (h *homeMadeLock) before(children []string) string {
	number := func(name string) int {
		n, err := strconv.Atoi(homeMadeName.FindStringSubmatch(name)[2])
		if err != nil {
			panic(err)
		}
		return n
	}
	own := number(h.node[len(h.dir)+1:])
	ahead := slices.DeleteFunc(children, func(name string) bool {
		m := homeMadeName.FindStringSubmatch(name)
		return m == nil || number(name) >= own || h.letter == "R" && m[1] == "R"
	})
	if len(ahead) == 0 {
		return ""
	}
	return slices.MaxFunc(ahead, func(a, b string) int { return number(a) - number(b) })
}

func (h *homeMadeLock) Unlock() error { return h.conn.Delete(h.node, -1) }
