// Package layout is what is recorded below the root for the whole fleet: the
// secret, the promise window, the fence base, the namespaces.
//
// Open creates what is missing and reads the rest. Several gateways may open one root at once: each node is created
// once and then read, so all find the same. Offline is for work on a root that no gateway uses (export, import, sweep).
//
// # Permissions
//
// Without an identity (Config.Auth) every node is open. Queues alone leave ADMIN to no client, because they never have
// to be closed. With an identity the fleet has all rights on its nodes, and no other client has ADMIN on any.
//
// Open checks the ACL of each node of the layout and of the namespaces' records, the root first. It closes what it may,
// and refuses what it may not close and others could change. ZooKeeper hides digests from clients without ADMIN, so an
// ACL that Open may not change is always refused where gateways alone write. Keys and locks are left to package
// aclrepair, which works in the background: there may be a hundred thousand nodes.
//
// Before the layout is complete Open accepts nothing that others made, because they would know the keys. The version is
// written last, so a root with a version that lacks a node is refused, too, unless its secret has the fleet's ACL. A
// complete open root is adopted with all that is in it: a fleet that gets an identity leaves one, and another client
// can make the same.
//
// Secret.Exposed says that others can or could read the secret. A secret that was created closed has an ACL that
// was never changed. A rotation (package secret) notes how often it had been changed when the new key was made. An import creates
// the node anew, so an export writes the fact into the data.
//
// # Namespaces
//
// Open records those that are configured, each once and for good, in one transaction with a write to their parent: of
// gateways that add overlapping lock roots at the same time the second one finds the first one's.
package layout
