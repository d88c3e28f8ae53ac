package secret

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/offlinetest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

func zkStat(aversion int32) zk.Stat { return zk.Stat{Aversion: aversion} }

// site is a root on a ZooKeeper of its own, and its gateways.
type site struct {
	offlinetest.Site
	t       *testing.T
	cfg     zk.Config
	nodes   *faulty
	members map[string]*member
}

func newSite(t *testing.T) *site {
	cfg := zk.Config{Servers: []string{embeddedtest.RunT(t).Addr()}, CreateRoot: true, Auth: &zk.DigestAuth{User: "fleet", Password: "sesame"}}
	assert.Value(layout.Open(offlinetest.Context(t), cfg))(t)
	o := offlinetest.Open(t, cfg)
	s := &site{Site: offlinetest.Site{Offline: o, T: t}, t: t, cfg: cfg, members: map[string]*member{}}
	s.nodes = &faulty{Nodes: offline.Nodes{Offline: o}}
	return s
}

func (s *site) tree() Tree { return Tree{Nodes: s.nodes, Root: s.Root()} }

// faulty loses the answer of a commit: it was done, or it was not.
type faulty struct {
	Nodes
	lose    int // this commit from now, counted from 1; 0: none
	done    bool
	commits int
}

func (f *faulty) Commit(ctx context.Context, ops []zk.Op) zk.Result {
	f.commits++
	if f.lose > 0 {
		if f.lose--; f.lose == 0 {
			if f.done {
				f.Nodes.Commit(ctx, ops)
			}
			return zk.Result{Outcome: zk.Unknown, Err: zk.ErrUnavailable, Culprit: -1}
		}
	}
	return f.Nodes.Commit(ctx, ops)
}

// member is a gateway: a registration and a keeper.
type member struct {
	s       *site
	id      string
	ring    layout.Keyring
	keeper  *Keeper
	leases  int  // from before the rotation
	unowned int  // contenders of gateways that are gone
	blind   bool // its replica shows nothing new
}

func (m *member) GatewayID() string { return m.id }

func (m *member) OldLeases(_ context.Context, cut, reached int64, _ locks.OldLeases) (locks.OldLeases, bool) {
	assert.That(m.s.t, cut > 0 && reached > 0, "cut %d, reached %d", cut, reached)
	return locks.OldLeases{N: m.leases, Some: make([]string, min(m.leases, 1)), Unowned: m.unowned}, !m.blind
}

// join registers a gateway, which has read the secret before.
func (s *site) join(id string) *member {
	m := &member{s: s, id: id}
	m.ring.Take(assert.Value(s.tree().Read(offlinetest.Context(s.t)))(s.t))
	s.Put(s.Root()+zk.NodeGateways+"/"+id, `{"address":"`+id+`.example:80","version":"1.0"}`)
	m.restart()
	s.members[id] = m
	return m
}

// restart is a crash: the keeper forgets everything.
func (m *member) restart() {
	m.keeper = NewKeeper(Options{Tree: m.s.tree(), Keyring: &m.ring, Leases: m})
}

func (s *site) leave(id string) {
	s.Apply(zk.Op{Kind: zk.OpDelete, Path: s.Root() + zk.NodeGateways + "/" + id, Version: -1})
	delete(s.members, id)
}

// look lets every gateway look, often enough for what the first can do only when the last has.
func (s *site) look() {
	for range 2 * len(phases) {
		for _, m := range s.members {
			m.keeper.refresh(offlinetest.Context(s.t))
			s.check()
		}
	}
}

// check holds promise 1 against what each gateway knows.
func (s *site) check() {
	s.t.Helper()
	for _, signer := range s.members {
		signs := signer.ring.Load().Keys[0].ID
		for _, other := range s.members {
			assert.Must(s.t, other.ring.Load().Has(signs), "%s signs with %s, which %s does not know", signer.id, signs, other.id)
		}
	}
}

func (s *site) status() Status { return assert.Value(s.tree().Status(offlinetest.Context(s.t)))(s.t) }

func (s *site) begin(dropAfter time.Duration) string {
	s.t.Helper()
	return assert.Value(s.tree().Begin(offlinetest.Context(s.t), "uid:7", dropAfter))(s.t).Rotation.Key
}

func (s *site) phase(want layout.Phase, waits ...string) {
	s.t.Helper()
	st := s.status()
	assert.Must(s.t, st.Rotation != nil && st.Rotation.Phase == want, "%+v is not %s", st.Rotation, want)
	text := fmt.Sprint(st.Rotation.WaitsFor)
	for _, word := range waits {
		assert.That(s.t, strings.Contains(text, word), "it waits for %s, without %q", text, word)
	}
	assert.That(s.t, len(waits) > 0 == (len(st.Rotation.WaitsFor) > 0), "it waits for %s", text)
}

