package record

import (
	"bytes"
	"strconv"
)

// Nearly all records are plain: they have the members that each has and perhaps an owner and a principal, and are written without reflection. A
// start with very many leases reads as many of them.

// plain reports whether a record has no other members than nearly all have, and an owner and a principal that JSON writes as they are. Encode
// and Parse then need no reflection.
func (r *Record) plain() bool {
	return isPlain(r.Owner) && isPlain(r.Principal) && r.Metadata == "" && r.Holds == nil && r.Released == nil && r.LockDelay == 0 && r.LockDelayOn == "" && r.Closed == nil &&
		r.Revoke == nil && r.RevokeRound == 0 && r.Beats == 0 && !r.Told && r.Notify == "" && r.AtLeast == 0 && r.Once == nil && r.Trace == "" && r.OnDeadlock == "" && r.More == nil && r.Purpose == "" && r.Reserve == nil
}

func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

func (r *Record) encodePlain() []byte {
	b := make([]byte, 0, len(r.Owner)+len(r.Principal)+112)
	b = strconv.AppendInt(append(b, `{"v":`...), int64(r.Version), 10)
	if r.Owner != "" {
		b = append(append(append(b, `,"owner":"`...), r.Owner...), '"')
	}
	if r.Principal != "" {
		b = append(append(append(b, `,"principal":"`...), r.Principal...), '"')
	}
	b = strconv.AppendInt(append(b, `,"ttl_ms":`...), r.TTL, 10)
	b = strconv.AppendInt(append(b, `,"enqueued_ms":`...), r.Enqueued, 10)
	if r.Granted != 0 {
		b = strconv.AppendInt(append(b, `,"granted_ms":`...), r.Granted, 10)
	}
	if r.AtOnce != 0 {
		b = strconv.AppendInt(append(b, `,"at_once":`...), r.AtOnce, 10)
	}
	return append(b, '}')
}

// parsePlain reads what encodePlain writes, and nothing else: JSON that says the same in another way is for encoding/json.
func parsePlain(data []byte) (r Record, ok bool) {
	version, rest, ok := plainMember(data, `{"v":`)
	if ok {
		r.Owner, rest, ok = plainText(rest, `,"owner":"`)
	}
	if ok {
		r.Principal, rest, ok = plainText(rest, `,"principal":"`)
	}
	if ok {
		r.TTL, rest, ok = plainMember(rest, `,"ttl_ms":`)
	}
	if ok {
		r.Enqueued, rest, ok = plainMember(rest, `,"enqueued_ms":`)
	}
	if ok {
		r.Granted, rest, ok = plainOptional(rest, `,"granted_ms":`)
	}
	if ok {
		r.AtOnce, rest, ok = plainOptional(rest, `,"at_once":`)
	}
	r.Version = int(version)
	if !ok || string(rest) != "}" || !r.plain() {
		return Record{}, false
	}
	return r, true
}

// plainText reads a text behind its name, "" where the name is not. An empty text is not plain.
func plainText(data []byte, name string) (text string, rest []byte, ok bool) {
	behind, found := bytes.CutPrefix(data, []byte(name))
	if !found {
		return "", data, true
	}
	value, rest, ok := bytes.Cut(behind, []byte{'"'})
	return string(value), rest, ok && len(value) > 0
}

// plainOptional reads a number that may not be there. A zero is not written.
func plainOptional(data []byte, name string) (value int64, rest []byte, ok bool) {
	if !bytes.HasPrefix(data, []byte(name)) {
		return 0, data, true
	}
	value, rest, ok = plainMember(data, name)
	return value, rest, ok && value != 0
}

// plainMember reads a number that is not negative, behind its name.
func plainMember(data []byte, name string) (value int64, rest []byte, ok bool) {
	const most = 18 // digits that fit into an int64, whatever they are
	data, ok = bytes.CutPrefix(data, []byte(name))
	n := 0
	for n < len(data) && n <= most && data[n] >= '0' && data[n] <= '9' {
		value = 10*value + int64(data[n]-'0')
		n++
	}
	return value, data[n:], ok && n > 0 && n <= most && (n == 1 || data[0] != '0')
}
