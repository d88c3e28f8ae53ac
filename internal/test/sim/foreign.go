package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk/wire"
)

// foreign is a program that locks by ZooKeeper's own recipe, as Curator's InterProcessMutex does.
type foreign struct {
	w        *world
	name     string
	random   *rand.Rand
	tries    int
	space    bool // it is the one in the second namespace
	likeness bool // its contenders look like those of another fleet's gateway, data included
}

func newForeign(w *world, number int) *foreign {
	return &foreign{w: w, name: fmt.Sprint("foreign", number), random: w.random(number), space: number >= spaceFrom && number < likenessFrom, likeness: number >= likenessFrom}
}

func (f *foreign) below(d time.Duration) time.Duration {
	return time.Duration(f.random.Int64N(int64(d)))
}

// live takes and lets go locks, each with a session of its own.
func (f *foreign) live() {
	servers := f.w.zk.Servers()
	for !f.w.clearing.Load() {
		time.Sleep(f.below(3 * time.Second))
		f.tries++
		s, err := f.w.openSession(fmt.Sprint(f.name, "-", f.tries), servers[f.random.IntN(len(servers))])
		if err != nil {
			continue
		}
		f.lock(s)
		s.close()
	}
}

// lock takes a lock once. After any failure the end of the session removes the contender.
func (f *foreign) lock(s *session) {
	lock := lockNames[f.random.IntN(len(lockNames))]
	if f.space {
		lock = spaceLock
	}
	dir := lockDir(lock)
	name, data := fmt.Sprintf("%s/_c_%08x-0000-0000-0000-%012d-lock-", dir, f.random.Uint32(), f.tries), "10.0.0.1"
	if f.likeness {
		name, data = dir+"/"+f.likeName(), `{"v":1,"ttl_ms":1000,"enqueued_ms":1}`
	}
	waitsFor := []string{""} // all of them
	if f.space {
		var prefix string
		prefix, waitsFor = f.neighbour()
		name = dir + "/" + prefix
	}
	path, err := s.create(name, data, wire.FlagEphemeral|wire.FlagSequential)
	if err == wire.ErrNoNode {
		if _, err = s.create(dir, "", 0); err == nil || err == wire.ErrNodeExists {
			path, err = s.create(name, data, wire.FlagEphemeral|wire.FlagSequential)
		}
	}
	if err != nil {
		return
	}
	f.w.exemptions.excuse(path)
	f.w.trace("%s: %s", f.name, path)
	for patience := 100; ; patience-- {
		asked := time.Now()
		names, err := s.children(dir)
		if err != nil {
			return
		}
		number := path[len(path)-10:]
		first := !slices.ContainsFunc(names, func(n string) bool {
			return len(n) > 10 && strings.Compare(n[len(n)-10:], number) < 0 &&
				slices.ContainsFunc(waitsFor, func(word string) bool { return strings.HasSuffix(n[:len(n)-10], word) })
		})
		if first {
			f.holds(s, lock, path, asked)
			break
		}
		if patience == 0 {
			break
		}
		time.Sleep(100*time.Millisecond + f.below(100*time.Millisecond))
	}
	if err := s.delete(path); err == nil {
		f.w.trace("%s has let %s go", f.name, path)
	}
}

// likeName is what a gateway of another fleet would write.
func (f *foreign) likeName() string {
	gateway, err := recipe.NewGatewayID(f)
	if err != nil {
		panic(err) // the source below does not fail
	}
	id, err := recipe.NewLeaseID("otherone", gateway, f)
	if err != nil {
		panic(err)
	}
	c := recipe.Contender{LeaseID: id, Mode: recipe.Exclusive}
	return c.Prefix()
}

// Read fills b with random bytes.
func (f *foreign) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(f.random.Uint32())
	}
	return len(b), nil
}

// holds keeps the lock for a while; the session is kept alive, and trusted for half its timeout.
func (f *foreign) holds(s *session, lock, path string, asked time.Time) {
	until := time.Now().Add(f.below(4 * time.Second))
	if f.likeness {
		until = until.Add(f.below(10 * time.Second))
	}
	for {
		b := &belief{claim: claim{mode: exclusive}, lock: lock, lease: path, held: true, foreign: true, sent: asked, from: time.Now(), until: asked.Add(foreignTimeout / 2)}
		f.w.beliefs.add(b)
		time.Sleep(f.below(foreignTimeout / 4))
		asked = time.Now()
		if asked.Before(until) && s.Must(wire.OpExists, &wire.ReadRequest{Path: path}, nil) == nil {
			continue
		}
		f.w.letGo(path) // or its session goes
		return
	}
}
