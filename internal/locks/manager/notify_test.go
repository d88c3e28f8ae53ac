package manager

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

const someURL = "https://hooks.example.com/job?key=42"

// told are the endings and grants that some gateways have noted of a lease, in their order.
func told(l locks.Lease, gates ...*gate) (grants, ends []*Ending) {
	for _, g := range gates {
		for _, e := range g.notedFor(l) {
			if e.Granted {
				grants = append(grants, e)
			} else {
				ends = append(ends, e)
			}
		}
	}
	return grants, ends
}

func TestTheEndOfALeaseThatWaitedIsNotedForItsNotifyURLInItsTransaction(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		l := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Minute, Owner: "me", NotifyURL: someURL})
		other := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Minute, NotifyURL: someURL})
		g.outbox.with(func() { g.outbox.known, g.outbox.stale = false, true }) // who has subscribed does not matter
		g.mustRelease(l)
		assert.Slices(t, s.lastEnd(), []zk.OpKind{zk.OpCreate, zk.OpDelete}, "operations")
		grants, ends := told(l, g)
		if len(grants) != 0 || len(ends) != 1 || !ends[0].Waiting || ends[0].Notify != someURL || ends[0].Reason != locks.ReasonCancelled || ends[0].Owner != "me" || ends[0].Parts[0].Lock != "deploy" {
			t.Errorf("%+v, granted %+v", ends, grants)
		}
		time.Sleep(2 * time.Minute)
		if _, ends := told(other, g); len(ends) != 1 || ends[0].Reason != locks.ReasonExpired || !ends[0].Waiting || len(g.outbox.gone) != 0 {
			t.Errorf("%+v, otherwise %+v", ends, g.outbox.gone)
		}
	})
}

func TestAPlaceInLineThatNoClientWasGivenTellsNothing(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		_, err := g.acquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: 5 * time.Second, NotifyURL: someURL})
		wantCode(t, err, locks.CodeWaitElapsed)
		waiter := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute, NotifyURL: someURL})
		time.Sleep(time.Second)
		waiter.stop()
		<-waiter.done
		synctest.Wait()
		if names := s.outbox(); len(names) != 0 || len(g.outbox.gone) != 0 {
			t.Errorf("noted %q: a receiver could not know what it is about, nor verify it", names)
		}
	})
}

func TestAGrantIsNotedBeforeTheEndWhicheverFaults(t *testing.T) {
	for name, fault := range map[string]func(s *fakeStore){
		"none":             func(*fakeStore) {},
		"failed":           func(s *fakeStore) { s.vague, s.drop = writeTo("-granted"), true },
		"failed, and done": func(s *fakeStore) { s.vague = writeTo("-granted") },
		"refused for now": func(s *fakeStore) {
			s.refuse = refusing(writeTo("-granted"), -1, zk.ErrNotApplied)
		},
	} {
		withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
			first := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			l := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Hour, NotifyURL: someURL})
			s.set(func() { fault(s) })
			g.mustRelease(first)
			time.Sleep(100 * time.Millisecond)
			s.set(func() { s.vague, s.refuse, s.drop = nil, nil, false })
			pass(5 * time.Second)
			g.wantState(l, locks.Held, "")
			if names := s.outbox(); !slices.Contains(names, l.ID+"-granted") {
				t.Errorf("%s: outbox %q", name, names)
			}
			// Told, and removed: nothing writes it once more.
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/outbox/" + l.ID + "-granted", Version: -1})
			path := "/lockkeeper/locks/deploy/" + s.names("/lockkeeper/locks/deploy")[0]
			s.foreign(zk.Op{Kind: zk.OpSetData, Path: path, Data: s.node(path).data, Version: -1}) // it is read again
			_, _ = g.heartbeat(l)
			time.Sleep(10 * time.Second)
			g.mustRelease(l)
			pass(time.Minute)
			if names := s.outbox(); !slices.Equal(names, []string{first.ID, l.ID}) && !slices.Equal(names, []string{l.ID, first.ID}) {
				t.Errorf("%s: outbox %q", name, names)
			}
			_, ends := told(l, g)
			assert.That(t, len(ends) == 1 && !ends[0].Waiting && ends[0].Notify == someURL, "%s: %+v", name, ends)
		})
	}
}

func TestAGrantThatIsLateNeverComesBehindTheEnd(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.set(func() { s.vague, s.drop = writeTo("-granted"), true })
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, NotifyURL: someURL})
		s.set(func() { s.vague, s.drop = nil, false })
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/deploy/" + s.names("/lockkeeper/locks/deploy")[0], Version: -1})
		pass(time.Minute)
		if names := s.outbox(); len(names) != 0 || len(g.outbox.gone) != 1 || g.outbox.gone[0].Notify != someURL || g.outbox.gone[0].LeaseID != l.ID {
			t.Errorf("outbox %q, told %+v", names, g.outbox.gone)
		}
	})
}

