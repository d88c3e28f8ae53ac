package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// accessOf is who may touch a node that a Write creates. In the parts of the layout that are the fleet's alone only
// gateways write: a forged succession entry would make two owners.
func (c *Conn) accessOf(op *zk.Op) Access {
	if op.Private {
		return Private
	}
	if part, ok := strings.CutPrefix(op.Path, c.cfg.Root); ok {
		if strings.HasPrefix(part, zk.NodeLocks+"/") {
			return c.ofQueues()
		}
		for _, d := range Directories {
			if d.Access == ReadOnly && strings.HasPrefix(part, d.Path) && len(part) > len(d.Path) && part[len(d.Path)] == '/' {
				return ReadOnly
			}
		}
	}
	return OpenToAll
}

// AccessAt is who may touch a node of the layout, or of a queue, by its path.
func (c *Conn) AccessAt(path string) Access {
	part, inside := strings.CutPrefix(path, c.cfg.Root)
	switch {
	case inside && (part == zk.NodeAuth || strings.HasPrefix(part, zk.NodeAuth+"/")):
		return Private
	case inside && (part == zk.NodeSecret || strings.HasPrefix(part, zk.NodeKeys+"/") || strings.HasPrefix(part, zk.NodeWebhooks+"/") || strings.HasPrefix(part, zk.NodeOutbox+"/")):
		return Private
	case !inside || part != "" && part[0] != '/':
		return OpenToAll
	case part == zk.NodeLocks, strings.HasPrefix(part, zk.NodeLocks+"/"):
		return c.ofQueues()
	}
	return ReadOnly
}

// ofQueues is who may touch the queues of the default namespace.
func (c *Conn) ofQueues() Access {
	if c.cfg.CloseLocks {
		return Private
	}
	return OpenToAll
}

// AccessInQueue is who may touch a lock's directory or a contender, wherever the lock root is.
func (c *Conn) AccessInQueue(path string) Access {
	if part, ok := strings.CutPrefix(path, c.cfg.Root); ok && strings.HasPrefix(part, zk.NodeLocks+"/") {
		return c.ofQueues()
	}
	return OpenToAll
}

// ACL is the ACL of each access.
func (c *Conn) ACL(who Access) []ACL { return c.acls[who] }

// GetACL reads a node's ACL. ErrNoAuth means that we may neither read nor administer the node.
func (c *Conn) GetACL(ctx context.Context, path string) ([]gozk.ACL, zk.Stat, error) {
	return read(ctx, c, "getACL", "reading the ACL of", path, c.lib.GetACL)
}

func (c *Conn) setACL(ctx context.Context, path string, acl []gozk.ACL, version int32) error {
	_, err := call(ctx, c, "setACL", func() (*gozk.Stat, error) { return c.lib.SetACL(c.cfg.Full(path), acl, version) })
	return Within("closing", path, err)
}

// Secured is what secure found and did.
type Secured struct {
	// changed: the ACL was another one, and is the wanted one now.
	Changed bool
	// refused: it is another one, and ZooKeeper does not let us change it. have is what it is; empty where
	// we may not even read it.
	Refused bool
	Have    []gozk.ACL
}

// Secure gives a node the ACL that gateways give such nodes, if we may. It is meant for a fleet with an identity.
// may, if not nil, is asked before anything is changed.
func (c *Conn) Secure(ctx context.Context, path string, who Access, may func(have []gozk.ACL) error) (s Secured, err error) {
	for attempt := 1; ; attempt++ {
		var stat zk.Stat
		s.Have, stat, err = c.RetryACL(ctx, path)
		switch {
		case errors.Is(err, zk.ErrNoAuth):
			s.Refused = true
			return s, nil
		case err != nil:
			return s, err
		case SameACL(s.Have, c.acls[who]):
			return s, nil
		}
		if may != nil {
			if err := may(s.Have); err != nil {
				return s, err
			}
		}
		err = c.setACL(ctx, path, c.acls[who], stat.Aversion)
		switch {
		case err == nil:
			s.Changed = true
			return s, nil
		case errors.Is(err, zk.ErrNoAuth):
			s.Refused = true
			return s, nil
		case attempt == RetryAttempts || !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrUnavailable):
			return s, err
		}
		// Another gateway was quicker, or the answer was lost: the ACL that is there now decides.
		s.Changed = s.Changed || errors.Is(err, zk.ErrUnavailable)
		if err := c.Await(ctx, NewBackoff(c.cfg.Random).NextBackOff()); err != nil {
			return s, err
		}
	}
}

