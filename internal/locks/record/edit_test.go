package record

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

func valid() Record {
	r := Record{Version: Version, Owner: "ci"}
	r.SetTTL(time.Minute)
	return r
}

// An edit of another gateway's record keeps what this release does not know, to the last digit.
func TestAnEditKeepsUnknownMembers(t *testing.T) {
	data := valid().Encode()
	data = []byte(strings.TrimSuffix(string(data), "}") + `,"later":{"n":9007199254740993}}`)
	edited, err := Edit(data, func(r Record, members Members) bool {
		assert.Equal(t, r.Owner, "ci", "owner")
		members.Set("beats", r.Beats+1)
		return true
	})
	assert.NoError(t, err)
	r, ok := Parse(edited)
	assert.That(t, ok && r.Beats == 1 && r.Owner == "ci" && strings.Contains(string(edited), `"later":{"n":9007199254740993}`), "%s", edited)
	edited, err = Edit(data, func(Record, Members) bool { return false })
	assert.That(t, edited == nil && err == nil, "nothing to write: %s, %v", edited, err)
}

func TestAnEditOfNoRecordIsRefused(t *testing.T) {
	for _, data := range []string{"", "unlock", "{", "[]"} {
		_, err := Edit([]byte(data), func(Record, Members) bool { t.Errorf("%q is a record", data); return true })
		assert.That(t, errors.Is(err, ErrNoRecord), "%q: %v", data, err)
	}
	_, err := Edit(valid().Encode(), func(_ Record, members Members) bool {
		members.Set("later", strings.Repeat("x", MaxData))
		return true
	})
	assert.That(t, errors.Is(err, ErrNoRecord), "a record that is too large: %v", err)
}

func TestARecordIsWrittenAsItsJSON(t *testing.T) {
	whole := Record{Version: 1, Owner: "me", Principal: "token:ci", TTL: 2, Metadata: "m", Enqueued: 3, Granted: 9, AtOnce: 10, Holds: []string{"h"}, Released: []string{"r"}, LockDelay: 4, LockDelayOn: locks.DelayAlways,
		Closed: &Closed{}, Revoke: &Revocation{}, RevokeRound: 5, Beats: 6, Told: true, Notify: "https://example.com", AtLeast: 7, Once: &Once{}, OnDeadlock: locks.DeadlockFail, Purpose: "load test", Reserve: &Reserve{For: 7, Until: 8, Stays: true}, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", More: map[string]json.RawMessage{"x": []byte("1")}}
	check := func(r Record) {
		t.Helper()
		want, err := json.Marshal(r)
		assert.NoError(t, err)
		if r.More != nil {
			want = withMembers(want, r.More)
		}
		assert.Equal(t, string(r.Encode()), string(want))
	}
	check(Record{})
	check(whole)
	for i := range reflect.TypeFor[Record]().NumField() { // each member with what nearly all records have
		from := reflect.ValueOf(whole)
		assert.That(t, !from.Field(i).IsZero(), "the test has no %s", from.Type().Field(i).Name)
		r := Record{Version: 1, TTL: 60_000, Enqueued: 1_790_000_000_000}
		reflect.ValueOf(&r).Elem().Field(i).Set(from.Field(i))
		check(r)
	}
	for c := range rune(256) {
		check(Record{Version: 1, Owner: "o" + string(c) + "o", TTL: 1})
		check(Record{Version: 1, Owner: string([]byte{'o', byte(c)}), TTL: 1})
		check(Record{Version: 1, Owner: "o", Principal: "p" + string(c), TTL: 1})
	}
}

// Another program may have written anything: what is exported of a record is a traceparent or nothing.
func TestATraceOfARecordIsATraceparent(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for said, want := range map[string]string{trace: trace, trace + strings.Repeat("0", 1000): "", "00-" + strings.Repeat("0", 32) + trace[35:]: "", "x": ""} {
		r := valid()
		r.Trace = said
		read, ok := Parse(r.Encode())
		assert.That(t, ok && read.Trace == want, "%q is read as %q", said, read.Trace)
	}
}
