package record

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// What is read without reflection must be what encoding/json reads of the same bytes, without members of a later release.
func FuzzAPlainRecordIsReadAsJSONReadsIt(f *testing.F) {
	for _, data := range []string{
		`{"v":1,"owner":"bench","ttl_ms":86400000,"enqueued_ms":1763890000000}`, `{"v":1,"ttl_ms":1000,"enqueued_ms":0}`,
		`{"v":1,"owner":"","ttl_ms":1000,"enqueued_ms":0}`, `{"v":1,"owner":"a\"b","ttl_ms":1000,"enqueued_ms":0}`,
		`{"v":1,"owner":"a","principal":"token:b","ttl_ms":1000,"enqueued_ms":0}`, `{"v":1,"principal":"token:b","ttl_ms":1000,"enqueued_ms":0}`,
		`{"v":1,"principal":"","ttl_ms":1000,"enqueued_ms":0}`, `{"v":1,"principal":"b","owner":"a","ttl_ms":1000,"enqueued_ms":0}`,
		`{"v":1,"owner":"a","owner":"b","ttl_ms":1000,"enqueued_ms":0}`, `{"v":1,"ttl_ms":1000,"enqueued_ms":0,"later":1}`,
		`{"v":1,"ttl_ms":1000,"enqueued_ms":3,"granted_ms":4,"at_once":1}`, `{"v":1,"ttl_ms":1000,"enqueued_ms":3,"at_once":2147483648}`,
		`{"v":1,"ttl_ms":1000,"enqueued_ms":3,"granted_ms":0}`, `{"v":1,"ttl_ms":1000,"enqueued_ms":3,"at_once":1,"granted_ms":4}`,
		`{"v":1,"ttl_ms":1000,"enqueued_ms":-1}`, `{"v":01,"ttl_ms":1000,"enqueued_ms":1}`, `{"v":1,"ttl_ms":1e3,"enqueued_ms":1}`,
		`{"v":1,"ttl_ms":9223372036854775807,"enqueued_ms":9223372036854775808}`, `{"v":1,"ttl_ms":1000,"enqueued_ms":1} `,
		`{"v":,"ttl_ms":1000,"enqueued_ms":1}`, `{"v":1,"ttl_ms":1000}`, `{"v":1,"owner":"ä","ttl_ms":1,"enqueued_ms":1}`, `__REVOKE__`, ``,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		plain, ok := parsePlain(data)
		if !ok {
			assert.That(t, reflect.DeepEqual(plain, Record{}), "%q is not plain, and is read as %+v", data, plain)
			return
		}
		var whole Record
		var members map[string]json.RawMessage
		assert.Must(t, json.Unmarshal(data, &whole) == nil && json.Unmarshal(data, &members) == nil, "%q is no JSON object", data)
		assert.That(t, reflect.DeepEqual(plain, whole), "%q is read as %+v instead of %+v", data, plain, whole)
		assert.Equal(t, string(plain.Encode()), string(data), "written again")
		for name := range members {
			assert.That(t, recordMembers[name], "%q has the member %q of a later release", data, name)
		}
	})
}

func TestAPlainRecordIsReadWithoutReflection(t *testing.T) {
	data := Record{Version: Version, Owner: "bench", Principal: "token:bench", TTL: 86_400_000, Enqueued: 1_763_890_000_000, AtOnce: 8}.Encode()
	_, plain := parsePlain(data)
	assert.That(t, plain, "%s is not plain", data)
	allocs := testing.AllocsPerRun(100, func() {
		if _, ok := Parse(data); !ok {
			t.Fatal("no record")
		}
		if more, ok := OtherMembers(data); more != nil || !ok {
			t.Fatal("a plain record has more members")
		}
	})
	assert.That(t, allocs <= 4, "%v allocations", allocs) // the owner and the principal, twice
}

// A contender that is made anew has another number, which may be the one that its record names.
func TestARenumberedRecordKeepsTheTimeOfTheGrantAndNoNumber(t *testing.T) {
	for name, c := range map[string]struct {
		give    Record
		granted int64
	}{
		"granted at once":        {Record{Version: 1, TTL: 1000, Enqueued: 5, AtOnce: 8}, 5},
		"and with more":          {Record{Version: 1, TTL: 1000, Enqueued: 5, AtOnce: 8, Metadata: "m"}, 5},
		"it waited":              {Record{Version: 1, TTL: 1000, Enqueued: 5, AtOnce: 7}, 0},
		"it waited, with more":   {Record{Version: 1, TTL: 1000, Enqueued: 5, AtOnce: 7, Metadata: "m"}, 0},
		"the grant was written":  {Record{Version: 1, TTL: 1000, Enqueued: 5, Granted: 6}, 6},
		"nothing is known of it": {Record{Version: 1, TTL: 1000, Enqueued: 5}, 0},
	} {
		r, ok := Parse(Renumbered(c.give.Encode(), 7))
		want := c.give
		want.Granted, want.AtOnce = c.granted, 0
		assert.That(t, ok && reflect.DeepEqual(r, want), "%s: %+v", name, r)
	}
	assert.Equal(t, string(Renumbered([]byte("unlock"), 7)), "unlock")
}

func TestWhatARecordSaysOfTheGrantIsBounded(t *testing.T) {
	for _, r := range []Record{{Granted: -1}, {AtOnce: -1}, {AtOnce: 1 << 40}, {AtOnce: 9}} {
		r.Version, r.TTL = 1, 1000
		data, err := json.Marshal(r)
		assert.NoError(t, err)
		read, ok := Parse(data)
		_, known := read.GrantedAt(7, time.Hour)
		assert.That(t, ok && !known, "%s is read as %+v", data, read)
	}
	r := Record{Granted: 1 << 62}
	at, known := r.GrantedAt(7, time.Hour)
	assert.That(t, known && at > time.Hour, "%v", at)
	r.Granted = 5
	at, _ = r.GrantedAt(7, time.Hour)
	assert.Equal(t, at, time.Hour, "before it was queued")
}