func TestAGrantThatWasLostWithItsSessionIsNotedUnderTheNextOne(t *testing.T) {
	for _, persisted := range []bool{true, false} {
		withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
			s.set(func() { s.loseAlone(persisted, writeTo("-granted")) })
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, NotifyURL: someURL})
			time.Sleep(100 * time.Millisecond)
			s.mu.Lock()
			s.loseReply, s.refuse = nil, nil
			session := s.sessions[g.m.GatewayID()]
			s.mu.Unlock()
			session.expire()
			pass(time.Minute)
			assert.Slices(t, s.outbox(), []string{l.ID + "-granted"}, "persisted %v: outbox", persisted)
			g.wantState(l, locks.Held, "")
		})
	}
}

func TestAWaiterThatAnotherClientRemovesIsTold(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		l := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Minute, NotifyURL: someURL})
		g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Minute})
		names := s.names("/lockkeeper/locks/deploy")
		slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
		for _, name := range names[1:] {
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/deploy/" + name, Version: -1})
		}
		synctest.Wait()
		if e := g.outbox.gone; len(e) != 1 || e[0].LeaseID != l.ID || !e[0].Waiting || e[0].Notify != someURL || e[0].Reason != locks.ReasonRemoved {
			for _, e := range e {
				t.Errorf("%+v", *e)
			}
		}
	})
}

func TestASuccessorTellsTheNotifyURL(t *testing.T) {
	withOutboxes(t, func(t *testing.T, s *fakeStore, g, other *gate) {
		held := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, NotifyURL: someURL})
		waits := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: 2 * time.Minute, NotifyURL: someURL + "&waits"})
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/outbox/" + held.ID + "-granted", Version: -1}) // it is told
		g.crash()
		pass(10 * time.Minute)
		grants, ends := told(held, other)
		if len(grants) != 1 || len(ends) != 1 || ends[0].Reason != locks.ReasonExpired || ends[0].Waiting || ends[0].Notify != someURL {
			t.Errorf("%+v, granted %+v", ends, grants)
		}
		_, ends = told(waits, other)
		assert.That(t, len(ends) == 1 && ends[0].Notify == someURL+"&waits", "%+v", ends)
		assert.That(t, len(other.outbox.gone) == 0, "otherwise: %+v", other.outbox.gone)
	})
}

func TestAGatewayThatEndsTheLeasesOfOthersTellsTheirNotifyURLs(t *testing.T) {
	for name, end := range map[string]func(by *gate, l locks.Lease) error{
		"a break": func(by *gate, l locks.Lease) error { return by.m.Break(by.t.Context(), locks.BreakRequest{ID: l.ID}) },
		"a reap": func(by *gate, _ locks.Lease) error {
			_, err := by.m.Reap(by.t.Context(), locks.ReapRequest{Lock: "deploy"})
			return err
		},
		"a destruction": func(by *gate, _ locks.Lease) error {
			_, err := by.m.Destroy(by.t.Context(), locks.DestroyRequest{Lock: "deploy"})
			return err
		},
	} {
		for _, of := range []string{"its own", "another gateway's"} {
			notingScene(t, func(t *testing.T, s *fakeStore) {
				s.peerReports = true
				g, by := s.notingGateway(t), s.notingGateway(t)
				if of == "its own" {
					by = g
				} else {
					talk(g, by)
				}
				held := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, NotifyURL: someURL})
				waits := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Hour, NotifyURL: someURL})
				if by != g {
					g.w.hold() // the word is quicker than its watch
				}
				for _, l := range []locks.Lease{waits, held} {
					if l.ID == held.ID && name != "a break" {
						continue // it went with the other
					}
					assert.NoError(t, end(by, l), "%s of %s", name, of)
				}
				synctest.Wait()
				if by != g {
					g.w.release()
				}
				for _, l := range []locks.Lease{waits, held} {
					_, ends := told(l, g, by)
					if by == g {
						_, ends = told(l, g)
					}
					assert.That(t, len(ends) == 1 && ends[0].Notify == someURL && ends[0].Waiting == (l.ID == waits.ID),
						"%s of %s: %+v", name, of, ends)
				}
				n := len(g.outbox.gone) + len(by.outbox.gone)
				assert.That(t, n == 0, "%s of %s: told %d times more", name, of, n)
			})
		}
	}
}