// over demands that the rotation to a key is over, everywhere.
func (s *site) over(key string) {
	s.t.Helper()
	st := s.status()
	assert.Must(s.t, st.Rotation == nil && st.Signing == key && len(st.Accepted) == 0, "%+v %+v", st, st.Rotation)
	for _, m := range s.members {
		have := m.ring.Load()
		assert.That(s.t, len(have.Keys) == 1 && have.Keys[0].ID == key, "%s has %v", m.id, ids(have))
	}
	names, _, err := s.Children(offlinetest.Context(s.t), s.Root()+zk.NodeRotation)
	assert.That(s.t, err == nil && len(names) == 0, "left behind: %v (%v)", names, err)
}

func TestARotationOfAFleet(t *testing.T) {
	s := newSite(t)
	s.join("one").leases = 2
	s.join("two")
	before := s.status()
	assert.That(t, before.Rotation == nil && len(before.Accepted) == 0 && !before.Exposed, "%+v", before)
	key := s.begin(0)
	s.phase(layout.Accepting, "one.example:80 (gateway id one)", "two.example:80", "its release cannot rotate")
	s.look()
	s.phase(layout.Retiring, "one.example:80", "2 leases from before")
	st := s.status()
	assert.That(t, st.Signing == key && len(st.Accepted) == 1 && st.Accepted[0] == before.Signing && st.Rotation.Leases == 2 && st.Rotation.By == "uid:7", "%+v %+v", st, st.Rotation)
	s.members["one"].leases = 0
	s.look()
	s.over(key)
}

func TestTheOldKeyStaysForTheGivenTime(t *testing.T) {
	s := newSite(t)
	one := s.join("one")
	key := s.begin(time.Second)
	s.look()
	s.phase(layout.Dropping)
	at := *s.status().Rotation.DropAt
	testkit.Eventually(t, offlinetest.Limit, func() bool { s.look(); return one.ring.Load().Rotation == nil }, "the drop")
	assert.That(t, !time.Now().Before(at), "it was dropped before %v", at)
	s.look()
	s.over(key)
}

func TestASecondRotationIsRefused(t *testing.T) {
	s := newSite(t)
	s.join("one").leases = 1
	key := s.begin(0)
	for range 2 {
		_, err := s.tree().Begin(offlinetest.Context(t), "uid:8", 0)
		assert.That(t, errors.Is(err, ErrUnderWay), "a second one: %v", err)
		s.look()
	}
	s.members["one"].leases = 0
	s.look()
	s.over(key)
	_, err := s.tree().Drop(offlinetest.Context(t))
	assert.That(t, errors.Is(err, ErrNone), "a drop without a rotation: %v", err)
}

// Of several that begin one at the same time, one does.
func TestOfRotationsAtTheSameTimeOneBegins(t *testing.T) {
	s := newSite(t)
	results := make(chan error)
	const n = 8
	for range n {
		tree := Tree{Nodes: offline.Nodes{Offline: offlinetest.Open(t, s.cfg)}, Root: s.Root()}
		go func() { _, err := tree.Begin(offlinetest.Context(t), "uid:9", 0); results <- err }()
	}
	begun := 0
	for range n {
		if err := <-results; err == nil {
			begun++
		} else {
			assert.That(t, errors.Is(err, ErrUnderWay), "%v", err)
		}
	}
	assert.Equal(t, begun, 1)
	assert.Equal(t, len(assert.Value(s.tree().Read(offlinetest.Context(t)))(t).Keys), 2)
}

// A gateway that is away, or of a release that knows no rotation, says nothing. It holds the rotation up while it is registered.
func TestAGatewayThatIsAwayHoldsARotationUp(t *testing.T) {
	s := newSite(t)
	s.join("one")
	s.join("two")
	away := s.join("away")
	delete(s.members, "away")
	key := s.begin(0)
	s.look()
	s.phase(layout.Accepting, "away.example:80 (gateway id away)")
	s.members["away"] = away
	away.keeper.refresh(offlinetest.Context(t))
	delete(s.members, "away")
	s.look()
	s.phase(layout.Signing, "away.example:80", "signs with the new key")
	s.members["away"] = away // its registration goes
	s.leave("away")
	s.look()
	s.over(key)
}

