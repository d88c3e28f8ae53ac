package dashboard

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/web/templates"
)

// waitFor lets locks have a first waiter of that age, each.
func (f *fakeLocks) waitFor(ages map[string]time.Duration) {
	at := func(ns, name string) locks.Lock {
		return locks.Lock{NS: ns, Name: name, State: locks.LockHeld, QueueLength: 3, HolderCount: 1, Holders: []locks.Contender{{LeaseID: "lk1", Owner: "holder", Mode: locks.Exclusive}},
			Waiters: []locks.Contender{{LeaseID: "lk2", Owner: "ann-" + name, Position: 1, Age: ages[name], AgeKnown: true, At: time.Now()}}}
	}
	f.set(func() {
		f.lock = func(r locks.LockRequest) (locks.Lock, error) {
			if err := r.Principal.Check(access.Read, r.NS, r.Lock); err != nil {
				return locks.Lock{}, err
			}
			return at(r.NS, r.Lock), nil
		}
		f.locks = func(r locks.LockFilter) (page locks.LockPage, err error) {
			for name := range ages {
				if l := at(r.NS, name); r.NS == "default" && r.Principal.Rules.May(access.Read, r.NS, name) {
					l.Waiters = nil
					page.Items = append(page.Items, l)
				}
			}
			return page, nil
		}
	})
}

// usually is a history in which waits take that long.
func usually(of map[string]time.Duration, count int) *fakeHistory {
	return &fakeHistory{stats: func(q history.StatsQuery) (*history.Stats, error) {
		return &history.Stats{Wait: history.Spans{Count: count, P50: of[q.Lock]}}, nil
	}}
}

func TestAWaitOfTenTimesTheUsualNeedsAttention(t *testing.T) {
	ages := map[string]time.Duration{"slow": 10 * time.Minute, "short": 9 * time.Second, "usual": 5 * time.Minute}
	usual := map[string]time.Duration{"slow": time.Minute, "short": time.Millisecond, "usual": time.Minute}
	for count, want := range map[int]bool{enough: true, enough - 1: false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, withHistory(usually(usual, count)))
			r.fake.waitFor(ages)
			synctest.Wait()
			r.get(t, "/") // it begins to look
			synctest.Wait()
			body := r.get(t, "/").Body.String()
			_, attention, _ := strings.Cut(body, `id="attention"`)
			attention, _, _ = strings.Cut(attention, "</section>")
			assert.Equal(t, strings.Contains(attention, "ann-slow") && strings.Contains(attention, "usually 1 min"), want, "%d waits are known: %s", count, attention)
			assert.That(t, !strings.Contains(attention, "short") && !strings.Contains(attention, "ann-usual"), "%s", attention)
			_, attention, _ = strings.Cut(r.get(t, "/?q=a").Body.String(), `id="attention"`)
			attention, _, _ = strings.Cut(attention, "</section>")
			assert.That(t, !strings.Contains(attention, "slow"), "a search shows what was searched alone: %s", attention)
		})
	}
}

func TestAPageDoesNotWaitForWhatNeedsAttention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := usually(map[string]time.Duration{"slow": time.Second}, enough)
		answer := f.stats
		f.stats = func(q history.StatsQuery) (*history.Stats, error) {
			time.Sleep(3 * time.Second)
			return answer(q)
		}
		r := newRig(t, withHistory(f))
		r.fake.waitFor(map[string]time.Duration{"slow": time.Hour})
		synctest.Wait()
		began := time.Now()
		assert.That(t, !strings.Contains(r.get(t, "/").Body.String(), "usually") && time.Since(began) == 0, "it waited for %v", time.Since(began))
		time.Sleep(4 * time.Second)
		assert.That(t, strings.Contains(r.get(t, "/").Body.String(), "usually 1 s"), "it is not shown when it is known")
	})
}

func TestEachTeamIsToldOfItsOwnLongWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withHistory(usually(map[string]time.Duration{}, enough)))
		r.fake.waitFor(map[string]time.Duration{"shop:till": time.Hour, "bank:vault": time.Hour})
		synctest.Wait()
		for _, c := range [][3]string{{"shop:*", "ann-shop:till", "bank"}, {"bank:*", "ann-bank:vault", "shop"}} {
			who := member(t, "token:x", "default", c[0], access.Read)
			r.as(t, who, "/")
			synctest.Wait()
			for _, target := range []string{"/", "/wall?warn=1m", "/wall", "/pinned?pin=default/shop:till,default/bank:vault", "/ui/fragments?page=pinned&pin=default%2Fshop:till,default%2Fbank:vault"} {
				body := r.as(t, who, target).Body.String()
				_, body, _ = strings.Cut(body, "<body")
				assert.That(t, !strings.Contains(body, "ann-"+c[2]) && !strings.Contains(body, ">"+c[2]), "%s for %s: %s", target, c[0], body)
				assert.That(t, strings.Contains(target, "pin") || strings.Contains(body, c[1]) || strings.Contains(target, "wall") && strings.Contains(body, "longest"), "%s for %s: %s", target, c[0], body)
			}
		}
	})
}

