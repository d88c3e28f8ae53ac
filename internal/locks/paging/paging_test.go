package paging

import (
	"encoding/base64"
	"strings"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

func TestCursors(t *testing.T) {
	for _, p := range []QueuePlace{{}, {Waiters: 7}, {Waiters: 7, Holders: 3}} {
		got, err := QueuePlaceAt(p.Cursor())
		assert.That(t, got == p && err == nil, "%v became %v, %v", p, got, err)
	}
	at, err := Locks.At(Locks.Cursor("deploy/a"))
	assert.That(t, at == "deploy/a" && err == nil, "%q, %v", at, err)
	at, err = Leases.At(locks.LeaseCursor("id"))
	assert.That(t, at == "id" && err == nil, "%q, %v", at, err)
	raw := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for _, cursor := range []string{"!", raw("k"), raw("xdeploy"), Leases.Cursor("deploy")} {
		_, err := Locks.At(cursor)
		assert.That(t, err != nil, "%q is a cursor of locks", cursor)
	}
	for _, cursor := range []string{raw("w-1"), raw("w1,"), raw("w1,-1"), raw("w99999999999"), Locks.Cursor("1")} {
		_, err := QueuePlaceAt(cursor)
		assert.That(t, err != nil, "%q is a cursor in a queue", cursor)
	}
}

func TestTextsBeyondTheBudgetAreTrimmed(t *testing.T) {
	entry := func(metadata int) locks.Contender {
		return locks.Contender{Owner: "ci", Metadata: strings.Repeat("m", metadata), Holds: []string{"h"}, Group: []string{"g"},
			Foreign: &locks.Foreign{Program: "curator", Data: []byte("d")}, Revoke: &locks.Revocation{Reason: "r", Forced: true}}
	}
	list := []locks.Contender{entry(1000), entry(1000), entry(1)}
	b := Budget(2000)
	b.Trim(list)
	assert.That(t, list[0].Metadata != "" && list[0].Foreign.Data != nil, "what fits is trimmed: %+v", list[0])
	for _, c := range list[1:] { // the last one would fit, and stands behind one that does not
		assert.That(t, c.Metadata == "" && c.Holds == nil && c.Group == nil && c.Foreign.Data == nil && c.Revoke.Reason == "", "%+v", c)
		assert.That(t, c.Owner == "ci" && c.Foreign.Program == "curator" && c.Revoke.Forced, "%+v", c)
	}
}

func TestAnEntryIsCountedOnceIfItFits(t *testing.T) {
	b := Budget(400)
	lock := locks.Lock{Name: strings.Repeat("n", 100), Holders: []locks.Contender{{}}}
	lease := locks.Lease{ID: strings.Repeat("i", 100)}
	assert.That(t, !b.TakeContender(&locks.Contender{Znode: strings.Repeat("z", 400)}) && b == 400, "%d bytes are left after a contender that does not fit", b)
	assert.That(t, b.TakeLock(&lock) && b == 44, "%d bytes are left after a lock", b)
	assert.That(t, !b.TakeLease(&lease) && b == 44, "%d bytes are left after a lease that does not fit", b)
}
