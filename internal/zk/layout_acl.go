package zk

import (
	"fmt"
	"strings"

	gozk "github.com/go-zookeeper/zk"
)

// secure sees to it that a node of the layout, named relative to the root, has the ACL that a gateway with an identity
// gives it. It does nothing without an identity. The error is a *FatalError when the node is not what it must be, and
// we may not change that.
func (o *opener) secure(name string, who access) error {
	if o.cfg.Auth == nil {
		return nil
	}
	path := o.cfg.Root + name
	// Of what is there before the first gateway only the root may be anyone's, and where locks are.
	early := o.first && name != "" && who != open
	s, err := o.c.secure(o.ctx, path, who, func(have []gozk.ACL) error {
		if early {
			return o.taken(path, have)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case s.refused && early:
		return o.taken(path, s.have)
	case s.refused && !o.c.tolerable(s.have, who):
		return o.notOurs(path, who, s.have)
	case s.changed:
		o.closed = append(o.closed, path)
	}
	if name == NodeSecret {
		o.aversion = s.aversion
	}
	return nil
}

// taken refuses a node that is there before the first gateway, and that this fleet did not make: its maker may know,
// or have chosen, what is in it.
func (o *opener) taken(path string, have []gozk.ACL) error {
	return &FatalError{Kind: KindTaken,
		Hint: "find out who made it; then delete it (zkCli.sh deleteall " + o.cfg.full(path) + "), or choose another --root",
		Err:  fmt.Errorf("%s was there before the first gateway of this fleet, and does not belong to its ZooKeeper identity (its ACL: %s)", o.cfg.full(path), describe(have))}
}

// notOurs refuses a node of which others may do what only the fleet should, or which the fleet may not use.
func (o *opener) notOurs(path string, who access, have []gozk.ACL) error {
	full := o.cfg.full(path)
	wanted := make([]string, len(o.c.acls[who]))
	for i, a := range o.c.acls[who] {
		wanted[i] = describe([]gozk.ACL{a})
		if a.Scheme == "digest" {
			wanted[i] = strings.Replace(wanted[i], ":x:", ":HASH:", 1)
		}
	}
	return &FatalError{Kind: KindAuth,
		Hint: "check the user and password in the ZooKeeper auth file; if they are right, have ZooKeeper's super user run: setAcl " + full + " " + strings.Join(wanted, ","),
		Err:  fmt.Errorf("the ACL of %s (%s) does not fit, and this fleet's ZooKeeper identity may not change it", full, describe(have))}
}

// report says once at the start what was closed, and what stays open.
func (o *opener) report(l *Layout) {
	log := o.cfg.Logger
	if len(o.closed) > 0 {
		log.Warn("others had rights on nodes of the layout; they are closed now", "nodes", o.closed)
	}
	switch {
	case o.cfg.Auth == nil:
		log.Warn("every client of ZooKeeper can read the fleet's secret, forge lease tokens and stop the service, "+
			"because this gateway has no ZooKeeper identity; give all gateways one with --zk-auth-file", "root", o.cfg.full(l.Root))
	case l.SecretExposed:
		log.Warn("the fleet's secret is compromised: others could read it, so they can forge lease tokens until it is replaced; "+
			"stop all gateways and run gateway secret rotate --offline", "secret", o.cfg.full(l.Root+NodeSecret))
	}
}
