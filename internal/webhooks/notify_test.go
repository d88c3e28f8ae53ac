package webhooks

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

const someNotify = "https://hooks.example.com/job?key=42"

func endFor(lease string, only bool) *End {
	return &End{Entry: EntryOf(lease), NotifyURL: someNotify, NotifyOnly: only, Events: []Event{{Type: Released, NS: "default", Lock: "deploy", LeaseID: lease}}}
}

func TestANotifyURLIsInTheEntryThatSubscriptionsAreIn(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		s := b.services[0]
		describe := func() *End { return endFor("l1", false) }
		ops, entry, ready := s.Ending(true, describe)
		if !ready || len(ops) != 2 || ops[0].Kind != zk.OpCheck || entry == nil || len(entry.Subscriptions) != 1 || entry.Subscriptions[0] != someNotify {
			t.Errorf("without subscriptions: %+v %+v", ops, entry)
		}
		sub := b.subscribe(t, 0, "*")
		synctest.Wait()
		if _, entry, _ = s.Ending(true, describe); len(entry.Subscriptions) != 2 || entry.Subscriptions[0] != sub.ID || len(entry.Notices) != 1 || len(entry.Notices[0].To) != 2 {
			t.Errorf("with a subscription: %+v", entry)
		}
		ops, entry = s.Notify(endFor("l1", true))
		assert.That(t, len(ops) == 1 && ops[0].Kind == zk.OpCreate && ops[0].Private && len(entry.Subscriptions) == 1,
			"for it alone: %+v %+v", ops, entry)
	})
}

func TestWhatIsForANotifyURLAloneDoesNotWaitForSubscriptions(t *testing.T) {
	s := New(Options{Addresses: mustAddresses(t, false)})
	_, _, ready := s.Ending(true, func() *End { return endFor("l1", false) })
	assert.That(t, !ready, "the end of a lease that held is decided, and the subscriptions are unknown")
	ops, entry := s.Notify(endFor("l1", true))
	assert.That(t, len(ops) == 1 && entry != nil, "%+v %+v", ops, entry)
	if s.Record(endFor("l2", true)); len(s.writer.toCreate) != 1 {
		t.Error("what happened by another hand is not told to it")
	}
	if s.Record(endFor("l3", false)); len(s.writer.toCreate) != 1 {
		t.Error("told, and the subscriptions are unknown")
	}
}

func TestNotifyURLsCannotFillTheOutbox(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		s := b.services[0]
		sub := b.subscribe(t, 0, "deploy*")
		synctest.Wait()
		s.bound.mu.Lock()
		s.bound.now.Entries = s.bound.now.Limit / 2
		s.bound.mu.Unlock()
		ops, _ := s.Notify(endFor("l1", true))
		assert.That(t, ops == nil, "half of the outbox is for subscriptions")
		other := endFor("l1", false)
		other.Events[0].Lock = "other"
		if ops, entry, _ := s.Ending(true, func() *End { return other }); len(ops) != 1 || !entry.Dropped {
			t.Errorf("%+v %+v", ops, entry)
		}
		if _, entry, _ := s.Ending(true, func() *End { return endFor("l1", false) }); entry == nil || entry.Dropped || entry.Subscriptions[0] != sub.ID {
			t.Errorf("%+v", entry)
		}
	})
}

func TestANotifyURLIsCheckedLikeASubscriptionsAndNotQuoted(t *testing.T) {
	s := New(Options{Addresses: mustAddresses(t, false)})
	assert.Nil(t, s.CheckURL(someNotify))
	for _, url := range []string{"", "ftp://hooks.example.com/", "http://127.0.0.1/?hunter2", "http://[::1]/?hunter2", "https://me:hunter2@hooks.example.com/",
		"https://hooks.example.com/#hunter2", "https://hooks.example.com/" + strings.Repeat("a", MaxURL), "/hunter2", "http://localhost/hunter2"} {
		if err := s.CheckURL(url); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "headers") {
			t.Errorf("%.60q: %v", url, err)
		}
	}
}

