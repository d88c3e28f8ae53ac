package token

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// running is a store that follows the nodes until stop is called.
func running(t *testing.T, n *nodes, changed func(Change)) (s *Store, stop func()) {
	s = n.follow(NewStore(Options{Tree: n.tree(), Changed: changed}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	return s, func() { cancel(); <-done }
}

func TestATokenIsAcceptedUntilItIsRevokedOrExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes()
		early, first := made(t, n, "early", 0)
		var seen []string
		s, stop := running(t, n, func(c Change) { seen = append(seen, string(c.Kind)+" "+c.Name) })
		defer stop()
		_, err := s.Authenticate(early)
		assert.ErrorIs(t, err, ErrNotReady)
		_, err = s.Lookup(first.ID)
		assert.ErrorIs(t, err, ErrNotReady)
		synctest.Wait()
		r, err := s.Authenticate(early)
		assert.That(t, err == nil && r.Name == "early", "%+v, %v", r, err)

		late, second := made(t, n, "late", time.Hour)
		synctest.Wait()
		r, err = s.Authenticate(late)
		assert.That(t, err == nil && r.Name == "late", "made meanwhile: %+v, %v", r, err)
		time.Sleep(time.Hour - time.Second)
		assert.Value(s.Lookup(second.ID))(t)
		time.Sleep(time.Second)
		_, err = s.Authenticate(late)
		assert.ErrorIs(t, err, ErrRefused)
		_, err = s.Lookup(second.ID)
		assert.ErrorIs(t, err, ErrRefused)

		assert.Value(n.tree().Revoke(t.Context(), "early", "me", []*Record{first}))(t)
		synctest.Wait()
		_, err = s.Authenticate(early)
		assert.ErrorIs(t, err, ErrRefused)
		_, err = s.Lookup(first.ID)
		assert.ErrorIs(t, err, ErrRefused)
		assert.Equal(t, strings.Join(seen, ", "), "created late, revoked early")
	})
}

func TestEveryWrongTokenGetsOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes()
		text, r := made(t, n, "ci", 0)
		s, stop := running(t, n, nil)
		defer stop()
		synctest.Wait()
		_, other, _ := generate()
		// The id of one, the secret of another, and a checksum that fits.
		mixed := prefix + r.ID + other[len(prefix)+idLength:length-sumLength-1]
		mixed = seal(mixed)
		for _, wrong := range []string{other, mixed, text[:len(text)-1], "", "lkt_", "ey.JWT", text + " "} {
			_, err := s.Authenticate(wrong)
			assert.That(t, err == ErrRefused, "%q: %v", wrong, err)
		}
		assert.That(t, noRecord.StateAt(time.Now()) != Active, "what stands for no record lets in")
	})
}

func TestAStoreCatchesUpAfterZooKeeperWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes()
		text, r := made(t, n, "ci", 0)
		n.with(func() { n.down = true })
		s, stop := running(t, n, nil)
		defer stop()
		time.Sleep(10 * time.Second)
		_, err := s.Authenticate(text)
		assert.ErrorIs(t, err, ErrNotReady)
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, s.Await(within), ErrNotReady)
		n.with(func() { n.down = false })
		assert.NoError(t, s.Await(t.Context()))
		_, err = s.Authenticate(text)
		assert.NoError(t, err)
		// Read in vain when it was revoked.
		assert.Value(n.tree().Revoke(t.Context(), "ci", "me", []*Record{r}))(t)
		n.with(func() { n.down = true })
		synctest.Wait()
		n.with(func() { n.down = false })
		time.Sleep(retryEvery)
		synctest.Wait()
		_, err = s.Authenticate(text)
		assert.ErrorIs(t, err, ErrRefused)
	})
}

