package webhooks

import (
	"strings"
	"testing"
	"testing/synctest"

	"lockkeeper/internal/zk"
)

const someNotify = "https://hooks.example.com/job?key=42"

func endFor(lease string, only bool) *End {
	return &End{Entry: EntryOf(lease), NotifyURL: someNotify, NotifyOnly: only, Events: []Event{{Type: Released, NS: "default", Lock: "deploy", LeaseID: lease}}}
}

func TestANotifyURLIsInTheEntryThatSubscriptionsAreIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFleet(t, 1)
		s := b.services[0]
		describe := func() *End { return endFor("l1", false) }
		ops, entry, ready := s.Ending(true, describe)
		if !ready || len(ops) != 2 || ops[0].Kind != zk.OpCheck || entry == nil || len(entry.Subscriptions) != 1 || entry.Subscriptions[0] != someNotify {
			t.Errorf("with nobody else: %+v %+v", ops, entry)
		}
		sub := b.subscribe(t, 0, "*")
		synctest.Wait()
		if _, entry, _ = s.Ending(true, describe); len(entry.Subscriptions) != 2 || entry.Subscriptions[0] != sub.ID || len(entry.Notices) != 1 || len(entry.Notices[0].To) != 2 {
			t.Errorf("with a subscription: %+v", entry)
		}
		ops, entry = s.Notify(endFor("l1", true))
		if len(ops) != 1 || ops[0].Kind != zk.OpCreate || !ops[0].Private || len(entry.Subscriptions) != 1 {
			t.Errorf("for it alone: %+v %+v", ops, entry)
		}
	})
}

func TestWhatIsForANotifyURLAloneDoesNotWaitForSubscriptions(t *testing.T) {
	s := New(Options{Addresses: mustAddresses(t, false)})
	if _, _, ready := s.Ending(true, func() *End { return endFor("l1", false) }); ready {
		t.Error("the end of a lease that held is decided, and nobody knows who has subscribed")
	}
	if ops, entry := s.Notify(endFor("l1", true)); len(ops) != 1 || entry == nil {
		t.Errorf("%+v %+v", ops, entry)
	}
	if s.Record(endFor("l2", true)); len(s.writer.toCreate) != 1 {
		t.Error("what happened by another hand is not told to it")
	}
	if s.Record(endFor("l3", false)); len(s.writer.toCreate) != 1 {
		t.Error("told, and nobody knows who has subscribed")
	}
}

func TestNotifyURLsCannotFillTheOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFleet(t, 1)
		s := b.services[0]
		sub := b.subscribe(t, 0, "deploy*")
		synctest.Wait()
		s.bound.mu.Lock()
		s.bound.now.Entries = s.bound.now.Limit / 2
		s.bound.mu.Unlock()
		if ops, _ := s.Notify(endFor("l1", true)); ops != nil {
			t.Error("half of the outbox is for subscriptions")
		}
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
	if err := s.CheckURL(someNotify); err != nil {
		t.Error(err)
	}
	for _, url := range []string{"", "ftp://hooks.example.com/", "http://127.0.0.1/?hunter2", "http://[::1]/?hunter2", "https://me:hunter2@hooks.example.com/",
		"https://hooks.example.com/#hunter2", "https://hooks.example.com/" + strings.Repeat("a", MaxURL), "/hunter2", "http://localhost/hunter2"} {
		if err := s.CheckURL(url); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "headers") {
			t.Errorf("%.60q: %v", url, err)
		}
	}
}
