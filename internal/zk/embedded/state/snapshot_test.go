package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

// taking is a snapshot that is being taken of a rig's state.
type taking struct {
	*Snapshot
	pieces [][]byte
	want   string // what the state was when it was begun
}

func begin(s *State) *taking {
	want := dump(s)
	return &taking{s.BeginSnapshot(), nil, want}
}

// next takes one more piece and tells whether it was the last.
func (p *taking) next(limit int) bool {
	piece, last := p.Next([]byte("before"), limit)
	p.pieces = append(p.pieces, piece[len("before"):])
	return last
}

// take takes a whole snapshot.
func take(s *State, limit int) *taking {
	p := &taking{Snapshot: s.BeginSnapshot()}
	for !p.next(limit) {
	}
	return p
}

func restore(pieces [][]byte) (*State, error) {
	r := NewRestorer(Config{})
	for _, piece := range pieces {
		piece = append([]byte{}, piece...)
		if err := r.Add(piece); err != nil {
			return nil, err
		}
		for i := range piece {
			piece[i] = 0xee // it must not be kept
		}
	}
	return r.State()
}

// restoredT restores the snapshot, which must be the state as it was.
func (p *taking) restoredT(t testing.TB) *State {
	t.Helper()
	s := assert.Value(restore(p.pieces))(t)
	diff := cmp.Diff(p.want, dump(s))
	assert.Must(t, diff == "", "-was +restored\n%s", diff)
	check(t, s)
	return s
}

// catchUp applies what has come since the snapshot.
func catchUp(t testing.TB, s *State, txns []*Txn) {
	t.Helper()
	for _, txn := range txns[s.LastZxid():] {
		assert.NoError(t, s.Apply(txn))
	}
}

// takeOver puts the restored state in the place of the one that lived on. Clients and their watches move.
func (r *rig) takeOver(s *State) {
	acls := s.watches.acls
	s.watches = r.s.watches
	s.watches.acls = acls
	r.s = s
}

// snapshots takes snapshots at random moments and in pieces of random lengths between requests. Each must be restored exactly,
// and must become what has lived on when the later transactions are applied; then it takes its place.
type snapshots struct {
	t       testing.TB
	random  *rand.Rand
	under   *taking
	done    int
	longest int // pieces of one
}

func (sn *snapshots) between(r *rig) {
	switch {
	case sn.under == nil:
		if sn.random.IntN(10) == 0 {
			sn.under = begin(r.s)
		}
	case sn.random.IntN(3) == 0:
	case sn.under.next(sn.random.IntN(40)):
		p := sn.under
		sn.under = nil
		sn.done++
		sn.longest = max(sn.longest, len(p.pieces))
		again := p.restoredT(sn.t)
		catchUp(sn.t, again, r.txns)
		diff := cmp.Diff(dump(r.s), dump(again))
		assert.Must(sn.t, diff == "", "-lived +restored and replayed\n%s", diff)
		r.takeOver(again)
	}
}

func TestASnapshotIsTheStateAsItWasWhenItWasBegun(t *testing.T) {
	taken := 0
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			sn := &snapshots{t: t, random: rand.New(rand.NewPCG(seed, 2))}
			undisturbed := wander(t, seed, 500)
			disturbed := wander(t, seed, 500, sn.between)
			diff := cmp.Diff(undisturbed.said.String(), disturbed.said.String())
			assert.Equal(t, diff, "", "replies and events: -without snapshots +from one restored state to the next")
			diff = cmp.Diff(dump(undisturbed.s), dump(disturbed.s))
			assert.Equal(t, diff, "", "-without snapshots +from one restored state to the next")
			taken += sn.done
		})
	}
	assert.Must(t, t.Failed() || taken >= 250, "only %d snapshots", taken)
}

