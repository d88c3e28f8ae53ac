package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// attempts is how often a change is decided anew when others disturb it.
const attempts = 8

// What can go wrong.
var (
	ErrUnderWay    = errors.New("a rotation of the secret is under way already")
	ErrNone        = errors.New("no rotation of the secret is under way, so there is no old key")
	ErrUnavailable = errors.New("ZooKeeper cannot be reached")
)

// Nodes is ZooKeeper as a rotation needs it; paths are below the chroot.
type Nodes interface {
	// Commit carries out operations in one transaction; the outcome is unknown when ctx ends first.
	Commit(ctx context.Context, ops []zk.Op) zk.Result
	// Barrier returns when what is read afterwards is at least what was true when it was called.
	Barrier(ctx context.Context) error
	Get(ctx context.Context, path string) ([]byte, zk.Stat, error)
	Children(ctx context.Context, path string) ([]string, zk.Stat, error)
}

// Tree is the secret and its rotation in ZooKeeper. It keeps nothing.
type Tree struct {
	Nodes Nodes
	Root  string // of the layout
	Open  bool   // the fleet has no identity: every client of ZooKeeper reads the secret
}

// Read reads the secret as it is now.
func (t Tree) Read(ctx context.Context) (*layout.Secret, error) {
	if err := t.Nodes.Barrier(ctx); err != nil {
		return nil, unavailable(err)
	}
	data, stat, err := t.Nodes.Get(ctx, t.Root+zk.NodeSecret)
	if err != nil {
		return nil, unavailable(err)
	}
	return layout.ReadSecret(data, stat, t.Open)
}

// Begin begins a rotation. The old key is dropped when dropAfter has passed since no lease needs it.
func (t Tree) Begin(ctx context.Context, by string, dropAfter time.Duration) (*layout.Secret, error) {
	var key layout.TokenKey
	return t.change(ctx, func(s *layout.Secret) (next *layout.Secret, err error) {
		switch r := s.Rotation; {
		case r != nil && r.Key == key.ID:
			return nil, nil // this one, by an attempt whose answer was lost
		case r != nil:
			return nil, ErrUnderWay
		case key.ID == "":
			if key, err = s.NewKey(); err != nil {
				return nil, err
			}
		}
		return begin(s, key, by, dropAfter, time.Now().UTC().Truncate(time.Millisecond)), nil
	})
}

// Drop drops the old keys at once, however far the rotation is.
func (t Tree) Drop(ctx context.Context) (*layout.Secret, error) {
	dropping := ""
	return t.change(ctx, func(s *layout.Secret) (*layout.Secret, error) {
		switch r := s.Rotation; {
		case r == nil && dropping == s.Keys[0].ID:
			return nil, nil
		case r == nil:
			return nil, ErrNone
		default:
			dropping = r.Key
		}
		return drop(s), nil
	})
}

// Advance takes the steps that may be taken now, and tells how far the rotation is.
func (t Tree) Advance(ctx context.Context) (Status, error) {
	for range attempts {
		s, err := t.look(ctx)
		if err != nil {
			return Status{}, err
		}
		now := time.Now().UTC().Truncate(time.Millisecond)
		next := s.next(now)
		if next == nil {
			return s.status(), nil
		}
		if _, err := t.write(ctx, s.secret, next); err != nil {
			return Status{}, err
		}
	}
	return Status{}, fmt.Errorf("%w: the secret keeps changing", ErrUnavailable)
}

// Status tells how far the rotation is.
func (t Tree) Status(ctx context.Context) (Status, error) {
	s, err := t.look(ctx)
	if err != nil {
		return Status{}, err
	}
	return s.status(), nil
}

// change reads the secret, and writes what decide makes of it; nil leaves it as it is.
func (t Tree) change(ctx context.Context, decide func(*layout.Secret) (*layout.Secret, error)) (*layout.Secret, error) {
	for range attempts {
		now, err := t.Read(ctx)
		if err != nil {
			return nil, err
		}
		next, err := decide(now)
		if next == nil || err != nil {
			return now, err
		}
		if _, err := t.write(ctx, now, next); err != nil {
			return nil, err
		}
		// What was written is read: whether it was done, and what others have made of it since.
	}
	return nil, fmt.Errorf("%w: the secret keeps changing", ErrUnavailable)
}

