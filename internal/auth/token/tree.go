package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/zk"
)

const (
	attempts    = 5  // of a change that other changes disturb
	readsAtOnce = 64 // of records
)

// What can go wrong with a change besides *AmbiguousError.
var (
	ErrNotFound    = errors.New("there is no such token")
	ErrRevoked     = errors.New("the token is revoked already")
	ErrIsID        = errors.New("another token has this name as its id: choose another name")
	ErrTooMany     = fmt.Errorf("there are %d tokens already, the most that a fleet may have: revoke some; their records go %d days later", MaxTokens, keepEnded/day)
	ErrUnavailable = errors.New("ZooKeeper cannot be reached")
	ErrUnknown     = errors.New("the change may have been made or not: list the tokens")
)

// AmbiguousError refuses a name that several tokens have.
type AmbiguousError struct {
	Name string
	IDs  []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%d tokens have the name %s: give the id of one, of %s", len(e.IDs), e.Name, strings.Join(e.IDs, ", "))
}

// Nodes is ZooKeeper as tokens need it; paths are below the chroot.
type Nodes interface {
	// Commit carries out operations in one transaction; the outcome is unknown when ctx ends first.
	Commit(ctx context.Context, ops []zk.Op) zk.Result
	// Barrier returns when what is read afterwards is at least what was true when it was called.
	Barrier(ctx context.Context) error
	Get(ctx context.Context, path string) ([]byte, zk.Stat, error)
	Children(ctx context.Context, path string) ([]string, zk.Stat, error)
}

// Tree is the records in ZooKeeper. It keeps nothing.
type Tree struct {
	Nodes Nodes
	Root  string // of the layout
}

func (t Tree) path(id string) string { return t.Root + zk.NodeTokens + "/" + id }

// List reads all records, the oldest first.
func (t Tree) List(ctx context.Context) ([]*Record, error) {
	if err := t.Nodes.Barrier(ctx); err != nil {
		return nil, unavailable(err)
	}
	ids, _, err := t.Nodes.Children(ctx, t.Root+zk.NodeTokens)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil // a root of an earlier release
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return t.read(ctx, slices.DeleteFunc(ids, func(id string) bool { return !isID(id) }))
}

// read reads records, at or after the last barrier. Those that are gone are left out.
func (t Tree) read(ctx context.Context, ids []string) ([]*Record, error) {
	found := make([]*Record, len(ids))
	reading, together := errgroup.WithContext(ctx)
	reading.SetLimit(readsAtOnce)
	for i, id := range ids {
		reading.Go(func() error {
			data, stat, err := t.Nodes.Get(together, t.path(id))
			switch {
			case err == nil:
				found[i] = parse(id, data, stat.Version)
			case errors.Is(err, zk.ErrNoAuth):
				found[i] = &Record{ID: id, unreadable: true, version: -1}
			case !errors.Is(err, zk.ErrNoNode):
				return unavailable(err)
			}
			return nil
		})
	}
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(r *Record) bool { return r == nil })
	slices.SortFunc(found, byAge)
	return found, nil
}

func byAge(a, b *Record) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) }

// Request is a token to be made.
type Request struct {
	Name  string
	By    string        // who makes it
	TTL   time.Duration // 0: it never expires
	Admin bool
}

// Create makes a token, and returns it with its record. This is the only time that it is seen. known are the records that there are.
func (t Tree) Create(ctx context.Context, req Request, known []*Record) (text string, r *Record, err error) {
	if err := CheckName(req.Name); err != nil {
		return "", nil, err
	}
	taken := func(id string) bool {
		return id == req.Name || slices.ContainsFunc(known, func(r *Record) bool { return r.ID == id || r.Name == id })
	}
	switch {
	case len(known) >= MaxTokens:
		return "", nil, ErrTooMany
	case slices.ContainsFunc(known, func(r *Record) bool { return r.ID == req.Name }):
		return "", nil, ErrIsID
	}
	r = &Record{Name: req.Name, Admin: req.Admin, Created: time.Now().UTC().Truncate(time.Millisecond), CreatedBy: req.By}
	if req.TTL > 0 {
		r.Expires = r.Created.Add(req.TTL)
	}
	for range attempts {
		for r.ID == "" || taken(r.ID) {
			r.ID, text, r.hash = generate()
		}
		res := t.Nodes.Commit(ctx, []zk.Op{{Kind: zk.OpCreate, Path: t.path(r.ID), Data: r.encode(), Private: true}})
		switch {
		case res.Outcome == zk.Done:
			return text, r, nil
		case res.Outcome == zk.Unknown:
			return "", nil, fmt.Errorf("%w; revoke the token %s if it is there: its secret is lost", ErrUnknown, r.ID)
		case !errors.Is(res.Err, zk.ErrNodeExists):
			return "", nil, unavailable(res.Err)
		}
		r.ID = ""
	}
	return "", nil, ErrUnavailable
}

// Revoke ends a token, by its id or by a name that no other active token has. It is ended for good when Revoke returns, and in force at the
// gateways as soon as they hear of it. known are the records that there are.
func (t Tree) Revoke(ctx context.Context, what, by string, known []*Record) (*Record, error) {
	id, err := find(what, known)
	if err != nil {
		return nil, err
	}
	for range attempts {
		if err := t.Nodes.Barrier(ctx); err != nil {
			return nil, unavailable(err)
		}
		now, err := t.read(ctx, []string{id})
		switch {
		case err != nil:
			return nil, err
		case len(now) == 0:
			return nil, ErrNotFound
		case !now[0].RevokedAt.IsZero():
			return now[0], ErrRevoked
		}
		ended, op := *now[0], zk.Op{Kind: zk.OpDelete, Path: t.path(id), Version: now[0].version}
		ended.RevokedAt, ended.RevokedBy = time.Now().UTC().Truncate(time.Millisecond), by
		if !ended.unreadable { // what cannot be read cannot be written either: it goes
			op.Kind, op.Data = zk.OpSetData, ended.encode()
		}
		switch res := t.Nodes.Commit(ctx, []zk.Op{op}); {
		case res.Outcome == zk.Done:
			ended.hash = hash{}
			return &ended, nil
		case res.Outcome == zk.Unknown:
			return nil, ErrUnknown
		case res.Outcome != zk.Conflict && !errors.Is(res.Err, zk.ErrBadVersion) && !errors.Is(res.Err, zk.ErrNoNode):
			return nil, unavailable(res.Err)
		}
	}
	return nil, fmt.Errorf("%w: the token keeps changing", ErrUnavailable)
}

// find is the id of the token that is meant. A name is that of an active token where there is one.
func find(what string, known []*Record) (id string, err error) {
	var named, active []string
	now := time.Now()
	for _, r := range known {
		switch {
		case r.ID == what:
			return r.ID, nil
		case r.Name != what:
		case r.StateAt(now) == Active:
			active = append(active, r.ID)
		default:
			named = append(named, r.ID)
		}
	}
	switch {
	case len(active) > 1:
		return "", &AmbiguousError{what, active}
	case len(active) == 1:
		return active[0], nil
	case len(named) > 0:
		return named[len(named)-1], nil // the youngest; it has ended, and says so
	}
	return "", ErrNotFound
}

func unavailable(err error) error {
	var fatal *zk.FatalError
	if errors.As(err, &fatal) || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