// roam is wander in a forest: many nodes, deep down, that come and go in multis of which many fail.
func roam(t testing.TB, seed uint64, steps int, between func(*rig)) *rig {
	r := newRig(t)
	random := rand.New(rand.NewPCG(seed, 3))
	pick := random.IntN
	clients := []*client{r.client(100), r.client(101), r.client(102)}
	path := func() string {
		var b strings.Builder
		for range 1 + pick(5) {
			fmt.Fprintf(&b, "/%c", 'a'+pick(4))
		}
		return b.String()
	}
	lists := [][]wire.ACL{everyone, everyone, {{Perms: wire.PermAll, Scheme: "ip", ID: "127.0.0.1"}}, {{Perms: wire.PermAll &^ wire.PermAdmin, Scheme: "world", ID: "anyone"}}}
	for step := range steps {
		between(r)
		i := pick(len(clients))
		c := clients[i]
		if pick(200) == 0 {
			r.log(r.s.CloseSession(r.now, c.conn.Session))
			r.s.Detach(c.conn)
			clients[i] = r.client(c.conn.Session + 100)
			continue
		}
		if pick(20) == 0 {
			c.do(wire.OpSetACL, &wire.SetACLRequest{Path: path(), ACL: lists[pick(len(lists))], Version: -1})
			continue
		}
		var ops []wire.MultiOp
		for range 1 + pick(3) {
			switch path := path(); {
			case r.s.tree.find(path) == nil:
				ops = append(ops, wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: path, Data: fmt.Append(nil, step),
					ACL: lists[pick(len(lists))], Flags: int32([]int{0, 0, 0, 0, 1, 4}[pick(6)])}})
			case pick(2) == 0:
				ops = append(ops, wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: path, Version: -1}})
			default:
				ops = append(ops, wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: path, Data: fmt.Append(nil, step), Version: -1}})
			}
		}
		c.do(wire.OpMulti, multi(ops...))
	}
	return r
}

func TestASnapshotOfADeepTreeMissesNothing(t *testing.T) {
	nodes, taken, pieces := 0, 0, 0
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			sn := &snapshots{t: t, random: rand.New(rand.NewPCG(seed, 4))}
			r := roam(t, seed, 5000, sn.between)
			check(t, r.s)
			nodes, taken, pieces = max(nodes, r.s.tree.nodes), taken+sn.done, max(pieces, sn.longest)
		})
	}
	assert.Must(t, t.Failed() || nodes >= 50 && taken >= 100 && pieces >= 50,
		"%d nodes, %d snapshots, %d pieces: the walks do nothing", nodes, taken, pieces)
}

func TestASessionsNodesKeepTheirOrder(t *testing.T) {
	r := newRig(t)
	c := r.client(1)
	const dirs, each = 8, 40
	for d := range dirs {
		c.create(fmt.Sprint("/", d), 0)
	}
	// In one transaction, so that no zxid tells the order, and in many directories, so that no counter of siblings does.
	var paths []string
	var ops []wire.MultiOp
	for i := range each {
		for d := range dirs {
			paths = append(paths, fmt.Sprintf("/%d/n%d", (d*5+i)%dirs, i))
			ops = append(ops, wire.MultiOp{Op: wire.OpCreate, Record: creation(paths[len(paths)-1], wire.FlagEphemeral)})
		}
	}
	c.must(wire.OpMulti, multi(ops...))
	p := begin(r.s)
	random := rand.New(rand.NewPCG(1, 1))
	random.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	for i := 0; !p.next(1); i++ {
		if i < len(paths)-40 {
			c.delete(paths[i]) // of a list that has lost most of its nodes the rest is moved together
		}
	}
	again := p.restoredT(t)
	c.delete(paths[len(paths)-1])
	roster := &r.s.owners.sessions[1].ephemerals
	assert.That(t, roster.gone <= 0, "%d places are empty after the snapshot", roster.gone)
	catchUp(t, again, r.txns)
	lived, restored := r.s.CloseSession(r.now, 1), again.CloseSession(r.now, 1)
	diff := cmp.Diff(lived, restored)
	assert.That(t, diff == "" && len(lived.Ops) >= 39, "%d nodes went: -lived +restored\n%s", len(lived.Ops), diff)
}

// largeT is a state with so many nodes in one directory that they are kept in a map, and its snapshot in many pieces.
func largeT(t testing.TB) (*rig, *taking) {
	t.Helper()
	r := newRig(t)
	c := r.client(1)
	r.client(2)
	c.login("user")
	c.create("/d", 0)
	for i := range 30 {
		c.must(wire.OpCreate, &wire.CreateRequest{Path: fmt.Sprint("/d/", i), Data: make([]byte, i), ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}, Flags: int32(i % 2)})
	}
	c.create("/d/0/below", wire.FlagContainer)
	p := begin(r.s)
	for !p.next(200) {
	}
	return r, p
}

