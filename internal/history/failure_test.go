package history

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

func TestADamagedFileIsSetAsideAndANewOneBegins(t *testing.T) {
	for name, hurt := range map[string]func([]byte) []byte{
		"another file":    func([]byte) []byte { return []byte("this is no database, and never was") },
		"half of it":      func(b []byte) []byte { return b[:len(b)/2+100] },
		"pages of zeroes": func(b []byte) []byte { clear(b[pageSize : 6*pageSize]); return b },
		"another form":    func(b []byte) []byte { b[63]++; return b }, // PRAGMA user_version
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "history")
				onDisk := func(o *Options) { o.Dir = dir }
				r := start(t, onDisk)
				r.held("deploy", "l1", "anna", time.Minute)
				r.pass(5 * time.Second)
				r.stop()
				path := filepath.Join(dir, fileName)
				assert.NoError(t, os.WriteFile(path, hurt(assert.Value(os.ReadFile(path))(t)), 0o600))
				r = start(t, onDisk)
				r.pass(2 * retryOpen)
				r.held("deploy", "l2", "ben", time.Minute)
				r.pass(5 * time.Second)
				assert.Equal(t, r.ask(Query{}).owners(), "ben ")
				aside := assert.Value(filepath.Glob(path + ".damaged-*"))(t)
				st := r.history.Status()
				what := "a damaged file "
				if name == "another form" {
					what = "a file of another form"
				}
				assert.That(t, len(aside) >= 1 && st.On && strings.HasPrefix(st.Problem, what), "aside %v, %+v", aside, st)
			})
		})
	}
}

// A process may end at any moment of its first start: what it leaves is a new file to the next, and not a damaged one.
func TestAFileThatWasNotFinishedIsANewOne(t *testing.T) {
	steps := strings.SplitAfter(schema, ";")
	for n := range steps {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			db := assert.Value(sql.Open("sqlite", dsn(filepath.Join(dir, fileName), "", "journal_mode(WAL)")))(t)
			_, err := db.Exec(strings.Join(steps[:n], ""))
			assert.NoError(t, err)
			assert.NoError(t, db.Close())
			r := start(t, func(o *Options) { o.Dir = dir })
			r.held("deploy", "l1", "anna", time.Minute)
			r.pass(5 * time.Second)
			aside := assert.Value(filepath.Glob(filepath.Join(dir, "*.damaged-*")))(t)
			st := r.history.Status()
			assert.That(t, len(aside) == 0 && st.On && st.Problem == "" && r.ask(Query{}).owners() == "anna ", "after %d statements: aside %v, %+v", n, aside, st)
		})
	}
}

// A file of another program is not ours to empty.
func TestAFileOfAnotherProgramIsSetAside(t *testing.T) {
	for _, text := range []string{"CREATE TABLE other(x)", "CREATE TABLE meta(name, value); INSERT INTO meta VALUES('a', 1)"} {
		dir := t.TempDir()
		db := assert.Value(sql.Open("sqlite", dsn(filepath.Join(dir, fileName), "")))(t)
		_, err := db.Exec(text)
		assert.NoError(t, err)
		assert.NoError(t, db.Close())
		s := assert.Value(openStore(t.Context(), dir, MinSize))(t)
		assert.That(t, s.aside != "", "%s: it is set aside", text)
		s.close()
	}
}