func TestABreakRightAfterATakeoverKnowsTheNotifyURL(t *testing.T) {
	notingScene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		g, other := s.notingGateway(t), h.gateway(t)
		time.Sleep(time.Second)
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, NotifyURL: someURL})
		h.failReads("-lock-")
		g.crash()
		pass(20 * time.Second)
		other.m.mu.Lock()
		taken := other.m.leases.lease(recipe.LeaseID(l.ID))
		assert.That(t, taken != nil && taken.Record().Assumed(), "it is not taken over, or is read: nothing is shown")
		other.m.mu.Unlock()
		broken := make(chan error, 1)
		go func() { broken <- other.m.Break(t.Context(), locks.BreakRequest{ID: l.ID}) }()
		time.Sleep(300 * time.Millisecond)
		h.hooks.Store(&hooks{})
		assert.NoError(t, <-broken)
		synctest.Wait()
		_, ends := told(l, other)
		assert.That(t, len(ends) == 1 && ends[0].Notify == someURL, "%+v", ends)
	})
}

func TestTheAddressIsShownToTheBearerAndTheSecretToTheAcquirer(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		req := locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, TTL: time.Hour, NotifyURL: someURL, IdempotencyKey: strings.Repeat("k", 16)}
		l, again, other := g.mustHold(req), g.mustHold(req), g.mustHold(locks.AcquireRequest{Lock: "c", TTL: time.Hour, NotifyURL: someURL})
		if l.NotifyURL != someURL || !strings.HasPrefix(l.NotifySecret, "whsec_") || again.ID != l.ID || again.NotifySecret != l.NotifySecret || other.NotifySecret == l.NotifySecret {
			t.Errorf("%+v, again %+v, another %+v", l, again, other)
		}
		secrets := g.m.NotifySecrets(l.ID)
		assert.That(t, len(secrets) == 1 && secrets[0] == l.NotifySecret, "signed with %q", secrets)
		looked, err := g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token})
		assert.That(t, err == nil && looked.NotifyURL == someURL && looked.NotifySecret == "", "its bearer sees %+v %v", looked, err)
		looked, err = g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID})
		assert.That(t, err == nil && looked.NotifyURL == "" && looked.NotifySecret == "", "everyone sees %+v %v", looked, err)
		page, err := g.m.Leases(t.Context(), locks.LeaseFilter{})
		if err != nil || len(page.Items) != 2 || page.Items[0].NotifyURL+page.Items[1].NotifyURL+page.Items[0].NotifySecret != "" {
			t.Errorf("the list has %+v %v", page, err)
		}
		req.NotifyURL += "&more"
		_, err = g.acquire(req)
		wantCode(t, err, locks.CodeKeyReused)
	})
}

func TestAnAddressThatCannotBeToldIsRefused(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		for name, req := range map[string]locks.AcquireRequest{
			"inside":             {Lock: "deploy", NotifyURL: "https://inside.example.com/"},
			"inside, if it were": {Lock: "deploy", NotifyURL: "https://inside.example.com/", DryRun: true},
			"too long":           {Lock: "deploy", NotifyURL: "https://example.com/" + strings.Repeat("a", locks.MaxNotifyURL)},
			"no text":            {Lock: "deploy", NotifyURL: "https://example.com/\xff"},
			"ephemeral":          {Lock: "deploy", NotifyURL: someURL, Ephemeral: true},
			"of a hold":          {Lock: "deploy", NotifyURL: someURL, Hold: "h", Token: "t"},
		} {
			_, err := g.acquire(req)
			var e *locks.Error
			if !errors.As(err, &e) || e.Code != locks.CodeInvalid || e.Field != "notify_url" || strings.Contains(e.Detail, "example.com") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestWhatAnotherProgramPutsIntoARecordIsTakenForNothingButAnAddress(t *testing.T) {
	for _, notify := range []string{"wh_aaaaaaaaaaaaaaaa", "ftp://example.com/", "https://" + strings.Repeat("a", locks.MaxNotifyURL)} {
		var l lease
		if l.learnNotify(record.Record{Notify: notify}); l.notifyURL() != "" {
			t.Errorf("%.30q is taken for an address", notify)
		}
	}
}

func TestARecordKeepsWhatALaterReleaseHasWritten(t *testing.T) {
	withOutboxes(t, func(t *testing.T, s *fakeStore, g, other *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, NotifyURL: someURL})
		path := "/lockkeeper/locks/deploy/" + s.names("/lockkeeper/locks/deploy")[0]
		data := string(s.node(path).data)
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: path, Version: -1, Data: []byte(strings.TrimSuffix(data, "}") + `,"later":{"a":[1]}}`)})
		g.crash()
		time.Sleep(30 * time.Second)
		for range 2 {
			metadata := "changed" + time.Now().String()
			assert.Value(other.m.Update(t.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Metadata: &metadata}))(t)
			var r struct {
				Later    json.RawMessage `json:"later"`
				Metadata string          `json:"metadata"`
				Notify   string          `json:"notify"`
			}
			if err := json.Unmarshal(s.node(path).data, &r); err != nil || string(r.Later) != `{"a":[1]}` || r.Metadata != metadata || r.Notify != someURL {
				t.Errorf("%s", s.node(path).data)
			}
		}
	})
}
