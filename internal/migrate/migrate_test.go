package migrate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/offlinetest"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/session"
)

// busy is a root with something of everything. outside is a lock root that is not below it.
func busy(t testing.TB, cfg zk.Config) (s *site, outside string) {
	s, outside = newSite(t, cfg), "/kazoo/locks"
	for _, path := range []string{"/kazoo", outside, outside + "/empty"} {
		s.Put(path, "")
	}
	root := s.cfg.Root
	s.Put(root+"/namespaces/python", `{"root":"`+outside+`","dialect":"kazoo","later":[1]}`)
	s.Put(root+"/namespaces/inner", `{"root":"`+root+`/more/deep","dialect":"native"}`)
	s.Put(root+"/more", "")
	s.Put(root+"/more/deep", "")
	s.Put(root+"/keys/0123456789abcdef", `{"v":1,"lease_id":"x","fingerprint":"y"}`)
	s.Put(root+"/settings/default,p", "")
	s.Put(root+"/settings/default,p/limit-5", `{"v":1,"by":"set"}`)
	s.Put(root+"/settings/python,idle", "") // of a free lock
	s.Put(root+"/settings/python,idle/limit-3", `{"v":1,"by":"acquire"}`)
	s.Put(root+"/succession/aaaaaaaaaaaaa", "bbbbbbbbbbbbc")
	s.Put(root+"/webhooks/odd", "\xff\x00 no text")
	s.Put(s.lock("empty"), "")
	one := recipe.Contender{Member: 1, Members: 1}
	for n := range 9 { // interleaved queues
		s.enqueue(one, s.lock([]string{"a", "b", "a", "c"}[n%4]))
	}
	s.enqueue(one, outside+"/x")
	s.enqueue(one, root+"/more/deep/y")
	s.enqueue(one, s.lock("a"), s.lock("b")) // a group of locks
	reader := one
	reader.Mode = recipe.Shared
	s.enqueue(reader, s.lock("r"))
	s.enqueue(reader, s.lock("r"))
	permit := one
	permit.Mode, permit.Permits, permit.Limit = recipe.Permit, 2, 5
	s.enqueue(permit, s.lock("p"))
	all := recipe.Contender{LeaseID: offlinetest.NewLease(t, s.fleet)}
	var ops []zk.Op
	s.Put(s.lock("all"), "")
	naming := assert.Value(recipe.ParseNaming("all"))(t)
	for _, c := range naming.Contenders(all) {
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: s.lock("all") + "/" + c.Prefix(), Sequential: true, Data: []byte(`{}`)})
	}
	s.Apply(ops...)
	return s, outside
}

func TestAMoveKeepsEverythingThatClientsHave(t *testing.T) {
	for name, move := range map[string]struct{ from, to string }{
		"to the same root":    {"/lockkeeper", "/lockkeeper"},
		"to another root":     {"/lockkeeper", "/teams/blue/locks"},
		"from a deeper chain": {"/x/y/z", "/y"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := server(t), server(t)
			from.Root, to.Root, to.Chroot = move.from, move.to, "/apps"
			if parent := move.from[:lastSlash(move.from)]; parent != "" {
				from.CreateRoot = true
			}
			s, outside := busy(t, from)
			before := tree(t, s.Offline, from.Root)
			a, sum, err := Export(offlinetest.Context(t), from, ExportOptions{})
			assert.NoError(t, err)
			want := (Summary{Locks: 8, Held: 9, Waiting: 7, Keys: 1})
			assert.That(t, cmp.Equal(sum, want), "exported %+v, want %+v", sum, want)
			assert.That(t, maps.Equal(before, tree(t, s.Offline, from.Root)), "the export has changed something")
			read := throughFile(t, a)
			diff := cmp.Diff(a, read)
			assert.That(t, diff == "", "the file says (-exported +read):\n%s", diff)
			got := assert.Value(Import(offlinetest.Context(t), to, read, ImportOptions{}))(t)
			assert.That(t, cmp.Equal(got, sum), "imported %+v, exported %+v", got, sum)

			o := offlinetest.Open(t, to)
			after := tree(t, o, to.Root)
			for path, data := range before {
				rest := strings.TrimPrefix(path, from.Root)
				switch {
				case strings.HasPrefix(rest, zk.NodeLocks+"/"), strings.HasPrefix(rest, "/more/deep/"):
					continue // queues, below
				case rest == zk.NodeSecret: // open to all clients without an identity
					marked := assert.Value(layout.MarkSecret([]byte(data), true, true))(t)
					data = string(marked)
				case rest == zk.NodeFenceBase:
					data = fmt.Sprint(a.TokensBelow)
				case rest == zk.NodeNamespaces+"/default":
					data = `{"dialect":"native","root":"` + to.Root + `/locks"}`
				case rest == zk.NodeNamespaces+"/inner":
					data = `{"dialect":"native","root":"` + to.Root + `/more/deep"}`
				case rest == zk.NodeNamespaces+"/python":
					data = `{"dialect":"kazoo","later":[1],"root":"` + outside + `"}`
				}
				have, ok := after[to.Root+rest]
				assert.That(t, ok && have == data, "%s is %q (%v), want %q", rest, have, ok, data)
			}
			for _, lock := range []string{"/locks/a", "/locks/b", "/locks/c", "/locks/r", "/locks/p", "/locks/all", "/more/deep/y"} {
				want, have := queue(t, s.Offline, s.fleet, from.Root+lock), queue(t, o, s.fleet, to.Root+lock)
				assert.That(t, len(want) != 0 && slices.Equal(have, want),
					"the queue of %s is\n%s\nwant\n%s", lock, strings.Join(have, "\n"), strings.Join(want, "\n"))
			}
			if want, have := queue(t, s.Offline, s.fleet, outside+"/x"), queue(t, o, s.fleet, outside+"/x"); len(want) != 1 || !slices.Equal(have, want) {
				t.Errorf("outside there is %v, want %v", have, want)
			}
			_, there := after[to.Root+zk.NodeImport]
			assert.That(t, !there, "the import's node is still there")
			// A gateway starts there.
			to.CreateRoot = false
			layout := assert.Value(layout.Open(offlinetest.Context(t), to))(t)
			assert.That(t, layout.FenceBase == a.TokensBelow && layout.FleetID == string(s.fleet), "the layout is %+v", layout)
			openSession(t, to, layout)
		})
	}
}

