package interop

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// Attack 2: the reply to our create may come before the news of a contender that another program has created just before.
func TestATryIsNotGrantedOverAForeignContenderThatIsNews(t *testing.T) {
	w := newWorld(t)
	w.mkdir("/native/news", nil)
	const rounds = 300
	granted, refused := 0, 0
	for end := time.Now().Add(patience); granted+refused < rounds || (granted == 0 || refused == 0) && time.Now().Before(end); {
		theirs := make(chan error, 1)
		at := make(chan interval, 1)
		go func() {
			lock := zk.NewLock(w.conn, w.dir("native", "news"), zk.WorldACL(zk.PermAll))
			if err := lock.Lock(); err != nil {
				theirs <- err
				return
			}
			begin := monotonic()
			time.Sleep(2 * time.Millisecond)
			at <- interval{begin, monotonic()}
			theirs <- lock.Unlock()
		}()
		lease, err := w.acquire(t.Context(), "native", "news", "ttl=30s")
		var ours interval
		if r := (*refusal)(nil); errors.As(err, &r) && r.status == http.StatusConflict {
			refused++
		} else if err != nil {
			t.Fatal(err)
		} else {
			granted++
			ours.begin = monotonic()
			time.Sleep(2 * time.Millisecond)
			ours.end = monotonic()
			assert.NoError(t, w.release(t.Context(), lease))
		}
		assert.NoError(t, testkit.Receive(t, patience, theirs, "go-zookeeper's Lock"))
		i := <-at
		assert.Must(t, ours.begin == 0 || i.begin >= ours.end || ours.begin >= i.end, "both hold: ours %v, theirs %v", ours, i)
	}
	assert.That(t, granted != 0 && refused != 0, "%d granted, %d refused: the two never met", granted, refused)
}

// Attack 8: to a successor the contenders of other programs, and of another fleet with the same lock root, look like
// orphans. They are not its to end.
func TestASuccessorEndsItsFleetsLeasesAlone(t *testing.T) {
	brief := []string{"--session-timeout=4s", "--promise-window=3s"}
	w := newWorld(t, brief...)
	other := w.otherFleet(brief...)
	for _, lock := range []string{"theirs", "ours", "fleet"} {
		w.mkdir("/kazoo/"+lock, nil)
	}
	kazoo := w.program(t, "kazoo-lock")
	lines, err := kazoo.start("hold", "orphan", "kazoo-lock", w.dir("kazoo", "theirs"))
	if err == nil {
		_, err = await(kazoo, lines, "held", patience)
	}
	assert.NoError(t, err)
	for _, a := range []struct {
		w           *world
		lock, query string
	}{{w, "ours", "ttl=5s"}, {w, "theirs", "ttl=5s&async=true"}, {other, "fleet", "ttl=5s"}} {
		assert.Value(a.w.acquire(t.Context(), "kazoo", a.lock, a.query))(t)
	}
	foreign := w.names("kazoo", "fleet")
	other.proc.Kill()
	w.proc.Kill()
	w.startGateway()
	testkit.Eventually(t, patience, func() bool {
		return len(w.names("kazoo", "ours")) == 0 && len(w.names("kazoo", "theirs")) == 1
	}, "the successor has ended what was its fleet's")
	for _, lock := range []string{"theirs", "fleet"} {
		_, err := w.acquire(t.Context(), "kazoo", lock, "ttl=5s")
		r := (*refusal)(nil)
		assert.That(t, errors.As(err, &r) && r.status == http.StatusConflict, "%s: %v", lock, err)
	}
	now := w.names("kazoo", "fleet")
	assert.That(t, slices.Equal(now, foreign), "of the other fleet's %q, %q is left", foreign, now)
	assert.NoError(t, kazoo.stop("orphan"))
	assert.Value(await(kazoo, lines, "done", patience))(t)
	_, err = w.acquire(t.Context(), "kazoo", "theirs", "ttl=5s&wait=30s")
	assert.Nil(t, err)
	other.startGateway() // ends it in good order, with the test
}