func TestAMessageToANotifyURLIsSignedWithItsLeasesSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receivers{now: map[string]int{}, most: map[string]int{}}
		var secrets []string
		r.answer = func(to *Subscription, m *Message, n int) Attempt {
			secrets = append(secrets, to.Secrets[0].Value)
			if n == 0 {
				return Attempt{Result: Failed, Error: "no"}
			}
			return Attempt{Status: 200}
		}
		k := &keeper{}
		c := NewCourier(CourierOptions{Transport: r, Keeper: k, Secrets: func(e *Entry) []Secret { return []Secret{{Value: "of " + e.Name}} }})
		defer c.Close()
		e := entry(1, "a")
		e.Subscriptions, e.Notices[0].To = []string{"https://hooks.example.com/x"}, []int{0}
		c.Add(e)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.That(t, slices.Equal(k.done, []string{"lease1"}) && slices.Equal(secrets, []string{"of lease1", "of lease1"}),
			"done %q with %q", k.done, secrets)
		assert.That(t, len(c.receivers) == 0, "%d receivers are remembered", len(c.receivers))
	})
}

func TestAMessageThatANotifyURLRefusesIsGivenUpAndDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dead, well = "https://hooks.example.com/dead", "https://hooks.example.com/well"
		c, r, k := newBench(t, func(to *Subscription, m *Message, _ int) Attempt {
			if to.URL == dead {
				return Attempt{Result: Failed, Status: 401, Error: "the receiver answered 401"}
			}
			return Attempt{Status: 200}
		})
		for i, url := range []string{dead, well} { // two leases of one lock, whose receivers are one host
			e := entry(i, "a")
			e.Subscriptions, e.Notices[0].To = []string{url}, []int{0}
			c.Add(e)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got := r.delivered(well)
		assert.That(t, len(got) == 1, "delivered %q: it waits for what another lease's receiver does not take", got)
		time.Sleep(5 * 24 * time.Hour)
		synctest.Wait()
		want := []string{Released + " https://hooks.example.com the receiver answered 401"}
		assert.That(t, slices.Equal(k.givenUp, want), "given up: %q", k.givenUp)
		if waiting, dead := c.Load(); waiting != 0 || dead != 0 || !slices.Contains(k.done, "lease0") || len(c.receivers) != 0 {
			t.Errorf("%d wait, %d are dead letters without a webhook; done %q", waiting, dead, k.done)
		}
		assert.Equal(t, len(r.seen), 11, "tries, want ten of one and one of the other")
	})
}

func TestANotifyURLThatAnswers410GetsTheMessageNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, k := newBench(t, func(*Subscription, *Message, int) Attempt { return Attempt{Result: Gone, Status: 410, Error: "410"} })
		e := entry(1, "a")
		e.Subscriptions, e.Notices[0].To = []string{"https://hooks.example.com/x"}, []int{0}
		c.Add(e)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.That(t, len(r.seen) == 1 && len(k.givenUp) == 1 && len(k.disabled) == 0 && slices.Equal(k.done, []string{"lease1"}),
			"%d tries, given up %q, disabled %q, done %q", len(r.seen), k.givenUp, k.disabled, k.done)
	})
}

func TestADeadHostsMessagesAreNotAllLoggedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := New(Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		k := s.writer
		many := func(n int) {
			for i := range n {
				k.GivenUp(&Event{LeaseID: fmt.Sprint("lease", i), Type: Released}, "https://hooks.example.com", "no")
			}
		}
		many(1000)
		assert.Equal(t, strings.Count(text.String(), "lease_id="), linesAMinute, "lines")
		s.writer.reportGivenUp()
		s.writer.reportGivenUp()
		want := fmt.Sprintf("messages=%d", 1000-linesAMinute)
		assert.That(t, strings.Count(text.String(), want) == 1 && strings.Count(text.String(), "messages=") == 1, "%s", text.String())
		time.Sleep(time.Minute)
		text.Reset()
		many(1)
		assert.That(t, strings.Contains(text.String(), "lease0"), "a minute later one is not logged")
	})
}