func openSession(t testing.TB, cfg zk.Config, layout *layout.Layout) *session.Session {
	t.Helper()
	session := assert.Value(session.Open(offlinetest.Context(t), cfg, layout, "gatewayaaaaaa", []byte(`{"address":"10.1.2.3:8080"}`)))(t)
	t.Cleanup(func() {
		_ = session.Close(offlinetest.Context(t))
		<-session.Done()
	})
	return session
}

// Tokens are the fence base and a czxid. Every move raises the base above all of
// them, also where the next ZooKeeper begins at zxid 1.
func TestEveryTokenAfterAMoveIsAboveEveryTokenBefore(t *testing.T) {
	greatest := int64(0)
	seen := map[string]bool{}
	look := func(s *site) {
		t.Helper()
		layout := assert.Value(layout.Open(offlinetest.Context(t), s.cfg))(t)
		least := int64(0)
		given := greatest
		for path := range tree(t, s.Offline, s.lock("a")) {
			if path == s.lock("a") || seen[path] {
				continue
			}
			seen[path] = true
			stat, err := s.Exists(offlinetest.Context(t), path)
			assert.Must(t, err == nil && stat != nil, "%v %v", stat, err)
			token := layout.FenceBase + stat.Czxid
			if least == 0 || token < least {
				least = token
			}
			given = max(given, token)
		}
		assert.That(t, least > greatest, "a token of %d was given after one of %d", least, greatest)
		greatest = given
	}
	cfg := server(t)
	cfg.Root = zk.DefaultRoot
	s := newSite(t, cfg)
	for range 4 {
		for range 3 {
			s.enqueue(recipe.Contender{Member: 1, Members: 1}, s.lock("a"))
		}
		look(s)
		// One that was given and is gone when the export looks.
		gone := s.enqueue(recipe.Contender{Member: 1, Members: 1}, s.lock("gone"))
		names, _, err := s.Children(offlinetest.Context(t), s.lock("gone"))
		assert.Must(t, err == nil && len(names) == 1 && strings.Contains(names[0], string(gone)), "%v %v", names, err)
		stat := assert.Value(s.Exists(offlinetest.Context(t), s.lock("gone")+"/"+names[0]))(t)
		layout := assert.Value(layout.Open(offlinetest.Context(t), cfg))(t)
		greatest = max(greatest, layout.FenceBase+stat.Czxid)
		s.Apply(zk.Op{Kind: zk.OpDelete, Path: s.lock("gone") + "/" + names[0], Version: -1}, zk.Op{Kind: zk.OpDelete, Path: s.lock("gone"), Version: -1})
		a := export(t, cfg)
		assert.Must(t, a.TokensBelow > greatest, "tokens below %d, and there was one of %d", a.TokensBelow, greatest)
		cfg = server(t)
		cfg.Root = zk.DefaultRoot
		importInto(t, cfg, throughFile(t, a))
		s = &site{Site: offlinetest.Site{Offline: offlinetest.Open(t, cfg), T: t}, cfg: cfg, fleet: s.fleet}
		clear(seen)
		look(s)
	}
}

