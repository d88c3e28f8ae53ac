package zk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	gozk "github.com/go-zookeeper/zk"
)

// access is who may touch a node. With an identity (Config.Auth) the fleet has all rights on every node that it
// creates.
type access uint8

const (
	// open: everyone reads, writes, creates and deletes, because other programs queue here. Only the fleet has
	// ADMIN: queueing needs no setACL, and a setACL by a stranger would shut the fleet out.
	open access = iota
	// shown: everyone reads, gateways write.
	shown
	// private: gateways alone.
	private
	// above: the ancestors of the root and of lock roots. They belong to the operator.
	above
	numAccess
)

// directory is a part of the layout that is only a parent.
type directory struct {
	path string
	who  access
}

// directories are those parts. Where locks are, other programs create nodes of their own.
var directories = [...]directory{
	{NodeLocks, open}, {NodeSettings, shown}, {NodeNamespaces, shown}, {NodeGateways, shown}, {NodeGuards, shown},
	{NodeSuccession, shown}, {NodeKeys, shown}, {NodeOutbox, shown}, {NodeWebhooks, shown},
}

const permOpen = gozk.PermAll &^ gozk.PermAdmin

// aclsFor are the ACLs of each access. Without an identity shown, private and above leave ADMIN to everyone:
// otherwise no later gateway with an identity could close them, and no operator could close what is above the root.
func aclsFor(auth *DigestAuth) (acls [numAccess][]gozk.ACL) {
	all := gozk.WorldACL(gozk.PermAll)
	acls = [numAccess][]gozk.ACL{open: gozk.WorldACL(permOpen), shown: all, private: all, above: all}
	if auth != nil {
		ours := gozk.DigestACL(gozk.PermAll, auth.User, auth.Password)
		acls[open] = append(gozk.WorldACL(permOpen), ours...)
		acls[above] = acls[open]
		acls[shown] = append(gozk.WorldACL(gozk.PermRead), ours...)
		acls[private] = ours
	}
	return acls
}

// access is who may touch a node that a Write creates. In the parts of the
// layout that are the fleet's alone only gateways write: a forged succession
// entry would make two owners.
func (c *conn) access(op *Op) access {
	if op.Private {
		return private
	}
	if part, ok := strings.CutPrefix(op.Path, c.cfg.Root); ok {
		for _, d := range directories {
			if d.who == shown && strings.HasPrefix(part, d.path) && len(part) > len(d.path) && part[len(d.path)] == '/' {
				return shown
			}
		}
	}
	return open
}

// accessAt is who may touch a node of the layout, or of a queue, by its path.
func (c *conn) accessAt(path string) access {
	part, inside := strings.CutPrefix(path, c.cfg.Root)
	switch {
	case inside && (part == NodeSecret || strings.HasPrefix(part, NodeKeys+"/") || strings.HasPrefix(part, NodeWebhooks+"/") || strings.HasPrefix(part, NodeOutbox+"/")):
		return private
	case !inside || part != "" && part[0] != '/', part == NodeLocks, strings.HasPrefix(part, NodeLocks+"/"):
		return open
	}
	return shown
}

// acl is one entry of a node's ACL.
type acl = gozk.ACL

type aclAndStat struct {
	acl  []gozk.ACL
	stat Stat
}

// acl is the ACL of each access.
func (c *conn) acl(who access) []acl { return c.acls[who] }

// getACL reads a node's ACL. ErrNoAuth means that we may neither read nor administer the node.
func (c *conn) getACL(ctx context.Context, path string) ([]gozk.ACL, Stat, error) {
	r, err := call(ctx, c, "getACL", func() (aclAndStat, error) {
		acl, stat, err := c.lib.GetACL(c.cfg.full(path))
		if err != nil {
			return aclAndStat{}, err
		}
		return aclAndStat{acl, ourStat(stat)}, nil
	})
	return r.acl, r.stat, within("reading the ACL of", path, err)
}

