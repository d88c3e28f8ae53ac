package dashboard

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/ensemble"
	"lockkeeper/web/templates"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// evil is a name that hides, turns around and paints.
const evil = "\x1b[31m<b>\u202etxt.exe\u200b"
const evilShown = "␛[31m<b>\\u{202e}txt.exe\\u{200b}"

func TestARowShowsWhatTheOverviewNeeds(t *testing.T) {
	holder := locks.Contender{At: now, LeaseID: "lk1", Znode: "/r/a/1", Owner: evil, HeldFor: time.Minute, ExpiresIn: 10 * time.Second, Clock: 30 * time.Second}
	got := rowOf(&locks.Lock{NS: "team", Name: "team:a", State: locks.LockHeld, QueueLength: 4, Holders: []locks.Contender{holder},
		Hazards: []locks.Hazard{{Code: "stray_child"}}})
	want := templates.LockRow{NS: "team", Name: "team:a", URL: "/locks/team:a?ns=team", State: "held",
		Holders: []templates.Who{{Owner: evilShown, LeaseID: "lk1"}}, HolderCount: 1, Waiting: 4,
		HeldSince: now.Add(-time.Minute), ExpiresAt: now.Add(10 * time.Second), Hazards: 1}
	diff := cmp.Diff(want, got)
	assert.That(t, diff == "", "%v", diff)
}

func TestARowOfManyHoldersNamesTheFirstAndTheOldestTime(t *testing.T) {
	l := locks.Lock{NS: "default", Name: "a", State: locks.LockHeld}
	for i := range 5 {
		l.Holders = append(l.Holders, locks.Contender{At: now, Znode: string(rune('a' + i)), HeldFor: time.Duration(i+1) * time.Minute, HeldLonger: i == 4, ExpiresIn: time.Minute})
	}
	row := rowOf(&l)
	assert.That(t, len(row.Holders) == rowHolders && row.HolderCount == 5, "%d named of %d", len(row.Holders), row.HolderCount)
	assert.That(t, row.HeldSince.Equal(now.Add(-5*time.Minute)) && row.HeldLonger,
		"held since %v, longer %v", row.HeldSince, row.HeldLonger)
	assert.That(t, row.ExpiresAt.IsZero(), "there is no one clock when several hold")
}