// A gateway that was killed has its registration until its session expires.
func TestAnExportRefusesWhileAGatewayIsRegistered(t *testing.T) {
	cfg := server(t)
	s := newSite(t, cfg)
	layout, err := layout.Open(offlinetest.Context(t), cfg)
	assert.NoError(t, err)
	session := openSession(t, cfg, layout)
	_, _, err = Export(offlinetest.Context(t), cfg, ExportOptions{})
	offlinetest.WantKind(t, err, KindInUse, "10.1.2.3:8080", session.ID(), "stop every gateway")
	assert.NoError(t, session.Close(offlinetest.Context(t)))
	_, _, err = Export(offlinetest.Context(t), cfg, ExportOptions{})
	assert.Nil(t, err)
	_ = s
}

func TestAnExportNoticesAGatewayThatCameAndWentMeanwhile(t *testing.T) {
	cfg := server(t)
	cfg.Root = zk.DefaultRoot
	s := newSite(t, cfg)
	s.enqueue(recipe.Contender{Member: 1, Members: 1}, s.lock("a"))
	layout, err := layout.Open(offlinetest.Context(t), cfg)
	assert.NoError(t, err)
	came := false
	_, _, err = Export(offlinetest.Context(t), cfg, ExportOptions{Progress: func(what string, done, total int) {
		if what == "reading leases" && !came { // there is one
			came = true
			assert.Nil(t, openSession(t, cfg, layout).Close(offlinetest.Context(t)))
		}
	}})
	offlinetest.WantKind(t, err, KindInUse, "was started while")
	assert.That(t, came, "no lease was read")
}

func TestWhatCannotBeMovedIsListedAndRefused(t *testing.T) {
	cfg := server(t)
	cfg.Root = zk.DefaultRoot
	s := newSite(t, cfg)
	s.enqueue(recipe.Contender{Member: 1, Members: 1}, s.lock("a"))
	ephemeral := s.enqueue(recipe.Contender{Member: 1, Members: 1, Ephemeral: true}, s.lock("a"))
	_, sum, err := Export(offlinetest.Context(t), cfg, ExportOptions{})
	assert.That(t, err == nil && len(sum.Ephemeral) == 1 && strings.Contains(sum.Ephemeral[0], string(ephemeral)),
		"%v, left: %v", err, sum.Ephemeral)
	s.Put(s.lock("a")+"/_c_0123-lock-0000000099", "")
	s.Put(s.lock("a")+"/stray", "")
	_, _, err = Export(offlinetest.Context(t), cfg, ExportOptions{})
	offlinetest.WantKind(t, err, KindForeign, s.lock("a")+"/_c_0123-lock-0000000099", s.lock("a")+"/stray", "--leave-foreign")
	a, sum, err := Export(offlinetest.Context(t), cfg, ExportOptions{LeaveForeign: true})
	assert.That(t, err == nil && len(sum.Foreign) == 2 && len(a.Contenders) == 1 && sum.Held == 1, "%v, %+v", err, sum)
	s.Put(s.lock("a")+"/write-v9."+string(offlinetest.NewLease(t, s.fleet))+"-lock-0000000100", "")
	_, _, err = Export(offlinetest.Context(t), cfg, ExportOptions{LeaveForeign: true})
	offlinetest.WantKind(t, err, KindNotMovable, "later release")
}

func TestThereIsNothingToExportWhereNoLockkeeperIs(t *testing.T) {
	cfg := server(t)
	_, _, err := Export(offlinetest.Context(t), cfg, ExportOptions{})
	offlinetest.WantKind(t, err, KindNoRoot, "--root")
}

func TestTheSecretStaysTheFleets(t *testing.T) {
	from, to := server(t), server(t)
	from.Auth, to.Auth = &zk.DigestAuth{User: "fleet", Password: "one"}, &zk.DigestAuth{User: "fleet", Password: "two"}
	newSite(t, from)
	importInto(t, to, export(t, from))
	for _, cfg := range []zk.Config{from, to} {
		cfg.Auth = nil
		_, _, err := Export(offlinetest.Context(t), cfg, ExportOptions{})
		var fatal *zk.FatalError
		assert.That(t, errors.As(err, &fatal) && fatal.Kind == zk.KindAuth && fatal.Hint != "", "a stranger's export: %v", err)
		_, _, err = offlinetest.Open(t, cfg).Get(offlinetest.Context(t), zk.DefaultRoot+zk.NodeSecret)
		assert.That(t, errors.Is(err, zk.ErrNoAuth), "a stranger reads the secret: %v", err)
	}
}

