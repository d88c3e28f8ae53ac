package fleet

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

func keysOf(t assert.T, secret ...layout.TokenKey) *Keys {
	k := assert.Value(NewKeys(secret))(t)
	return k
}

var (
	first  = layout.TokenKey{ID: "k1", Key: []byte("0123456789abcdef0123456789abcdef")}
	second = layout.TokenKey{ID: "k2", Key: []byte("fedcba9876543210fedcba9876543210")}
)

var sealedBefore atomic.Uint64

func sealed(keys *Keys) (*http.Request, []byte, *Seal) {
	body := []byte(`{"ttl":"30s"}`)
	r := httptest.NewRequest("POST", "http://gateway-2:8080/v1/leases/abc/heartbeat?ttl=30s", bytes.NewReader(body))
	for _, name := range covered {
		r.Header.Set(name, "value of "+name)
	}
	r.Header.Set("Origin", "http://evil.example")
	s := &Seal{From: "gatewayone", To: "gatewaytwo", Sender: "one", Number: sealedBefore.Add(1), Registered: 41, Zxid: 42, Lease: "abc", Request: "0123456789abcdef", Client: "192.0.2.1", Caller: "corp:ann b", Roles: []string{"dev", "sre"}}
	keys.Close(s, r, body)
	return r, body, s
}

func TestASealOpensWithAllItsFields(t *testing.T) {
	keys := keysOf(t, first)
	r, body, s := sealed(keys)
	got := assert.Value(keys.Open(r, body))(t)
	if got.From != s.From || got.To != s.To || got.Sender != s.Sender || got.Number != s.Number || got.Registered != 41 || got.Zxid != 42 || got.Lease != "abc" || got.Request != s.Request || got.Client != s.Client || got.Caller != s.Caller || !slices.Equal(got.Roles, s.Roles) {
		t.Errorf("it says %+v", got)
	}
	assert.That(t, len(r.Header) == len(covered) && r.Header.Get("Origin") == "" && r.Header.Get("Lease-Token") != "",
		"what is left of the header is %v", r.Header)
}

// Gateways of the release before know no other.
func TestASealWithoutACallerIsOfTheVersionBefore(t *testing.T) {
	keys := keysOf(t, first)
	r := httptest.NewRequest("GET", "http://gateway-2:8080/v1/locks", nil)
	s := &Seal{From: "one", To: "two"}
	keys.Close(s, r, nil)
	assert.That(t, strings.HasPrefix(r.Header.Get(Header), "2 key=k1 ") && !strings.Contains(r.Header.Get(Header), "caller"), "%s", r.Header.Get(Header))
	got := assert.Value(keys.Open(r, nil))(t)
	assert.That(t, got.Caller == "" && got.Roles == nil, "%+v", got)
}

// Every part of a request that the receiver acts upon, changed or taken away.
func TestASealThatDoesNotFitIsRefused(t *testing.T) {
	keys := keysOf(t, first)
	changes := map[string]func(r *http.Request, body []byte) []byte{
		"method":    func(r *http.Request, b []byte) []byte { r.Method = "DELETE"; return b },
		"path":      func(r *http.Request, b []byte) []byte { r.URL.Path = "/v1/leases/abd/heartbeat"; return b },
		"query":     func(r *http.Request, b []byte) []byte { r.URL.RawQuery = "ttl=31s"; return b },
		"body":      func(_ *http.Request, b []byte) []byte { return append(b, ' ') },
		"no body":   func(_ *http.Request, _ []byte) []byte { return nil },
		"no seal":   func(r *http.Request, b []byte) []byte { r.Header.Del(Header); return b },
		"two seals": func(r *http.Request, b []byte) []byte { r.Header.Add(Header, r.Header.Get(Header)); return b },
		"empty":     func(r *http.Request, b []byte) []byte { r.Header.Set(Header, ""); return b },
		"no mac": func(r *http.Request, b []byte) []byte {
			h := r.Header.Get(Header)
			r.Header.Set(Header, h[:strings.Index(h, " mac=")])
			return b
		},
		"empty mac": func(r *http.Request, b []byte) []byte {
			h := r.Header.Get(Header)
			r.Header.Set(Header, h[:strings.Index(h, " mac=")+5])
			return b
		},
		"short mac": func(r *http.Request, b []byte) []byte {
			h := r.Header.Get(Header)
			r.Header.Set(Header, h[:len(h)-4])
			return b
		},
		"another key": func(r *http.Request, b []byte) []byte { replace(r, "key=k1", "key=k3"); return b },
	}
	for _, name := range covered {
		changes["header "+name] = func(r *http.Request, b []byte) []byte { r.Header[name] = []string{"other"}; return b }
		changes["without "+name] = func(r *http.Request, b []byte) []byte { r.Header.Del(name); return b }
		changes["twice "+name] = func(r *http.Request, b []byte) []byte { r.Header.Add(name, ""); return b }
	}
	for _, field := range []string{"from=gatewayone", "to=gatewaytwo", "sender=one", "registered=41", "zxid=42", "lease=abc", "request=0123456789abcdef", "client=192.0.2.1", "caller=Y29ycDphbm4gYg", "roles=dev,sre"} {
		changes[field] = func(r *http.Request, b []byte) []byte { replace(r, field, field+"7"); return b }
	}
	changes["number"] = func(r *http.Request, b []byte) []byte { replace(r, " number=0", " number=1"); return b }
	changes["a longer number"] = func(r *http.Request, b []byte) []byte { replace(r, " number=", " number=0"); return b }
	changes["spelling"] = func(r *http.Request, b []byte) []byte { replace(r, "zxid=42", "zxid=+42"); return b }
	changes["more words"] = func(r *http.Request, b []byte) []byte { replace(r, " number=", " more=1 number="); return b }
	changes["version"] = func(r *http.Request, b []byte) []byte { replace(r, "3 key=", "1 key="); return b }
	changes["without its caller"] = func(r *http.Request, b []byte) []byte {
		replace(r, " caller=Y29ycDphbm4gYg roles=dev,sre", "")
		return b
	}
	changes["as of a release without callers"] = func(r *http.Request, b []byte) []byte {
		replace(r, " caller=Y29ycDphbm4gYg roles=dev,sre", "")
		replace(r, "3 key=", "2 key=")
		return b
	}
	for name, change := range changes {
		r, body, _ := sealed(keys)
		body = change(r, slices.Clone(body))
		s, err := keys.Open(r, body)
		assert.That(t, errors.Is(err, ErrSeal), "%s: opened as %+v, %v", name, s, err)
	}
}

