package webhooks

import (
	"encoding/json"
	"strconv"
	"time"
)

// appendEvent appends the event as encoding/json writes it, which a test holds it against: each end is encoded twice, for
// its entry and for its message, and reflection was a third of what a message cost.
func appendEvent(b []byte, e *Event) []byte {
	b = append(b, `{"type":`...)
	b = appendString(b, e.Type)
	b = append(b, `,"time":`...)
	b = appendTime(b, e.Time)
	b = append(b, `,"ns":`...)
	b = appendString(b, e.NS)
	b = append(b, `,"lock":`...)
	b = appendString(b, e.Lock)
	b = appendMember(b, `,"lease_id":`, e.LeaseID)
	b = appendMember(b, `,"program":`, e.Program)
	b = appendMember(b, `,"znode":`, e.Znode)
	b = appendMember(b, `,"owner":`, e.Owner)
	b = appendMember(b, `,"principal":`, e.Principal)
	b = appendMember(b, `,"mode":`, e.Mode)
	if e.FencingToken != 0 {
		b = strconv.AppendInt(append(b, `,"fencing_token":`...), e.FencingToken, 10)
	}
	b = appendMember(b, `,"reason":`, e.Reason)
	b = appendMember(b, `,"detail":`, e.Detail)
	b = appendMember(b, `,"by":`, e.By)
	b = appendMember(b, `,"code":`, e.Code)
	if len(e.Programs) > 0 {
		b = appendList(append(b, `,"programs":`...), len(e.Programs), func(b []byte, i int) []byte { return appendString(b, e.Programs[i]) })
	}
	b = appendMember(b, `,"gateway":`, e.Gateway)
	if e.Waiting {
		b = append(b, `,"waiting":true`...)
	}
	b = appendMember(b, `,"acquire_reason":`, e.Purpose)
	return append(b, '}')
}

// appendList appends a list of n items.
func appendList(b []byte, n int, item func(b []byte, i int) []byte) []byte {
	b = append(b, '[')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = item(b, i)
	}
	return append(b, ']')
}

// appendMember appends a member that is left out when it is empty.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendString(append(b, name...), value)
}

// appendString appends a string of JSON.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			encoded, err := json.Marshal(s)
			if err != nil {
				panic("encoding a string: " + err.Error()) // there is no such string
			}
			return append(b, encoded...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendTime(b []byte, t time.Time) []byte {
	b = t.AppendFormat(append(b, '"'), time.RFC3339Nano)
	return append(b, '"')
}
