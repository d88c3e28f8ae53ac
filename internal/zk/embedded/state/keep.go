package state

import (
	"slices"

	"lockkeeper/internal/zk/wire"
)

// systemACL leaves clients all rights on ZooKeeper's own nodes but ADMIN: with it one client could shut all others out.
var systemACL = []wire.ACL{{Perms: wire.PermAll &^ wire.PermAdmin, Scheme: "world", ID: "anyone"}}

// KeepAdmin gives ZooKeeper's own nodes systemACL, also where a client has changed their ACLs. It returns one transaction
// for each node that had another ACL.
func (s *State) KeepAdmin(now int64) (done []*Txn) {
	for _, path := range []string{"/", procPath, quotaPath} {
		n := s.tree.find(path)
		if n == nil || slices.Equal(s.tree.acls.list(n.acl), systemACL) {
			continue
		}
		done = append(done, s.transact(now, []TxnOp{{Kind: TxnSetACL, Path: path, ACL: systemACL, Version: n.aversion() + 1}}))
	}
	return done
}
