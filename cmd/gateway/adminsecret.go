package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"lockkeeper/internal/secret"
	"lockkeeper/internal/zk"
)

// mostDropAfter bounds how long an old key may stay after no lease needs it.
const mostDropAfter = 30 * 24 * time.Hour

// secretKeeper rotates the secret: the gateway that runs on a data directory, or ZooKeeper itself.
type secretKeeper interface {
	rotate(ctx context.Context, dropAfter time.Duration) error
	status(ctx context.Context) (secret.Status, error)
	// advance is status, after the steps that may be taken now.
	advance(ctx context.Context) (secret.Status, error)
	drop(ctx context.Context) error
}

// rotateRequest asks for a rotation.
type rotateRequest struct {
	DropAfter int64 `json:"drop_after_ms"`
}

// secretProblem says what to do about an error of a rotation.
func secretProblem(err error) error {
	switch {
	case err == nil, errors.As(err, new(*problemError)), errors.As(err, new(*zk.FatalError)):
		return err
	case errors.Is(err, secret.ErrUnderWay):
		return &problemError{code: exitInUse, err: err, hint: "gateway secret status shows how far it is; rotate again when it is over, or end it with gateway secret drop --now"}
	case errors.Is(err, secret.ErrNone):
		return usage("gateway secret rotate begins a rotation", "%w", err)
	case errors.Is(err, zk.ErrNoNode):
		return &problemError{code: exitConfig, err: err, hint: "start a gateway of this release there once, and correct --zk, its chroot or --root"}
	case errors.Is(err, secret.ErrUnavailable):
		return &problemError{code: exitUnavailable, err: err, hint: "repeat it in a moment; a step that was taken is not taken twice"}
	}
	return err
}

// adminSecret serves gateway secret on the administration's socket, where the remote address is the user that has connected.
type adminSecret struct {
	tree secret.Tree
	log  *slog.Logger
}

func (a adminSecret) routes(mux *http.ServeMux) {
	for pattern, do := range map[string]func(*http.Request) error{
		"POST /secret/rotate": func(r *http.Request) error {
			var asked rotateRequest
			if err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&asked); err != nil {
				return fmt.Errorf("reading the request: %w", err)
			}
			dropAfter := time.Duration(asked.DropAfter) * time.Millisecond
			if err := checkDropAfter(dropAfter); err != nil {
				return err
			}
			_, err := a.tree.Begin(r.Context(), r.RemoteAddr, dropAfter)
			return err
		},
		"DELETE /secret/old": func(r *http.Request) error {
			_, err := a.tree.Drop(r.Context())
			if err == nil {
				a.log.Warn("the old key of the secret was dropped by a command", "by", r.RemoteAddr)
			}
			return err
		},
		"GET /secret": func(*http.Request) error { return nil },
	} {
		adminRoute(mux, pattern, a.log, secretProblem, func(r *http.Request) (any, error) {
			within, cancel := context.WithTimeout(r.Context(), readyWithin)
			defer cancel()
			r = r.WithContext(within)
			if err := do(r); err != nil {
				return nil, err
			}
			return a.tree.Status(within)
		})
	}
}

func checkDropAfter(span time.Duration) error {
	if span < 0 || span > mostDropAfter {
		return usage("for example --drop-after 24h", "--drop-after must be between 0s and 30d")
	}
	return nil
}

// secretOverSocket asks the gateway that runs on a data directory.
type secretOverSocket struct{ dir string }

func (k secretOverSocket) rotate(ctx context.Context, dropAfter time.Duration) error {
	return askAdminJSON(ctx, k.dir, http.MethodPost, "/secret/rotate", rotateRequest{dropAfter.Milliseconds()}, &secret.Status{})
}

func (k secretOverSocket) status(ctx context.Context) (s secret.Status, err error) {
	return s, askAdminJSON(ctx, k.dir, http.MethodGet, "/secret", nil, &s)
}

func (k secretOverSocket) advance(ctx context.Context) (secret.Status, error) { return k.status(ctx) } // the gateway takes the steps

func (k secretOverSocket) drop(ctx context.Context) error {
	return askAdminJSON(ctx, k.dir, http.MethodDelete, "/secret/old", nil, &secret.Status{})
}

// secretAtRest works on ZooKeeper without asking a gateway.
type secretAtRest struct {
	tree secret.Tree
	by   string
}

func (k secretAtRest) rotate(ctx context.Context, dropAfter time.Duration) error {
	_, err := k.tree.Begin(ctx, k.by, dropAfter)
	return secretProblem(err)
}

func (k secretAtRest) status(ctx context.Context) (secret.Status, error) {
	s, err := k.tree.Status(ctx)
	return s, secretProblem(err)
}

func (k secretAtRest) advance(ctx context.Context) (secret.Status, error) {
	s, err := k.tree.Advance(ctx)
	return s, secretProblem(err)
}

func (k secretAtRest) drop(ctx context.Context) error {
	_, err := k.tree.Drop(ctx)
	return secretProblem(err)
}