// write makes a step from a state that was read. It is not done when the state has changed. With its outcome unknown no error is
// returned: what is there now decides, because the version lets a step be done once.
func (t Tree) write(ctx context.Context, from, to *layout.Secret) (done bool, err error) {
	base, stat, err := t.Nodes.Get(ctx, t.Root+zk.NodeFenceBase)
	if err != nil {
		return false, unavailable(err)
	}
	step := "dropped-" + to.Keys[0].ID
	if r := to.Rotation; r != nil {
		step = string(r.Phase) + "-" + r.Key
	}
	ops := []zk.Op{
		{Kind: zk.OpSetData, Path: t.Root + zk.NodeSecret, Data: to.Encode(), Version: from.Version},
		// A gateway that has read the layout before cannot register any more; see promise 1.
		{Kind: zk.OpSetData, Path: t.Root + zk.NodeFenceBase, Data: base, Version: stat.Version},
		// Gateways watch this directory.
		{Kind: zk.OpCreate, Path: t.path(step), Data: []byte{}, Private: true},
	}
	switch res := t.Nodes.Commit(ctx, ops); {
	case res.Outcome == zk.Done:
		return true, nil
	case ctx.Err() != nil:
		return false, unavailable(context.Cause(ctx))
	case res.Outcome == zk.Unknown, res.Outcome == zk.Conflict, errors.Is(res.Err, zk.ErrBadVersion), errors.Is(res.Err, zk.ErrNodeExists), errors.Is(res.Err, zk.ErrNotApplied):
		return false, nil
	default:
		return false, unavailable(res.Err)
	}
}

func (t Tree) path(name string) string { return t.Root + zk.NodeRotation + "/" + name }

// look reads everything that a step is decided from.
func (t Tree) look(ctx context.Context) (*state, error) {
	secret, err := t.Read(ctx)
	if err != nil {
		return nil, err
	}
	s := &state{secret: secret}
	if secret.Rotation == nil {
		return s, nil
	}
	var ids []string
	if ids, s.members, err = t.members(ctx); err != nil {
		return nil, err
	}
	for _, id := range ids {
		g := gateway{id: id}
		data, _, err := t.Nodes.Get(ctx, t.Root+zk.NodeGateways+"/"+id)
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // it has gone since
			return nil, unavailable(err)
		}
		var about struct {
			Address string `json:"address"`
			Version string `json:"version"`
		}
		_ = json.Unmarshal(data, &about) // without an address
		g.address, g.version = about.Address, about.Version
		data, stat, err := t.Nodes.Get(ctx, t.path(id))
		switch {
		case err == nil:
			if json.Unmarshal(data, &g.said) != nil {
				g.said = said{}
			}
			g.said.zxid = stat.Mzxid
		case !errors.Is(err, zk.ErrNoNode):
			return nil, unavailable(err)
		}
		s.gateways = append(s.gateways, g)
	}
	return s, nil
}

// members lists the registered gateways, and tells the zxid of the last registration, its end, or takeover.
func (t Tree) members(ctx context.Context) (ids []string, zxid int64, err error) {
	_, takeovers, err := t.Nodes.Children(ctx, t.Root+zk.NodeSuccession)
	if err != nil {
		return nil, 0, unavailable(err)
	}
	ids, stat, err := t.Nodes.Children(ctx, t.Root+zk.NodeGateways)
	if err != nil {
		return nil, 0, unavailable(err)
	}
	slices.Sort(ids)
	return ids, max(stat.Pzxid, takeovers.Pzxid), nil
}

// say writes what a gateway says, unless that is there.
func (t Tree) say(ctx context.Context, id string, what said) error {
	data, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	if there, _, err := t.Nodes.Get(ctx, t.path(id)); err == nil && bytes.Equal(there, data) {
		return nil
	}
	for range attempts {
		res := t.Nodes.Commit(ctx, []zk.Op{{Kind: zk.OpSetData, Path: t.path(id), Data: data, Version: -1}})
		if errors.Is(res.Err, zk.ErrNoNode) {
			res = t.Nodes.Commit(ctx, []zk.Op{{Kind: zk.OpCreate, Path: t.path(id), Data: data, Private: true}})
		}
		switch {
		case res.Outcome == zk.Done:
			return nil
		case !errors.Is(res.Err, zk.ErrNodeExists) && res.Outcome != zk.Conflict:
			return unavailable(res.Err)
		}
	}
	return ErrUnavailable
}

