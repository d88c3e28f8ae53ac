package session

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

var (
	oldKey = layout.TokenKey{ID: "aaaa", Key: []byte("the first key of the fleet, 32 B.")}
	newKey = layout.TokenKey{ID: "bbbb", Key: []byte("the second key of the fleet, 32 B")}
)

func sealer(keys ...layout.TokenKey) *Sealer {
	return &Sealer{Secret: func() []layout.TokenKey { return keys }}
}

type content struct{ Name string }

func TestWhatOneGatewaySealsEachGatewayOfTheFleetOpens(t *testing.T) {
	value := assert.Value(sealer(oldKey).Seal(Session, content{"ann"}))(t)
	assert.That(t, !strings.Contains(value, "ann"), "it can be read: %s", value)
	var got content
	assert.NoError(t, sealer(oldKey).Open(Session, value, &got))
	assert.Equal(t, got.Name, "ann")
	assert.That(t, assert.Value(sealer(oldKey).Seal(Session, content{"ann"}))(t) != value, "the same content is sealed alike")

	// During a rotation every key of the secret opens, and the one that signs seals.
	assert.NoError(t, sealer(newKey, oldKey).Open(Session, value, &got))
	newer := assert.Value(sealer(newKey, oldKey).Seal(Session, content{"bob"}))(t)
	assert.NoError(t, sealer(newKey).Open(Session, newer, &got))
	assert.ErrorIs(t, sealer(newKey).Open(Session, value, &got), ErrSealed, "a key that was dropped opens")
}

func TestWhatWasNotSealedForThatPurposeDoesNotOpen(t *testing.T) {
	s := sealer(oldKey)
	value := assert.Value(s.Seal(Login, content{"ann"}))(t)
	var got content
	assert.ErrorIs(t, s.Open(Session, value, &got), ErrSealed, "a login's state is a session")
	flipped := []byte(value)
	flipped[len(flipped)/2] ^= 1
	other := layout.TokenKey{ID: oldKey.ID, Key: newKey.Key}
	foreign := assert.Value(sealer(other).Seal(Login, content{"eve"}))(t)
	for _, wrong := range []string{"", ".", "aaaa.", "aaaa", "bbbb." + value[5:], string(flipped), value + "A", value[:len(value)-2], foreign, strings.Repeat("a", 1<<16)} {
		assert.ErrorIs(t, s.Open(Login, wrong, &got), ErrSealed, "%.60q", wrong)
	}
	assert.Equal(t, got, content{}, "something was read of what does not open")
	assert.ErrorIs(t, sealer().Open(Login, value, &got), ErrNotReady)
	_, err := sealer().Seal(Login, got)
	assert.ErrorIs(t, err, ErrNotReady)
	_, err = s.Seal(Session, content{strings.Repeat("x", MaxCookie)})
	assert.ErrorIs(t, err, ErrTooLarge)
}

func request(host string, overTLS bool) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = host
	if r.TLS = nil; overTLS {
		r.TLS = &tls.ConnectionState{}
	}
	return r
}

// Everywhere but on this machine without TLS the browser is told to keep the cookie from plain HTTP.
func TestTheCookieHasThePrefixOfHostsButOnLoopbackWithoutTLS(t *testing.T) {
	for host, onLoopback := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LocalHost:1": true, "127.0.0.1:8080": true, "127.9.9.9": true, "[::1]:8080": true,
		"gw.example.com": false, "localhost.example.com:80": false, "10.0.0.1:8080": false, "[2001:db8::1]": false, "": false,
	} {
		for _, overTLS := range []bool{false, true} {
			r, w := request(host, overTLS), httptest.NewRecorder()
			Keep(w, r, Session, "value", time.Now().Add(time.Hour))
			Forget(w, r, Login)
			set := w.Result().Cookies()
			plain := onLoopback && !overTLS
			name, origin := "__Host-lockkeeper", "https://"+host
			if plain {
				name, origin = "lockkeeper", "http://"+host
			}
			c := set[0]
			assert.That(t, c.Name == name && c.Secure != plain && c.HttpOnly && c.SameSite == http.SameSiteLaxMode && c.Path == "/" && c.Domain == "" && c.Value == "value" &&
				c.MaxAge > 3590 && c.MaxAge <= 3600, "%s, TLS %t: %s", host, overTLS, c)
			assert.That(t, set[1].Name == name+"-login" && set[1].MaxAge < 0 && set[1].Secure != plain, "%s: %s", host, set[1])
			assert.Equal(t, Origin(r), origin)
		}
	}
}

func TestACookieWithoutThePrefixIsNoSessionOverTLS(t *testing.T) {
	r := request("gw.example.com", true)
	r.Header.Set("Cookie", "lockkeeper=planted; __Host-lockkeeper-login=other")
	value, several := Given(r, Session)
	assert.That(t, value == "" && !several, "%q", value)
	r.Header.Set("Cookie", "__Host-lockkeeper=one; a=b; __Host-lockkeeper=two")
	value, several = Given(r, Session)
	assert.That(t, value == "one" && several, "%q %t", value, several)
	value, several = Given(request("localhost", false), Session)
	assert.That(t, value == "" && !several, "%q", value)
}

func FuzzOpen(f *testing.F) {
	s := sealer(oldKey)
	value, err := s.Seal(Session, content{"ann"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add("aaaa.AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		var got content
		if err := s.Open(Session, text, &got); err == nil && strings.NewReplacer("\r", "", "\n", "").Replace(text) != value { // base64 ignores ends of lines
			t.Errorf("%q opens", text)
		} else if err != nil && !errors.Is(err, ErrSealed) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