func (c *conn) setACL(ctx context.Context, path string, acl []gozk.ACL, version int32) error {
	_, err := call(ctx, c, "setACL", func() (*gozk.Stat, error) { return c.lib.SetACL(c.cfg.full(path), acl, version) })
	return within("closing", path, err)
}

// secured is what secure found and did.
type secured struct {
	// changed: the ACL was another one, and is the wanted one now.
	changed bool
	// refused: it is another one, and ZooKeeper does not let us change it. have is what it is; empty where
	// we may not even read it.
	refused bool
	have    []gozk.ACL
	// aversion is how often the node's ACL was changed since the node was created.
	aversion int32
}

// secure gives a node the ACL that gateways give such nodes, if we may. It is meant for a fleet with an identity.
// may, if not nil, is asked before anything is changed.
func (c *conn) secure(ctx context.Context, path string, who access, may func(have []gozk.ACL) error) (s secured, err error) {
	for attempt := 1; ; attempt++ {
		var stat Stat
		err := c.retry(ctx, reqGet, func(ctx context.Context) (err error) {
			s.have, stat, err = c.getACL(ctx, path)
			return err
		}, nil)
		s.aversion = stat.Aversion
		switch {
		case errors.Is(err, ErrNoAuth):
			s.refused = true
			return s, nil
		case err != nil:
			return s, err
		case sameACL(s.have, c.acls[who]):
			return s, nil
		}
		if may != nil {
			if err := may(s.have); err != nil {
				return s, err
			}
		}
		err = c.setACL(ctx, path, c.acls[who], stat.Aversion)
		switch {
		case err == nil:
			s.changed, s.aversion = true, stat.Aversion+1
			return s, nil
		case errors.Is(err, ErrNoAuth):
			s.refused = true
			return s, nil
		case attempt == retryAttempts || !errors.Is(err, ErrBadVersion) && !errors.Is(err, ErrUnavailable):
			return s, err
		}
		// Another gateway was quicker, or the answer was lost: the ACL that is there now decides.
		s.changed = s.changed || errors.Is(err, ErrUnavailable)
		if err := c.await(ctx, newBackoff(c.cfg.Random).NextBackOff()); err != nil {
			return s, err
		}
	}
}

// sameACL compares two lists, in any order. A digest that ZooKeeper hides ("user:x") equals no other: to a
// client with all rights, as the fleet has on its nodes, ZooKeeper shows it.
func sameACL(a, b []gozk.ACL) bool {
	within := func(a, b []gozk.ACL) bool {
		return !slices.ContainsFunc(a, func(e gozk.ACL) bool { return !slices.Contains(b, e) })
	}
	return within(a, b) && within(b, a)
}

// tolerable reports whether a node on which the fleet lacks ADMIN serves all the same. ZooKeeper hides digests from
// clients without ADMIN, and a client can write "user:x" into an ACL. So only the entry of the world proves rights, and
// an identity that is shown may be any client's. That suffices where other programs queue, if none has ADMIN. It never
// does where gateways alone write.
func tolerable(have []gozk.ACL, who access) bool {
	need := int32(permOpen)
	for _, a := range have {
		switch {
		case a.Perms&gozk.PermAdmin != 0:
			return false
		case a.Scheme == "world":
			need &^= a.Perms
		}
	}
	return who == open && need == 0
}

// describe is an ACL as zkCli.sh shows it.
func describe(acl []gozk.ACL) string {
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

// authRefused is the fatal error for nodes that refuse this process.
func authRefused(c *Config, err error) error {
	hint := "the nodes belong to another ZooKeeper user: check the user and password in the ZooKeeper auth file"
	if c.Auth == nil {
		hint = "the nodes belong to a fleet with a ZooKeeper identity: give its file with --zk-auth-file"
	}
	return &FatalError{Kind: KindAuth, Err: err, Hint: hint}
}
