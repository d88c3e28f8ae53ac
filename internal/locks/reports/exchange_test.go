package reports

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// scene is an Exchange whose owner only writes down what it is told.
type scene struct {
	*Exchange
	t         *testing.T
	published []string
	lives     map[recipe.LeaseID]bool
	peer      recipe.GatewayID
	fleet     recipe.FleetID
	lease     recipe.LeaseID // of the peer
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t, lives: map[recipe.LeaseID]bool{}}
	source := strings.NewReader(strings.Repeat("reports of a peer ", 20))
	s.peer = assert.Value(recipe.NewGatewayID(source))(t)
	s.fleet = assert.Value(recipe.ParseFleetID("abcdefgh"))(t)
	s.lease = assert.Value(recipe.NewLeaseID(s.fleet, s.peer, source))(t)
	wake := func(ch chan struct{}) { close(ch) }
	replica := queues.New(wake)
	s.Exchange = New(Options{Follows: true, Nonce: "n", Members: cluster.New(wake), Replica: replica, History: &postmortem.Log{}, Observed: &postmortem.Log{},
		Lives: func(id recipe.LeaseID) bool { return s.lives[id] }, Stays: func(recipe.LeaseID) bool { return false },
		Terminated: func(recipe.LeaseID, Cause) {}, Shared: strings.Clone,
		Event: func(typ events.Type, _ *queues.Queue, _ *recipe.Contender) *events.Event {
			return &events.Event{Type: typ}
		},
		Publish: func(e *events.Event) {
			s.published = append(s.published, strings.TrimSpace(e.Dir+" "+e.Type.String()+" "+e.Reason+" "+e.Owner))
		},
		Stamp: func(*events.Event) {}, Wake: wake, WakeAt: func(time.Duration) {}})
	return s
}

// at is an instant so many seconds after the first one.
func at(seconds float64) zk.Instant {
	d := time.Duration(seconds * float64(time.Second))
	return zk.At(time.Hour+d, 24*365*time.Hour+d)
}

// loses publishes that the replica is about to lose the contender of the peer's lease.
func (s *scene) loses(dir string, seconds float64) {
	c := &recipe.Contender{Ours: true, LeaseID: s.lease, Name: "c"}
	s.Lost(&events.Event{Type: events.LeaseRemoved, Dir: dir, Reason: string(locks.ReasonUnknown)}, dir+"/c", c, at(seconds).Boot())
	assert.NoError(s.t, s.Check())
}

func (s *scene) receives(seconds float64, r Report) {
	r.Lease = s.lease
	s.Receive(s.peer, s.fleet, []Report{r}, at(seconds))
	assert.NoError(s.t, s.Check())
}

func (s *scene) wantPublished(want ...string) {
	s.t.Helper()
	assert.That(s.t, slices.Equal(s.published, want), "published %q, want %q", s.published, want)
	s.published = nil
}