func replace(r *http.Request, old, new string) {
	h := r.Header.Get(Header)
	if !strings.Contains(h, old) {
		panic(old + " is not in " + h)
	}
	r.Header.Set(Header, strings.Replace(h, old, new, 1))
}

func TestAnotherFleetsSealIsRefused(t *testing.T) {
	mine := keysOf(t, first)
	r, body, _ := sealed(keysOf(t, second))
	_, err := mine.Open(r, body)
	assert.That(t, errors.Is(err, ErrSeal), "by a key of another id: %v", err)
	other := second
	other.ID = first.ID
	r, body, _ = sealed(keysOf(t, other))
	_, err = mine.Open(r, body)
	assert.That(t, errors.Is(err, ErrSeal), "by a key with the same id: %v", err)
}

func TestAnyKeyOfTheFleetOpensAndTheNewestSeals(t *testing.T) {
	both := keysOf(t, second, first)
	r, body, _ := sealed(keysOf(t, first))
	s, err := both.Open(r, body)
	assert.That(t, err == nil && s.key == "k1", "by the older key: %+v %v", s, err)
	r, body, _ = sealed(both)
	s, err = both.Open(r, body)
	assert.That(t, err == nil && s.key == "k2", "by its own: %+v %v", s, err)
	_, err = NewKeys(nil)
	assert.That(t, err != nil, "a fleet without a key")
}

func TestTheSealOfAnAnswerFitsOneRequestAndOneAnswer(t *testing.T) {
	keys := keysOf(t, second, first)
	r, body, _ := sealed(keysOf(t, first)) // the sender's newest is the older one here
	asked := assert.Value(keys.Open(r, body))(t)
	header := func() http.Header {
		h := http.Header{"Date": {"now"}}
		for _, name := range answered {
			h[name] = []string{"value of " + name}
		}
		keys.CloseAnswer(asked, 200, h, []byte("{}"))
		return h
	}
	assert.NoError(t, keys.OpenAnswer(asked, 200, header(), []byte("{}")))
	h := header()
	h.Set("Date", "later")
	assert.Nil(t, keys.OpenAnswer(asked, 200, h, []byte("{}")), "a header that is not passed on counts")
	for _, name := range answered {
		h := header()
		h.Set(name, "other")
		assert.That(t, keys.OpenAnswer(asked, 200, h, []byte("{}")) != nil, "%s was changed", name)
	}
	assert.That(t, keys.OpenAnswer(asked, 201, header(), []byte("{}")) != nil, "the status was changed")
	assert.That(t, keys.OpenAnswer(asked, 200, header(), []byte("{} ")) != nil, "the body was changed")
	assert.That(t, keys.OpenAnswer(asked, 200, http.Header{}, []byte("{}")) != nil, "there is no seal")
	again, body, _ := sealed(keys)
	other := assert.Value(keys.Open(again, body))(t)
	assert.That(t, keys.OpenAnswer(other, 200, header(), []byte("{}")) != nil,
		"it is the answer to the same request, which was sent before")
}

// A seal with any change in its text does not open.
func TestASealHasOneSpelling(t *testing.T) {
	keys := keysOf(t, first)
	rapid.Check(t, func(rt *rapid.T) {
		r, body, _ := sealed(keys)
		text := []byte(r.Header.Get(Header))
		at := rapid.IntRange(0, len(text)-1).Draw(rt, "at")
		to := rapid.Byte().Draw(rt, "to")
		if text[at] == to {
			rt.Skip()
		}
		text[at] = to
		r.Header[Header] = []string{string(text)}
		if s, err := keys.Open(r, body); err == nil {
			rt.Errorf("%s opened as %+v", text, s)
		}
	})
}

// Two different requests never have one seal: their parts do not run together.
func TestPartsDoNotRunTogether(t *testing.T) {
	keys := keysOf(t, first)
	r := httptest.NewRequest("GET", "/a", nil)
	r.Header["Accept"] = []string{"a", "b"}
	keys.Close(&Seal{From: "x", To: "y"}, r, nil)
	for _, accept := range [][]string{{"ab"}, {"a", "b", ""}, {"", "a", "b"}, {"a"}, {"b", "a"}} {
		other := httptest.NewRequest("GET", "/a", nil)
		other.Header["Accept"], other.Header[Header] = accept, r.Header[Header]
		_, err := keys.Open(other, nil)
		assert.That(t, err != nil, "%q passes for two headers a and b", accept)
	}
}
