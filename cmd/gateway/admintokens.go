package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/zk"
)

// tokenShape is a token as the command and admin.sock show it. It has no secret.
type tokenShape struct {
	ID        string      `json:"id"`
	Name      string      `json:"name,omitempty"`
	State     token.State `json:"state"`
	Admin     bool        `json:"admin"`
	Created   *time.Time  `json:"created,omitempty"`
	CreatedBy string      `json:"created_by,omitempty"`
	Expires   *time.Time  `json:"expires,omitempty"`
	LastUsed  string      `json:"last_used,omitempty"`
	Revoked   *time.Time  `json:"revoked,omitempty"`
	RevokedBy string      `json:"revoked_by,omitempty"`
}

func shapeOf(r *token.Record) tokenShape {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	s := tokenShape{ID: r.ID, Name: r.Name, State: r.StateAt(time.Now()), Admin: r.Admin, Created: at(r.Created), CreatedBy: r.CreatedBy, Expires: at(r.Expires),
		Revoked: at(r.RevokedAt), RevokedBy: r.RevokedBy}
	if !r.LastUsed.IsZero() {
		s.LastUsed = r.LastUsed.Format(time.DateOnly)
	}
	return s
}

func shapesOf(all []*token.Record) []tokenShape {
	shapes := make([]tokenShape, len(all))
	for i, r := range all {
		shapes[i] = shapeOf(r)
	}
	return shapes
}

// madeToken is the answer to a creation: the only one with a secret.
type madeToken struct {
	tokenShape
	Token string `json:"token"`
}

// tokenRequest asks for a token.
type tokenRequest struct {
	Name  string        `json:"name"`
	TTL   time.Duration `json:"ttl_ns"` // 0: it never expires
	Admin bool          `json:"admin"`
}

func (r tokenRequest) by(creator string) token.Request {
	return token.Request{Name: r.Name, By: creator, TTL: r.TTL, Admin: r.Admin}
}

// check refuses what no token may be.
func (r tokenRequest) check() error {
	if err := token.CheckName(r.Name); err != nil {
		return usage("for example --name ci-shop", "--name: %w", err)
	}
	if r.TTL < 0 || r.TTL > mostTTL || r.Admin && (r.TTL == 0 || r.TTL > mostAdminTTL) {
		return usage("for example --ttl 8h", "--ttl: a token with the role admin must expire, within 366d at most")
	}
	return nil
}

// tokenProblem says what to do about a change of tokens that failed.
func tokenProblem(err error) error {
	several, ambiguous := errors.AsType[*token.AmbiguousError](err)
	switch {
	case err == nil, errors.As(err, new(*problemError)), errors.As(err, new(*zk.FatalError)):
		return err
	case ambiguous:
		return usage("gateway token revoke "+several.IDs[0], "%w", err)
	case errors.Is(err, token.ErrNotFound), errors.Is(err, token.ErrRevoked), errors.Is(err, token.ErrTooMany), errors.Is(err, token.ErrIsID):
		return usage("gateway token list shows the tokens", "%w", err)
	case errors.Is(err, zk.ErrNoNode):
		return &problemError{code: exitConfig, err: err, hint: "start a gateway of this release there once, and correct --zk, its chroot or --root"}
	case errors.Is(err, token.ErrUnavailable), errors.Is(err, token.ErrUnknown), errors.Is(err, token.ErrNotReady):
		return &problemError{code: exitUnavailable, err: err, hint: "repeat it in a moment"}
	}
	return err
}

// readyWithin is how long a command waits for a gateway that has just been started.
const readyWithin = 10 * time.Second

// adminTokens serves gateway token on the administration's socket, where the remote address is the user that has connected.
type adminTokens struct {
	store *token.Store
	log   *slog.Logger
}

func (a adminTokens) routes(mux *http.ServeMux) {
	for pattern, do := range map[string]func(*http.Request) (any, error){
		"POST /tokens":           a.create,
		"GET /tokens":            a.list,
		"DELETE /tokens/{which}": a.revoke,
	} {
		adminRoute(mux, pattern, a.log, tokenProblem, func(r *http.Request) (any, error) {
			within, cancel := context.WithTimeout(r.Context(), readyWithin)
			defer cancel()
			if err := a.store.Await(within); err != nil {
				return nil, err
			}
			return do(r)
		})
	}
}

func (a adminTokens) create(r *http.Request) (any, error) {
	var asked tokenRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&asked); err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if err := asked.check(); err != nil {
		return nil, err
	}
	text, made, err := a.store.Create(r.Context(), asked.by(r.RemoteAddr))
	if err != nil {
		return nil, err
	}
	return madeToken{shapeOf(made), text}, nil
}

func (a adminTokens) list(*http.Request) (any, error) {
	all, err := a.store.List()
	return shapesOf(all), err
}

func (a adminTokens) revoke(r *http.Request) (any, error) {
	gone, err := a.store.Revoke(r.Context(), r.PathValue("which"), r.RemoteAddr)
	if err != nil {
		return nil, err
	}
	return shapeOf(gone), nil
}

// tokensOverSocket asks the gateway that runs on a data directory.
type tokensOverSocket struct{ dir string }

func (k tokensOverSocket) create(ctx context.Context, r tokenRequest) (made madeToken, err error) {
	return made, askAdminJSON(ctx, k.dir, http.MethodPost, "/tokens", r, &made)
}

func (k tokensOverSocket) list(ctx context.Context) (all []tokenShape, err error) {
	return all, askAdminJSON(ctx, k.dir, http.MethodGet, "/tokens", nil, &all)
}

func (k tokensOverSocket) revoke(ctx context.Context, which string) (gone tokenShape, err error) {
	return gone, askAdminJSON(ctx, k.dir, http.MethodDelete, "/tokens/"+url.PathEscape(which), nil, &gone)
}