func TestAnEndWaitsForTheReportOfItsGateway(t *testing.T) {
	for name, c := range map[string]struct {
		joined, followed bool
		reports          []Report
		until            float64 // seconds; the last look
		want             []string
	}{
		"no peer is there":          {want: []string{"/a lease.removed unknown"}},
		"the report comes":          {joined: true, followed: true, reports: []Report{{Kind: Ended, Reason: locks.ReasonExpired, Owner: "ci"}}, want: []string{"/a lease.expired expired ci", "/a lease.granted"}},
		"no report comes":           {joined: true, followed: true, until: 1, want: []string{"/a lease.removed unknown", "/a lease.granted"}},
		"the wait is not over":      {joined: true, followed: true, until: 0.9},
		"the peer may connect soon": {joined: true, until: 0.9},
		"an administrator's peer reports": {joined: true, followed: true, reports: []Report{{Kind: Termination, Reason: locks.ReasonRevoked}, {Kind: Confirmed, Reason: locks.ReasonRevoked}}, until: 1,
			want: []string{"/a lease.revoked revoked", "/a lease.granted"}},
		"an administrator's peer announces its end, and the lease's gateway is late": {joined: true, followed: true, reports: []Report{{Kind: Termination, Reason: locks.ReasonDestroyed}}, until: 1,
			want: []string{"/a lease.removed unknown", "/a lease.granted"}},
		"an administrator's peer announces its end, and the lease's gateway says that it was another's": {joined: true, followed: true, until: 1,
			reports: []Report{{Kind: Termination, Reason: locks.ReasonRevoked}, {Kind: Ended, Reason: locks.ReasonRemoved, Unsure: true}}, want: []string{"/a lease.revoked revoked", "/a lease.granted"}},
		"a report that is withdrawn counts for nothing": {joined: true, followed: true, reports: []Report{{Kind: Termination, Reason: locks.ReasonRevoked}, {Kind: Withdrawn}}, until: 1,
			want: []string{"/a lease.removed unknown", "/a lease.granted"}},
		"the gateway that ran it knows better": {joined: true, followed: true, reports: []Report{{Kind: Termination, Reason: locks.ReasonRevoked}, {Kind: Ended, Reason: locks.ReasonReleased}},
			want: []string{"/a lease.released released", "/a lease.granted"}},
		"an unsure end waits for the administrator's": {joined: true, followed: true, reports: []Report{{Kind: Ended, Reason: locks.ReasonRemoved, Unsure: true}}, until: 0.9},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if c.joined {
				s.Joined(s.peer, at(0).Boot())
				s.Follow(s.peer, c.followed, at(0).Boot())
			}
			s.loses("/a", 0)
			if s.delayed.n > 0 {
				s.Publish(&events.Event{Type: events.LeaseGranted, Dir: "/a"})
			}
			s.Publish(&events.Event{Type: events.LeaseGranted, Dir: "/b"})
			assert.That(t, len(s.published) > 0 && strings.HasPrefix(s.published[len(s.published)-1], "/b"), "another lock waits: %q", s.published)
			s.published = s.published[:len(s.published)-1]
			for _, r := range c.reports {
				s.receives(0.5, r)
			}
			s.ReleaseDue(at(c.until).Boot())
			s.wantPublished(c.want...)
			s.ReleaseAll()
			assert.Equal(t, s.Size(), Sizes{}, "is still kept")
		})
	}
}

// No other report can come: the gateway that ran the lease is gone.
func TestAnAnnouncedEndIsToldWhenTheLeasesGatewayIsGone(t *testing.T) {
	s := newScene(t)
	s.Joined(s.peer, at(0).Boot())
	s.Follow(s.peer, true, at(0).Boot())
	s.loses("/a", 0)
	s.receives(0.5, Report{Kind: Termination, Reason: locks.ReasonRevoked})
	s.Left(s.peer)
	s.ReleaseDue(at(1).Boot())
	s.wantPublished("/a lease.revoked revoked")
}

// This gateway knows that it has not ended its lease itself.
func TestAnAnnouncedEndExplainsTheRemovalOfAnOwnLease(t *testing.T) {
	s := newScene(t)
	source := strings.NewReader(strings.Repeat("a lease of its own ", 20))
	own := assert.Value(recipe.NewGatewayID(source))(t)
	s.lease = assert.Value(recipe.NewLeaseID(s.fleet, own, source))(t)
	s.opt.Members.Begin(own)
	s.Joined(own, at(0).Boot())
	s.opt.History.Add(s.lease, postmortem.End{Why: postmortem.CauseOf(locks.ReasonRemoved)})
	s.Delay(&events.Event{Type: events.LeaseRemoved, Dir: "/a", Reason: string(locks.ReasonRemoved)}, &recipe.Contender{Ours: true, LeaseID: s.lease}, nil, false, at(0).Boot())
	s.receives(0.5, Report{Kind: Termination, Reason: locks.ReasonRevoked})
	s.wantPublished("/a lease.revoked revoked")
}