// A gateway that joins in the middle has read the secret before, and is waited for like the others.
func TestAGatewayMayJoinInTheMiddle(t *testing.T) {
	s := newSite(t)
	s.join("one").leases = 1
	key := s.begin(0)
	s.join("two").leases = 1 // from a gateway that it succeeds
	s.look()
	s.phase(layout.Retiring, "one.example:80", "two.example:80")
	s.members["one"].leases = 0
	s.look()
	s.join("three").blind = true
	s.members["two"].leases = 0
	s.look()
	s.phase(layout.Retiring, "three.example:80")
	s.members["three"].blind = false
	s.look()
	s.over(key)
}

// What a gateway has counted before another one left says nothing about the leases of that one.
func TestLeasesAreCountedAnewAfterATakeover(t *testing.T) {
	s := newSite(t)
	one, two := s.join("one"), s.join("two")
	two.leases = 1
	key := s.begin(0)
	s.look()
	s.phase(layout.Retiring, "two.example:80")
	s.leave("two")
	// The first gateway has said of another fleet that it runs none. A command looks before it counts anew.
	st := assert.Value(s.tree().Advance(offlinetest.Context(t)))(t)
	assert.Must(t, st.Rotation != nil && st.Rotation.Phase == layout.Retiring, "%+v", st.Rotation)
	one.leases = 1
	s.look()
	s.phase(layout.Retiring, "one.example:80")
	one.leases = 0
	s.look()
	s.over(key)
}

func TestLeasesWithoutAnOwnerHoldARotationUp(t *testing.T) {
	s := newSite(t)
	s.join("one").unowned = 1
	key := s.begin(0)
	s.look()
	s.phase(layout.Retiring, "one.example:80", "a gateway that is gone")
	s.members["one"].unowned = 0
	s.look()
	s.over(key)
}

func TestTheOldKeyIsDroppedAtOnceInEachPhase(t *testing.T) {
	for phase, leases := range map[layout.Phase]int{layout.Accepting: 0, layout.Retiring: 1, layout.Dropping: 0} {
		t.Run(string(phase), func(t *testing.T) {
			s := newSite(t)
			s.join("one").leases = leases
			key := s.begin(time.Hour)
			if phase != layout.Accepting {
				s.look()
			}
			assert.Equal(t, s.status().Rotation.Phase, phase)
			assert.Value(s.tree().Drop(offlinetest.Context(t)))(t)
			s.look()
			s.over(key)
		})
	}
}

// Each write of a rotation may be lost, or its answer, with the process that made it.
func TestARotationSurvivesACrashAtEachWrite(t *testing.T) {
	for name, done := range map[string]bool{"the write is lost": false, "its answer is lost": true} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				s := newSite(t)
				s.join("one")
				s.join("two")
				s.nodes.lose, s.nodes.done = n, done
				_, err := s.tree().Begin(offlinetest.Context(t), "uid:7", 0)
				assert.NoError(t, err, "write %d", n) // what is there decides, and it is tried again
				key := s.status().Rotation.NewKey
				for range 3 {
					for _, m := range s.members {
						m.keeper.refresh(offlinetest.Context(t))
						s.check()
						m.restart()
					}
				}
				s.look()
				s.over(key)
				if s.nodes.lose > 0 {
					assert.That(t, n > 8, "a rotation has %d writes only", n)
					return // there are no more
				}
			}
		})
	}
}

// A gateway that tidies up late does not remove what others say of the next rotation; and what another program removes is said again.
func TestWhatGatewaysSayStays(t *testing.T) {
	s := newSite(t)
	s.join("one").leases = 1
	before := assert.Value(s.tree().Read(offlinetest.Context(t)))(t)
	key := s.begin(0)
	s.look()
	s.phase(layout.Retiring, "leases from before")
	assert.That(t, s.tree().tidy(offlinetest.Context(t), before) != nil, "it was removed")
	s.phase(layout.Retiring, "leases from before")
	s.Apply(zk.Op{Kind: zk.OpDelete, Path: s.Root() + zk.NodeRotation + "/one", Version: -1})
	s.phase(layout.Retiring, "it has not counted")
	s.members["one"].leases = 0
	s.look()
	s.over(key)
}

// Without a gateway a command takes the steps, up to the one for which leases are counted.
func TestARotationWithoutGateways(t *testing.T) {
	s := newSite(t)
	key := s.begin(0)
	st := assert.Value(s.tree().Advance(offlinetest.Context(t)))(t)
	assert.That(t, st.Signing == key && st.Rotation.Phase == layout.Retiring && st.Rotation.Gateways == 0, "%+v %+v", st, st.Rotation)
	s.join("one")
	s.look()
	s.over(key)
}
