// Package offline is what the commands share that work on a root without gateways: gateway export, import, sweep
// and secret rotate. It holds their errors, the check that no gateway is registered, and bounded reads.
//
// It keeps nothing. Each ends its goroutines before it returns.
package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// Kind says what prevents the work.
type Kind string

// The kinds that all commands have.
const (
	KindNoRoot  Kind = "no_root"         // there is no Lockkeeper at that root
	KindInUse   Kind = "in_use"          // a gateway is registered, or has been meanwhile
	KindUnknown Kind = "outcome_unknown" // the connection was lost in the middle
)

// Error is why nothing, or not everything, was done. Hint tells the operator what to do.
type Error struct {
	Kind Kind
	Err  error
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Refuse makes an *Error.
func Refuse(kind Kind, hint, format string, args ...any) error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...), Hint: hint}
}

// InUse is the error for registered gateways. A registration that ends meanwhile is named all the same.
func InUse(ctx context.Context, o *layout.Offline, ids []string) error {
	var names []string
	for _, id := range slices.Sorted(slices.Values(ids)) {
		var registration struct {
			Address string `json:"address"`
		}
		data, _, err := o.Get(ctx, o.Root()+zk.NodeGateways+"/"+id)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		_ = json.Unmarshal(data, &registration) // without an address
		names = append(names, strings.TrimSpace(registration.Address+" (gateway id "+id+")"))
	}
	return Refuse(KindInUse, "stop every gateway first, and keep them stopped; the registration of one that was killed goes when its session expires, after --session-timeout at most",
		"gateways are running: %s", Few(names))
}

// Few names the first of many.
func Few(all []string) string {
	const few = 8
	if len(all) <= few {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
}

// readsAtOnce bounds the reads that are under way.
const readsAtOnce = 64

// Each runs do for 0 to n-1, a bounded number at once, and returns when all that were
// begun have ended. The first error stops it. progress may be nil; it gets how many are done.
func Each(ctx context.Context, n int, progress func(done int), do func(ctx context.Context, i int) error) error {
	var done atomic.Int64
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	for i := range n {
		if working.Err() != nil {
			break
		}
		group.Go(func() error {
			err := do(working, i)
			if progress != nil {
				progress(int(done.Add(1)))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
