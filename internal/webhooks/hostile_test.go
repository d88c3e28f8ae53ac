package webhooks

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// A receiver that answers 101 and stays on the line has the bare connection, which no context ends: four
// such messages would block the receiver for ever, and a hundred and twenty-eight all receivers.
func TestAReceiverThatSwitchesProtocolsIsGivenUp(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: forever\r\n\r\n")
		_, _ = conn.Read(make([]byte, 1)) // until the other end hangs up
	}))
	s := newSender(t, everywhere(t))
	answer := make(chan Attempt, 1)
	go func() {
		answer <- s.Send(t.Context(), &Subscription{URL: server.URL, Secrets: []Secret{NewSecret()}}, testMessage())
	}()
	select {
	case a := <-answer:
		server.Close()
		assert.That(t, a.Result == Failed && a.Status == http.StatusSwitchingProtocols && a.Error != "", "attempt: %+v", a)
	case <-time.After(attemptTimeout + 5*time.Second):
		server.CloseClientConnections()
		t.Error("the attempt does not end")
	}
}

// Several subscriptions may have one host, and a proxy has all of them: who hangs there takes no connections away from the others.
func TestAPathThatHangsHoldsUpNoOtherOfItsHost(t *testing.T) {
	hangs, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			hangs <- struct{}{}
			<-release
		}
	}))
	defer server.Close()
	s := newSender(t, everywhere(t))
	const slow = 8 * perReceiver
	done := make(chan struct{}, slow)
	for range slow {
		go func() {
			s.Send(t.Context(), &Subscription{URL: server.URL + "/hangs", Secrets: []Secret{NewSecret()}}, testMessage())
			done <- struct{}{}
		}()
	}
	for n := range slow {
		select {
		case <-hangs:
		case <-time.After(10 * time.Second): // less than an attempt takes
			t.Errorf("of %d messages for one host only %d are on their way", slow, n)
			close(release)
			return
		}
	}
	a := s.Send(t.Context(), &Subscription{URL: server.URL + "/well", Secrets: []Secret{NewSecret()}}, testMessage())
	assert.That(t, a.Result == Delivered, "attempt: %+v", a)
	close(release)
	for range slow {
		<-done
	}
}

func TestTheLargestEndFitsIntoItsTransaction(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		b.full()
		end := &End{Entry: EntryOf(strings.Repeat("l", 45)), TraceParent: testMessage().TraceParent}
		for i := range 64 {
			lock := fmt.Sprintf("%03d", i) + strings.Repeat("k", 197)
			end.Events = append(end.Events, Event{Type: Revoked, Time: time.Now(), NS: strings.Repeat("n", 64), Lock: lock, LeaseID: end.Entry, Znode: "/" + strings.Repeat("r", 200) + "/" + lock + "/" + strings.Repeat("z", 120),
				Owner: strings.Repeat("<", 128), Mode: "exclusive", FencingToken: 1 << 62, Reason: "revoked", Detail: strings.Repeat("<", 256), By: strings.Repeat("<", 512), Gateway: strings.Repeat("g", 16)})
		}
		ops, entry, ready := b.services[0].Ending(false, func() *End { return end })
		if !ready || len(ops) != 2 || len(ops[1].Data) > maxEntry {
			t.Fatalf("ready: %v, %d operations, %d bytes", ready, len(ops), len(ops[len(ops)-1].Data))
		}
		if n := entry.Notices[63]; n.Event.Lock != end.Events[63].Lock || n.Event.FencingToken != 1<<62 || len(n.To) != MaxSubscriptions {
			t.Errorf("it tells %+v", n)
		}
	})
}

// full is a service whose outbox has room for so many entries, and what it has reported as dropped.
func full(t *testing.T, room int) (b *bench, sub *Subscription, told func() []int) {
	t.Helper()
	var (
		mu   sync.Mutex
		list []int
	)
	b = newFleetOf(t, 1, func(o *Options) {
		o.MaxEntries, o.Dropped = room, func(_ string, n int, _ string) { mu.Lock(); defer mu.Unlock(); list = append(list, n) }
	})
	sub = b.subscribe(t, 0, "")
	return b, sub, func() []int { mu.Lock(); defer mu.Unlock(); return slices.Clone(list) }
}

