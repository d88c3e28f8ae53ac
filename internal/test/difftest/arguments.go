package difftest

import (
	"fmt"
	"math"

	"lockkeeper/internal/zk/wire"
)

// What the generator fills requests with: mostly what makes sense, and every kind of what does not.

var goodPaths = []string{
	"/", "/a", "/b", "/a/x", "/a/y", "/a/x/p", "/b/z", "/t", "/k", "/k/m", "/e",
	"/a/s-0000000000", "/a/s-0000000001", "/a/s-0000000002", "/s-0000000003", "/a/0000000002", "/none/x",
}

var badPaths = []string{
	"^", "^a", "/a/", "//", "/a//x", "/.", "/a/./x", "/a/../b", "/a/..", "/a/.x", "/a\x00", "/a\x01", "/a\u001f",
	"/a\u007fz", "/a\u0085", "/\ue000", "/a\ufff0", "/\uffff", "/\xff\xfe",
	"/\U0001f512", "/é", "^/", "^/zookeeper", "^/zookeeper/config", "^/zookeeper/quota", "^/zookeeper/none", "/ ",
	"^/ ",
}

func (g *generator) path() string {
	if g.chance(6) {
		return pick(g, badPaths...)
	}
	return pick(g, goodPaths[:4+g.IntN(len(goodPaths)-3)]...)
}

func (g *generator) paths() []string {
	var all []string
	for range g.IntN(4) {
		all = append(all, g.path())
	}
	return all
}

func (g *generator) data() []byte {
	return pick(g, nil, []byte{}, []byte("d"), []byte("some data"), []byte("\x00\xff"),
		fmt.Appendf(nil, "%d", g.IntN(100)))
}

func (g *generator) version() int32 {
	return pick[int32](g, -1, -1, -1, -1, 0, 0, 1, 2, 3, -2, math.MaxInt32, math.MinInt32)
}

// Digests of u1:p1, u2:p2 and of a password that no client has.
const (
	id1 = "u1:fpT/y03U+EjItKZOSLGvjnJlyng="
	id2 = "u2:o9NxcCGDPOlcV7JVhmKHOf5ctVE="
	id3 = "u3:AAAAAAAAAAAAAAAAAAAAAAAAAAA="
)

func (g *generator) acl() []wire.ACL {
	if g.chance(72) {
		return worldOpen
	}
	perms := pick[int32](g, 31, 31, 31, 31, 1, 2, 4, 8, 16, 3, 5, 9, 15, 30, 0, 32, 63, -1, math.MinInt32)
	entry := pick(g,
		wire.ACL{Perms: perms, Scheme: "world", ID: "anyone"}, wire.ACL{Perms: perms, Scheme: "auth"},
		wire.ACL{Perms: perms, Scheme: "auth", ID: "ignored"},
		wire.ACL{Perms: perms, Scheme: "digest", ID: id1}, wire.ACL{Perms: perms, Scheme: "digest", ID: id2},
		wire.ACL{Perms: perms, Scheme: "digest", ID: id3},
		wire.ACL{Perms: perms, Scheme: "ip", ID: "127.0.0.1"},
		wire.ACL{Perms: perms, Scheme: "ip", ID: "10.0.0.0/8"},
		wire.ACL{Perms: perms, Scheme: "ip", ID: "127.0.0.0/8"},
	)
	bad := pick(g,
		wire.ACL{Perms: perms, Scheme: "world", ID: "others"}, wire.ACL{Perms: perms, Scheme: "world"},
		wire.ACL{Perms: perms, Scheme: "foo", ID: "bar"}, wire.ACL{Perms: perms},
		wire.ACL{Perms: perms, Scheme: "digest", ID: "nocolon"},
		wire.ACL{Perms: perms, Scheme: "digest", ID: "a:b:c"}, wire.ACL{Perms: perms, Scheme: "digest"},
		wire.ACL{Perms: perms, Scheme: "ip", ID: "host"}, wire.ACL{Perms: perms, Scheme: "ip", ID: "1.2.3.256"},
		wire.ACL{Perms: perms, Scheme: "ip", ID: "127.0.0.1/33"},
		wire.ACL{Perms: perms, Scheme: "ip", ID: "127.0.0.1/x"},
		wire.ACL{Perms: perms, Scheme: "ip", ID: "127.0.0.1/0"}, wire.ACL{Perms: perms, Scheme: "sasl", ID: "u"},
		wire.ACL{Perms: perms, Scheme: "x509", ID: "CN=u"},
		wire.ACL{Perms: perms, Scheme: "super", ID: ""}, wire.ACL{Perms: perms, Scheme: "World", ID: "anyone"},
		wire.ACL{Perms: perms, Scheme: "ip", ID: "127.0.1"}, wire.ACL{Perms: perms, Scheme: "ip", ID: "::1"},
	)
	read := wire.ACL{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}
	switch g.IntN(12) {
	case 0:
		return nil
	case 1:
		return []wire.ACL{bad}
	case 2:
		return []wire.ACL{entry, bad}
	case 3:
		return []wire.ACL{entry, entry}
	case 4, 5:
		return []wire.ACL{read, entry}
	case 6:
		return []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}, read,
			{Perms: wire.PermAll, Scheme: "digest", ID: id1}}
	}
	return []wire.ACL{entry}
}

func (g *generator) auth() Request {
	a := &wire.AuthRequest{Scheme: "digest", Auth: []byte(pick(g, "u1:p1", "u1:p1", "u2:p2", "u2:p2", "u3:p3"))}
	if g.chance(12) {
		a = pick(g, &wire.AuthRequest{Scheme: "foo", Auth: []byte("x")},
			&wire.AuthRequest{Scheme: "digest", Auth: []byte("nocolon")}, &wire.AuthRequest{Scheme: "digest"},
			&wire.AuthRequest{Scheme: "ip", Auth: []byte("1.2.3.4")},
			&wire.AuthRequest{Scheme: "world", Auth: []byte("anyone")},
			&wire.AuthRequest{Type: 7, Scheme: "digest", Auth: []byte("u:p:q")},
			&wire.AuthRequest{Scheme: "super", Auth: []byte("x")}, &wire.AuthRequest{},
			&wire.AuthRequest{Scheme: "digest", Auth: []byte("super:x")},
			&wire.AuthRequest{Scheme: "digest", Auth: []byte("\xff:\xfe")})
	}
	r := Request{Op: wire.OpAuth, Xid: wire.XidAuth, Record: a}
	if g.chance(5) {
		r.Xid = 77
	}
	if g.chance(3) {
		r.Cut = 1 + g.IntN(10)
	}
	return r
}