func TestAContenderShowsEveryField(t *testing.T) {
	for name, c := range map[string]struct {
		give locks.Contender
		want templates.Contender // Break aside
	}{
		"a holder": {
			locks.Contender{At: now, LeaseID: "lk1", Znode: "/r/a/1", Owner: evil, Mode: locks.Semaphore, Permits: 2, FencingToken: 99, Age: time.Hour,
				AgeKnown: true, HeldFor: time.Minute, HeldLonger: true, HeldAtMost: time.Hour, Clock: 30 * time.Second, ExpiresIn: 5 * time.Second, Unclaimed: true, Metadata: evil},
			templates.Contender{Who: templates.Who{Owner: evilShown, LeaseID: "lk1"}, Mode: "semaphore", Permits: 2, Znode: "/r/a/1", FencingToken: 99,
				Since: now.Add(-time.Hour), HeldSince: now.Add(-time.Minute), HeldLonger: true, HeldEarliest: now.Add(-time.Hour), ExpiresAt: now.Add(5 * time.Second),
				Clock: 30 * time.Second, Unclaimed: true, Metadata: evilShown, CanAsk: true}},
		"a waiter has neither token nor time of holding": {
			locks.Contender{At: now, LeaseID: "lk2", Znode: "/r/a/2", Mode: locks.Exclusive, Position: 3, FencingToken: 5, HeldFor: time.Second, HeldLonger: true},
			templates.Contender{Who: templates.Who{LeaseID: "lk2"}, Mode: "exclusive", Znode: "/r/a/2", Position: 3}},
		"a reservation that another gateway runs": {
			locks.Contender{At: now, LeaseID: "lk7", Znode: "/r/a/7", Purpose: evil, EndsAt: now.Add(time.Hour), ReservedFor: 2 * time.Hour},
			templates.Contender{Who: templates.Who{LeaseID: "lk7", Purpose: evilShown}, Znode: "/r/a/7", EndsAt: now.Add(time.Hour), ReservedFor: 2 * time.Hour, ExpiresAt: now.Add(time.Hour), CanAsk: true}},
		"a reservation that ends soon": {
			locks.Contender{At: now, LeaseID: "lk8", Znode: "/r/a/8", EndsAt: now.Add(5 * time.Minute)},
			templates.Contender{Who: templates.Who{LeaseID: "lk8"}, Znode: "/r/a/8", EndsAt: now.Add(5 * time.Minute), EndsSoon: true, ExpiresAt: now.Add(5 * time.Minute), CanAsk: true}},
		"one of several locks, held twice, asked to let go": {
			locks.Contender{At: now, LeaseID: "lk5", Znode: "/r/a/5", Mode: locks.Exclusive, HeldFor: time.Second, Group: []string{"b", "team/" + "c"}, Holds: []string{"x", evil},
				Ephemeral: true, Revoke: &locks.Revocation{Reason: evil, Forced: true, ForceIn: time.Minute}},
			templates.Contender{Who: templates.Who{LeaseID: "lk5"}, Mode: "exclusive", Znode: "/r/a/5", HeldSince: now.Add(-time.Second), Holds: []string{"x", evilShown},
				Group: []templates.Link{{Name: "b", URL: "/locks/b"}, {Name: "team/c", URL: "/locks/c?ns=team"}}, Ephemeral: true,
				CanAsk: true,
				Asked:  &templates.Asked{Reason: evilShown, Until: now.Add(time.Minute), Withdraw: "/v1/locks/a/revoke?lease_ids=lk5"}}},
		"asked, without force": {
			locks.Contender{At: now, LeaseID: "lk6", Znode: "/r/a/6", Revoke: &locks.Revocation{ForceIn: time.Minute}},
			templates.Contender{Who: templates.Who{LeaseID: "lk6"}, Znode: "/r/a/6", CanAsk: true, Asked: &templates.Asked{Withdraw: "/v1/locks/a/revoke?lease_ids=lk6"}}},
		"a place that is kept": {
			locks.Contender{At: now, LeaseID: "lk8", Znode: "/r/a/8", Delayed: true, Reason: locks.ReasonExpired, Clock: time.Minute, ExpiresIn: time.Second},
			templates.Contender{Who: templates.Who{LeaseID: "lk8", Delayed: true}, Znode: "/r/a/8", Ended: "expired", Clock: time.Minute, ExpiresAt: now.Add(time.Second)}},
		"what is not known is zero": {
			locks.Contender{At: now, LeaseID: "lk3", Znode: "/r/a/3", Mode: locks.Exclusive},
			templates.Contender{Who: templates.Who{LeaseID: "lk3"}, Mode: "exclusive", Znode: "/r/a/3", CanAsk: true}},
		"a clock that has run out": {
			locks.Contender{At: now, LeaseID: "lk4", Znode: "/r/a/4", Mode: locks.Exclusive, Clock: time.Minute},
			templates.Contender{Who: templates.Who{LeaseID: "lk4"}, Mode: "exclusive", Znode: "/r/a/4", Clock: time.Minute, ExpiresAt: now, CanAsk: true}},
		"a foreign one with text": {
			locks.Contender{Znode: "/r/a/" + evil, Mode: locks.Exclusive, Foreign: &locks.Foreign{Program: "curator", Session: -2, Data: []byte("10.0.0.1\n" + evil[8:])}},
			templates.Contender{Who: templates.Who{Foreign: true, Program: "curator"}, Mode: "exclusive", Znode: "/r/a/" + evilShown,
				Session: "0xfffffffffffffffe", Data: "10.0.0.1\n\\u{202e}txt.exe\\u{200b}"}},
		"a foreign one that can be asked in its own way": {
			locks.Contender{Znode: "/r/a/7", Mode: locks.Exclusive, Foreign: &locks.Foreign{Program: "curator", Revocable: true}, Revoke: &locks.Revocation{}},
			templates.Contender{Who: templates.Who{Foreign: true, Program: "curator"}, Mode: "exclusive", Znode: "/r/a/7", CanAsk: true, Asked: &templates.Asked{}}},
		"a foreign one that says who it is": {
			locks.Contender{Znode: "/r/a/9", Mode: locks.Exclusive, Foreign: &locks.Foreign{Program: "kazoo", Decoded: &locks.Decoded{Identifier: "deployer.py " + evil}}},
			templates.Contender{Who: templates.Who{Owner: "deployer.py " + evilShown, Foreign: true, Program: "kazoo"}, Mode: "exclusive", Znode: "/r/a/9", Decoded: "deployer.py " + evilShown}},
		"a foreign one with bytes": {
			locks.Contender{Znode: "/r/a/5", Mode: locks.Shared, Foreign: &locks.Foreign{Data: []byte{0xff, 0, 1}}},
			templates.Contender{Who: templates.Who{Foreign: true}, Mode: "shared", Znode: "/r/a/5", Data: "/wAB", DataBinary: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Break = breakAction(locks.DefaultNamespace, "a", &c.give)
			diff := cmp.Diff(c.want, contenderOf(&locks.Lock{NS: locks.DefaultNamespace, Name: "a"}, &c.give, access.Everything()))
			assert.That(t, diff == "", "%v", diff)
		})
	}
}

