package state

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/zk/wire"
)

const bobsDigest = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM=" // bob:pw

func TestEachOperationNeedsItsPermission(t *testing.T) {
	for _, test := range []struct {
		op    wire.Op
		body  wire.Record
		needs int32 // one of these, on /a
	}{
		{wire.OpCreate, creation("/a/x", 0), wire.PermCreate},
		{wire.OpDelete, &wire.VersionRequest{Path: "/a/b", Version: -1}, wire.PermDelete},
		{wire.OpSetData, &wire.SetDataRequest{Path: "/a", Version: -1}, wire.PermWrite},
		{wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: everyone, Version: -1}, wire.PermAdmin},
		{wire.OpCheck, &wire.VersionRequest{Path: "/a", Version: -1}, wire.PermRead},
		{wire.OpGetData, &wire.ReadRequest{Path: "/a"}, wire.PermRead},
		{wire.OpGetChildren, &wire.ReadRequest{Path: "/a"}, wire.PermRead},
		{wire.OpGetChildren2, &wire.ReadRequest{Path: "/a"}, wire.PermRead},
		{wire.OpCountChildren, &wire.PathRecord{Path: "/a"}, wire.PermRead},
		{wire.OpGetACL, &wire.PathRecord{Path: "/a"}, wire.PermRead | wire.PermAdmin},
		{wire.OpExists, &wire.ReadRequest{Path: "/a"}, 0},
		{wire.OpSync, &wire.PathRecord{Path: "/a"}, 0},
	} {
		for _, perms := range []int32{0, wire.PermRead, wire.PermWrite, wire.PermCreate, wire.PermDelete, wire.PermAdmin, wire.PermAll} {
			r := newRig(t)
			owner, c := r.client(1), r.client(2)
			owner.create("/a", 0)
			owner.create("/a/b", 0)
			owner.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", Version: -1, ACL: []wire.ACL{{Perms: perms, Scheme: "world", ID: "anyone"}}})
			want := wire.OK
			if test.needs != 0 && perms&test.needs == 0 {
				want = wire.ErrNoAuth
			}
			if got := c.do(test.op, test.body).Header.Err; got != want {
				t.Errorf("operation %d with permissions %b: %v, want %v", test.op, perms, got, want)
			}
		}
	}
}

