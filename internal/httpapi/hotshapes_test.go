package httpapi

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// oddTexts are what clients may put into an answer.
var oddTexts = []string{"", "me", "two words", `{"job":7}`, `a\b`, "line\nbreak\t", "$(reboot)", "`x`", "\x00\x1f\x7f", "<b>&amp;</b>", "Grüße", "日本", "😀",
	"\u2028\u202e\ufeff", "\U000e0001", "\xff\xfe", "\ufffd"}

// fill gives every field of a value something odd, or nothing.
func fill(r *rand.Rand, v reflect.Value) {
	if r.IntN(3) == 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(oddTexts[r.IntN(len(oddTexts))])
	case reflect.Int, reflect.Int64:
		v.SetInt([]int64{-1, 1, 999_999, 1_000_000, 30_000_000_001, 1 << 62}[r.IntN(6)])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(r, v.Field(i))
			}
		}
	}
}

// heartbeatShape is the answer to a heartbeat as the specification has it.
func heartbeatShape(h *locks.Heartbeat) api.Heartbeat {
	return api.Heartbeat{
		LeaseID: h.LeaseID, State: api.State(h.State), ExpiresInMS: millis(h.ExpiresIn), TTLMS: millis(h.TTL),
		FencingToken: h.FencingToken, Position: h.Position, Waiters: h.Waiters, RevokeRequested: revocation(h.Revoke),
	}
}

// sameAnswers holds the two encodings of a lease and a heartbeat against each other.
func sameAnswers(t *testing.T, l *locks.Lease, h *locks.Heartbeat) {
	t.Helper()
	x := newExchange(nil)
	shape := leaseShape(l)
	x.encode(&shape)
	want := x.out.String()
	x.encodeLease(l)
	assert.Equal(t, x.out.String(), want)
	beat := heartbeatShape(h)
	x.encode(&beat)
	want = x.out.String()
	x.encodeHeartbeat(h)
	assert.Equal(t, x.out.String(), want)
}

func TestTheHotAnswersAreWhatTheirShapesAre(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		var l locks.Lease
		var h locks.Heartbeat
		for i := range reflect.TypeFor[locks.Lease]().NumField() {
			fill(r, reflect.ValueOf(&l).Elem().Field(i))
		}
		for i := range reflect.TypeFor[locks.Heartbeat]().NumField() {
			fill(r, reflect.ValueOf(&h).Elem().Field(i))
		}
		if r.IntN(4) == 0 {
			l.EndsAt = time.UnixMilli(r.Int64N(1 << 41))
		}
		if r.IntN(2) == 0 {
			l.State = []locks.State{locks.Held, locks.Waiting, locks.Ended}[r.IntN(3)]
		}
		sameAnswers(t, &l, &h)
	}
}

func FuzzTheHotAnswersAreWhatTheirShapesAre(f *testing.F) {
	for _, text := range oddTexts {
		f.Add(text, "held", int64(1<<33), int64(30*time.Second))
	}
	f.Fuzz(func(t *testing.T, text, state string, n, span int64) {
		sameAnswers(t, &locks.Lease{ID: text, State: locks.State(state), Owner: text, Metadata: text, FencingToken: n, TTL: time.Duration(span), Holds: []string{text}},
			&locks.Heartbeat{LeaseID: text, State: locks.State(state), FencingToken: n, TTL: time.Duration(span), Revoke: &locks.Revocation{Reason: text}})
	})
}