// Attack 9: the dash before a number is no sign. Each party waits for exactly those before it. Programs that do not respect each
// other have one of ours between them, which makes them.
func TestAQueueOfManyProgramsIsServedInItsOrder(t *testing.T) {
	w := newWorld(t)
	for name, q := range map[string]struct {
		ns    string
		kinds []string // "" is ours
	}{
		"lock-":               {"native", []string{"curator-mutex", "", "go-zookeeper", "", "kazoo-lock-extra", ""}},
		"HBase and ZooKeeper": {"native", []string{"", "zookeeper-writelock", "", "hbase-write", "", "hbase-read", ""}},
		"all":                 {"all", []string{"kazoo-lock", "", "curator-mutex", "", "curator-write", "", "go-zookeeper", "", "kazoo-election"}},
	} {
		t.Run(name, func(t *testing.T) {
			lock := "order-" + strings.Fields(name)[0]
			w.mkdir("/"+q.ns+"/"+lock, nil)
			var turns []turn
			for i, kind := range q.kinds {
				before := len(w.names(q.ns, lock))
				if kind == "" {
					turns = append(turns, w.ourTurn(t, q.ns, lock))
				} else {
					turns = append(turns, w.theirTurn(t, kind, q.ns, lock))
				}
				testkit.Eventually(t, patience, func() bool { return len(w.names(q.ns, lock)) > before }, "number %d, %q, is queued", i, kind)
			}
			testkit.EventuallyNil(t, patience, func() error {
				l, _, err := w.Lock(t.Context(), lock, apitest.Query("ns="+q.ns))
				if err == nil && (l.QueueLength != len(q.kinds)-1 || len(l.Holders) != 1) {
					err = fmt.Errorf("%+v", l)
				}
				return err
			}, "the gateway shows all of them")
			for i, turn := range turns {
				if err := testkit.Receive(t, patience, turn.held, "the turn of number %d, %q", i, q.kinds[i]); err != nil {
					t.Fatalf("number %d, %q: %v", i, q.kinds[i], err)
				}
				for j, later := range turns[i+1:] {
					testkit.Nothing(t, later.held, "number %d, %q, holds beside number %d, %q", i+1+j, q.kinds[i+1+j], i, q.kinds[i])
				}
				if err := turn.end(); err != nil {
					t.Fatalf("number %d, %q: %v", i, q.kinds[i], err)
				}
			}
		})
	}
}

// turn is a party that has a place in a queue: it tells when it holds, and lets go when it is told to.
type turn struct {
	held chan error
	end  func() error
}

func (w *world) ourTurn(t *testing.T, ns, lock string) turn {
	held, done, leave := make(chan error, 1), make(chan error, 1), make(chan struct{})
	go func() {
		lease, err := w.acquire(t.Context(), ns, lock, "ttl=60s&wait=60s")
		held <- err
		if err == nil {
			<-leave
			err = w.release(t.Context(), lease)
		}
		done <- err
	}()
	return turn{held, func() error { close(leave); return <-done }}
}

func (w *world) theirTurn(t *testing.T, kind, ns, lock string) turn {
	t.Helper()
	p, job, held := w.program(t, kind), lock+"-"+kind, make(chan error, 1)
	lines := assert.Value(p.start("hold", job, kind, w.dir(ns, lock)))(t)
	go func() {
		_, err := await(p, lines, "held", patience)
		held <- err
	}()
	return turn{held, func() error {
		if err := p.stop(job); err != nil {
			return err
		}
		_, err := await(p, lines, "done", patience)
		return err
	}}
}

// Attack 12: HBase's master reaps a write- child that is too old, one of the three of a lease. The class of clients that
// respects it is let in, and then the lease must not live on for the others.
func TestALeaseOfThreeContendersEndsWholeWhenOneIsReaped(t *testing.T) {
	w := newWorld(t)
	for member, kind := range map[int]string{1: "curator-mutex", 2: "kazoo-lock", 3: "curator-write"} {
		t.Run(kind, func(t *testing.T) {
			lock := "reaped-" + kind
			w.mkdir("/all/"+lock, nil)
			lease := assert.Value(w.acquire(t.Context(), "all", lock, "ttl=60s"))(t)
			p := w.program(t, kind)
			lines := assert.Value(p.start("hold", lock, kind, w.dir("all", lock)))(t)
			testkit.Eventually(t, patience, func() bool { return len(w.names("all", lock)) == 4 }, "%s is queued", kind)
			testkit.Nothing(t, lines, "beside ours")
			for _, name := range w.names("all", lock) {
				if strings.Contains(name, lease.LeaseID) && strings.Contains(name, fmt.Sprintf(".m%dof3", member)) {
					assert.NoError(t, w.conn.Delete(w.dir("all", lock)+"/"+name, -1))
				}
			}
			assert.Value(await(p, lines, "held", patience))(t)
			testkit.Eventually(t, patience, func() bool { return len(w.names("all", lock)) == 1 }, "the rest of the lease is gone")
			a, err := w.Release(t.Context(), lease.Token)
			assert.That(t, err == nil && a.Status == http.StatusGone, "%+v, %v", a, err)
			assert.NoError(t, p.stop(lock))
			_, err = await(p, lines, "done", patience)
			assert.Nil(t, err)
		})
	}
}

