package manager

import (
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/test/assert"
)

// Every write of a lease's record keeps the notify_url in it: the next gateway knows it from there alone.
func TestTheNotifyURLSurvivesEveryWriteOfItsRecord(t *testing.T) {
	metadata := strings.Repeat(`<&"`, locks.MaxMetadata/3)
	address := someURL + strings.Repeat("&", locks.MaxNotifyURL-len(someURL)) // the largest record that there is: each & takes six bytes in it
	for name, write := range map[string]func(s *fakeStore, g, other *gate, l locks.Lease) error{
		"no write": func(*fakeStore, *gate, *gate, locks.Lease) error { return nil },
		"an update": func(_ *fakeStore, g, _ *gate, l locks.Lease) error {
			_, err := g.m.Update(g.t.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Metadata: &metadata, TTL: 2 * time.Minute})
			return err
		},
		"a longer heartbeat": func(_ *fakeStore, g, _ *gate, l locks.Lease) error {
			_, err := g.m.Heartbeat(g.t.Context(), locks.Anonymous, l.ID, l.Token, 3*time.Minute)
			return err
		},
		"another gateway's heartbeat": func(_ *fakeStore, _, other *gate, l locks.Lease) error {
			_, err := other.beatFor(l)
			return err
		},
		"a hold": func(_ *fakeStore, g, _ *gate, l locks.Lease) error {
			_, err := g.acquire(locks.AcquireRequest{Lock: "deploy", Hold: "h", Token: l.Token})
			return err
		},
		"a revocation": func(_ *fakeStore, _, other *gate, _ locks.Lease) error {
			_, err := other.m.Revoke(other.t.Context(), locks.RevokeRequest{Lock: "deploy", Reason: "please"})
			return err
		},
		"a downgrade": func(_ *fakeStore, g, _ *gate, l locks.Lease) error {
			_, err := g.m.Downgrade(g.t.Context(), locks.Anonymous, l.ID, l.Token)
			return err
		},
		"another program": func(s *fakeStore, _, _ *gate, l locks.Lease) error {
			s.overwrite(l.Znode, interop.CuratorRevokes)
			return nil
		},
	} {
		for _, group := range []bool{false, true} {
			withOutboxes(t, func(t *testing.T, s *fakeStore, g, other *gate) {
				req := locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, NotifyURL: address, IdempotencyKey: strings.Repeat("k", 16), LockDelay: time.Second}
				if group {
					if name == "a revocation" || name == "another program" || name == "a hold" {
						return // of one lock
					}
					req.Lock, req.Group = "", []locks.Want{{Lock: "deploy"}, {Lock: "more"}}
				}
				l := g.mustHold(req)
				assert.NoError(t, write(s, g, other, l), "%s", name)
				time.Sleep(time.Second)
				g.crash()
				pass(30 * time.Second)
				again, err := other.acquire(req)
				assert.That(t, err == nil && again.ID == l.ID && again.NotifyURL == address && again.NotifySecret == l.NotifySecret,
					"after %s, group %v, a repeat: %v, of %s with %d bytes of address", name, group, err, again.ID, len(again.NotifyURL))
				pass(10 * time.Minute)
				if _, ends := told(l, g, other); len(ends) != 1 || ends[0].Notify != address || ends[0].Reason != locks.ReasonExpired || ends[0].Waiting {
					t.Errorf("after %s, group %v: told %d times", name, group, len(ends))
				}
			})
		}
	}
}
