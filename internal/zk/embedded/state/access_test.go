package state

import (
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

const bobsDigest = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM=" // bob:pw

func TestAnAddressIsMatchedByItsNetworks(t *testing.T) {
	for expr, from := range map[string]string{"10.1.2.3": "10.1.2.3", "10.1.2.3/23": "10.1.3.4", "10.1.2.3/0": "192.168.0.1"} {
		assert.That(t, (identity{schemeIP, from}).matches(expr), "%s is not in %s", from, expr)
	}
	for expr, from := range map[string]string{"10.1.2.3": "10.1.2.4", "10.1.2.3/24": "10.1.3.4", "10.1.2.3/0": "::1"} {
		assert.That(t, !(identity{schemeIP, from}).matches(expr), "%s is in %s", from, expr)
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
	got := c.must(wire.OpGetACL, &wire.PathRecord{Path: "/a"}).Body.(*wire.ACLReply).ACL
	assert.That(t, slices.Equal(got, want), "got %v\nwant %v", got, want)
	// A list that is known already must not be taken for the list of another client.
	other := c.rig.client(2)
	other.login("eve")
	other.must(wire.OpCreate, &wire.CreateRequest{Path: "/e", ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}})
	assert.Equal(t, c.do(wire.OpGetData, &wire.ReadRequest{Path: "/e"}).Header.Err, wire.ErrNoAuth, "bob reads what is eve's")
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
		assert.Slices(t, c.must(wire.OpGetACL, &wire.PathRecord{Path: path}).Body.(*wire.ACLReply).ACL, test.want, "%v became", test.asked)
	}
}

func TestUnusedListsAreForgotten(t *testing.T) {
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
	assert.That(t, len(c.s.tree.acls.ids) == lists && len(c.s.tree.acls.lists) <= lists+3,
		"%d lists by name and %d in all, were %d", len(c.s.tree.acls.ids), len(c.s.tree.acls.lists), lists)
}

func TestTheSuperUserPassesEveryACLAndNoRequestMakesOne(t *testing.T) {
	r := newRig(t)
	other, owner := r.client(1), r.client(2)
	session := owner.conn.Session
	owner.conn = NewSuper("127.0.0.1")
	owner.conn.Session = session
	other.login("eve")
	other.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}})
	none := []wire.ACL{{Scheme: "world", ID: "anyone"}}
	other.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: none, Version: -1})
	assert.MustEqual(t, other.do(wire.OpGetACL, &wire.PathRecord{Path: "/a"}).Header.Err, wire.ErrNoAuth,
		"a node without permissions answers")
	owner.must(wire.OpGetData, &wire.ReadRequest{Path: "/a"})
	owner.must(wire.OpGetACL, &wire.PathRecord{Path: "/a"})
	owner.must(wire.OpSetData, &wire.SetDataRequest{Path: "/a", Version: -1})
	owner.create("/a/b", 0)
	owner.delete("/a/b")
	owner.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: everyone, Version: -1})
	other.must(wire.OpGetData, &wire.ReadRequest{Path: "/a"})
	// "auth" does not count it, and no ACL can name it.
	for _, acl := range []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}, {Perms: wire.PermAll, Scheme: "super"}} {
		got := owner.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: []wire.ACL{acl}, Version: -1}).Header.Err
		assert.Equal(t, got, wire.ErrInvalidACL, "%v", acl)
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
