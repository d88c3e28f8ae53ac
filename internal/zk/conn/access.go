package conn

import (
	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/zk"
)

// Access is who may touch a node. With an identity (Config.Identified) the fleet has all rights on every node that it
// creates.
type Access uint8

const (
	// OpenToAll: every client reads, writes, creates and deletes, because other programs queue here. Only the fleet has
	// ADMIN: queueing needs no setACL, and another client's setACL would shut the fleet out. With Config.CloseLocks the
	// queues of the default namespace are Private.
	OpenToAll Access = iota
	// ReadOnly: every client reads, gateways write.
	ReadOnly
	// Private: gateways alone.
	Private
	// Above: the ancestors of the root and of lock roots. They belong to the operator.
	Above
	numAccess
)

// Directory is a part of the layout that is only a parent.
type Directory struct {
	Path   string
	Access Access
}

// Directories are those parts. Where locks are, other programs create nodes of their own.
var Directories = [...]Directory{
	{zk.NodeLocks, OpenToAll}, {zk.NodeSettings, ReadOnly}, {zk.NodePeriods, ReadOnly}, {zk.NodeNamespaces, ReadOnly}, {zk.NodeGateways, ReadOnly}, {zk.NodeGuards, ReadOnly},
	{zk.NodeSuccession, ReadOnly}, {zk.NodeKeys, ReadOnly}, {zk.NodeOutbox, ReadOnly}, {zk.NodeWebhooks, ReadOnly},
	{zk.NodeAuth, Private}, {zk.NodeTokens, Private}, {zk.NodeRotation, Private}, // each after its parent
}

const PermOpen = gozk.PermAll &^ gozk.PermAdmin

// ACLs are the ACLs of each access. Without an identity ReadOnly, Private and Above leave ADMIN to every client:
// otherwise no later gateway with an identity could close them, and no operator could close what is above the root. With
// Config.Certificate a connection must have learned the name.
func ACLs(cfg *zk.Config) (acls [numAccess][]gozk.ACL) {
	all := gozk.WorldACL(gozk.PermAll)
	acls = [numAccess][]gozk.ACL{OpenToAll: gozk.WorldACL(PermOpen), ReadOnly: all, Private: all, Above: all}
	var ours []gozk.ACL
	switch {
	case cfg.Auth != nil:
		ours = gozk.DigestACL(gozk.PermAll, cfg.Auth.User, cfg.Auth.Password)
	case cfg.Certificate != nil:
		ours = []gozk.ACL{{Perms: gozk.PermAll, Scheme: zk.SchemeX509, ID: cfg.Certificate.Name()}}
	}
	if ours != nil {
		acls[OpenToAll] = append(gozk.WorldACL(PermOpen), ours...)
		acls[Above] = acls[OpenToAll]
		acls[ReadOnly] = append(gozk.WorldACL(gozk.PermRead), ours...)
		acls[Private] = ours
		if cfg.CloseLocks {
			acls[ReadOnly] = ours // settings are called like their locks
		}
	}
	return acls
}

// ACL is one entry of a node's ACL.
type ACL = gozk.ACL