// A failure or an end of the process while the tables are made leaves none of them.
func TestTheTablesAreMadeAllOrNone(t *testing.T) {
	db := assert.Value(sql.Open("sqlite", dsn(filepath.Join(t.TempDir(), fileName), "", "max_page_count(4)")))(t)
	db.SetMaxOpenConns(1)
	s := &store{db: db, write: assert.Value(db.Conn(t.Context()))(t)}
	assert.That(t, s.create(t.Context()) != nil, "there is no room for all tables")
	_, _ = s.write.ExecContext(t.Context(), "ROLLBACK") // it fails where the error has done so already
	var tables int
	assert.NoError(t, s.write.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema").Scan(&tables))
	assert.Equal(t, tables, 0)
	s.disconnect()
}

func TestDamagedFilesDoNotFillTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "[a-") // which is no pattern
		assert.NoError(t, os.Mkdir(dir, 0o700))
		for n := range maxAside {
			assert.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.damaged-%d", fileName, n)), nil, 0o600))
		}
		assert.NoError(t, os.WriteFile(filepath.Join(dir, fileName), []byte("this is no database either, not at all"), 0o600))
		r := start(t, func(o *Options) { o.Dir = dir })
		_, err := r.history.Query(t.Context(), Query{})
		assert.That(t, err == ErrOff && !r.history.Status().On, "%v, %+v", err, r.history.Status())
		assert.NoError(t, os.Remove(filepath.Join(dir, fileName+".damaged-0")))
		r.pass(2 * retryOpen)
		assert.That(t, r.history.Status().On, "with room for it the file is set aside: %+v", r.history.Status())
	})
}

func TestFilesAreOfOneUserAndOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a", "history")
		r := start(t, func(o *Options) { o.Dir = dir })
		r.held("deploy", "l1", "anna", time.Minute)
		r.pass(5 * time.Second)
		assert.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			want := fs.FileMode(0o600)
			if d.IsDir() {
				want = 0o700
			}
			assert.Equal(t, assert.Value(d.Info())(t).Mode().Perm(), want, path)
			return err
		}))
		other := start(t, func(o *Options) { o.Dir = dir })
		assert.That(t, !other.history.Status().On, "another one must not write to the same file: %+v", other.history.Status())
	})
}

// counted are the metrics of a history.
type counted struct{ dropped, failed, off int }

func (c *counted) HistoryState(_, _ int64, on bool) {
	if !on {
		c.off++
	}
}
func (c *counted) HistoryDropped(n int) { c.dropped += n }
func (c *counted) HistoryFailed()       { c.failed++ }

func TestAFullDiskIsAGapAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counted
		r := start(t, func(o *Options) { o.Dir, o.Metrics = t.TempDir(), &c })
		r.held("deploy", "l1", "before", time.Minute)
		r.pass(5 * time.Second)
		limit := func(pages int) {
			_, err := r.history.store.Load().write.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages))
			assert.NoError(t, err)
		}
		limit(1) // SQLite takes what the file has: no page more
		full := time.Now()
		for n := range 500 {
			r.held("deploy", fmt.Sprint("x", n), fmt.Sprint("lost-with-a-long-name-that-takes-room-", n), 2*time.Second)
		}
		r.pass(5 * time.Second)
		assert.That(t, c.failed > 0 && c.dropped > 0 && c.off > 0, "it is told: %+v, %+v", c, r.history.Status())
		r.ask(Query{}) // what there is can be asked for
		limit(1 << 20)
		r.pass(time.Minute)
		r.held("deploy", "l3", "after", time.Minute)
		r.pass(5 * time.Second)
		got := r.ask(Query{From: full, Limit: 1})
		assert.Equal(t, got.owners(), "after ")
		assert.That(t, r.history.Status().On && len(got.Gaps) > 0 && got.Gaps[0].Cause == CauseDisk && !got.Complete, "it goes on, with a gap: %+v", got.Gaps)
		assert.That(t, got.Gaps[len(got.Gaps)-1].From.After(full.Add(-time.Minute)), "the gap begins when the disk was full: %+v", got.Gaps)
	})
}

func TestWhatIsOldIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(o *Options) { o.Keep = time.Hour })
		r.granted("always", "l0", "still", 0)
		for n := range 12 {
			r.held("deploy", fmt.Sprint("l", n), fmt.Sprint(n), 10*time.Minute)
		}
		r.pass(10 * time.Second)
		got := r.ask(Query{})
		assert.Equal(t, got.owners(), "11 10 9 8 7 still ", "the hour that is kept, and what still holds")
		assert.That(t, time.Since(got.Since) < time.Hour+time.Minute && time.Since(got.Since) >= time.Hour-time.Minute, "it says how far back it reaches: %v", time.Since(got.Since))
		var names int
		r.pass(2 * time.Hour)
		assert.NoError(t, r.history.store.Load().read.QueryRow("SELECT count(*) FROM names WHERE kind = 2").Scan(&names))
		assert.That(t, names <= 2, "%d names of owners are left", names)
	})
}

