package authtest

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
)

// decodings are what a text may stand for: itself, and what it is in the encodings that hide a name from a search.
func decodings(text string) []string {
	all := []string{text}
	if s, err := url.QueryUnescape(text); err == nil {
		all = append(all, s)
	}
	plain := strings.TrimRight(all[len(all)-1], "=")
	for _, decode := range []func(string) ([]byte, error){base64.RawStdEncoding.DecodeString, base64.RawURLEncoding.DecodeString, hex.DecodeString,
		func(s string) ([]byte, error) {
			return base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(s))
		},
		func(s string) ([]byte, error) {
			return base32.HexEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(s))
		}} {
		if b, err := decode(plain); err == nil {
			all = append(all, string(b))
		}
	}
	return all
}