func TestSchemes(t *testing.T) {
	for _, test := range []struct {
		name   string
		acl    wire.ACL
		from   string
		logins []string
		create wire.ErrCode
		read   wire.ErrCode
	}{
		{name: "anyone", acl: wire.ACL{Perms: 31, Scheme: "world", ID: "anyone"}},
		{name: "no perms", acl: wire.ACL{Scheme: "world", ID: "anyone"}, read: wire.ErrNoAuth},
		{name: "the right digest", acl: wire.ACL{Perms: 31, Scheme: "digest", ID: bobsDigest}, logins: []string{"al", "bob"}},
		{name: "another digest", acl: wire.ACL{Perms: 31, Scheme: "digest", ID: bobsDigest}, logins: []string{"al"}, read: wire.ErrNoAuth},
		{name: "no digest", acl: wire.ACL{Perms: 31, Scheme: "digest", ID: bobsDigest}, read: wire.ErrNoAuth},
		{name: "the address", acl: wire.ACL{Perms: 31, Scheme: "ip", ID: "10.1.2.3"}, from: "10.1.2.3"},
		{name: "another address", acl: wire.ACL{Perms: 31, Scheme: "ip", ID: "10.1.2.3"}, from: "10.1.2.4", read: wire.ErrNoAuth},
		{name: "the network", acl: wire.ACL{Perms: 31, Scheme: "ip", ID: "10.1.2.3/23"}, from: "10.1.3.4"},
		{name: "beside the network", acl: wire.ACL{Perms: 31, Scheme: "ip", ID: "10.1.2.3/24"}, from: "10.1.3.4", read: wire.ErrNoAuth},
		{name: "all networks", acl: wire.ACL{Perms: 31, Scheme: "ip", ID: "10.1.2.3/0"}, from: "192.168.0.1"},
		{name: "version 6", acl: wire.ACL{Perms: 31, Scheme: "ip", ID: "10.1.2.3/0"}, from: "::1", read: wire.ErrNoAuth},
		{name: "a network of version 6", acl: wire.ACL{Perms: 31, Scheme: "ip", ID: "::1"}, create: wire.ErrInvalidACL},
		{name: "33 bits", acl: wire.ACL{Perms: 31, Scheme: "ip", ID: "10.1.2.3/33"}, create: wire.ErrInvalidACL},
		{name: "256", acl: wire.ACL{Perms: 31, Scheme: "ip", ID: "10.1.2.256"}, create: wire.ErrInvalidACL},
		{name: "three numbers", acl: wire.ACL{Perms: 31, Scheme: "ip", ID: "10.1.2"}, create: wire.ErrInvalidACL},
		{name: "a digest without a hash", acl: wire.ACL{Perms: 31, Scheme: "digest", ID: "bob"}, create: wire.ErrInvalidACL},
		{name: "a digest with an empty hash", acl: wire.ACL{Perms: 31, Scheme: "digest", ID: "bob:"}, create: wire.ErrInvalidACL},
		{name: "a digest of three parts", acl: wire.ACL{Perms: 31, Scheme: "digest", ID: "bob:x:y"}, create: wire.ErrInvalidACL},
		{name: "someone of the world", acl: wire.ACL{Perms: 31, Scheme: "world", ID: "me"}, create: wire.ErrInvalidACL},
		{name: "a scheme of its own", acl: wire.ACL{Perms: 31, Scheme: "sasl", ID: "me"}, create: wire.ErrInvalidACL},
		{name: "super", acl: wire.ACL{Perms: 31, Scheme: "super", ID: ""}, create: wire.ErrInvalidACL},
		{name: "auth without any", acl: wire.ACL{Perms: 31, Scheme: "auth"}, create: wire.ErrInvalidACL},
		{name: "auth", acl: wire.ACL{Perms: 31, Scheme: "auth"}, logins: []string{"bob"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newRig(t).client(1)
			if test.from != "" {
				session := c.conn.Session
				c.conn = NewConn(test.from)
				c.conn.Session = session
			}
			for _, user := range test.logins {
				c.login(user)
			}
			r := c.do(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: []wire.ACL{test.acl}})
			if r.Header.Err != test.create {
				t.Fatalf("create: %v, want %v", r.Header.Err, test.create)
			}
			if test.create != wire.OK {
				return
			}
			if got := c.do(wire.OpGetData, &wire.ReadRequest{Path: "/a"}).Header.Err; got != test.read {
				t.Errorf("read: %v, want %v", got, test.read)
			}
		})
	}
}

func TestAuthMeansTheCreatorsIdentities(t *testing.T) {
	c := newRig(t).client(1)
	c.login("bob")
	c.login("al")
	c.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: []wire.ACL{
		{Perms: wire.PermAll, Scheme: "auth", ID: "whatever"}, {Perms: wire.PermRead, Scheme: "world", ID: "anyone"}, {Perms: wire.PermRead, Scheme: "world", ID: "anyone"},
	}})
	want := []wire.ACL{{Perms: 31, Scheme: "digest", ID: bobsDigest}, {Perms: 31, Scheme: "digest", ID: "al:E2WgW72KiEUG4R7vIVBkt6SPXyA="}, {Perms: wire.PermRead, Scheme: "world", ID: "anyone"}}
	if got := c.must(wire.OpGetACL, &wire.PathRecord{Path: "/a"}).Body.(*wire.ACLReply).ACL; !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	// A list that is known already must not be taken for the list of another client.
	other := c.rig.client(2)
	other.login("eve")
	other.must(wire.OpCreate, &wire.CreateRequest{Path: "/e", ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}})
	if got := c.do(wire.OpGetData, &wire.ReadRequest{Path: "/e"}).Header.Err; got != wire.ErrNoAuth {
		t.Errorf("bob reads what is eve's: %v", got)
	}
}

func TestRepetitionsInAListAreLeftOutButNotThoseThatAuthMakes(t *testing.T) {
	c := newRig(t).client(1)
	c.login("bob")
	bob := wire.ACL{Perms: 31, Scheme: "digest", ID: bobsDigest}
	for _, test := range []struct{ asked, want []wire.ACL }{
		{[]wire.ACL{{Perms: 31, Scheme: "auth"}, bob}, []wire.ACL{bob, bob}},
		{[]wire.ACL{bob, bob}, []wire.ACL{bob}}, // though the table holds a list that looks like this by now
	} {
		path := c.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: test.asked, Flags: wire.FlagSequential}).Body.(*wire.PathRecord).Path
		if got := c.must(wire.OpGetACL, &wire.PathRecord{Path: path}).Body.(*wire.ACLReply).ACL; !slices.Equal(got, test.want) {
			t.Errorf("%v became %v, want %v", test.asked, got, test.want)
		}
	}
}

