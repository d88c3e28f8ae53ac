package webhooks

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

func TestASubscriptionIsReadAsItWasWritten(t *testing.T) {
	s := &Subscription{ID: NewID(), URL: "https://example.com/x", Events: []string{Released, Expired, Released}, NS: "team-*", Locks: "deploy:*", Description: "told: ü", Enabled: true,
		Headers: map[string]string{"authorization": "Bearer x"}, Created: time.UnixMilli(1700000000123).UTC()}
	s.Rotate(s.Created, 0)
	s.Rotate(s.Created, time.Hour)
	assert.NoError(t, s.Normalize(mustAddresses(t, false)))
	assert.That(t, len(s.Events) == 2 && s.Headers["Authorization"] == "Bearer x", "normalized: %+v", s)
	got, err := ParseRecord(s.ID, s.Record(), 7)
	assert.NoError(t, err)
	s.Version = 7
	diff := cmp.Diff(s, got)
	assert.That(t, diff == "", "%v", diff)
	_, err = ParseRecord(s.ID, []byte(`{"v":2}`), 0)
	assert.That(t, errors.Is(err, errNewer), "a newer record: %v", err)
	_, err = ParseRecord(s.ID, []byte(`{"v":1,"secrets":"whsec_x"`), 0)
	assert.That(t, err != nil && !strings.Contains(err.Error(), "whsec"), "a damaged record: %v", err)
	assert.That(t, IsID(s.ID) && !IsID("wh_") && !IsID("wh_AAAAAAAAAAAAAAAA") && !IsID("https://example.com/"), "ids")
}

func TestWhatIsWrongWithASubscriptionIsNamed(t *testing.T) {
	many := map[string]string{}
	for i := range MaxHeaders + 1 {
		many["X-"+strings.Repeat("a", i+1)] = "b"
	}
	for field, list := range map[string][]Subscription{
		"events":      {{Events: []string{"lease.taken"}}, {Events: []string{Test}}, {Events: []string{""}}},
		"ns":          {{NS: "a?"}, {NS: strings.Repeat("*", maxStars+1)}, {NS: strings.Repeat("a", MaxGlob+1)}},
		"locks":       {{Locks: "a/b"}, {Locks: "[a]"}, {Locks: "a\x00"}},
		"description": {{Description: strings.Repeat("a", MaxDescription+1)}, {Description: "a\nb"}},
		"headers": {{Headers: many}, {Headers: map[string]string{"a b": "c"}}, {Headers: map[string]string{"X": "a\r\nb"}}, {Headers: map[string]string{"host": "x"}}, {Headers: map[string]string{"webhook-id": "x"}},
			{Headers: map[string]string{"content-length": "1"}}, {Headers: map[string]string{"X": strings.Repeat("a", MaxHeaderBytes)}}, {Headers: map[string]string{"x-a": "1", "X-A": "2"}}},
		"ca": {{CA: "x"}, {CA: strings.Repeat("a", MaxCA+1)}},
	} {
		for _, s := range list {
			s.URL = "https://example.com"
			err := s.Normalize(mustAddresses(t, false))
			wrong, ok := errors.AsType[*FieldError](err)
			assert.That(t, ok && wrong.Field == field, "%s: %+v: %v", field, s, err)
		}
	}
}

func TestGlobsMatchAsTheyRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		glob := rapid.StringMatching(`[ab*]{0,10}`).Filter(func(s string) bool { return strings.Count(s, "*") <= maxStars }).Draw(t, "glob")
		name := rapid.StringMatching(`[ab]{0,12}`).Draw(t, "name")
		want := regexp.MustCompile("^" + strings.ReplaceAll(glob, "*", ".*") + "$").MatchString(name)
		assert.MustEqual(t, match(glob, name), want, "match(%q, %q)", glob, name)
	})
	s := Subscription{Enabled: true, Events: []string{Expired}, Locks: "deploy:*"}
	if !s.Wants(Expired, "default", "deploy:web") || s.Wants(Released, "default", "deploy:web") || s.Wants(Expired, "default", "web") {
		t.Error("wants")
	}
	s.Enabled = false
	assert.That(t, !s.Wants(Expired, "default", "deploy:web"), "a disabled subscription wants")
}

func TestAnEntryIsReadAsItWasWritten(t *testing.T) {
	s := subscription("s")
	e := entry(3, "a", s)
	e.TraceParent = "x"
	e.Dead = []Dead{{Notice: 0, Subscription: 0, At: time.UnixMilli(5).UTC(), Attempts: 10, Error: "500"}}
	got := assert.Value(ParseEntry(e.Name, e.Order, e.Data()))(t)
	diff := cmp.Diff(e, got)
	assert.That(t, diff == "", "%v", diff)
	for _, damaged := range []string{`{`, `{"v":2}`, `{"v":1,"notices":[{"to":[0]}]}`, `{"v":1,"dead":[{}]}`, `{"v":1,"subscriptions":["a"],"notices":[{"to":[-1]}]}`} {
		_, err := ParseEntry("x", 0, []byte(damaged))
		assert.That(t, err != nil, "%s was read", damaged)
	}
	// For good: a gateway of the next release must give the same ones.
	assert.Equal(t, MessageID("lkabc", &Event{NS: "default", Lock: "deploy"}, "wh_b"), "msg_fii3koaj34hz2yyn3mq5oknwwa", "message ids")
}

// One lock that a lease has released is one message, from each gateway and with any other locks.
func TestAMessagesIDFollowsFromWhatItTells(t *testing.T) {
	id := func(entry, ns, lock, to string) string { return MessageID(entry, &Event{NS: ns, Lock: lock}, to) }
	whole := id(EntryOf("lkabc"), "default", "deploy", "wh_b")
	if got := id(PartEntry("lkabc", 2), "default", "deploy", "wh_b"); got != whole || id(PartEntry("lkabc", 0), "default", "deploy", "wh_b") != whole {
		t.Errorf("%s is told as %s by who has seen that lock alone", whole, got)
	}
	for what, other := range map[string]string{"another lock": id("lkabc", "default", "other", "wh_b"), "another namespace": id("lkabc", "other", "deploy", "wh_b"),
		"another webhook": id("lkabc", "default", "deploy", "wh_c"), "another lease": id("lkabd", "default", "deploy", "wh_b"), "its grant": id(GrantEntry("lkabc"), "default", "deploy", "wh_b"),
		"its notify_url": id("lkabc", "default", "deploy", someNotify), "another program's": id(ForeignEntry(7), "default", "deploy", "wh_b")} {
		assert.That(t, other != whole, "%s has the same id", what)
	}
	end, grant := id("lkabc", "default", "deploy", someNotify), id(GrantEntry("lkabc"), "default", "deploy", someNotify)
	assert.That(t, end != grant, "a notify_url drops the end as what it has seen: the grant has the same id")
	a, b := id(ForeignEntry(7), "default", "deploy", "wh_b"), id(ForeignEntry(8), "default", "deploy", "wh_b")
	assert.That(t, a != b, "two contenders of other programs have one id")
	assert.Equal(t, LeaseOf(PartEntry("lkabc", 3)), "lkabc", "a part is about")
}
