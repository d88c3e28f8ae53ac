package record

import (
	"strings"
	"testing"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

// zeroes is a source of ids that is always the same.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestATokenHasOneSpellingAndOneLease(t *testing.T) {
	fleet, _ := recipe.NewFleetID(zeroes{})
	gateway, _ := recipe.NewGatewayID(zeroes{})
	id := assert.Value(recipe.NewLeaseID(fleet, gateway, zeroes{}))(t)
	old := NewTokens([]layout.TokenKey{{ID: "k1", Key: []byte("one key")}}, nil)
	both := NewTokens([]layout.TokenKey{{ID: "k2", Key: []byte("a newer key")}, {ID: "k1", Key: []byte("one key")}}, nil)
	token := old.Make(id)
	got, is := both.Check(token)
	assert.Must(t, got == id && is == ByOldKey, "%s is %s, %v: a key that is still there makes tokens good", token, got, is)
	newer := both.Make(id)
	assert.That(t, newer != token && strings.Contains(newer, ".k2."), "a new token is made with the newest key: %s", newer)
	mac := token[strings.LastIndexByte(token, '.')+1:]
	last := strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", mac[len(mac)-1])
	sameBits := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last^1]
	for what, forged := range map[string]string{
		"empty":           "",
		"no mac":          strings.TrimSuffix(token, "."+mac),
		"an empty mac":    strings.TrimSuffix(token, mac),
		"a short mac":     token[:len(token)-1],
		"a long mac":      token + "A",
		"another mac":     strings.Replace(token, mac[:1], string(mac[0]^1), 1)[:len(token)-len(mac)] + string(mac[0]^1) + mac[1:],
		"unused bits":     token[:len(token)-1] + string(sameBits),
		"no base64":       token[:len(token)-1] + "!",
		"an unknown key":  strings.Replace(token, ".k1.", ".k3.", 1),
		"another version": "lk2" + token[3:],
		"another lease":   strings.Replace(token, string(id), string(id[:len(id)-1])+"b", 1),
		"a fifth part":    token + ".x",
	} {
		_, is := old.Check(forged)
		assert.Equal(t, is == UnknownKey, what == "an unknown key", "whether the key of "+what+" is unknown")
		assert.That(t, is == Forged || is == UnknownKey, "%s passes: %s", what, forged)
	}
}
