package locks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// A lease token is lk1.<lease id>.<key id>.<mac>: it names its lease and the
// key it was made with, and nobody without that key can make one. The mac is
// HMAC-SHA-256 over the lease id, cut to 128 bits (RFC 2104, section 5).
const tokenVersion = "lk1"

const macBytes = 16

// tokens makes and checks lease tokens. It is immutable.
type tokens struct {
	keys []zk.TokenKey // the newest first: new tokens are made with it
}

func (t tokens) make(id recipe.LeaseID) string {
	key := t.keys[0]
	return tokenVersion + "." + string(id) + "." + key.ID + "." + mac(key.Key, id)
}

// check tells which lease a token names and whether the token is genuine. The
// comparison takes the same time wherever the first difference is.
func (t tokens) check(token string) (id recipe.LeaseID, genuine bool) {
	version, rest, _ := strings.Cut(token, ".")
	name, rest, _ := strings.Cut(rest, ".")
	keyID, given, ok := strings.Cut(rest, ".")
	if !ok || version != tokenVersion {
		return "", false
	}
	id, err := recipe.ParseLeaseID(name)
	if err != nil {
		return "", false
	}
	for _, key := range t.keys {
		if key.ID == keyID {
			return id, hmac.Equal([]byte(given), []byte(mac(key.Key, id)))
		}
	}
	return id, false
}

func mac(key []byte, id recipe.LeaseID) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:macBytes])
}