// ends are so many ends, all of which are done, with an entry or without.
func (b *bench) ends(t *testing.T, prefix string, n int) {
	t.Helper()
	for i := range n {
		b.end(t, 0, fmt.Sprint(prefix, i), "lock-"+fmt.Sprint(prefix, i))
	}
}

func TestWhatFindsNoRoomInTheOutboxIsCountedAndTheRestIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, sub, told := full(t, 4)
		b.receivers.mu.Lock()
		b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Status: 503} }
		b.receivers.mu.Unlock()
		b.ends(t, "early-", 3)
		b.ends(t, "late-", 2)
		assert.Slices(t, b.left(), []string{"early-0", "early-1", "early-2"}, "outbox")
		o := b.services[0].Outbox()
		assert.That(t, o.Entries == 3 && o.Limit == 4 && o.Dropped == 2 && !o.LastDropped.IsZero(), "%+v", o)
		b.receivers.mu.Lock()
		b.answer = ok
		b.receivers.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.delivered(sub.ID); len(got) != 3 || len(b.left()) != 0 {
			t.Errorf("delivered %q, left %q", got, b.left())
		}
		b.ends(t, "then-", 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.delivered(sub.ID); len(got) != 5 || b.services[0].Outbox().Dropped != 2 || !slices.Equal(told(), []int{2}) {
			t.Errorf("below the bound again: delivered %q, told of %v", got, told())
		}
	})
}

func TestDroppedEndsAreReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, told := full(t, 1)
		b.receivers.mu.Lock()
		b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Status: 503} }
		b.receivers.mu.Unlock()
		b.ends(t, "early-", 1)
		began := time.Now()
		for i := range 90 {
			b.ends(t, fmt.Sprint("late-", i, "-"), 10)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		got := told()
		assert.That(t, len(got) == 2 && time.Since(began) <= 2*reportDropsEvery && got[0] >= 10 && got[0] <= 60, "told of %v", got)
		time.Sleep(2 * reportDropsEvery)
		synctest.Wait()
		sum := 0
		for _, n := range told() {
			sum += n
		}
		got = told()
		assert.That(t, len(got) == 3 && sum == 900 && b.services[0].Outbox().Dropped == 900, "told of %v, %d in all", got, sum)
	})
}

// Faults come in pairs: a transaction that failed, and one that failed and was done all the same.
func TestAnEndWithoutRoomIsCountedWhenItIsDoneOrMayBe(t *testing.T) {
	for name, c := range map[string]struct {
		outcome   zk.Outcome
		persisted bool
		dropped   int
	}{
		"done":                           {zk.Done, true, 1},
		"not done":                       {zk.NotDone, false, 0},
		"to be decided again":            {zk.Conflict, false, 0},
		"lost":                           {zk.Unknown, false, 1},
		"lost and done":                  {zk.Unknown, true, 1},
		"a contender that was not there": {zk.NotDone, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, _, _ := full(t, 1)
			b.took = time.Hour
			b.ends(t, "early-", 1)
			ops, entry, ready := b.services[0].Ending(false, func() *End {
				return &End{Entry: EntryOf("late"), Events: []Event{{Type: Released, NS: "default", Lock: "late", LeaseID: "late"}}}
			})
			assert.Must(t, ready && entry != nil && len(ops) == 1 && ops[0].Kind == zk.OpCheck, "%s: %v %v %v", name, ops, entry, ready)
			if c.persisted {
				b.Commit(t.Context(), ops)
			}
			b.services[0].Ended(entry, ops, zk.Result{Outcome: c.outcome, Culprit: -1, Err: zk.ErrNoNode})
			synctest.Wait()
			o := b.services[0].Outbox()
			assert.That(t, o.Dropped == c.dropped && o.Entries == 1, "%s: %+v", name, o)
		})
	}
}

func TestWhatAnotherHandEndsFindsNoRoomEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, told := full(t, 1)
		b.took = time.Hour
		b.ends(t, "early-", 1)
		b.services[0].Record(&End{Entry: ForeignEntry(7), Events: []Event{{Type: Removed, NS: "default", Lock: "theirs"}}})
		time.Sleep(countEvery + time.Second)
		synctest.Wait()
		if o := b.services[0].Outbox(); o.Dropped != 1 || len(b.left()) != 1 || !slices.Equal(told(), []int{1}) {
			t.Errorf("%+v, left %q, told of %v", o, b.left(), told())
		}
	})
}