func TestALocksPageShowsItsQueue(t *testing.T) {
	var v templates.Lock
	showLock(&v, &locks.Lock{NS: "default", Name: "a", State: locks.LockQueued, QueueLength: 120,
		Holders: []locks.Contender{{Znode: "/other/a/1"}}, Waiters: []locks.Contender{{Znode: "/other/a/2", Position: 1}, {Znode: "/other/a/3", Position: 2}},
		Hazards: []locks.Hazard{{Code: "stray_child", Detail: evil}}}, access.Everything(), "/lockkeeper", true)
	if v.State != "queued" || v.QueueLength != 120 || len(v.Holders) != 1 || len(v.Waiters) != 2 || v.Waiters[1].Position != 2 || v.Dir != "/other/a" {
		t.Errorf("%+v", v)
	}
	diff := cmp.Diff([]templates.Hazard{{Code: "stray_child", Detail: evilShown}}, v.Hazards)
	assert.That(t, diff == "", "%v", diff)
}

func TestTheDirectoryOfAFreeLock(t *testing.T) {
	assert.Equal(t, dirOf(&locks.Lock{NS: "default", Name: "a"}, "/lockkeeper"), "/lockkeeper/locks/a")
	got := dirOf(&locks.Lock{NS: "team", Name: "a"}, "/lockkeeper")
	assert.That(t, got == "", "%q, though only the gateway's record knows the root of another namespace", got)
}

func TestEventsAreShownWithAllTheyTell(t *testing.T) {
	e := &events.Event{Type: events.LeaseExpired, Time: now, LeaseID: "lk1", Owner: evil, Foreign: true, Program: "kazoo", FencingToken: 4, Reason: "expired", Detail: evil, Purpose: evil,
		Dir: "/r/a", Name: evil}
	want := []templates.Happening{{At: now, Event: "lease.expired", FencingToken: 4, Reason: "expired", Detail: evilShown,
		Who: templates.Who{Owner: evilShown, LeaseID: "lk1", Foreign: true, Program: "kazoo", Purpose: evilShown}}}
	diff := cmp.Diff(want, happeningsOf([]*events.Event{e}))
	assert.Equal(t, diff, "")
	pair := &events.Event{Type: events.LockHazard, Time: now, Hazard: &events.Hazard{Code: "programs_ignore_each_other", Programs: []string{"curator-mutex", "kazoo-lock"}}, Detail: "long"}
	assert.Equal(t, happeningsOf([]*events.Event{pair})[0].Detail, "programs_ignore_each_other curator-mutex kazoo-lock",
		"a hazard is shown as")
	diff = cmp.Diff([]templates.NodeEvent{{At: now, Event: "lease.expired", Path: "/r/a/" + evilShown}}, nodeEventsOf([]*events.Event{e}))
	assert.Equal(t, diff, "")
}