// The node that an import makes has never been open. The keys in it may have been.
func TestAnImportedSecretIsAsExposedAsTheExportedOneWas(t *testing.T) {
	identity := &zk.DigestAuth{User: "fleet", Password: "one"}
	open := func(t *testing.T, cfg zk.Config) *layout.Layout {
		t.Helper()
		layout := assert.Value(layout.Open(offlinetest.Context(t), cfg))(t)
		return layout
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, from *zk.Config)
		change  func(a *Archive)
		exposed bool
	}{
		"always private": {exposed: false},
		"open":           {prepare: func(_ *testing.T, from *zk.Config) { from.Auth = nil }, exposed: true},
		"closed later": {prepare: func(t *testing.T, from *zk.Config) {
			without := *from
			without.Auth = nil
			open(t, without)
			open(t, *from)
		}, exposed: true},
		"of a release that did not say": {change: func(a *Archive) {
			for i := range a.Nodes {
				if a.Nodes[i].Path == zk.NodeSecret {
					a.Nodes[i].Data = []byte(strings.Replace(string(a.Nodes[i].Data), `"exposed":false,`, "", 1))
				}
			}
		}, exposed: true},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := server(t), server(t)
			from.Auth, to.Auth = identity, identity
			if c.prepare != nil {
				c.prepare(t, &from)
			}
			newSite(t, from)
			a := export(t, from)
			if c.change != nil {
				c.change(a)
			}
			importInto(t, to, a)
			assert.Equal(t, open(t, to).Secret.Exposed, c.exposed, "the imported secret is exposed")
			again := server(t)
			again.Auth = identity
			importInto(t, again, export(t, to))
			assert.Equal(t, open(t, again).Secret.Exposed, c.exposed, "after a second move")
		})
	}
}

// A record of an API token lets a client in, so only those move that the fleet has made, and only to where no other client makes more.
func TestAPITokensMoveOnlyWhereTheFleetAloneWritesThem(t *testing.T) {
	fleet := &zk.DigestAuth{User: "fleet", Password: "sesame"}
	other := &zk.DigestAuth{User: "other", Password: "sesame"}
	tokens := zk.NodeTokens + "/"
	from := server(t)
	open := newSite(t, from) // without an identity
	open.Put(zk.DefaultRoot+tokens+"planted", "evil")
	_, sum, err := Export(offlinetest.Context(t), from, ExportOptions{})
	assert.That(t, err == nil && sum.Tokens == 0 && sum.TokensLeft == 1, "an open root: %+v, %v", sum, err)
	// With an identity before a gateway has closed the root: nothing tells the records from the fleet's own.
	from.Auth = fleet
	_, sum, err = Export(offlinetest.Context(t), from, ExportOptions{})
	assert.That(t, err == nil && sum.Tokens == 0 && sum.TokensLeft == 1, "an open root, with an identity: %+v, %v", sum, err)

	s := newSite(t, from)
	s.Put(zk.DefaultRoot+tokens+"made", "ours")
	a, sum, err := Export(offlinetest.Context(t), from, ExportOptions{})
	assert.That(t, err == nil && sum.Tokens == 1 && sum.TokensLeft == 0, "the fleet's own: %+v, %v", sum, err)
	a = throughFile(t, a)
	for name, to := range map[string]*zk.DigestAuth{"the same identity": fleet, "another identity": other, "none": nil} {
		target := server(t)
		target.Auth = to
		sum, err := Import(offlinetest.Context(t), target, a, ImportOptions{})
		assert.Must(t, err == nil, "%s: %v", name, err)
		after := tree(t, offlinetest.Open(t, target), zk.DefaultRoot)
		_, moved := after[zk.DefaultRoot+tokens+"made"]
		assert.That(t, moved == (to != nil) && sum.Tokens+sum.TokensLeft == 1 && (sum.Tokens == 1) == moved, "%s: moved %v, %+v", name, moved, sum)
		if to == nil {
			continue
		}
		stranger := target
		stranger.Auth = nil
		_, _, err = offlinetest.Open(t, stranger).Get(offlinetest.Context(t), zk.DefaultRoot+tokens+"made")
		assert.That(t, errors.Is(err, zk.ErrNoAuth), "%s: a stranger reads the record: %v", name, err)
		// A gateway that starts there keeps it.
		assert.Value(layout.Open(offlinetest.Context(t), target))(t)
		after = tree(t, offlinetest.Open(t, target), zk.DefaultRoot)
		assert.That(t, after[zk.DefaultRoot+tokens+"made"] == "ours", "%s: gone after a start", name)
	}
}
