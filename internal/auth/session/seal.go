package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"lockkeeper/internal/zk/layout"
)

// keyInfo is the HKDF info that separates the keys of cookies from others derived from the cluster secret.
const keyInfo = "lockkeeper session 1"

// MaxCookie bounds a sealed value, in bytes: browsers keep cookies of 4096 bytes with their names.
const MaxCookie = 3800

// Purpose is what a cookie is for. One that was sealed for another purpose does not open.
type Purpose string

// The purposes.
const (
	Session Purpose = "session" // a user who has logged in
	Login   Purpose = "login"   // a login through an issuer that is under way
)

// Errors of Open and Seal.
var (
	ErrNotReady = errors.New("the cluster secret has not been read yet")
	ErrSealed   = errors.New("the cookie is not one that this fleet has sealed")
	ErrTooLarge = fmt.Errorf("the cookie must have at most %d bytes", MaxCookie)
)

// Sealer seals and opens what browsers keep.
type Sealer struct {
	// Secret are the cluster secret's keys, the one that signs first; nil while they are not known.
	Secret func() []layout.TokenKey
}

// Seal makes a cookie's value of content.
func (s *Sealer) Seal(p Purpose, content any) (string, error) {
	keys := s.Secret()
	if len(keys) == 0 {
		return "", ErrNotReady
	}
	plain, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	key := &keys[0]
	box, err := boxOf(key)
	if err != nil {
		return "", err
	}
	value := key.ID + "." + base64.RawURLEncoding.EncodeToString(box.Seal(nil, nil, plain, []byte(p)))
	if len(value) > MaxCookie {
		return "", ErrTooLarge
	}
	return value, nil
}

// Open reads a cookie's value into content.
func (s *Sealer) Open(p Purpose, value string, content any) error {
	keys := s.Secret()
	if len(keys) == 0 {
		return ErrNotReady
	}
	id, text, _ := strings.Cut(value, ".")
	if len(value) > MaxCookie {
		return ErrSealed
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return ErrSealed
	}
	for i := range keys {
		if keys[i].ID != id {
			continue
		}
		box, err := boxOf(&keys[i])
		if err != nil {
			return err
		}
		plain, err := box.Open(nil, nil, sealed, []byte(p))
		if err != nil || json.Unmarshal(plain, content) != nil {
			return ErrSealed
		}
		return nil
	}
	return ErrSealed
}

// boxOf puts a random nonce in front of what it seals.
func boxOf(key *layout.TokenKey) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, key.Key, nil, keyInfo, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