func TestTheSizeIsBounded(t *testing.T) {
	testkit.NotShort(t, "it writes 20,000 rows")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(o *Options) { o.Dir, o.Size = t.TempDir(), MinSize })
		w := 0
		for range 400 {
			for range 50 {
				w++
				r.granted(fmt.Sprint("lock-", w%100), fmt.Sprint("l", w), fmt.Sprint("owner-", w%300), 0)
				r.ended(fmt.Sprint("lock-", w%100), fmt.Sprint("l", w), events.LeaseExpired, locks.ReasonExpired)
			}
			time.Sleep(time.Second)
		}
		r.pass(10 * time.Second)
		st := r.history.Status()
		assert.That(t, st.Bytes <= MinSize && st.Rows > 2000 && st.Rows < 20_000 && st.Dropped == 0, "%+v", st)
		got := r.ask(Query{From: st.Since, Limit: MaxLimit})
		assert.That(t, got.Complete && len(got.Items) == MaxLimit && got.Items[0].LeaseID == fmt.Sprint("l", w), "the latest are there: %+v", got.Coverage)
		info := assert.Value(os.Stat(filepath.Join(r.history.opt.Dir, fileName)))(t)
		assert.That(t, info.Size() < MinSize*5/4, "the file has %d bytes", info.Size())
	})
}

// More holds at once than there is room for: the store stays within its size, and their ends are kept.
func TestWhatHoldsCannotOutgrowTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(o *Options) { o.Dir, o.Size = t.TempDir(), MinSize })
		const n = 8_000
		for i := range n {
			r.granted(fmt.Sprint("lock-", i), fmt.Sprintf("l%039d", i), "me", 0)
			if i%1000 == 0 {
				r.pass(2 * time.Second)
			}
		}
		r.pass(10 * time.Second)
		st := r.history.Status()
		assert.That(t, st.On && st.Bytes <= MinSize*11/10+64*pageSize && st.Dropped > 0 && len(st.Gaps) > 0, "%+v", st)
		r.ended(fmt.Sprint("lock-", n-1), fmt.Sprintf("l%039d", n-1), events.LeaseExpired, locks.ReasonExpired)
		r.pass(10 * time.Second)
		got := r.ask(Query{NS: "default", Lock: fmt.Sprint("lock-", n-1)})
		assert.That(t, len(got.Items) == 1 && got.Items[0].Reason == locks.ReasonExpired, "%+v", got.Items)
	})
}

// A writer that does not keep up must cost the follower nothing but what is lost.
func TestAFullQueueIsAGap(t *testing.T) {
	h := New(Options{})
	queue := make(chan *batch, 1)
	f := newFollower(h, queue, nil)
	now := time.Now()
	for n := range 5 {
		f.out = append(f.out, op{do: doInsert, item: someHold(n, now)})
		f.send(now)
		now = now.Add(time.Second)
	}
	assert.That(t, h.Status().Dropped >= 4, "%d operations were dropped", h.Status().Dropped)
	<-queue
	f.send(now)
	b := <-queue
	assert.Must(t, len(b.ops) == 1 && b.ops[0].do == doGap, "%+v", b.ops)
	assert.That(t, b.ops[0].gap.Cause == CauseDropped && b.ops[0].gap.To.Equal(now) && now.Sub(b.ops[0].gap.From) >= 4*time.Second, "%+v", b.ops[0].gap)
	assert.That(t, f.missed != nil, "who holds is compared again: ends may be lost")
}

