package record

import (
	"errors"
	"strings"
	"testing"
	"time"

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
