package manager

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	zklayout "lockkeeper/internal/zk/layout"
)

// withKeys replaces the fleet's keys; gateways that start afterwards read these.
func (s *fakeStore) withKeys(keys ...string) {
	layout := *s.layout
	layout.Keys = nil
	for _, key := range keys {
		layout.Keys = append(layout.Keys, zklayout.TokenKey{ID: key[:2], Key: []byte(key)})
	}
	layout.NameKey = []byte(keys[len(keys)-1]) // as zk reads it from a secret without one
	s.layout = &layout
}

// guesses are the names that a client of ZooKeeper can compute for a guessed Idempotency-Key of a lock in the default namespace.
func guesses(lock, key string) []string {
	var list []string
	for _, in := range []string{
		fmt.Sprintf("9:anonymous7:default%d:%s%d:%s", len(lock), lock, len(key), key), // every part with its length
		key, lock + key, lock + "/" + key, "default/" + lock + "/" + key,
	} {
		sum := sha256.Sum256([]byte(in))
		list = append(list, hex.EncodeToString(sum[:]), hex.EncodeToString(sum[:20]))
	}
	return list
}

// Every client of ZooKeeper can list the names of keys' nodes, and a client's key stands for its lease's token.
func TestAGuessedKeyCannotBeTriedOnTheNamesInZooKeeper(t *testing.T) {
	const guessable = "nightly-2026-11-22"
	named := map[string][]string{}
	for _, fleet := range []string{"secret of one fleet", "key of another one"} {
		scene(t, func(t *testing.T, s *fakeStore) {
			s.withKeys(fleet)
			g := s.gateway(t)
			g.mustHold(locks.AcquireRequest{NS: locks.DefaultNamespace, Lock: "nightly", TTL: time.Minute, Owner: "worker-7", IdempotencyKey: guessable})
			named[fleet] = s.names("/lockkeeper/keys")
			for _, name := range named[fleet] {
				assert.That(t, !slices.Contains(guesses("nightly", guessable), name), "%s is the hash of the key", name)
			}
		})
	}
	for fleet, names := range named {
		assert.That(t, len(names) == 1 && len(names[0]) == 40, "%s: %q", fleet, names)
	}
	assert.That(t, !slices.Equal(named["secret of one fleet"], named["key of another one"]), "two fleets name the same key %q", named)
}

// A gateway that has read the newer key and one that has not yet must find each other's nodes.
func TestAKeyThatIsAddedToTheFleetChangesNoName(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.withKeys("k1 of the fleet")
		one := s.gateway(t)
		first := one.mustHold(keyed())
		s.withKeys("k2 of the fleet", "k1 of the fleet")
		two := s.gateway(t)
		again, err := two.acquire(keyed())
		wantCode(t, err, locks.CodeNotOwner)
		names := s.names("/lockkeeper/locks/deploy")
		assert.That(t, len(names) == 1, "the repeat queued again: %v, %+v", names, again)
		again = one.mustAcquire(keyed())
		assert.That(t, again.ID == first.ID, "the repeat is %s, the first was %s", again.ID, first.ID)
	})
}

// After the fleet's keys were replaced no client's key leads to an older node; its lease does.
func TestTheNodeOfAKeyIsSweptAfterTheFleetsKeysWereReplaced(t *testing.T) {
	for name, c := range map[string]struct{ release bool }{"its lease ends afterwards": {}, "its lease had ended": {release: true}} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(t *testing.T, s *fakeStore) {
				s.withKeys("k1 of the fleet")
				one := s.gateway(t)
				l := one.mustHold(keyed())
				old := s.names("/lockkeeper/keys")
				if c.release {
					one.mustRelease(l)
				}
				one.crash()
				time.Sleep(time.Minute)
				s.withKeys("k9 of the fleet")
				s.gateway(t)
				time.Sleep(10 * time.Minute)
				if names := s.names("/lockkeeper/keys"); !c.release && !slices.Equal(names, old) {
					t.Errorf("keys %q while the lease lives, want %q", names, old)
				}
				time.Sleep(2 * time.Hour)
				if names := s.names("/lockkeeper/keys"); len(names) != 0 {
					t.Errorf("left behind: %q", names)
				}
				if names := s.names("/lockkeeper/locks"); len(names) != 0 {
					t.Errorf("left behind: %q", names)
				}
			})
		})
	}
}
