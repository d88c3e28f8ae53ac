package history

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// filled is a store with so many holds of a week, of 1,000 locks and 5,000 owners.
func filled(t testing.TB, dir string, n int) (*History, *writer) {
	h := New(Options{Dir: dir})
	s := assert.Value(openStore(t.Context(), dir, 1<<40))(t)
	w := assert.Value(newWriter(t.Context(), h, s))(t)
	h.opened(s, w)
	t.Cleanup(s.close)
	now := time.Now()
	w.since = now.Add(-7 * 24 * time.Hour)
	step := 7 * 24 * time.Hour / time.Duration(n)
	for at := 0; at < n; {
		b := &batch{at: now}
		for ; at < n && len(b.ops) < maxBatch; at++ {
			b.ops = append(b.ops, op{do: doInsert, item: someHold(at, now.Add(-time.Duration(n-at)*step))})
		}
		assert.NoError(t, w.write(b))
	}
	return h, w
}

func someHold(at int, begin time.Time) *Item {
	held := time.Duration(at%97) * time.Second
	reason := locks.ReasonReleased
	if at%50 == 0 {
		reason, held = locks.ReasonExpired, time.Duration(at%9)*time.Hour
	}
	return &Item{Kind: Hold, NS: "default", Lock: fmt.Sprintf("team-%d:deploy", at%1000), LeaseID: fmt.Sprintf("lk64mrq7ovxnnyc352awfj%017d", at), Owner: fmt.Sprintf("ci-%d@build-%d", at%5000, at%100),
		Principal: "token:ci", Gateway: "xnnyc352awfjk", Mode: locks.Exclusive, FencingToken: int64(at) + 1<<33, Begin: begin, End: begin.Add(held), Waited: time.Duration(at%13) * time.Second, WaitedKnown: true, Reason: reason}
}

// A million holds (LOCKKEEPER_FULL=1; else fewer), and each question that a page or a client asks of them.
func TestAMillionHoldsAreSearchedInTime(t *testing.T) {
	n := 100_000
	switch {
	case os.Getenv("LOCKKEEPER_FULL") != "":
		n = 1_000_000
	case testing.Short() || testkit.Race:
		n = 5_000
	}
	began := time.Now()
	h, w := filled(t, filepath.Join(t.TempDir(), "h"), n)
	wrote := time.Since(began)
	bytes := assert.Value(w.s.used(t.Context()))(t)
	t.Logf("%d rows in %v: %.0f a second, %d bytes each", n, wrote, float64(n)/wrote.Seconds(), bytes/int64(n))
	assert.That(t, bytes/int64(n) < 200 || n < 100_000, "a row takes %d bytes", bytes/int64(n))
	all, now := access.Everything(), time.Now()
	mid := now.Add(-80 * time.Hour)
	some := assert.Value(access.New(access.Grant{NS: "*", Locks: "team-7:*", Verbs: []access.Verb{access.Read}}))(t)
	for name, q := range map[string]Query{
		"the latest":              {Rules: all},
		"a lock":                  {Rules: all, NS: "default", Lock: "team-7:deploy"},
		"who held it then":        {Rules: all, NS: "default", Lock: "team-7:deploy", From: mid, To: mid},
		"who held anything then":  {Rules: all, From: mid, To: mid},
		"an owner of a time":      {Rules: all, Owner: "ci-7@build-7", From: mid, To: mid.Add(24 * time.Hour)},
		"a host":                  {Rules: all, Host: "build-7"},
		"what expired":            {Rules: all, Reason: locks.ReasonExpired, Limit: 1000},
		"what never was":          {Rules: all, Kinds: Of(Hazard)},
		"with rules for one lock": {Rules: some, Limit: 100},
	} {
		began := time.Now()
		a, err := h.Query(t.Context(), q)
		took := time.Since(began)
		t.Logf("%-26s %8v, %d items, err %v", name, took.Round(time.Microsecond*10), len(a.Items), err)
		assert.That(t, took < queryWithin+time.Second, "%s took %v", name, took)
	}
	for name, q := range map[string]StatsQuery{
		"stats of a lock, 7d": {Rules: all, NS: "default", Lock: "team-7:deploy", Window: 7 * 24 * time.Hour},
		"stats of all, 1h":    {Rules: all, Window: time.Hour},
		"stats of all, 7d":    {Rules: all, Window: 7 * 24 * time.Hour},
	} {
		began := time.Now()
		st, err := h.Stats(context.Background(), q)
		took := time.Since(began)
		assert.Must(t, err == nil, "%s: %v", name, err)
		t.Logf("%-26s %8v, %d grants, complete %v, p50 %v, p99 %v", name, took.Round(time.Microsecond*10), st.Grants, st.Complete, st.Hold.P50, st.Hold.P99)
		assert.That(t, took < statsWithin+time.Second, "%s took %v", name, took)
	}
}