func TestAFollowerThatLaggedHasAGapAndComparesWhoHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		r.granted("deploy", "l1", "anna", 0)
		r.pass(5 * time.Second)
		r.granted("other", "l0", "other", 0)
		synctest.Wait() // the hub has just looked, and looks again after a pause
		r.ended("deploy", "l1", events.LeaseReleased, locks.ReasonReleased)
		for range events.DefaultRing + 1 { // at once: the follower does not get to read
			r.hub.Publish(&events.Event{Type: events.NodeCreated, Dir: "/x"})
		}
		r.granted("deploy", "l2", "ben", 0)
		r.present.Store(&[]*Item{{Kind: Hold, NS: "default", Lock: "other", LeaseID: "l0", Owner: "other", Begin: time.Now(), Early: time.Hour}, {Kind: Hold, NS: "default", Lock: "deploy", LeaseID: "l2", Owner: "ben", Begin: time.Now(), Early: time.Hour}})
		r.pass(20 * time.Second)
		got := r.ask(Query{})
		assert.Equal(t, got.owners(), "ben other anna ")
		assert.That(t, len(got.Gaps) == 1 && got.Gaps[0].Cause == CauseLagged, "%+v", got.Gaps)
		assert.That(t, got.Items[2].Reason == locks.ReasonUnknown && !got.Items[2].End.IsZero() && got.Items[0].End.IsZero(), "%+v", got.Items)
	})
}

func TestAGapIsFilledFromAnotherGateway(t *testing.T) {
	for _, firstLife := range []time.Duration{time.Minute, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			stays := start(t, nil)
			source := Source{Gateway: "gw1", Ask: func(ctx context.Context, q Query) (Answer, error) {
				q.Rules = access.Everything()
				return stays.history.Query(ctx, q)
			}}
			both := func(o *Options) { o.Dir, o.Others = dir, func() []Source { return []Source{source} } }
			stays.pass(time.Minute)
			goes := startFor(t, both, firstLife)
			lasts := firstLife
			tell := func(of events.Type, reason locks.Reason, lock, lease, owner string, to ...*rig) {
				for _, r := range to {
					if of == events.LeaseGranted {
						r.granted(lock, lease, owner, 0)
					} else {
						r.ended(lock, lease, of, reason)
					}
				}
				time.Sleep(lasts)
				lasts = time.Minute
			}
			tell(events.LeaseGranted, "", "a", "l1", "anna", stays, goes)
			goes.stop()
			tell(events.LeaseExpired, locks.ReasonExpired, "a", "l1", "", stays)
			tell(events.LeaseGranted, "", "a", "l2", "ben", stays)
			tell(events.LeaseReleased, locks.ReasonReleased, "a", "l2", "", stays)
			tell(events.LeaseGranted, "", "a", "l3", "cron", stays)
			now := &Item{Kind: Hold, NS: "default", Lock: "a", LeaseID: "l3", Begin: time.Now(), Early: time.Hour}
			goes = start(t, func(o *Options) { both(o); o.Now = holding{now} })
			goes.pass(time.Minute)
			want, got := stays.ask(Query{}), goes.ask(Query{From: time.Now().Add(-10 * time.Minute)})
			assert.Equal(t, got.owners(), "cron ben anna ")
			for n := range got.Items {
				assert.Equal(t, fmt.Sprintf("%+v", got.Items[n]), fmt.Sprintf("%+v", want.Items[n]))
			}
			assert.That(t, len(got.Gaps) == 0, "the gap is gone: %+v", got.Gaps)
			assert.That(t, got.Since.Before(time.Now().Add(-5*time.Minute)), "a new store reaches back as far as the other: %v", got.Since)
		})
	}
}

