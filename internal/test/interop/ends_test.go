package interop

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// ending are a client of each program and a namespace where the two respect each other.
var ending = []pair{
	{"native", "exclusive", "curator-mutex", ""},
	{"kazoo", "exclusive", "kazoo-lock", ""},
	{"all", "exclusive", "go-zookeeper", ""},
}

func TestAKilledForeignClientFreesTheQueue(t *testing.T) {
	w := newWorld(t)
	each(t, ending, func(t *testing.T, p pair) {
		w.successor(t, p, func(holder *program) { holder.proc.Kill() })
	})
}

func TestAFrozenForeignClientHoldsUntilItsSessionEnds(t *testing.T) {
	w := newWorld(t)
	each(t, ending, func(t *testing.T, p pair) {
		var since int64
		granted := w.successor(t, p, func(holder *program) {
			since = monotonic()
			holder.proc.Freeze()
		})
		// Clients ping at least every third of their session.
		held := time.Duration(granted - since)
		assert.That(t, held >= briefSession/2, "granted %v after the holder was frozen, whose session has %v", held, briefSession)
	})
}

// successor lets a foreign client hold the pair's lock, queues ours behind it, does something to the holder, waits until ours
// holds and returns when that was. Ours may hold only once the holder's contender is gone.
func (w *world) successor(t *testing.T, p pair, end func(holder *program)) (granted int64) {
	t.Helper()
	w.mkdir("/"+p.ns+"/"+p.lock(), nil)
	holder := w.ownProgram(t, p.kind, briefSession)
	lines, err := holder.start("hold", "holder", p.kind, w.dir(p.ns, p.lock()))
	if err == nil {
		_, err = await(holder, lines, "held", patience)
	}
	assert.NoError(t, err)
	theirs := w.names(p.ns, p.lock())
	assert.Must(t, len(theirs) == 1, "%q", theirs)
	type grant struct {
		at    int64
		there bool
		err   error
	}
	grants := make(chan grant, 1)
	go func() {
		lease, err := w.acquire(t.Context(), p.ns, p.lock(), "wait=60s&ttl=60s")
		g := grant{at: monotonic(), err: err}
		if err == nil {
			g.there, _, g.err = w.conn.Exists(w.dir(p.ns, p.lock()) + "/" + theirs[0])
			g.err = errors.Join(g.err, w.release(t.Context(), lease))
		}
		grants <- g
	}()
	testkit.Eventually(t, patience, func() bool { return len(w.names(p.ns, p.lock())) > 1 }, "ours is queued")
	testkit.Nothing(t, grants, "beside the holder")
	end(holder)
	g := testkit.Receive(t, patience, grants, "ours is never granted")
	assert.That(t, g.err == nil && !g.there, "granted while the holder's contender is there: %v; %v", g.there, g.err)
	return g.at
}

// Kazoo's ReadLock waits for the last writer of all, behind it or not (_get_predecessor stops at no contender of its own
// kind). A writer that stands behind it waits for it: for ever, unless it gives up. Kazoo's own writers are no better off.
func TestKazoosReadLockDeadlocksWithAWriterBehindIt(t *testing.T) {
	w := newWorld(t)
	pairs := withWord(t, "deadlocks")
	each(t, pairs, func(t *testing.T, p pair) {
		w.mkdir("/"+p.ns+"/"+p.lock(), nil)
		first := assert.Value(w.acquire(t.Context(), p.ns, p.lock(), "ttl=60s"))(t)
		// One at a time they do exclude each other.
		reader := w.program(t, p.kind)
		job := "reader-" + p.ns
		lines := assert.Value(reader.start("hold", job, p.kind, w.dir(p.ns, p.lock())))(t)
		w.awaitWatch(t, p, w.names(p.ns, p.lock()))
		// Ours is behind it, and then the first is gone.
		second := assert.Value(w.acquire(t.Context(), p.ns, p.lock(), "ttl=60s&async=true"))(t)
		assert.NoError(t, w.release(t.Context(), first))
		var ours []string
		for _, name := range w.names(p.ns, p.lock()) {
			if strings.Contains(name, second.LeaseID) {
				ours = append(ours, name)
			}
		}
		w.awaitWatch(t, p, ours) // the reader waits for who is behind it
		l, _, err := w.Lease(t.Context(), second.LeaseID)
		assert.That(t, err == nil && l.State == "waiting", "%+v, %v", l, err)
		testkit.Nothing(t, lines, "a line of the job")
		assert.NoError(t, w.release(t.Context(), second))
		_, err = await(reader, lines, "held", patience)
		assert.Nil(t, err, "the writer has given up")
		assert.Nil(t, reader.stop(job))
		_, err = await(reader, lines, "done", patience)
		assert.Nil(t, err)
	})
}

