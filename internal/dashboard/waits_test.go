package dashboard

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

// graphOf makes a graph of words such as "ann-web>bob": ann waits for bob, who holds web. With ">>" bob is ahead of ann. Owners in
// capitals cannot go on.
func graphOf(words ...string) (v locks.WaitGraph) {
	seen := map[string]bool{}
	party := func(owner string) string {
		id := "owner:" + strings.ToLower(owner)
		if !seen[id] {
			seen[id] = true
			v.Parties = append(v.Parties, locks.Party{ID: id, Kind: locks.PartyOwner, Owner: strings.ToLower(owner), Stuck: owner != strings.ToLower(owner)})
		}
		return id
	}
	for _, word := range words {
		from, rest, _ := strings.Cut(word, "-")
		lock, to, _ := strings.Cut(rest, ">")
		w := locks.GraphWait{From: party(from), NS: "default", Lock: lock, Mode: locks.Exclusive}
		if ahead, is := strings.CutPrefix(to, ">"); is {
			to, w.Blocker.Position = ahead, 1
		}
		w.To = party(to)
		w.Waiter = locks.Standing{LeaseID: strings.ToLower(from) + "@" + lock, Znode: "/locks/" + lock + "/" + from, Position: 2}
		w.Blocker.LeaseID, w.Blocker.Znode = strings.ToLower(to)+"@"+lock, "/locks/"+lock+"/"+to
		v.Waits = append(v.Waits, w)
	}
	return v
}

// circle has the graph's waits be one certain cycle, of which the last wait is the youngest.
func circle(words ...string) locks.WaitGraph {
	v := graphOf(words...)
	v.Cycles = []locks.Cycle{{ID: "c1", Waits: v.Waits, Certain: true, Youngest: len(v.Waits) - 1}}
	return v
}

func readerOf(t *testing.T, pattern string) locks.Principal {
	t.Helper()
	return locks.Principal{Name: "one", Rules: assert.Value(access.New(access.Grant{NS: "default", Locks: pattern, Verbs: []access.Verb{access.Read}}))(t)}
}

func TestPagesShareALookAtTheWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		w := newWaits(f, 2)
		look := func(who locks.Principal) { assert.Value(w.look(t.Context(), who))(t) }
		var wg sync.WaitGroup
		f.looking = 10 * time.Millisecond
		for range 50 {
			wg.Go(func() { look(locks.Anonymous) })
		}
		wg.Wait()
		assert.Equal(t, f.count("waits"), 1, "looks of pages that ask at the same time")
		look(readerOf(t, "a"))
		assert.Equal(t, f.count("waits"), 2, "other rules see other waits")
		assert.That(t, f.as[1].Name == "" && f.as[1].Rules.Key() == readerOf(t, "a").Rules.Key(), "it looks as %+v", f.as[1])
		time.Sleep(time.Second)
		look(locks.Anonymous)
		assert.Equal(t, f.count("waits"), 3)

		// What takes long is done less often.
		time.Sleep(time.Second)
		f.set(func() { f.looking = 300 * time.Millisecond })
		look(locks.Anonymous)
		time.Sleep(2500 * time.Millisecond)
		look(locks.Anonymous)
		assert.Equal(t, f.count("waits"), 4, "it looks again after less than ten times what it took")
		time.Sleep(time.Second)
		look(locks.Anonymous)
		assert.Equal(t, f.count("waits"), 5)

		// No more sets of rules are kept than are allowed, and none for long.
		look(readerOf(t, "b"))
		look(readerOf(t, "c"))
		w.mu.Lock()
		assert.Equal(t, len(w.known.of), 2)
		w.mu.Unlock()
		time.Sleep(3 * answersKept)
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.That(t, len(w.known.of) == 0 && w.forget == nil, "%d looks are kept", len(w.known.of))
	})
}

func TestADeadlockIsShownOnEachOfItsLocksWithItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		r.fake.waits.graph = circle("Alice-two>Bob", "Bob-three>Jo", "Jo-one>Alice")
		r.fake.lock = func(q locks.LockRequest) (locks.Lock, error) {
			l := locks.Lock{NS: q.NS, Name: q.Lock, State: locks.LockHeld, QueueLength: 1, Waiters: []locks.Contender{{At: started, LeaseID: "jo@one", Owner: "jo", Znode: "/locks/one/Jo", Position: 1, Age: time.Hour, AgeKnown: true}}}
			return l, nil
		}
		for _, lock := range []string{"one", "two", "three"} {
			html := r.get(t, "/locks/"+lock).Body.String()
			for _, part := range []string{"Deadlock:", "Break one", `href="/locks/one?contender=jo%40one"`, "the youngest wait, of jo", "POST /v1/leases", "for <time datetime=\"2026-11-20T07:00:00.000Z\""} {
				assert.That(t, strings.Contains(html, part), "%s lacks %s", lock, part)
			}
		}
		html := r.get(t, "/locks/four").Body.String()
		assert.That(t, !strings.Contains(html, "Deadlock:"), "a lock beside it shows it, too")
		asked := r.fake.count("lock")
		time.Sleep(2 * time.Second)
		r.get(t, "/locks/one")
		assert.Equal(t, r.fake.count("lock"), asked+1, "the age of a deadlock is asked for once")
	})
}

func TestOfManyDeadlocksSomeAreShownAndTheOthersCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		for i := range maxDeadlocks + 5 {
			c := circle("Ann-one>Bob", "Bob-two>Ann").Cycles[0]
			c.ID = fmt.Sprint("c", i)
			f.waits.graph.Cycles = append(f.waits.graph.Cycles, c)
		}
		own := circle("Ann-one>Ann").Cycles[0]
		maybe := circle("Ann-one>Bob", "Bob-two>Ann").Cycles[0]
		maybe.Certain = false
		f.waits.graph.Cycles = append(f.waits.graph.Cycles, own, maybe)
		w := newWaits(f, 2)
		list, more, err := w.deadlocks(t.Context(), locks.Anonymous, "", "")
		assert.That(t, err == nil && len(list) == maxDeadlocks && more == 5, "%d and %d more, %v", len(list), more, err)
		assert.Equal(t, f.count("lock"), maxDeadlocks, "contenders that are asked for")
		list, more, _ = w.deadlocks(t.Context(), locks.Anonymous, "default", "other")
		assert.That(t, len(list)+more == 0, "%+v", list)
	})
}