func TestTheStatusSaysWhatIsWrong(t *testing.T) {
	s := status{version: "1", started: started}
	info := servingInfo()
	want := templates.Status{GatewayID: "gw1", Version: "1", Started: started, ZooKeeper: "connected", Servers: []string{"zk1:2181"}, Root: "/lockkeeper",
		Trusted: true, ReplicaCurrent: true, Serving: true, Locks: 7, Contenders: 9, Held: 3, Waiting: 2, Rules: nameOf(access.Everything())}
	diff := cmp.Diff(want, s.statusOf(info, locks.Anonymous))
	assert.That(t, diff == "", "%v", diff)
	assert.That(t, (&status{embedded: true}).statusOf(info, locks.Anonymous).Embedded != s.statusOf(info, locks.Anonymous).Embedded,
		"an embedded ZooKeeper is shown like any other")
	for name, spoil := range map[string]func(*locks.ZooKeeperInfo){
		"suspended":       func(z *locks.ZooKeeperInfo) { z.State = "suspended" },
		"not trusted":     func(z *locks.ZooKeeperInfo) { z.Trusted = false },
		"replica too old": func(z *locks.ZooKeeperInfo) { z.ReplicaCurrent = false },
	} {
		info := servingInfo()
		spoil(&info.ZooKeeper)
		assert.That(t, !s.statusOf(info, locks.Anonymous).Serving, "%s, and it serves", name)
	}
}

func TestWhatHidesIsMadeVisible(t *testing.T) {
	for name, c := range map[string]struct{ give, want string }{
		"plain":                        {"deploy by me", "deploy by me"},
		"markup is the templates'":     {"<script>&", "<script>&"},
		"a terminal's escape":          {"\x1b[2J", "␛[2J"},
		"lines":                        {"a\r\nb\tc\x00", "a␍␊b␉c␀"},
		"delete":                       {"\x7f", "␡"},
		"a C1 control":                 {"\u009b31m", `\u{9b}31m`},
		"right to left override":       {"\u202egpj.exe", `\u{202e}gpj.exe`},
		"isolates and marks":           {"\u2066a\u2069\u200f\u061c", `\u{2066}a\u{2069}\u{200f}\u{61c}`},
		"zero width":                   {"a\u200bb\u200dc\ufeff\u2060\u00ad", `a\u{200b}b\u{200d}c\u{feff}\u{2060}\u{ad}`},
		"line separators":              {"\u2028\u2029", `\u{2028}\u{2029}`},
		"letters without a shape":      {"\u3164\u115f\u2800\u034f", `\u{3164}\u{115f}\u{2800}\u{34f}`},
		"tags":                         {"\U000e0041", `\u{e0041}`},
		"private use":                  {"\ue000", `\u{e000}`},
		"not UTF-8":                    {"a\xffb\xc0", `a\x{ff}b\x{c0}`},
		"the replacement character":    {"\ufffd", "\ufffd"},
		"an accent":                    {"e\u0301", "e\u0301"},
		"a pile of accents":            {"e\u0301\u0301\u0301\u0301\u0301", "e\u0301\u0301\u0301\u0301" + `\u{301}`},
		"other scripts":                {"שלום مرحبا 日本語 ไทย", "שלום مرحبا 日本語 ไทย"},
		"a coloured sign":              {"❤\ufe0f", "❤\ufe0f"},
		"other variations hide things": {"a\ufe01\U000e0101", `a\u{fe01}\u{e0101}`},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, visible(c.give), c.want) })
	}
}

func FuzzVisibleHidesNothingAndIsStable(f *testing.F) {
	f.Add("a\u202e\xff\x1b")
	f.Add("e\u0301\u0301\u0301\u0301\u0301\u200b")
	f.Fuzz(func(t *testing.T, s string) {
		got := visible(s)
		assert.That(t, utf8.ValidString(got) && !strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsGraphic(r) }),
			"%q of %q", got, s)
		assert.That(t, visible(got) == got, "%q becomes %q", got, visible(got))
	})
}