// tidy removes what a rotation has left, while none is under way. Every gateway may do it at once. now is the secret as it was read: what
// gateways say of a rotation that has begun since stays.
func (t Tree) tidy(ctx context.Context, now *layout.Secret) error {
	names, _, err := t.Nodes.Children(ctx, t.Root+zk.NodeRotation)
	if err != nil {
		return unavailable(err)
	}
	for _, name := range names {
		res := t.Nodes.Commit(ctx, []zk.Op{{Kind: zk.OpCheck, Path: t.Root + zk.NodeSecret, Version: now.Version}, {Kind: zk.OpDelete, Path: t.path(name), Version: -1}})
		if res.Outcome != zk.Done && !errors.Is(res.Err, zk.ErrNoNode) {
			return unavailable(res.Err)
		}
	}
	return nil
}

// Status is how far a rotation is.
type Status struct {
	Signing  string   `json:"signing_key"`        // id of the key that signs
	Accepted []string `json:"accepted_keys"`      // ids of the others
	Exposed  bool     `json:"exposed"`            // others than the fleet could read a key that is accepted
	Rotation *Course  `json:"rotation,omitempty"` // nil: none is under way
}

// Course is a rotation that is under way.
type Course struct {
	NewKey    string       `json:"new_key"`
	Phase     layout.Phase `json:"phase"`
	Begun     time.Time    `json:"begun"`
	By        string       `json:"by,omitempty"`
	DropAfter int64        `json:"drop_after_ms"`
	DropAt    *time.Time   `json:"drop_at,omitempty"`
	Gateways  int          `json:"gateways"`             // that are registered
	WaitsFor  []Waits      `json:"waits_for,omitempty"`  // gateways
	Leases    int          `json:"old_leases,omitempty"` // that need the old key, as far as gateways have counted
	Some      []string     `json:"some_old_leases,omitempty"`
}

// Waits is a gateway that a rotation waits for.
type Waits struct {
	Gateway string `json:"gateway_id"`
	Address string `json:"address,omitempty"`
	Version string `json:"version,omitempty"`
	Why     string `json:"why"`
}

func (w Waits) String() string {
	return strings.TrimSpace(w.Address+" (gateway id "+w.Gateway) + "): " + w.Why
}

func (s *state) status() Status {
	st := Status{Signing: s.secret.Keys[0].ID, Accepted: []string{}, Exposed: s.secret.Exposed}
	for _, k := range s.secret.Keys[1:] {
		st.Accepted = append(st.Accepted, k.ID)
	}
	r := s.secret.Rotation
	if r == nil {
		return st
	}
	c := &Course{NewKey: r.Key, Phase: r.Phase, Begun: r.Begun, By: r.By, DropAfter: r.DropAfter, DropAt: r.DropAt, Gateways: len(s.gateways)}
	st.Rotation = c
	for i := range s.gateways {
		g := &s.gateways[i]
		if why := g.waits(s); why != "" {
			c.WaitsFor = append(c.WaitsFor, Waits{g.id, g.address, g.version, why})
		}
		if r.Phase == layout.Retiring && g.confirms(r) {
			c.Leases += g.said.Leases
			c.Some = append(c.Some, g.said.Some...)
		}
	}
	return st
}

// waits says why a rotation waits for a gateway; "" when it does not.
func (g *gateway) waits(s *state) string {
	r := s.secret.Rotation
	switch {
	case r.Phase == layout.Dropping:
		return ""
	case !g.confirms(r) && r.Phase == layout.Accepting:
		return "it has not said that it has read the new key: it cannot reach ZooKeeper, or its release cannot rotate the secret"
	case !g.confirms(r) && r.Phase == layout.Retiring:
		return "it has not counted its leases yet"
	case !g.confirms(r):
		return "it has not said yet that it signs with the new key"
	case r.Phase != layout.Retiring || g.idle(s):
		return ""
	case g.said.Leases > 0:
		return fmt.Sprintf("it runs %d leases from before the rotation", g.said.Leases)
	case g.said.Unowned > 0:
		return "the leases of a gateway that is gone have no new owner yet"
	}
	return "it counts its leases"
}

func unavailable(err error) error {
	var fatal *zk.FatalError
	if errors.As(err, &fatal) || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