// A gateway that is new in a fleet takes over very many rows: in steps, so that both gateways go on with their locks.
func TestALongGapIsFilledInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pages = fillAtOnce + 3
		began := time.Now().Add(-24 * time.Hour)
		var asked []time.Time
		source := Source{Gateway: "gw1", Ask: func(_ context.Context, q Query) (a Answer, _ error) {
			asked = append(asked, time.Now())
			page, _ := strconv.Atoi(q.Cursor)
			for n := range q.Limit {
				at := began.Add(-time.Duration(page*q.Limit+n) * time.Second)
				a.Items = append(a.Items, Item{Kind: Hold, NS: "default", Lock: "a", LeaseID: fmt.Sprint("l", page, "-", n), Owner: "anna", Begin: at,
					End: at.Add(500 * time.Millisecond), Reason: locks.ReasonReleased})
			}
			if again := &a.Items[7]; page == 1 || page == pages-1 { // it ended while the pages were read
				again.LeaseID, again.Begin, again.Early = "again", began.Add(time.Minute), time.Hour
				if page == 1 {
					again.End, again.Reason = time.Time{}, ""
				} else {
					again.Early = 0
				}
			}
			if page < pages-1 {
				a.Next = strconv.Itoa(page + 1)
			}
			a.Coverage = Coverage{Since: q.From, Complete: true}
			return a, nil
		}}
		r := start(t, func(o *Options) { o.Others = func() []Source { return []Source{source} } })
		r.pass(time.Minute)
		assert.Must(t, len(asked) == pages, "%d pages", len(asked))
		assert.That(t, asked[fillAtOnce-1].Equal(asked[0]), "a short gap would not be filled at once: %v", asked)
		for n := fillAtOnce; n < pages; n++ {
			assert.That(t, asked[n].Sub(asked[n-1]) >= fillPause, "page %d follows after %v", n, asked[n].Sub(asked[n-1]))
		}
		assert.Equal(t, r.history.Status().Rows, int64(pages*fillPage-1), "rows")
		got := r.ask(Query{From: began, To: began.Add(time.Hour)})
		assert.That(t, len(got.Items) >= 1 && got.Items[0].LeaseID == "again" && got.Items[0].Early == 0 && got.Items[0].Reason == locks.ReasonReleased, "%+v", got.Items)
	})
}

func TestQuickHoldsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		began := time.Now()
		for n := range 1000 {
			r.held("hot", fmt.Sprint("l", n), "ci", 10*time.Millisecond)
		}
		r.held("hot", "slow", "slow", 2*time.Second)
		r.granted("hot", "loud", "loud", 0)
		r.ended("hot", "loud", events.LeaseExpired, locks.ReasonExpired)
		r.pass(manyAfter + 5*time.Second)
		own, many := 0, 0
		for _, i := range r.ask(Query{Limit: MaxLimit}).Items {
			switch {
			case i.Kind == Many:
				many += i.Count
				assert.That(t, i.Mean == 10*time.Millisecond && i.Lock == "hot" && !i.Begin.Before(began.Truncate(time.Microsecond)), "%+v", i)
			default:
				own++
			}
		}
		assert.That(t, own+many == 1002 && own >= quickBurst && own < 2*quickBurst+10, "%d have rows of their own, %d are counted", own, many)
		st := assert.Value(r.history.Stats(t.Context(), StatsQuery{Rules: access.Everything(), NS: "default", Lock: "hot", Window: time.Hour}))(t)
		assert.That(t, st.Grants == 1002 && st.Ends[locks.ReasonReleased] == 1001 && st.Ends[locks.ReasonExpired] == 1 && st.Hold.P50 == 10*time.Millisecond, "%+v", st)
	})
}

func TestTheRulesDecideWhatIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		for _, lock := range []string{"shop:a", "shop:b", "other"} {
			r.held(lock, "l"+lock, lock, 2*time.Second)
		}
		r.pass(5 * time.Second)
		shop := assert.Value(access.New(access.Grant{NS: "*", Locks: "shop:*", Verbs: []access.Verb{access.Read}}))(t)
		assert.Equal(t, r.ask(Query{Rules: shop}).owners(), "shop:b shop:a ")
		assert.Equal(t, r.ask(Query{Rules: &access.Rules{}}).owners(), "")
		assert.Equal(t, len(assert.Value(r.history.Query(t.Context(), Query{}))(t).Items), 0, "no rules let nothing through")
		st := assert.Value(r.history.Stats(t.Context(), StatsQuery{Rules: shop, Window: time.Hour}))(t)
		assert.That(t, st.Grants == 2 && len(st.Longest) == 2, "%+v", st)
	})
}