// SameACL compares two lists, in any order. A digest that ZooKeeper hides ("user:x") equals no other: to a
// client with all rights, as the fleet has on its nodes, ZooKeeper shows it.
func SameACL(a, b []gozk.ACL) bool {
	within := func(a, b []gozk.ACL) bool {
		return !slices.ContainsFunc(a, func(e gozk.ACL) bool { return !slices.Contains(b, e) })
	}
	return within(a, b) && within(b, a)
}

// GivesAll reports whether each of the lists is one that gateways with this identity give nodes.
func GivesAll(cfg *zk.Config, lists [][]wire.ACL) bool {
	given := ACLs(cfg)
	return cfg.Identified() && !slices.ContainsFunc(lists, func(list []wire.ACL) bool {
		have := make([]gozk.ACL, len(list))
		for i, entry := range list {
			have[i] = gozk.ACL(entry)
		}
		return !slices.ContainsFunc(given[:], func(one []gozk.ACL) bool { return SameACL(have, one) })
	})
}

// Tolerable reports whether a node on which the fleet lacks ADMIN serves all the same. ZooKeeper hides digests from
// clients without ADMIN, and a client can write "user:x" into an ACL. So only the entry of the world proves rights, and
// an identity that is shown may be any client's. That suffices where other programs queue, if none has ADMIN. It never
// does where gateways alone write.
func Tolerable(have []gozk.ACL, who Access) bool {
	need := int32(PermOpen)
	for _, a := range have {
		switch {
		case a.Perms&gozk.PermAdmin != 0:
			return false
		case a.Scheme == "world":
			need &^= a.Perms
		}
	}
	return who == OpenToAll && need == 0
}

// DescribeACL is an ACL as zkCli.sh shows it.
func DescribeACL(acl []gozk.ACL) string {
	if len(acl) == 0 {
		return "hidden from this gateway"
	}
	entries := make([]string, len(acl))
	for i, a := range acl {
		perms := ""
		for _, p := range []struct {
			bit    int32
			letter string
		}{{gozk.PermCreate, "c"}, {gozk.PermDelete, "d"}, {gozk.PermRead, "r"}, {gozk.PermWrite, "w"}, {gozk.PermAdmin, "a"}} {
			if a.Perms&p.bit != 0 {
				perms += p.letter
			}
		}
		id := a.ID
		if a.Scheme == "digest" { // a hash is of no use to a reader, and of some to an attacker
			user, _, _ := strings.Cut(id, ":")
			id = user + ":x"
		}
		entries[i] = fmt.Sprintf("%s:%s:%s", a.Scheme, id, perms)
	}
	return strings.Join(entries, ", ")
}

// AuthRefused is the fatal error for nodes that refuse this process.
func AuthRefused(c *zk.Config, err error) error {
	hint := "the nodes belong to another ZooKeeper user: check the user and password in the ZooKeeper auth file"
	switch {
	case c.Certificate != nil:
		hint = "the nodes do not belong to x509:" + c.Certificate.Name() + ": give the certificate of the fleet's name with --zk-cert-file, or its --zk-auth-file"
	case c.Auth == nil:
		hint = "the nodes belong to a fleet with a ZooKeeper identity: give its file with --zk-auth-file, or its certificate with --zk-cert-file"
	}
	return &zk.FatalError{Kind: zk.KindAuth, Err: err, Hint: hint}
}

// RetryACL is GetACL, tried again as the policy says.
func (c *Conn) RetryACL(ctx context.Context, path string) ([]ACL, zk.Stat, error) {
	return retried(ctx, c, ReqGet, path, c.GetACL)
}
