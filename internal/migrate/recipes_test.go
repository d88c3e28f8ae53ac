package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/offlinetest"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// standing is a lock's contenders in their order, with their nodes.
type standing struct {
	recipe.Contender
	data  string
	czxid int64
}

func (s *site) standing(lock string) (all []standing) {
	s.T.Helper()
	names, _, err := s.Children(offlinetest.Context(s.T), s.lock(lock))
	assert.NoError(s.T, err)
	for _, name := range names {
		c, ok := recipe.Parse(s.fleet, name)
		data, stat, err := s.Get(offlinetest.Context(s.T), s.lock(lock)+"/"+name)
		assert.Must(s.T, ok && err == nil, "%v %v", name, err)
		all = append(all, standing{c, string(data), stat.Czxid})
	}
	slices.SortFunc(all, func(a, b standing) int { return recipe.Compare(a.Number, a.Name, b.Number, b.Name) })
	return all
}

// token is the fencing token of a contender, as a gateway of this root counts.
func (c standing) token(base int64) int64 { return base + cmp.Or(c.FirstCzxid, c.czxid) }

// downgrade replaces a contender as a gateway does.
func (s *site) downgrade(lock string, c standing) {
	s.T.Helper()
	r := c.Contender
	r.Mode, r.FirstCzxid = recipe.Shared, cmp.Or(c.FirstCzxid, c.czxid)
	s.Apply(
		zk.Op{Kind: zk.OpCreate, Path: s.lock(lock) + "/" + r.Format(), Data: []byte(c.data)},
		zk.Op{Kind: zk.OpDelete, Path: s.lock(lock) + "/" + c.Name, Version: -1})
}

// move exports the site and imports it on a ZooKeeper of its own.
func (s *site) move() *site {
	s.T.Helper()
	cfg := server(s.T)
	cfg.Root = s.cfg.Root
	importInto(s.T, cfg, throughFile(s.T, export(s.T, s.cfg)))
	return &site{Site: offlinetest.Site{Offline: offlinetest.Open(s.T, cfg), T: s.T}, cfg: cfg, fleet: s.fleet}
}

func (s *site) base() int64 {
	s.T.Helper()
	layout := assert.Value(layout.Open(offlinetest.Context(s.T), s.cfg))(s.T)
	return layout.FenceBase
}

func oneSite(t testing.TB) *site {
	cfg := server(t)
	cfg.Root = zk.DefaultRoot
	return newSite(t, cfg)
}

// A downgraded contender's name keeps the czxid that it got first, which is another ZooKeeper's after a move. Kept
// there, it would make a token above those that are given later.
func TestTheTokenOfADowngradedLeaseStaysBelowThoseThatAreGivenAfterAMove(t *testing.T) {
	s := oneSite(t)
	for n := range 300 { // an old ZooKeeper, with high zxids
		s.Put(fmt.Sprint(s.cfg.Root, "/keys/", n), "")
	}
	for n := range 300 {
		s.Apply(zk.Op{Kind: zk.OpDelete, Path: fmt.Sprint(s.cfg.Root, "/keys/", n), Version: -1})
	}
	s.enqueue(recipe.Contender{}, s.lock("a"))
	reader := recipe.Contender{Mode: recipe.Shared}
	s.enqueue(reader, s.lock("a"))
	s.downgrade("a", s.standing("a")[0])
	s.enqueue(reader, s.lock("a"))
	before := s.standing("a")
	assert.Must(t, len(before) == 3 && before[0].FirstCzxid != 0, "%+v", before)
	greatest := int64(0)
	for _, c := range before {
		greatest = max(greatest, c.token(s.base()))
	}
	for range 2 { // and once more, from a young ZooKeeper
		s = s.move()
		s.enqueue(reader, s.lock("a"))
		after := s.standing("a")
		for i, c := range after {
			if i < len(before) && (c.LeaseID != before[i].LeaseID || c.Mode != before[i].Mode || c.data != before[i].data) {
				t.Errorf("place %d was %+v and is %+v", i, before[i], c)
			}
			assert.Must(t, c.FirstCzxid != 0 || c.czxid < before[0].FirstCzxid || before[0].FirstCzxid <= 0,
				"%q has the czxid %d: there is nothing to see here", c.Name, c.czxid)
			if token := c.token(s.base()); token <= greatest {
				t.Errorf("%q has the token %d, and there was one of %d before", c.Name, token, greatest)
			} else {
				greatest = token
			}
		}
		s.downgradeFirst("b", &greatest)
		before = after
	}
}