func TestFailingWebhooksNeedTheAttentionOfThoseWhoMaySeeThemAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := hooksOf{"ann": {WebhookRow: templates.WebhookRow{ID: "wh_aaaaaaaaaaaaaaaa", Target: "https://failing.example", Enabled: true, Failing: time.Now(), Waiting: 66}},
			"bob": {WebhookRow: templates.WebhookRow{ID: "wh_bbbbbbbbbbbbbbbb", Target: "https://fine.example", Enabled: true}}}
		r := newRig(t, func(o *Options) { o.Webhooks = hooks })
		synctest.Wait()
		see := func(who locks.Principal) string {
			r.as(t, who, "/")
			synctest.Wait()
			return r.as(t, who, "/").Body.String()
		}
		body := see(locks.Anonymous)
		assert.That(t, strings.Contains(body, "https://failing.example") && strings.Contains(body, "66 messages") && !strings.Contains(body, "fine.example"), "%s", body)
		assert.That(t, !strings.Contains(see(member(t, "a", "default", "*", access.Read)), "failing.example"), "a reader is shown a webhook")
	})
}

func TestNothingLooksBeforeRunAndAfterIt(t *testing.T) {
	o := &lookout{from: &Options{MaxSets: 2}, start: func(func(context.Context)) bool { return false }, found: map[string]*found{}}
	for _, lock := range []string{"a", "b", "c"} {
		who := member(t, "x", "default", lock, access.Read)
		a := o.attention(who, nil)
		assert.That(t, len(a.Waits) == 0 && !o.found[who.Rules.Key()].looking && len(o.found) <= 2, "%d sets", len(o.found))
	}
}

func TestTheWallTurnsRedForAWaitThatIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withHistory(usually(map[string]time.Duration{"slow": time.Minute, "fine": time.Hour}, enough)))
		r.fake.waitFor(map[string]time.Duration{"slow": 10 * time.Minute, "fine": 11 * time.Minute})
		for target, want := range map[string]string{"/wall": "slow ", "/wall?warn=10m30s": "fine ", "/wall?warn=10m": "fine slow ", "/wall?warn=12m": ""} {
			late := ""
			for card := range strings.SplitSeq(r.get(t, target).Body.String(), "<li ") {
				for _, name := range []string{"fine", "slow"} {
					if strings.Contains(card, "wall-late") && strings.Contains(card, "<h2>"+name) {
						late += name + " "
					}
				}
			}
			assert.Equal(t, late, want, "%s", target)
		}
		for _, bad := range []string{"/wall?warn=soon", "/wall?warn=1ms", "/wall?warn=9000h"} {
			assert.Equal(t, r.get(t, bad).Code, http.StatusUnprocessableEntity, "%s", bad)
		}
	})
}

func TestPinsAreNamedByTheBrowserAndBounded(t *testing.T) {
	r := newRig(t)
	r.fake.holds("alice")
	body := r.get(t, "/pinned?pin=default/deploy,team/a%2Fb").Body.String()
	assert.That(t, strings.Contains(body, "alice") && strings.Contains(body, `id="pin/default/deploy"`) && strings.Contains(body, `id="pin/team/a%2Fb"`), "%s", body)
	many := strings.Repeat("default/x,", 3)
	assert.Equal(t, r.get(t, "/pinned?pin="+many).Code, http.StatusOK, "one that is there again")
	many = ""
	for i := range maxPinned + 1 {
		many += "default/x" + strings.Repeat("y", i) + ","
	}
	for _, bad := range []string{many, "nothing", "default/", "/x", "default/%2"} {
		w := r.get(t, "/pinned?pin="+strings.ReplaceAll(bad, "%", "%25"))
		assert.That(t, w.Code == http.StatusUnprocessableEntity && strings.Contains(w.Body.String(), "pin"), "%q: %d", bad, w.Code)
	}
}

func TestTheListIsOrderedAsItsAddressSays(t *testing.T) {
	r := newRig(t)
	for sort, code := range map[string]int{"": 200, "-waiters": 200, "-wait": 200, "-held": 200, "name": 422} {
		var got locks.LockSort
		r.fake.set(func() {
			r.fake.locks = func(f locks.LockFilter) (locks.LockPage, error) {
				got = f.Sort
				return locks.LockPage{}, nil
			}
		})
		assert.That(t, r.get(t, "/?sort="+sort).Code == code && (code != 200 || string(got) == sort), "%q is asked for as %q", sort, got)
	}
}
