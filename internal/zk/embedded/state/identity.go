package state

import (
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/internal/zk/wire"
)

// The schemes that an identity can have. ("world" and "auth" exist in ACLs only. NewSuper alone gives "super": no password
// is set for it, as in ZooKeeper by default, so no auth packet does.)
const (
	schemeDigest = "digest"
	schemeIP     = "ip"
	schemeSuper  = "super"
)

// maxIdentities bounds those of a connection: each is looked for in each entry of an ACL.
const maxIdentities = 64

// identity is one thing that a connection has proved to be.
type identity struct{ scheme, id string }

// matches says whether the identity is meant by the id of an ACL entry of its scheme.
func (i identity) matches(expr string) bool {
	if i.scheme != schemeIP {
		return i.id == expr
	}
	network, bits, ok := parseIP(expr)
	address, ok2 := v4(i.id)
	return ok && ok2 && (network^address)&^(1<<(32-bits)-1) == 0
}

// addIdentity appends an identity that is new. The slice is replaced, never changed.
func addIdentity(who []identity, id identity) []identity {
	if slices.Contains(who, id) {
		return who
	}
	return append(slices.Clone(who), id)
}

// authenticate is what an auth packet proves about a connection. A nil secret fails, and so does an identity too many.
func (c *Conn) authenticate(scheme string, secret []byte) bool {
	var who []identity
	switch {
	case scheme == schemeIP:
		who = addIdentity(c.who, identity{schemeIP, c.ip})
	case scheme == schemeDigest && secret != nil:
		who = addIdentity(c.who, identity{schemeDigest, digest(javaText(secret))})
	default:
		return false
	}
	if len(who) > maxIdentities {
		return false
	}
	c.who = who
	return true
}

// digest is the id of "user:password": the user and the hash of both.
func digest(secret string) string {
	user, _, _ := strings.Cut(secret, ":")
	sum := sha1.Sum([]byte(secret))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// validDigest is Java's id.split(":").length == 2, in which empty parts at the end do not count.
func validDigest(id string) bool {
	parts := strings.Split(id, ":")
	for len(parts) > 0 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return len(parts) == 2
}

func validIP(id string) bool {
	_, _, ok := parseIP(id)
	return ok
}

// parseIP reads an address or a network: 10.1.2.3 or 10.1.0.0/16. Only version 4 exists to ZooKeeper.
func parseIP(expr string) (network uint32, bits int, ok bool) {
	address, length, found := strings.Cut(expr, "/")
	network, ok = v4(address)
	if !ok {
		return 0, 0, false
	}
	if !found {
		return network, 32, true
	}
	bits, err := strconv.Atoi(length)
	return network, bits, err == nil && bits >= 0 && bits <= 32
}

func v4(s string) (uint32, bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 4 {
		return 0, false
	}
	var v uint32
	for _, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 255 {
			return 0, false
		}
		v = v<<8 | uint32(n)
	}
	return v, true
}

// clients is what whoAmI answers.
func (c *Conn) clients() *wire.WhoAmIReply {
	reply := &wire.WhoAmIReply{}
	for _, id := range c.who {
		user := id.id
		if id.scheme == schemeDigest {
			user, _, _ = strings.Cut(user, ":")
		}
		reply.Clients = append(reply.Clients, wire.ClientInfo{Scheme: id.scheme, User: user})
	}
	return reply
}
