package sim

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/zk"
)

// Some plans have a second namespace, in which leases stand under the names of another dialect, next to a program that knows
// those names and no others. Of the gateways one is started with it: at the beginning, or in the middle of the run when others have
// never heard of it (attack 25). Its one lock has a name here that says where it is.

const (
	spaceName = "other"
	spaceRoot = "/shared"
	spaceMark = "other~" // the beginning of its locks' names
	spaceLock = spaceMark + "d"
)

// Space is a plan's second namespace.
type Space struct {
	Dialect string        // "" for none
	By      int           // the number of the gateway that adds it, when it starts
	After   time.Duration // whose lives that begin sooner know nothing of it
}

// drawSpace gives some plans a second namespace. It has a random source of its own, so that all else is as it was before there was this.
func (p *Plan) drawSpace() {
	random := rand.New(rand.NewPCG(p.Seed, 9))
	if random.IntN(4) > 0 {
		return
	}
	p.Space = Space{Dialect: []string{"curator-rw", "kazoo", "all"}[random.IntN(3)], By: random.IntN(p.Gateways)}
	p.Clients = append(p.Clients, spaceFrom)
	if random.IntN(2) == 0 {
		return
	}
	p.Space.After = p.Length/4 + time.Duration(random.Int64N(int64(p.Length/4)))
	// It is started anew then. Soon after it dies, while others hear little: what it has left is in a namespace that they have to read.
	p.Faults = append(p.Faults, Fault{At: p.Space.After, Kind: LeaveGateway, Arg: uint64(p.Space.By), For: time.Second})
	if p.Gateways > 1 && random.IntN(3) > 0 {
		dies := p.Space.After + 2*time.Second + time.Duration(random.Int64N(int64(4*time.Second)))
		other := (p.Space.By + 1) % p.Gateways
		p.Faults = append(p.Faults, Fault{At: dies, Kind: KillGateway, Arg: uint64(p.Space.By), For: 5 * time.Second},
			Fault{At: dies - time.Second, Kind: SlowZooKeeper, Arg: uint64(other), For: 6 * time.Second})
	}
}

// namespaces are those that a gateway which starts now is told of.
func (w *world) namespaces(number int) map[string]zk.Namespace {
	s := w.plan.Space
	if s.Dialect == "" || number != s.By || time.Since(w.begun) < s.After {
		return nil
	}
	return map[string]zk.Namespace{spaceName: {Root: spaceRoot, Dialect: s.Dialect}}
}

// locks are the locks that clients want.
func (w *world) locks() []string {
	if w.plan.Space.Dialect == "" {
		return slices.Clone(lockNames)
	}
	return append(slices.Clone(lockNames), spaceLock)
}

// recorded are those of them that there can be.
func (w *world) recorded() []string {
	w.audit.mu.Lock()
	known := w.audit.has("/lockkeeper/namespaces/" + spaceName)
	w.audit.mu.Unlock()
	if !known {
		return slices.Clone(lockNames)
	}
	return w.locks()
}

// lockDir is a lock's directory.
func lockDir(lock string) string {
	if name, ok := strings.CutPrefix(lock, spaceMark); ok {
		return spaceRoot + "/" + name
	}
	return lockRoot + "/" + lock
}

// placed is a lock's name and namespace, as the API has them.
func placed(lock string) (name, ns string) {
	if name, ok := strings.CutPrefix(lock, spaceMark); ok {
		return name, spaceName
	}
	return lock, ""
}

// inSpace rewrites a request about a lock of the second namespace to what the API has.
func inSpace(path string, query url.Values) (string, url.Values) {
	rest, ok := strings.CutPrefix(path, "/v1/locks/"+spaceMark)
	if !ok {
		return path, query
	}
	with := url.Values{"ns": {spaceName}}
	for k, v := range query {
		with[k] = v
	}
	return "/v1/locks/" + rest, with
}

// neighbour is the program in the second namespace: the names that it gives its contenders, and those that it waits for.
func (f *foreign) neighbour() (prefix string, waitsFor []string) {
	uuid := fmt.Sprintf("_c_%08x-0000-0000-0000-%012d-", f.random.Uint32(), f.tries)
	kinds := map[string]int{"kazoo": 0, "curator-rw": 1, "all": int(f.w.plan.Seed % 3)}
	switch kinds[f.w.plan.Space.Dialect] {
	case 0: // Kazoo's WriteLock
		return fmt.Sprintf("%032x__lock__", f.random.Uint64()), []string{"__lock__", "__rlock__"}
	case 1: // Curator's InterProcessReadWriteLock, write
		return uuid + "__WRIT__", []string{"__WRIT__", "__READ__"}
	default: // its InterProcessMutex
		return uuid + "lock-", []string{"lock-"}
	}
}
