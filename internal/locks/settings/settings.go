// Package settings says what a lock's settings are in ZooKeeper, and which operations create, change and remove them.
//
// A lock's settings are a directory <namespace>,<lock> with one child, limit-<n>: how many permits a semaphore has.
// The limit is in the path, and an acquire's transaction checks that this path exists. So a contender is created under
// the limit that is in force at that moment, or not at all. Its name has that limit: names alone decide who holds, and
// a changed limit applies to later acquires.
//
// A client sets the settings, or the first acquire that gives a limit agrees upon them, in the transaction of its
// contender. An agreed limit is deleted with the idle lock; a set limit stays until a client removes it. A limit that
// is set is written once more after it is made, so its version is never 0. A sweep deletes version 0 only: it cannot
// delete a set limit, however far its gateway is behind.
//
// The replica may be behind. That is enough for a transaction that checks the settings. Before a request is refused
// for them, a barrier brings the replica up to the present (Sized).
//
// The functions are pure, but for Read, which reads by the session that it is given.
package settings

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// Tree is the directory in ZooKeeper that has the settings of all locks.
type Tree string

// Below returns the tree of a layout, whose root is given.
func Below(root string) Tree { return Tree(root + zk.NodeSettings) }

// Dir is the directory of a lock's settings. No name has a comma, as recipe.LockName writes it.
func (t Tree) Dir(q *queues.Queue) string { return string(t) + "/" + q.Namespace.Name + "," + q.Name() }

// Limit is the path of a limit of a lock.
func (t Tree) Limit(q *queues.Queue, n int) string { return t.Dir(q) + "/" + queues.LimitNode(n) }

// has reports whether a path is in the tree.
func (t Tree) has(path string) bool { return strings.HasPrefix(path, string(t)+"/") }

// limitRecord is the data of a limit's node.
type limitRecord struct {
	Version int    `json:"v"`
	By      string `json:"by"`
}

// The makers of a limit.
const (
	bySet     = "set"
	byAcquire = "acquire"
)

// AgreedData is the data of a limit's node that an acquire creates.
func AgreedData() []byte { return limitData(byAcquire) }

func limitData(by string) []byte {
	data, err := json.Marshal(limitRecord{Version: record.Version, By: by})
	if err != nil {
		panic("encoding a limit's record: " + err.Error()) // a string and an integer
	}
	return data
}

// Agreed reports whether an acquire made the limit whose node has that data.
func Agreed(data []byte) bool {
	var r limitRecord
	return json.Unmarshal(data, &r) == nil && r.By == byAcquire
}

// Sized fills in the limits of the semaphores that a request wants: the limit of the lock, or, where it has none, the
// one that the request gives. It refuses what contradicts the lock's limit in the replica.
func Sized(replica *queues.Replica, req *locks.AcquireRequest, wants []locks.Want) ([]locks.Want, *locks.Error) {
	sized := wants
	for i := range wants {
		w := wants[i]
		if w.Mode != locks.Semaphore {
			continue
		}
		inForce := 0
		if q := replica.Namespaces[w.NS].Find(w.Lock); q != nil {
			inForce, _ = q.Limit()
		}
		switch {
		case inForce == 0 && w.Limit == 0:
			return nil, locks.Invalid(req.Field(i, "limit"), "the lock has no limit yet: give limit=N with the acquire, which binds later acquires while the lock is in use; or set it for good with PUT")
		case inForce != 0 && w.Limit != 0 && w.Limit != inForce:
			return nil, &locks.Error{Code: locks.CodeSettingsDiffer, Field: req.Field(i, "limit"), Limit: inForce,
				Detail: "the lock has a limit of " + strconv.Itoa(inForce) + ": leave limit out to take it as it is, or change it with PUT, which applies to later acquires"}
		case w.Permits > max(inForce, w.Limit):
			return nil, locks.Invalid(req.Field(i, "permits"), strconv.Itoa(w.Permits)+" permits are more than the lock's limit of "+strconv.Itoa(max(inForce, w.Limit)))
		}
		if w.Limit = max(inForce, w.Limit); w != wants[i] {
			if &sized[0] == &wants[0] {
				sized = slices.Clone(wants) // the request stays as it is: a repeat is compared with it
			}
			sized[i] = w
		}
	}
	return sized, nil
}