// Attack 24: Curator's SemaphoreV2 counts every child of its directory. One of ours that waited there would block the one that
// it waits for.
func TestNoLeaseStandsInTheWayOfCuratorsSemaphore(t *testing.T) {
	const ns, kind = "semaphore", "curator-semaphore"
	w := newWorld(t)
	semaphore := w.root + "/" + ns
	w.namespace(ns, "native")
	p := w.program(t, kind)
	jobs := make(map[string]<-chan said)
	for i, job := range []string{"holder", "waiter"} {
		lines := assert.Value(p.start("hold", job, kind, semaphore))(t)
		jobs[job] = lines
		testkit.Eventually(t, patience, func() bool {
			names, _, err := w.conn.Children(semaphore + "/leases")
			return err == nil && len(names) == i+1
		}, "the %s is there", job)
	}
	assert.Value(await(p, jobs["holder"], "held", patience))(t)
	testkit.EventuallyNil(t, patience, func() error {
		l, _, err := w.Lock(t.Context(), "leases", apitest.Query("ns="+ns))
		if err == nil && len(l.Holders)+len(l.Waiters) != 2 {
			err = fmt.Errorf("%+v", l)
		}
		return err
	}, "the gateway shows both")
	for _, query := range []string{"", "&wait=60s", "&async=true", "&mode=shared&wait=60s"} {
		_, err := w.acquire(t.Context(), ns, "leases", "ttl=60s"+query)
		if r := (*refusal)(nil); !errors.As(err, &r) || r.status != http.StatusConflict || !strings.Contains(r.body, "foreign_semaphore") {
			t.Errorf("%q: %v", query, err)
		}
	}
	for _, job := range []string{"holder", "waiter"} {
		if job == "waiter" {
			assert.Value(await(p, jobs[job], "held", patience))(t, "the next one")
		}
		assert.NoError(t, p.stop(job))
		assert.Value(await(p, jobs[job], "done", patience))(t)
	}
}

// What docs/operate/interop.md says of programs that meet in one directory without us.
func TestOtherProgramsAmongThemselves(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ holder, next, what string }{
		{"kazoo-lock", "curator-mutex", "held"},
		{"curator-mutex", "kazoo-lock", "held"},
		{"kazoo-lock-extra", "curator-mutex", "held"}, // the pattern makes Kazoo wait, not Curator
		{"curator-mutex", "kazoo-lock-extra", "waits"},
		{"kazoo-lock-named", "curator-mutex", "waits"},
		{"curator-mutex", "kazoo-lock-named", "waits"},
		{"kazoo-lock-named", "go-zookeeper", "waits"},
		{"kazoo-lock-extra", "go-zookeeper", "waits"},
		{"go-zookeeper", "kazoo-lock-extra", "waits"},
		{"go-zookeeper", "kazoo-lock", "held"},
		{"curator-write", "curator-mutex", "held"},
		{"curator-mutex", "curator-write", "held"},
		{"curator-mutex", "go-zookeeper", "waits"},
		{"go-zookeeper", "curator-mutex", "waits"},
		{"hbase-write", "go-zookeeper", "fail"},
		{"zookeeper-writelock", "go-zookeeper", "fail"},
	} {
		t.Run(c.next+" after "+c.holder, func(t *testing.T) {
			lock := c.holder + "-" + c.next
			w.mkdir("/native/"+lock, nil)
			holder := w.theirTurn(t, c.holder, "native", lock)
			assert.NoError(t, testkit.Receive(t, patience, holder.held, "%s alone", c.holder))
			there := w.names("native", lock)
			next := w.theirTurn(t, c.next, "native", lock)
			if c.what == "waits" {
				w.awaitWatch(t, pair{ns: "native", mode: c.holder, kind: c.next}, there)
			} else if err := testkit.Receive(t, patience, next.held, "%s", c.next); (err != nil) != (c.what == "fail") {
				t.Error(err)
			}
			assert.Nil(t, holder.end())
			if c.what == "fail" {
				return
			}
			if c.what == "waits" {
				assert.Nil(t, testkit.Receive(t, patience, next.held, "%s after it", c.next))
			}
			assert.Nil(t, next.end())
		})
	}
}