// A fleet's gateways write the day of the last use once, and none does while a client waits.
func TestTheDayOfTheLastUseIsWrittenOnceByOneGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes()
		text, r := made(t, n, "ci", 0)
		unused, _ := made(t, n, "idle", 0)
		var fleet []*Store
		for range 5 {
			s, stop := running(t, n, nil)
			defer stop()
			fleet = append(fleet, s)
		}
		synctest.Wait()
		for d := range 3 {
			n.with(func() { n.writes = nil })
			for range 100 {
				for _, s := range fleet {
					assert.Value(s.Authenticate(text))(t)
				}
			}
			n.with(func() { assert.Equal(t, len(n.writes), 0, "written on the path of a request") })
			time.Sleep(3 * maintainEvery)
			synctest.Wait()
			n.with(func() { assert.Equal(t, len(n.writes), 1, "writes on day %d", d) })
			now, _ := fleet[2].Lookup(r.ID)
			assert.Equal(t, now.LastUsed, time.Now().UTC().Truncate(day))
			time.Sleep(day)
		}
		id, _, _ := split(unused)
		idle, _ := fleet[0].Lookup(id)
		assert.That(t, idle.LastUsed.IsZero(), "never used: %v", idle.LastUsed)
	})
}

func TestAUseThatComesWithARevocationDoesNotUndoIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes()
		text, r := made(t, n, "ci", 0)
		s, stop := running(t, n, nil)
		synctest.Wait()
		assert.Value(s.Authenticate(text))(t)
		stop() // it does not hear of the revocation
		assert.Value(n.tree().Revoke(t.Context(), "ci", "me", []*Record{r}))(t)
		s.maintainOnce(t.Context(), time.Now())
		list := assert.Value(n.tree().List(t.Context()))(t)
		assert.Equal(t, list[0].StateAt(time.Now()), Revoked)
	})
}

func TestRecordsOfTokensThatEndedLongAgoGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes()
		made(t, n, "expires", day)
		made(t, n, "stays", 0)
		_, r := made(t, n, "revoked", 0)
		s, stop := running(t, n, nil)
		defer stop()
		synctest.Wait()
		assert.Value(s.Revoke(t.Context(), "revoked", "me"))(t)
		assert.Value(s.Revoke(t.Context(), r.ID, "me"))
		time.Sleep(keepEnded - time.Hour)
		list := assert.Value(s.List())(t)
		assert.Equal(t, len(list), 3, "as long as they tell something")
		time.Sleep(day + 2*time.Hour)
		synctest.Wait()
		list = assert.Value(s.List())(t)
		assert.That(t, len(list) == 1 && list[0].Name == "stays", "left: %+v", list)
	})
}

func TestOneRoundWritesABoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes()
		var texts []string
		for i := range 2*writesAtOnce + 50 {
			id, text, of := generate()
			texts = append(texts, text)
			n.data["/l/auth/tokens/"+id] = string((&Record{Name: fmt.Sprint("t", i), Created: time.Now(), hash: of}).encode())
		}
		s, stop := running(t, n, nil)
		defer stop()
		synctest.Wait()
		for _, text := range texts {
			assert.Value(s.Authenticate(text))(t)
		}
		for i, want := range []int{writesAtOnce, 2 * writesAtOnce, len(texts), len(texts)} {
			s.maintainOnce(t.Context(), time.Now())
			synctest.Wait()
			assert.Equal(t, len(n.writes), want, "after round %d", i)
		}
	})
}

func TestAuthenticateAllocatesNothingAndIsSafeBesideChanges(t *testing.T) {
	n := newNodes()
	text, _ := made(t, n, "ci", 0)
	s, stop := running(t, n, nil)
	defer stop()
	for _, err := s.Authenticate(text); err != nil; _, err = s.Authenticate(text) {
		s.Look("")
		time.Sleep(time.Millisecond)
	}
	_, other, _ := generate()
	assert.Equal(t, testing.AllocsPerRun(1000, func() {
		_, _ = s.Authenticate(text)
		_, _ = s.Authenticate(other)
	}), 0.0)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				if _, err := s.Authenticate(text); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 50 {
		made(t, n, "more", 0)
	}
	all.Wait()
}

func BenchmarkAuthenticate(b *testing.B) {
	id, text, of := generate()
	s := NewStore(Options{Tree: Tree{Root: "/l"}})
	s.take(true, nil, []*Record{{ID: id, Name: "ci", hash: of}})
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Authenticate(text)
	}
}

var _ Nodes = (*nodes)(nil)
