package record

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strings"
	"sync"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk/layout"
)

// A lease token is lk1.<lease id>.<key id>.<mac>: it names its lease and the
// key it was made with, and only a gateway with that key can make it. The mac is
// HMAC-SHA-256 over the lease id, cut to 128 bits (RFC 2104, section 5).
const tokenVersion = "lk1"

const macBytes = 16

// Tokens makes and checks lease tokens. It is immutable and safe for
// concurrent use.
type Tokens struct {
	keys  []tokenKey // new tokens are made with the first one
	Names keyNames   // of idempotency keys, made of the same secret
}

type tokenKey struct {
	id   string
	macs *sync.Pool // of *macRoom: a heartbeat needs one for a microsecond
}

// macRoom is what making a mac takes, in memory that is used again.
type macRoom struct {
	hash hash.Hash // keyed
	id   [recipe.LeaseIDLen]byte
	sum  [sha256.Size]byte
}

// NewTokens takes the fleet's keys, the signing one first.
func NewTokens(keys []layout.TokenKey, nameKey []byte) *Tokens {
	t := &Tokens{keys: make([]tokenKey, len(keys)), Names: newKeyNames(nameKey)}
	for i, key := range keys {
		t.keys[i] = tokenKey{id: key.ID, macs: &sync.Pool{New: func() any { return &macRoom{hash: hmac.New(sha256.New, key.Key)} }}}
	}
	return t
}

func (t *Tokens) Make(id recipe.LeaseID) string {
	key := t.keys[0]
	sum := key.mac(id)
	var room [128]byte
	token := append(append(append(room[:0], tokenVersion+"."...), id...), '.')
	token = append(append(token, key.id...), '.')
	return string(base64.RawURLEncoding.AppendEncode(token, sum[:]))
}

// Verdict is what Check finds out about a token.
type Verdict uint8

const (
	Forged     Verdict = iota // no gateway of this fleet has made it
	UnknownKey                // it has the form of a token, and its key is not one of the fleet's, or not yet known here
	Genuine                   // by the key that signs
	ByOldKey                  // genuine, by a key that is accepted and signs no more, or not yet
)

// Check tells which lease a token names and whether the token is genuine. The
// comparison takes the same time wherever the first difference is.
func (t *Tokens) Check(token string) (id recipe.LeaseID, is Verdict) {
	version, rest, _ := strings.Cut(token, ".")
	name, rest, _ := strings.Cut(rest, ".")
	keyID, given, ok := strings.Cut(rest, ".")
	if !ok || version != tokenVersion {
		return "", Forged
	}
	id, err := recipe.ParseLeaseID(name)
	if err != nil {
		return "", Forged
	}
	for i, key := range t.keys {
		if key.id != keyID {
			continue
		}
		var mac [macBytes]byte
		if base64.RawURLEncoding.DecodedLen(len(given)) != macBytes {
			return id, Forged
		}
		// Strict: a token has one spelling.
		if _, err := base64.RawURLEncoding.Strict().Decode(mac[:], []byte(given)); err != nil {
			return id, Forged
		}
		want := key.mac(id)
		switch {
		case !hmac.Equal(mac[:], want[:]):
			return id, Forged
		case i > 0:
			return id, ByOldKey
		}
		return id, Genuine
	}
	return id, UnknownKey
}

func (k tokenKey) mac(id recipe.LeaseID) (mac [macBytes]byte) {
	room := k.macs.Get().(*macRoom)
	defer k.macs.Put(room)
	room.hash.Reset()
	room.hash.Write(room.id[:copy(room.id[:], id)])
	copy(mac[:], room.hash.Sum(room.sum[:0]))
	return mac
}