func TestKazoosReadLockDeadlocksWithKazoosWriteLock(t *testing.T) {
	w := newWorld(t)
	p := pair{ns: "kazoo", mode: "kazoo", kind: "alone"}
	w.mkdir("/kazoo/"+p.lock(), nil)
	first := assert.Value(w.acquire(t.Context(), p.ns, p.lock(), "ttl=60s"))(t)
	var queued []string
	join := func(kind string) (turn, string) {
		before := w.names(p.ns, p.lock())
		who := w.theirTurn(t, kind, p.ns, p.lock())
		testkit.Eventually(t, patience, func() bool { queued = w.names(p.ns, p.lock()); return len(queued) > len(before) }, "%s is queued", kind)
		for _, name := range queued {
			if !slices.Contains(before, name) {
				return who, name
			}
		}
		panic("unreachable: there is one more")
	}
	reader, read := join("kazoo-read")
	writer, write := join("kazoo-write")
	assert.NoError(t, w.release(t.Context(), first))
	w.awaitWatch(t, p, []string{write})
	w.awaitWatch(t, p, []string{read})
	select {
	case err := <-reader.held:
		t.Errorf("the reader holds: %v", err)
	case err := <-writer.held:
		t.Errorf("the writer holds: %v", err)
	default:
	}
	assert.NoError(t, w.conn.Delete(w.dir(p.ns, p.lock())+"/"+write, -1))
	assert.Nil(t, testkit.Receive(t, patience, reader.held, "the reader, without the writer"))
}

// awaitWatch waits until a client has a watch on one of the contenders.
func (w *world) awaitWatch(t *testing.T, p pair, names []string) {
	t.Helper()
	testkit.EventuallyNil(t, patience, func() error {
		watches, err := zkreal.FourLetter(w.zkAddr, "wchp")
		if err != nil {
			return err
		}
		for _, name := range names {
			if strings.Contains(watches, w.dir(p.ns, p.lock())+"/"+name+"\n") {
				return nil
			}
		}
		return fmt.Errorf("watched is %s", watches)
	}, "the other program waits for %q", names)
}

// Attack 17: Curator's Revoker writes over our contender's data, in which the TTL and the holds are that a successor must know,
// and then the owner dies.
func TestARevokedLeaseKeepsItsTimeAndItsHoldsWhenItsGatewayDies(t *testing.T) {
	for name, deaf := range map[string]bool{"the owner has written them back": false, "the owner dies before it hears of it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const window, session = 3 * time.Second, 4 * time.Second
			w := newWorld(t, "--session-timeout=4s", "--promise-window=3s")
			curator := w.program(t, "curator-revoker")
			lease, err := w.acquire(t.Context(), "native", "deploy", "ttl=5s&hold=outer&metadata=kept")
			assert.NoError(t, err)
			token := apitest.Token(lease.Token)
			if a, err := w.Send(t.Context(), http.MethodPost, "/v1/locks/deploy/leases?ns=native&hold=inner", token); err != nil || a.Status != http.StatusOK {
				t.Fatalf("%+v, %v", a, err)
			}
			data := func() string {
				data, _, err := w.conn.Get(lease.Znode)
				assert.NoError(t, err)
				return string(data)
			}
			if deaf {
				w.proc.Signal(syscall.SIGSTOP)
			}
			beaten := time.Now() // its client counts from here at the latest
			lines, err := curator.start("hold", "revoker", "curator-revoker", lease.Znode)
			if err == nil {
				_, err = await(curator, lines, "held", patience)
			}
			assert.NoError(t, err)
			if deaf {
				assert.Must(t, data() == "__REVOKE__", "Curator wrote %q", data())
			} else {
				testkit.Eventually(t, patience, func() bool { return strings.Contains(data(), `"kept"`) && strings.Contains(data(), "__REVOKE__") },
					"the owner writes back what was there, and that it was asked to let go")
			}
			w.proc.Kill()
			w.startGateway()
			var l api.Lease
			testkit.Eventually(t, patience, func() bool {
				var a *apitest.Answer
				l, a, err = w.Lease(t.Context(), lease.LeaseID) // an outsider's look, which keeps nothing alive
				return err == nil && a.Status == http.StatusOK && l.State == "held"
			}, "the successor answers for it")
			taken := time.Since(beaten)
			assert.That(t, !deaf || taken >= session/2, "it was taken over after %v, while its gateway's session lived", taken)
			assert.That(t, l.FencingToken == lease.FencingToken, "fencing token %d, was %d", l.FencingToken, lease.FencingToken)
			if deaf {
				// Its TTL is unknown: it is kept for the longest time that there is, and only all of it can be released.
				time.Sleep(window + 5*time.Second + 2*time.Second) // there is nothing to wait for: that it does not end is the point
				if b, a, err := w.Heartbeat(t.Context(), lease.Token); err != nil || a.Status != http.StatusOK || b.RevokeRequested == nil {
					t.Fatalf("a heartbeat after takeover + window + TTL: %+v, %v", a, err)
				}
				a, err := w.Release(t.Context(), lease.Token)
				assert.Must(t, err == nil && a.Status == http.StatusNoContent, "%+v, %v", a, err)
				return
			}
			var holds []string
			for _, h := range l.Holds {
				holds = append(holds, string(h))
			}
			if l.TTLMS != 5000 || !slices.Equal(holds, []string{"outer", "inner"}) || l.Metadata != "kept" || l.RevokeRequested == nil {
				t.Errorf("the successor knows %+v", l)
			}
			release := func(hold string) {
				t.Helper()
				a, err := w.Send(t.Context(), http.MethodDelete, "/v1/leases/self?hold="+hold, token)
				assert.Must(t, err == nil && a.Status == http.StatusNoContent, "%s: %+v, %v", hold, a, err)
			}
			release("inner")
			if b, a, err := w.Heartbeat(t.Context(), lease.Token); err != nil || a.Status != http.StatusOK || b.State != "held" || b.RevokeRequested == nil {
				t.Errorf("with one hold left: %+v, %v", a, err)
			}
			release("outer")
			testkit.Eventually(t, patience, func() bool { return len(w.names("native", "deploy")) == 0 }, "the last hold ends it")
		})
	}
}
