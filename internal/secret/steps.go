package secret

import (
	"cmp"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk/layout"
)

// said is what a gateway says about a rotation.
type said struct {
	Key   string       `json:"key"`   // the rotation's
	Phase layout.Phase `json:"phase"` // that the gateway has taken in
	// Idle: up to this zxid of registrations and takeovers, the gateway runs no lease that needs the old key; 0: it runs some, or has not
	// counted.
	Idle    int64    `json:"idle,omitempty"`
	Leases  int      `json:"leases,omitempty"`
	Some    []string `json:"some,omitempty"` // ids of a few of them
	Unowned int      `json:"unowned,omitempty"`

	zxid int64 // of the node's last change
}

// gateway is a registered gateway, with what it says.
type gateway struct {
	id, address, version string
	said                 said
}

// state is what a step is decided from.
type state struct {
	secret   *layout.Secret
	gateways []gateway
	members  int64 // the zxid of the last registration, its end, or takeover
}

var phases = []layout.Phase{layout.Accepting, layout.Signing, layout.Retiring, layout.Dropping}

// confirms reports whether a gateway has said that it is in a phase of the rotation, or a later one.
func (g *gateway) confirms(r *layout.Rotation) bool {
	return g.said.Key == r.Key && slices.Index(phases, g.said.Phase) >= slices.Index(phases, r.Phase)
}

// idle reports whether a gateway has said, of the present members, that it needs the old key no more.
func (g *gateway) idle(s *state) bool {
	return g.confirms(s.secret.Rotation) && g.said.Idle != 0 && (g.said.Idle >= s.members || fault.On("rotate-members"))
}

// begin is the secret when a rotation to a key begins.
func begin(s *layout.Secret, key layout.TokenKey, by string, dropAfter time.Duration, now time.Time) *layout.Secret {
	next := *s
	next.Keys = append(slices.Clip(s.Keys), key)
	// What is known of the old keys stays with the record until they go. The new one was never in a node that others could read.
	next.SaidExposed, next.ACLChanges = s.Exposed, s.Aversion
	next.Rotation = &layout.Rotation{Key: key.ID, Phase: layout.Accepting, Begun: now, By: by, DropAfter: dropAfter.Milliseconds()}
	return &next
}

// drop is the secret without its old keys.
func drop(s *layout.Secret) *layout.Secret {
	next := *s
	next.Keys = slices.DeleteFunc(slices.Clone(s.Keys), func(k layout.TokenKey) bool { return k.ID != s.Rotation.Key })
	next.SaidExposed, next.Rotation = false, nil
	return &next
}

// next is the secret after the next step; nil while that must wait.
func (s *state) next(now time.Time) *layout.Secret {
	r := s.secret.Rotation
	if r == nil {
		return nil
	}
	to := *r
	next := *s.secret
	next.Rotation = &to
	switch r.Phase {
	case layout.Accepting:
		if !s.all(func(g *gateway) bool { return g.confirms(r) }) {
			return nil
		}
		to.Phase = layout.Signing
		next.Keys = slices.Clone(s.secret.Keys)
		slices.SortStableFunc(next.Keys, func(a, b layout.TokenKey) int { return cmp.Compare(rank(a, r), rank(b, r)) })
	case layout.Signing:
		if !s.all(func(g *gateway) bool { return g.confirms(r) }) && !fault.On("rotate-sign") {
			return nil
		}
		to.Phase, to.Cut, to.SignedAt = layout.Retiring, s.members, &now
		for i := range s.gateways {
			to.Cut = max(to.Cut, s.gateways[i].said.zxid)
		}
	case layout.Retiring:
		if (len(s.gateways) == 0 || !s.all(func(g *gateway) bool { return g.idle(s) })) && !fault.On("rotate-leases") {
			return nil // without a gateway no process counts the leases
		}
		at := now.Add(time.Duration(r.DropAfter) * time.Millisecond)
		to.Phase, to.DropAt = layout.Dropping, &at
	case layout.Dropping:
		if r.DropAt != nil && now.Before(*r.DropAt) {
			return nil
		}
		return drop(s.secret)
	default:
		return nil // of a later release
	}
	return &next
}

// rank puts the new key in front.
func rank(k layout.TokenKey, r *layout.Rotation) int {
	if k.ID == r.Key {
		return 0
	}
	return 1
}

func (s *state) all(is func(*gateway) bool) bool {
	for i := range s.gateways {
		if !is(&s.gateways[i]) {
			return false
		}
	}
	return true
}