// downgradeFirst gives a token after the move, by a downgrade there.
func (s *site) downgradeFirst(lock string, greatest *int64) {
	s.T.Helper()
	s.enqueue(recipe.Contender{}, s.lock(lock))
	all := s.standing(lock)
	last := all[len(all)-1]
	s.downgrade(lock, last)
	if token := last.token(s.base()); token <= *greatest {
		s.T.Errorf("a later lease has the token %d after one of %d", token, *greatest)
	} else {
		*greatest = token
	}
}

// Groups of locks: one transaction, one czxid, one order in every queue, also for those
// that have been downgraded since.
func TestALeaseOverSeveralLocksIsMadeInOneTransactionAgain(t *testing.T) {
	s := oneSite(t)
	single := recipe.Contender{}
	var groups []recipe.LeaseID
	for n := range 6 {
		s.enqueue(single, s.lock("a"))
		names := []string{s.lock("c"), s.lock("a"), s.lock("b")}
		if n%2 == 0 { // in either order of the names
			slices.Reverse(names)
		}
		groups = append(groups, s.enqueue(recipe.Contender{}, names...))
		s.enqueue(single, s.lock("c"))
	}
	for _, lock := range []string{"a", "b", "c"} {
		for _, c := range s.standing(lock) {
			if c.LeaseID == groups[0] {
				s.downgrade(lock, c)
			}
		}
	}
	to := s.move()
	czxids := map[recipe.LeaseID]int64{}
	owners := map[int64]recipe.LeaseID{}
	for _, lock := range []string{"a", "b", "c"} {
		was, is := s.standing(lock), to.standing(lock)
		assert.Must(t, len(was) == len(is), "%s has %d contenders, and had %d", lock, len(is), len(was))
		for i := range is {
			a, b := was[i], is[i]
			if a.LeaseID != b.LeaseID || a.Mode != b.Mode || a.Group != b.Group || a.Groups != b.Groups || a.data != b.data || b.FirstCzxid != 0 {
				t.Errorf("place %d of %s was %q and is %q", i, lock, a.Name, b.Name)
			}
			if slices.Contains(groups, b.LeaseID) {
				first, known := czxids[b.LeaseID]
				assert.That(t, !known || first == b.czxid, "%s is made in transactions %d and %d", b.LeaseID, first, b.czxid)
				czxids[b.LeaseID] = b.czxid
				assert.That(t, b.Groups == 3, "%q is one of 3", b.Name)
			}
		}
		for i := 1; i < len(is); i++ {
			assert.That(t, is[i].czxid > is[i-1].czxid, "%q of %s is as old as the one before it", is[i].Name, lock)
		}
	}
	for id, czxid := range czxids {
		other, twice := owners[czxid]
		assert.That(t, !twice, "%s and %s share a token", id, other)
		owners[czxid] = id
	}
	assert.That(t, len(czxids) == len(groups), "%d groups, want %d", len(czxids), len(groups))
}