// A gateway that stood still was deposed meanwhile. Its successor ended the lease, and an administrator the place that was left.
func TestTheEndAtASuccessorExplainsTheRemovalOfAnOwnLease(t *testing.T) {
	s := newScene(t)
	s.lives[s.lease] = true
	s.receives(0, Report{Kind: Ended, Reason: locks.ReasonExpired, Unsure: true})
	assert.That(t, s.Ordered(LeaseOrPath(s.lease)) == nil, "a report that is not sure counts")
	s.receives(0, Report{Kind: Ended, Reason: locks.ReasonRevoked, Words: "maintenance"})
	s.receives(0, Report{Kind: Termination, Reason: locks.ReasonDestroyed})
	why := s.Ordered(LeaseOrPath(s.lease))
	assert.That(t, why != nil && why.Reason == locks.ReasonRevoked && why.Words == "maintenance", "%+v", why)
}

func TestAReportThatComesFirstExplainsTheEnd(t *testing.T) {
	s := newScene(t)
	s.Joined(s.peer, at(0).Boot())
	s.Follow(s.peer, true, at(0).Boot())
	s.receives(0, Report{Kind: Ended, Reason: locks.ReasonExpired, Owner: "ci"})
	s.loses("/a", 0)
	s.wantPublished("/a lease.expired expired ci")
	s.receives(0, Report{Kind: Ended, Reason: locks.ReasonReleased}) // repeated, and too late
	s.wantPublished()
}

// At its bound a lock's events are published at once, in their order.
func TestDelayedEventsAreBounded(t *testing.T) {
	s := newScene(t)
	s.Joined(s.peer, at(0).Boot())
	s.Follow(s.peer, true, at(0).Boot())
	s.loses("/a", 0)
	for range MaxDelayedOfLock - 2 {
		s.Publish(&events.Event{Type: events.LeaseQueued, Dir: "/a"})
	}
	s.wantPublished()
	s.Publish(&events.Event{Type: events.LeaseGranted, Dir: "/a"})
	s.ReleaseAll() // its line forgets what is published
	assert.That(t, len(s.published) == MaxDelayedOfLock && s.published[0] == "/a lease.removed unknown" && s.published[MaxDelayedOfLock-1] == "/a lease.granted", "%q", s.published)
	assert.Equal(t, s.Size(), Sizes{}, "is still kept")
}

func TestAPlaceInTheFeed(t *testing.T) {
	s := newScene(t)
	id := func(i int) recipe.LeaseID { return recipe.LeaseID(fmt.Sprint(i)) }
	end := func(i int) {
		s.opt.History.Add(id(i), postmortem.End{Why: postmortem.CauseOf(locks.ReasonReleased), NS: "default", Lock: "a", At: at(0).Boot()})
		s.Tell(Notice{Kind: Ended, Lease: id(i)})
	}
	end(0)
	assert.Equal(t, s.Size().Notices, 0, "notices without a follower")
	all := func(since string) (ids []recipe.LeaseID, next string, more <-chan struct{}) {
		for {
			var list []Report
			list, since, more = s.Since(since, at(1))
			for i := range list {
				ids = append(ids, list[i].Lease)
			}
			if more != nil || len(list) == 0 {
				return ids, since, more
			}
		}
	}
	ids, place, more := all("")
	assert.That(t, slices.Equal(ids, []recipe.LeaseID{id(0)}), "the history: %v", ids)
	end(1)
	select {
	case <-more:
	default:
		t.Error("a follower that waits is not woken")
	}
	ids, _, _ = all(place)
	assert.That(t, slices.Equal(ids, []recipe.LeaseID{id(1)}), "what is new: %v", ids)
	for _, lost := range []string{"another." + place, place + ".x", "x", "n.99"} {
		ids, _, _ = all(lost)
		assert.That(t, slices.Equal(ids, []recipe.LeaseID{id(0), id(1)}), "from %q: %v", lost, ids)
	}
	s.Close()
	list, _, more := s.Since(place, at(1))
	assert.That(t, len(list) == 1 && more == nil, "after the end: %v, %v", list, more)
	_, last, _ := all(place)
	_, _, more = s.Since(last, at(1))
	assert.That(t, more == nil, "a gateway that stops lets its followers wait")
}

