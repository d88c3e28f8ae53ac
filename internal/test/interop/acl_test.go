package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// Attack 5: ZooKeeper sends a client no events of a node that it may not read. Kazoo's Lock of a client with an ACL of its own is
// such a contender: it is in the listing, and neither comes nor goes as far as the watch can tell.
func TestAContenderThatMayNotBeReadIsWaitedForAndItsEndIsNoticed(t *testing.T) {
	identity := filepath.Join(t.TempDir(), "identity")
	assert.NoError(t, os.WriteFile(identity, []byte("digest fleet:sesame\n"), 0o600))
	for _, c := range []struct {
		kind   string // of Kazoo's client
		flags  []string
		hidden bool
	}{
		{"kazoo-private", nil, true},
		{"kazoo-private", []string{"--zk-auth-file=" + identity}, true},
		{"kazoo-shown", nil, true},
		{"kazoo-shown", []string{"--zk-auth-file=" + identity}, false}, // the observer has the fleet's identity, too
	} {
		t.Run(fmt.Sprint(c.kind, " ", len(c.flags)), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.flags...)
			w.mkdir("/kazoo/deploy", nil)
			lease, err := w.acquire(t.Context(), "kazoo", "deploy", "ttl=60s") // the directory is known from its first child on
			assert.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			events, _, err := w.Events(ctx, apitest.Query("format=jsonl&type=lock.*"))
			assert.NoError(t, err)
			defer events.Close()
			theirs := w.theirTurn(t, c.kind, "kazoo", "deploy")
			testkit.Eventually(t, patience, func() bool { return len(w.names("kazoo", "deploy")) == 2 }, "Kazoo is queued")
			assert.NoError(t, w.release(t.Context(), lease))
			assert.NoError(t, testkit.Receive(t, patience, theirs.held, "Kazoo's turn"))
			ours := w.ourTurn(t, "kazoo", "deploy")
			l := w.awaitQueue(t, "kazoo", "deploy", 1)
			codes := codesOf(l)
			want := []string{"unreadable"}
			assert.That(t, (!c.hidden || slices.Equal(codes, want)) && (c.hidden || codes == nil), "hazards %q", codes)
			if h := l.Holders[0]; h.Foreign == nil || h.Foreign.Program != "kazoo" || (h.Foreign.Data == nil) != c.hidden {
				t.Errorf("the holder is shown as %+v", h)
			}
			select {
			case err := <-ours.held:
				t.Fatalf("ours beside Kazoo's: %v", err)
			default:
			}
			assert.NoError(t, theirs.end())
			assert.NoError(t, testkit.Receive(t, patience, ours.held, "our turn"))
			l = w.awaitQueue(t, "kazoo", "deploy", 0)
			assert.That(t, len(l.Hazards) == 0, "hazards are left: %+v", l.Hazards)
			assert.NoError(t, ours.end())
			if !c.hidden {
				return
			}
			for _, want := range []string{"lock.hazard", "lock.hazard_cleared"} {
				e, err := events.Next()
				assert.That(t, err == nil && string(e.Type) == want && strings.Contains(e.JSON, `"unreadable"`),
					"%+v, %v; want %s", e, err, want)
			}
		})
	}
}

// awaitQueue waits until the gateway shows one holder and so many who wait.
func (w *world) awaitQueue(t *testing.T, ns, lock string, waiting int) (l api.Lock) {
	t.Helper()
	testkit.EventuallyNil(t, patience, func() (err error) {
		l, _, err = w.Lock(t.Context(), lock, apitest.Query("ns="+ns))
		if err == nil && (len(l.Holders) != 1 || l.QueueLength != waiting) {
			err = fmt.Errorf("%+v", l)
		}
		return err
	}, "one holds %s and %d wait", lock, waiting)
	return l
}

func codesOf(l api.Lock) (codes []string) {
	for _, h := range l.Hazards {
		codes = append(codes, string(h.Code))
	}
	return codes
}