// What a successor must know stands in the data: that a lease is over and its lock delay
// runs, which holds it has and which it had, who asked it to let go.
func TestWhatARecordSaysIsCarriedAsItIs(t *testing.T) {
	s := oneSite(t)
	var want []string
	for n, data := range []string{
		`{"v":1,"ttl_ms":30000,"enqueued_ms":5,"closed":{"reason":"expired","at_ms":1800000000000},"lock_delay_ms":60000,"lock_delay_on":"always"}`,
		`{"v":1,"ttl_ms":86400000,"enqueued_ms":6,"holds":["outer","inner <&>"],"released":["one"]}`,
		`{"v":1,"ttl_ms":1000,"enqueued_ms":7,"revoke":{"reason":"maintenance","force_after_ms":5000}}`,
		`{"v":2,"ttl_ms":1000,"later":[1,{}],  "spaces" : 1}`,
		"__REVOKE__", "", "\xff\x00",
	} {
		id := offlinetest.NewLease(t, s.fleet)
		c := recipe.Contender{LeaseID: id}
		if n == 0 {
			s.Put(s.lock("a"), "")
		}
		s.Apply(zk.Op{Kind: zk.OpCreate, Path: s.lock("a") + "/" + c.Prefix(), Sequential: true, Data: []byte(data)})
		want = append(want, string(id)+" "+data)
	}
	var got []string
	for _, c := range s.move().standing("a") {
		got = append(got, string(c.LeaseID)+" "+c.data)
	}
	assert.That(t, slices.Equal(got, want), "the data are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

func TestALeaseOverSeveralLocksCountsAsHeldWhenItHasAllOfThem(t *testing.T) {
	s := oneSite(t)
	one := recipe.Contender{}
	s.enqueue(one, s.lock("a"), s.lock("b")) // holds both
	s.enqueue(one, s.lock("b"), s.lock("c")) // waits for b
	torn := s.enqueue(one, s.lock("d"), s.lock("e"))
	s.Apply(zk.Op{Kind: zk.OpDelete, Path: s.lock("e") + "/" + s.standing("e")[0].Name, Version: -1})
	_, sum, err := Export(offlinetest.Context(t), s.cfg, ExportOptions{})
	assert.That(t, err == nil && sum.Held == 1 && sum.Waiting == 2 && sum.Locks == 4,
		"%+v, %v; the lease %s has lost one of two", sum, err, torn)
}

func TestALeaseOverSeveralLocksThatWasNotMadeAtOnceIsNotMoved(t *testing.T) {
	s := oneSite(t)
	id := offlinetest.NewLease(t, s.fleet)
	for k, lock := range []string{"a", "b"} {
		s.enqueue(recipe.Contender{LeaseID: id, Group: uint8(k + 1), Groups: 2}, s.lock(lock))
	}
	_, _, err := Export(offlinetest.Context(t), s.cfg, ExportOptions{})
	offlinetest.WantKind(t, err, KindNotMovable, string(id), "one transaction", "by hand")
}

// A lease over as many locks as there can be has to fit into one transaction there, too.
func TestALeaseOverManyLocksIsMovedOrRefusedAsAWhole(t *testing.T) {
	for _, test := range []struct {
		data int
		fits bool
	}{{2 << 10, true}, {4 << 10, false}} {
		a := small(t)
		a.Contenders = nil
		id := offlinetest.NewLease(t, testFleet)
		for n := range recipe.MaxGroup {
			lock := fmt.Sprintf("%03d%s", n, strings.Repeat("x", 197))
			c := made(t, lock, recipe.Contender{LeaseID: id, Group: uint8(n + 1), Groups: recipe.MaxGroup}, 10)
			c.Data = []byte(strings.Repeat("d", test.data))
			a.Contenders = append(a.Contenders, c)
		}
		cfg := server(t)
		sum, err := Import(offlinetest.Context(t), cfg, a, ImportOptions{})
		if test.fits {
			assert.That(t, err == nil && sum.Held == 1 && sum.Locks == recipe.MaxGroup, "%+v, %v", sum, err)
			continue
		}
		offlinetest.WantKind(t, err, KindNotMovable, "bytes", "metadata")
		names := tree(t, offlinetest.Open(t, cfg), zk.DefaultRoot)
		assert.That(t, len(names) == 0, "written: %v", names)
	}
}

// Leases with configured names are this fleet's like all others, and keep those names and their modes.
func TestLeasesWithHomeMadeNamesAreMoved(t *testing.T) {
	t.Parallel()
	from, to := server(t), server(t)
	from.Root, to.Root = "/lockkeeper", "/lockkeeper"
	s := newSite(t, from)
	const record = `{"root":"/hosts","dialect":"custom exclusive={id}-W- shared={id}-R- foreign-shared=-R-$"}`
	naming := assert.Value(recipe.ParseNaming("custom exclusive={id}-W- shared={id}-R-"))(t)
	s.Put(s.cfg.Root+"/namespaces/hosts", record)
	s.Put("/hosts", "")
	s.Put("/hosts/x", "")
	var want []string
	for _, c := range []recipe.Contender{{Mode: recipe.Shared, FirstCzxid: 1}, {Mode: recipe.Exclusive}} {
		c.LeaseID = offlinetest.NewLease(t, s.fleet)
		c = naming.Contenders(c)[0]
		s.Apply(zk.Op{Kind: zk.OpCreate, Path: "/hosts/x/" + naming.Prefix(&c), Sequential: true, Data: []byte(`{}`)})
		c.FirstCzxid = 0 // another ZooKeeper's
		want = append(want, naming.Prefix(&c))
	}
	a, sum, err := Export(offlinetest.Context(t), from, ExportOptions{})
	assert.Must(t, err == nil && sum.Held == 1 && sum.Waiting == 1, "%+v, %v", sum, err)
	assert.Value(Import(offlinetest.Context(t), to, throughFile(t, a), ImportOptions{}))(t)
	names, _, err := offlinetest.Open(t, to).Children(offlinetest.Context(t), "/hosts/x")
	assert.Must(t, err == nil && len(names) == 2, "%q, %v", names, err)
	for i, prefix := range want {
		all := strings.Join(names, " ")
		assert.That(t, strings.Contains(all, prefix+"000000000"+string(rune('0'+i))), "%s lacks %s as the number %d", all, prefix, i)
	}
}