func TestReportsAreBounded(t *testing.T) {
	long := strings.Repeat("x", MaxName+1)
	for name, r := range map[string]Report{
		"a long name":                     {Kind: Ended, Name: long},
		"a long lock":                     {Kind: Ended, Lock: long},
		"a long owner":                    {Kind: Ended, Owner: strings.Repeat("x", locks.MaxOwner+1)},
		"an owner in no text":             {Kind: Ended, Owner: "\xff"},
		"a long reason of an acquire":     {Kind: Ended, Purpose: strings.Repeat("x", locks.MaxReasonText+1)},
		"a long name of an administrator": {Kind: Ended, By: strings.Repeat("x", locks.MaxPrincipal+1)},
		"an administrator in no text":     {Kind: Ended, By: "\xff"},
		"a negative span":                 {Kind: Ended, Held: -1},
		"an unknown mode":                 {Kind: Ended, Mode: "upside-down"},
		"a long next holder":              {Kind: Ended, Next: &Next{Name: long, After: 1}},
		"a next holder before":            {Kind: Ended, Next: &Next{Name: "n", After: -1}},
	} {
		assert.Equal(t, len(Decode(Encode([]Report{r}))), 0, name)
	}
}

func TestAReportIsReadAsItWasSent(t *testing.T) {
	sent := []Report{
		{Kind: Ended, Lease: "l", NS: "default", Lock: "deploy", Name: "write-1", Reason: locks.ReasonReleased, Words: "why", Unsure: true, Stays: true, Ended: 1, Mode: locks.Shared,
			Owner: "me", Token: 1 << 60, TTL: 2, Waited: 3, Held: 4, Beat: 5, Next: &Next{Lease: "m", Name: "write-2", Owner: "you", Token: 6, After: 7}, Zxid: 8, By: "token:ops", Several: true, Purpose: "load test"},
		{Kind: Destroyed, NS: "default", Lock: "l", Reason: locks.ReasonUnknown, Zxid: 9},
		{Kind: Ended, Reason: locks.ReasonUnknown, Next: &Next{}},
	}
	whole := reflect.ValueOf(sent[0])
	for i := range whole.NumField() {
		assert.That(t, !whole.Field(i).IsZero(), "the test sends no %s", whole.Type().Field(i).Name)
	}
	assert.That(t, reflect.DeepEqual(Decode(Encode(sent)), sent), "%+v", Decode(Encode(sent)))
}

func TestAReportOfANewerReleaseIsReadAsFarAsItIsKnown(t *testing.T) {
	line := message{}.text(fieldKind, "ended").text(fieldLease, "l").text(fieldReason, "of a newer release").number(fieldEnded, 7).text(1000, "future").number(1001, 3)
	line = protowire.AppendFixed32(protowire.AppendTag(line, 1002, protowire.Fixed32Type), 5)
	line = protowire.AppendFixed64(protowire.AppendTag(line, 1003, protowire.Fixed64Type), 5)
	list := Decode([][]byte{line})
	assert.That(t, len(list) == 1 && list[0].Lease == "l" && list[0].Reason == locks.ReasonUnknown && list[0].Ended == 7, "%+v", list)
}

func FuzzDecodeOfAReport(f *testing.F) {
	whole := Encode([]Report{{Kind: Ended, Lease: "l", Held: 4, Next: &Next{Name: "write-2"}}})[0]
	f.Add(whole)
	for cut := range whole {
		f.Add(whole[:cut])
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, r := range Decode([][]byte{line}) {
			assert.That(t, r.valid() && len(Decode(Encode([]Report{r}))) == 1, "%+v", r)
		}
	})
}