func TestDigestsAreHiddenFromWhoMayOnlyRead(t *testing.T) {
	r := newRig(t)
	owner, reader := r.client(1), r.client(2)
	owner.login("bob")
	acl := []wire.ACL{{Perms: wire.PermAll, Scheme: "digest", ID: bobsDigest}, {Perms: wire.PermRead, Scheme: "world", ID: "anyone"}}
	owner.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: acl})
	seen := reader.must(wire.OpGetACL, &wire.PathRecord{Path: "/a"}).Body.(*wire.ACLReply).ACL
	if want := []wire.ACL{{Perms: 31, Scheme: "digest", ID: "bob:x"}, acl[1]}; !slices.Equal(seen, want) {
		t.Errorf("a reader sees %v", seen)
	}
	if seen := owner.must(wire.OpGetACL, &wire.PathRecord{Path: "/a"}).Body.(*wire.ACLReply).ACL; !slices.Equal(seen, acl) {
		t.Errorf("the owner sees %v", seen)
	}
}

func TestWhoAmI(t *testing.T) {
	c := newRig(t).client(1)
	c.login("bob")
	c.login("bob")
	got := c.must(wire.OpWhoAmI, nil).Body
	if diff := cmp.Diff(&wire.WhoAmIReply{Clients: []wire.ClientInfo{{Scheme: "ip", User: "127.0.0.1"}, {Scheme: "digest", User: "bob"}}}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestListsThatNobodyUsesAreForgotten(t *testing.T) {
	c := newRig(t).client(1)
	lists := len(c.s.tree.acls.ids)
	for i := range 100 {
		acl := []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}, {Perms: int32(i), Scheme: "ip", ID: "10.0.0.1"}}
		c.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: acl})
		c.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: append(acl, everyone...), Version: -1})
		c.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: acl[:1], Version: -1})
		c.delete("/a")
		check(t, c.s)
	}
	if len(c.s.tree.acls.ids) != lists || len(c.s.tree.acls.lists) > lists+3 {
		t.Errorf("%d lists by name and %d in all, were %d", len(c.s.tree.acls.ids), len(c.s.tree.acls.lists), lists)
	}
}

func TestTheSuperUserPassesEveryACLAndNoRequestMakesOne(t *testing.T) {
	r := newRig(t)
	stranger, owner := r.client(1), r.client(2)
	session := owner.conn.Session
	owner.conn = NewSuper("127.0.0.1")
	owner.conn.Session = session
	stranger.login("eve")
	stranger.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}})
	nobody := []wire.ACL{{Scheme: "world", ID: "anyone"}}
	stranger.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: nobody, Version: -1})
	if got := stranger.do(wire.OpGetACL, &wire.PathRecord{Path: "/a"}).Header.Err; got != wire.ErrNoAuth {
		t.Fatalf("a node without permissions answers %v", got)
	}
	owner.must(wire.OpGetData, &wire.ReadRequest{Path: "/a"})
	owner.must(wire.OpGetACL, &wire.PathRecord{Path: "/a"})
	owner.must(wire.OpSetData, &wire.SetDataRequest{Path: "/a", Version: -1})
	owner.create("/a/b", 0)
	owner.delete("/a/b")
	owner.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: everyone, Version: -1})
	stranger.must(wire.OpGetData, &wire.ReadRequest{Path: "/a"})
	// "auth" does not count it, and no ACL can name it.
	for _, acl := range []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}, {Perms: wire.PermAll, Scheme: "super"}} {
		if got := owner.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: []wire.ACL{acl}, Version: -1}).Header.Err; got != wire.ErrInvalidACL {
			t.Errorf("%v: %v, want InvalidACL", acl, got)
		}
	}
	for _, secret := range []string{"", "super", "super:", "super:admin", ":"} {
		for _, scheme := range []string{"super", "world", "auth", "SUPER"} {
			c := r.client(3)
			if reply := c.do(wire.OpAuth, &wire.AuthRequest{Scheme: scheme, Auth: []byte(secret)}); reply.Header.Err != wire.ErrAuthFailed || !reply.Close || c.conn.super {
				t.Errorf("auth %s %q: %v, closes %v", scheme, secret, reply.Header.Err, reply.Close)
			}
		}
	}
	digest := r.client(4)
	if digest.do(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("super:admin")}); digest.conn.super {
		t.Error("a digest made a super user")
	}
}
