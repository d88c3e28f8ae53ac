package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

func searchFor(text string) string { return searchPath + "?" + url.Values{"q": {text}}.Encode() }

func TestASearchShowsWhatIsNamedExactlyFirst(t *testing.T) {
	r := newRig(t)
	r.fake.found = func(q locks.FindRequest) locks.Found {
		return locks.Found{
			Contenders: []locks.FoundContender{{NS: "team", Lock: "web", Contender: locks.Contender{LeaseID: "lk1", Owner: evil, Znode: "/r/web/1", Position: 2}}},
			Locks:      []locks.FoundLock{{NS: "default", Name: "gate", Holders: 1, Waiting: 3}},
			Owners:     []locks.FoundOwner{{Name: "gateway@gate-1", Holds: 2}},
			Hosts:      []locks.FoundOwner{{Name: "gate-1", Holds: 2, Waiting: 1}},
		}
	}
	html := r.get(t, searchFor(" gate ")).Body.String()
	last := 0
	for _, part := range []string{"5 results.", "Leases", `href="/locks/web?contender=lk1&amp;ns=team"`, evilShown2, "waits for team/web", "Locks", `href="/locks/gate"`, "1 holder, 3 waiting", "Owners", `href="/owners/gateway@gate-1"`,
		"Hosts", `href="/hosts/gate-1"`, "Pages", `href="/gateways"`} {
		at := strings.Index(html[last:], part)
		assert.Must(t, at >= 0, "%s is missing, or stands before what it must follow, in %s", part, html)
		last += at
	}
	assert.That(t, !strings.Contains(html, "Not in use"), "a lock that is in use is offered as one that is not")
	assert.Equal(t, strings.Count(html, `role="option"`), 5)
}

func TestASearchOffersPagesActionsAndALockThatIsNotInUse(t *testing.T) {
	r := newRig(t)
	dialog := r.get(t, searchPath).Body.String()
	assert.That(t, strings.HasPrefix(dialog, `<dialog id="search"`) && strings.Contains(dialog, `role="combobox"`), "%s", dialog)
	html := r.get(t, searchFor("")).Body.String()
	assert.That(t, strings.Contains(html, `data-run="theme"`) && strings.Contains(html, `href="/graph"`) && r.fake.count("find") == 0, "%s", html)
	html = r.get(t, searchFor("COLOUR")).Body.String()
	assert.That(t, strings.Contains(html, `data-run="theme"`) && !strings.Contains(html, `data-run="keys"`), "%s", html)
	html = r.get(t, searchFor("no-such-lock")).Body.String()
	assert.That(t, strings.Contains(html, `href="/locks/no-such-lock"`) && strings.Contains(html, "Not in use"), "%s", html)
	html = r.get(t, searchFor("no such lock")).Body.String()
	assert.That(t, strings.Contains(html, "Nothing has this in its name."), "%s", html)
	reader := readerOf(t, "shop:*")
	html = r.as(t, reader, searchFor("bank:1")).Body.String()
	assert.That(t, !strings.Contains(html, "/locks/bank"), "a lock that the viewer may not read is offered: %s", html)
	r.fake.set(func() {
		assert.That(t, r.fake.as[len(r.fake.as)-1].Rules.Key() == reader.Rules.Key(), "it searches as another")
	})
}

func TestASearchIsBoundedAndSaysSo(t *testing.T) {
	r := newRig(t)
	r.fake.found = func(q locks.FindRequest) (f locks.Found) {
		assert.Equal(t, q.Limit, searchOfKind)
		for i := range q.Limit {
			f.Locks = append(f.Locks, locks.FoundLock{NS: "default", Name: fmt.Sprint("lock-", i)})
			f.Owners = append(f.Owners, locks.FoundOwner{Name: fmt.Sprint("owner-", i)})
			f.Hosts = append(f.Hosts, locks.FoundOwner{Name: fmt.Sprint("host-", i)})
		}
		f.Stopped = true
		return f
	}
	html := r.get(t, searchFor("-")).Body.String()
	assert.Equal(t, strings.Count(html, `role="option"`), searchResults)
	assert.That(t, strings.Contains(html, "The first 20 results") && strings.Contains(html, "stopped at its bound"), "%s", html)
	for _, wrong := range []string{"?q=" + strings.Repeat("x", locks.MaxFindText+1), "?q=%00", "?query=x", "?q=a&q=b"} {
		code := r.get(t, searchPath+wrong).Code
		assert.That(t, code == 422 || code == 400, "%.20s: %d", wrong, code)
	}
}

// Searches take turns with pages that look at every lock: two at a time. One whose viewer has typed on goes.
func TestSearchesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		block := make(chan struct{})
		var running atomic.Int32
		r.opt.Locks = blocking{r.fake, func() { running.Add(1); <-block }}
		for range maxSearches {
			go r.get(t, searchFor("x"))
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(auth.WithVisitor(t.Context(), &auth.Visitor{Caller: auth.Caller{Principal: locks.Anonymous, Kind: auth.Anonymous}}))
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Dashboard.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, searchFor("x"), nil))
		}()
		synctest.Wait()
		assert.Equal(t, running.Load(), maxSearches, "searches at a time")
		cancel()
		<-done
		close(block)
		synctest.Wait()
	})
}

// blocking waits in each search.
type blocking struct {
	*fakeLocks
	wait func()
}

func (b blocking) Find(context.Context, locks.FindRequest) (locks.Found, error) {
	b.wait()
	return locks.Found{}, nil
}