func TestDataIsTextOnlyIfItIsText(t *testing.T) {
	for name, c := range map[string]struct {
		give, want string
		binary     bool
	}{
		"text":              {"10.0.0.1", "10.0.0.1", false},
		"lines of text":     {"a\r\n\tb\rc", "a\n␉b␍c", false},
		"not UTF-8":         {"\xff\xfe", "//4=", true},
		"control character": {"a\x00", "YQA=", true},
		"turned around":     {"\u202ea", `\u{202e}a`, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, binary := dataOf([]byte(c.give))
			assert.That(t, got == c.want && binary == c.binary, "%q, %v", got, binary)
		})
	}
}

func TestThePageOfGatewaysShowsTheFleetAndItsZooKeeper(t *testing.T) {
	r := newRig(t)
	started := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	r.fake.mu.Lock()
	r.fake.info = func() locks.Info {
		info := servingInfo()
		info.PromiseWindow = 10 * time.Second
		return info
	}
	r.fake.peers = []locks.Peer{
		{Gateway: "one", Self: true, Address: "one:8080", Version: "1.0", Started: started, Leases: 3, Succeeded: []string{"gone", "gone2"}, GuardAge: -1},
		{Gateway: "three", Address: "three:8080", GuardAge: 12 * time.Second},
		{Gateway: "two", GuardAge: time.Second}, {Gateway: "zero", GuardAge: -1},
	}
	r.fake.mu.Unlock()
	r.opt.Ensemble = func(context.Context) []ensemble.Server {
		return []ensemble.Server{{Address: "a:2181", Mode: "leader", Version: "3.8.0", Zxid: 0x500000010, Connections: 4}, {Address: "b:2181", Mode: "follower", Zxid: 0x50000000e},
			{Address: "c:2181", Mode: "follower", Zxid: 0x400000099}, {Address: "d:2181", Problem: "unreachable"}}
	}
	c := assert.Value(r.read(t.Context(), gatewaysPage{}, locks.Anonymous, nil))(t).(*gatewaysContent)
	want := []templates.GatewayRow{
		{ID: "one", Self: true, Address: "one:8080", Version: "1.0", Started: started, Leases: 3, Succeeded: 2, State: "serving", Tone: "good"},
		{ID: "three", Address: "three:8080", State: "silent", Tone: "warn", Seen: "no write for 12 s"},
		{ID: "two", State: "healthy", Tone: "good"}, {ID: "zero", State: "registered", Tone: "good"},
	}
	seen := time.Since(c.Rows[2].SeenAt)
	assert.That(t, seen >= time.Second && seen < time.Minute, "two was seen %v ago", seen)
	diff := cmp.Diff(want, c.Rows, cmpopts.IgnoreFields(templates.GatewayRow{}, "SeenAt"))
	assert.Equal(t, diff, "")
	servers := []templates.ServerRow{{Address: "a:2181", Mode: "leader", Version: "3.8.0", Zxid: "0x500000010", Connections: 4},
		{Address: "b:2181", Mode: "follower", Zxid: "0x50000000e", Lag: "2 behind when last asked"},
		{Address: "c:2181", Mode: "follower", Zxid: "0x400000099", Lag: "behind: previous epoch"}, {Address: "d:2181", Problem: "Unreachable."}}
	diff = cmp.Diff(servers, c.Servers)
	assert.Equal(t, diff, "")
	body := r.get(t, "/gateways").Body.String()
	for _, part := range []string{"this one", "three:8080", "took over 2 gateways", "leader", "Unreachable."} {
		assert.That(t, strings.Contains(body, part), "the page lacks %s", part)
	}
}

func TestAGatewayShowsWhatItMaySay(t *testing.T) {
	own := locks.Peer{Gateway: "one", Self: true, GuardAge: -1}
	for _, c := range []struct {
		zk   locks.ZooKeeperInfo
		want string
	}{
		{locks.ZooKeeperInfo{Trusted: true, ReplicaCurrent: true}, "serving"},
		{locks.ZooKeeperInfo{Trusted: true}, "behind"},
		{locks.ZooKeeperInfo{ReplicaCurrent: true}, "not trusted"},
	} {
		row := gatewayRowOf(&own, c.zk, time.Second)
		assert.That(t, row.State == c.want, "%+v is shown as %s, want %s", c.zk, row.State, c.want)
	}
}
