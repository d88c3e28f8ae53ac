package idempotency

import (
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

func TestKeysGoInTheOrderOfTheirEnds(t *testing.T) {
	ks := New()
	a, b := &Key{Hash: "a"}, &Key{Hash: "b"}
	ks.Add(a)
	ks.Add(b)
	ks.End(b, locks.ReasonReleased, time.Second)
	ks.End(a, locks.ReasonExpired, 2*time.Second)
	assert.That(t, ks.Get("a") == a && ks.Len() == 2 && ks.Ended() == 2 && b.Reason == locks.ReasonReleased, "%+v", ks)
	assert.That(t, ks.Pop(time.Second-1) == nil, "a key goes too early")
	assert.That(t, ks.Pop(time.Second) == b && ks.Pop(time.Second) == nil && ks.Pop(time.Hour) == a && ks.Pop(time.Hour) == nil, "the order is another one")
	assert.That(t, ks.Len() == 2, "a key that was popped is forgotten before its node is deleted")
	newer := &Key{Hash: "a"}
	ks.Add(newer)
	ks.Drop(a)
	ks.Drop(nil)
	assert.That(t, ks.Get("a") == newer, "the drop of a key took the one that has its hash by now")
	ks.Drop(newer)
	ks.Forget("b")
	assert.Equal(t, ks.Len(), 0, "keys")
}

func TestAKeysRecordIsReadAgain(t *testing.T) {
	for name, data := range map[string]string{"no JSON": "{", "no lease": "{}", "another program's": `{"lease_id":"x"}`} {
		_, err := Parse("h", []byte(data))
		assert.That(t, err != nil, "%s is a key", name)
	}
	lease := assert.Value(recipe.NewLeaseID("abcdefgh", "abcdefghabcda", strings.NewReader("0123456789")))(t)
	k := Key{Hash: "h", Fingerprint: "f", Lease: lease}
	again, err := Parse("h", k.Record("default", "deploy"))
	assert.That(t, err == nil && *again == k, "%+v, %v", again, err)
}
