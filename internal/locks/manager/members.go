package manager

import (
	"encoding/json"
	"reflect"
	"strings"
)

// A record grows with each release: a gateway that succeeds one of a later release must
// not lose what that one has written, when it writes the record itself.

// recordMembers are the members of a record that this release knows.
var recordMembers = func() map[string]bool {
	known := map[string]bool{}
	for field := range reflect.TypeFor[record]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			known[name] = true
		}
	}
	return known
}()

// learnMore keeps the members of a lease's record that only a later release knows.
func (l *lease) learnMore(data []byte) {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return
	}
	size := 0
	for name, value := range members {
		if recordMembers[name] {
			delete(members, name)
			continue
		}
		size += len(value)
	}
	if more, err := json.Marshal(members); err != nil || max(size, len(more)) > maxMoreData {
		members = nil
	}
	if len(members) > 0 || l.seldom != nil && l.seldom.more != nil {
		l.few().more = members
	}
}

// encodeMembers is the data of another gateway's record with members changed. What encoding makes larger than a record
// may be is not written: the record's owner would not know it again.
func encodeMembers(members any) ([]byte, error) {
	data, err := json.Marshal(members)
	if err == nil && len(data) > maxRecordData {
		err = errNoRecord
	}
	return data, err
}

// withMembers is a record's data with more members.
func withMembers(data []byte, more map[string]json.RawMessage) []byte {
	if len(more) == 0 {
		return data
	}
	rest, err := json.Marshal(more)
	if err != nil {
		panic("encoding members of a record: " + err.Error()) // they have just been decoded
	}
	return append(append(data[:len(data)-1], ','), rest[1:]...)
}