func TestASnapshotIsRefusedThatIsNotWhole(t *testing.T) {
	_, p := largeT(t)
	p.restoredT(t)
	assert.Must(t, len(p.pieces) >= 5, "only %d pieces", len(p.pieces))
	refused := func(what string, pieces [][]byte) {
		t.Helper()
		_, err := restore(pieces)
		assert.That(t, err != nil, "%s: restored", what)
	}
	for i, piece := range p.pieces {
		refused(fmt.Sprintf("without piece %d", i), slices.Delete(slices.Clone(p.pieces), i, i+1))
		refused(fmt.Sprintf("piece %d twice", i), slices.Insert(slices.Clone(p.pieces), i, piece))
		if i > 0 {
			swapped := slices.Clone(p.pieces)
			swapped[i-1], swapped[i] = piece, p.pieces[i-1]
			refused(fmt.Sprintf("pieces %d and %d swapped", i-1, i), swapped)
		}
		for n := range piece {
			cut := slices.Clone(p.pieces)
			cut[i] = piece[:n]
			refused(fmt.Sprintf("%d bytes of piece %d", n, i), cut)
		}
		longer := slices.Clone(p.pieces)
		longer[i] = append(slices.Clone(piece), 0)
		refused(fmt.Sprintf("a byte behind piece %d", i), longer)
	}
	refused("a piece after the last", append(slices.Clone(p.pieces), p.pieces[1]))
	refused("nothing", nil)
	newer := slices.Clone(p.pieces)
	newer[0] = slices.Clone(newer[0])
	newer[0][len(snapshotMagic)]++
	_, err := restore(newer)
	assert.That(t, err != nil && strings.Contains(err.Error(), "version 2"), "a version of the future: %v", err)
	r := NewRestorer(Config{})
	_ = r.Add(nil)
	assert.That(t, r.Add(p.pieces[0]) != nil, "went on after an error")
}

func TestRecordsThatDoNotFitAreRefused(t *testing.T) {
	whole := func(change func(s *State)) [][]byte {
		r := newRig(t)
		c := r.client(5)
		c.create("/a", 0)
		c.create("/e", wire.FlagEphemeral)
		c.create("/f", wire.FlagEphemeral)
		change(r.s)
		piece, _ := r.s.BeginSnapshot().Next(nil, 1<<20)
		return [][]byte{piece}
	}
	assert.Value(restore(whole(func(*State) {})))(t)
	for name, c := range map[string]struct {
		change func(s *State)
		says   string
	}{
		"a session is missing":         {func(s *State) { delete(s.owners.sessions, 5) }, "session 0x5"},
		"two nodes in one place":       {func(s *State) { s.tree.find("/e").setSlot(1) }, "two in one place"},
		"the count of nodes is wrong":  {func(s *State) { s.tree.nodes++ }, "nodes"},
		"the count of bytes is wrong":  {func(s *State) { s.tree.dataSize-- }, "bytes"},
		"a name is empty":              {func(s *State) { s.tree.find("/a").set("", nil) }, "is no path"},
		"two nodes have the same path": {func(s *State) { s.tree.find("/a").set("e", nil) }, "comes twice"},
		"a zxid below zero":            {func(s *State) { s.zxid = -1 }, "not a record"},
	} {
		_, err := restore(whole(c.change))
		assert.That(t, err != nil && strings.Contains(err.Error(), c.says), "%s: %v", name, err)
	}
}

func TestAPieceIsAboutAsLongAsAskedFor(t *testing.T) {
	r := newRig(t)
	c := r.client(1)
	c.create("/d", 0)
	for i := range 2000 {
		c.must(wire.OpCreate, &wire.CreateRequest{Path: fmt.Sprint("/d/", i), Data: make([]byte, 100), ACL: everyone})
	}
	p := begin(r.s)
	for i := 0; !p.next(4000); i++ {
		for j := range 100 { // more than fits into a piece
			if path := fmt.Sprint("/d/", 100*i+j); i < 20 {
				c.delete(path)
			}
		}
	}
	for i, piece := range p.pieces {
		assert.That(t, len(piece) <= 5000, "piece %d has %d bytes", i, len(piece))
	}
	p.restoredT(t)
}

func TestThereIsOneSnapshotAtATime(t *testing.T) {
	panics := func(f func()) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		f()
		return false
	}
	s := New(Config{})
	p := s.BeginSnapshot()
	assert.That(t, panics(func() { s.BeginSnapshot() }), "a second one was begun")
	for last := false; !last; {
		_, last = p.Next(nil, 1)
	}
	assert.That(t, panics(func() { p.Next(nil, 1) }), "a snapshot went on that was over")
}

func TestTheNewestSessionIdIsKeptWhenItsSessionIsOver(t *testing.T) {
	r := newRig(t)
	const mine, others = 1<<56 | 7, -2<<56 | 9
	r.client(mine)
	r.client(others)
	r.log(r.s.CloseSession(1, mine))
	r.client(mine - 1)
	p := begin(r.s)
	for !p.next(1) {
	}
	s := p.restoredT(t)
	assert.Equal(t, s.NewestSession(1), mine, "newest")
	assert.Equal(t, s.NewestSession(0xfe), others, "newest of another number")
	assert.Equal(t, s.NewestSession(2), 0, "newest of none")
}
