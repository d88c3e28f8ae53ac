package record

import (
	"sync/atomic"

	"lockkeeper/internal/zk/layout"
)

// Ring makes the tokens of the secret that is in force. The secret changes while a gateway runs. Its methods may be called from any
// goroutine.
type Ring struct {
	secret func() *layout.Secret
	made   atomic.Pointer[ringTokens]
}

// ringTokens are the tokens of one state of the secret.
type ringTokens struct {
	of     *layout.Secret
	tokens *Tokens
}

// NewRing makes a ring over a secret that is there, such as that of a layout.Keyring.
func NewRing(secret func() *layout.Secret) *Ring { return &Ring{secret: secret} }

// Tokens are those of the secret that is in force now. It allocates only when the secret has changed.
func (r *Ring) Tokens() *Tokens {
	now := r.secret()
	if made := r.made.Load(); made != nil && made.of == now {
		return made.tokens
	}
	tokens := NewTokens(now.Keys, now.NameKey)
	r.made.Store(&ringTokens{now, tokens})
	return tokens
}
