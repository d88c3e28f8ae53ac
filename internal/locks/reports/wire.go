package reports

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// Reports travel in protobuf's wire format: numbered fields, so that an older release passes over those that it does not
// know. A zero field is left out.

// The numbers of a report's fields, and of those of its next holder. A number keeps its meaning for good.
const (
	fieldKind protowire.Number = iota + 1
	fieldLease
	fieldNS
	fieldLock
	fieldName
	fieldReason
	fieldWords
	fieldUnsure
	fieldStays
	fieldEnded
	fieldMode
	fieldOwner
	fieldToken
	fieldTTL
	fieldWaited
	fieldHeld
	fieldBeat
	fieldNext
	fieldZxid
	fieldBy
	fieldSeveral
	fieldPurpose
)

const (
	nextLease protowire.Number = iota + 1
	nextName
	nextOwner
	nextToken
	nextAfter
)

// Encode writes each report for itself.
func Encode(list []Report) [][]byte {
	const typical = 192
	lines, room := make([][]byte, 0, len(list)), make(message, 0, typical*len(list))
	for i := range list {
		from := len(room)
		room = room.report(&list[i])
		lines = append(lines, room[from:len(room):len(room)])
	}
	return lines
}

// message is what has been written of a message.
type message []byte

func (m message) text(n protowire.Number, s string) message {
	if s == "" {
		return m
	}
	return protowire.AppendString(protowire.AppendTag(m, n, protowire.BytesType), s)
}

func (m message) number(n protowire.Number, v int64) message {
	if v == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, n, protowire.VarintType), uint64(v))
}

func (m message) flag(n protowire.Number, is bool) message {
	if !is {
		return m
	}
	return m.number(n, 1)
}

func (m message) report(r *Report) message {
	m = m.text(fieldKind, string(r.Kind)).text(fieldLease, string(r.Lease)).text(fieldNS, r.NS).text(fieldLock, r.Lock).text(fieldName, r.Name)
	m = m.text(fieldReason, string(r.Reason)).text(fieldWords, r.Words).flag(fieldUnsure, r.Unsure).flag(fieldStays, r.Stays)
	m = m.number(fieldEnded, r.Ended).text(fieldMode, string(r.Mode)).text(fieldOwner, r.Owner).number(fieldToken, r.Token)
	m = m.number(fieldTTL, int64(r.TTL)).number(fieldWaited, int64(r.Waited)).number(fieldHeld, int64(r.Held)).number(fieldBeat, int64(r.Beat))
	if n := r.Next; n != nil {
		next := message{}.text(nextLease, string(n.Lease)).text(nextName, n.Name).text(nextOwner, n.Owner).number(nextToken, n.Token).number(nextAfter, int64(n.After))
		m = protowire.AppendBytes(protowire.AppendTag(m, fieldNext, protowire.BytesType), next)
	}
	return m.number(fieldZxid, r.Zxid).text(fieldBy, r.By).flag(fieldSeveral, r.Several).text(fieldPurpose, r.Purpose)
}

// Decode reads what Encode has written. It skips what is invalid: a newer release may have sent it.
func Decode(lines [][]byte) []Report {
	list := make([]Report, 0, len(lines))
	for _, line := range lines {
		var r Report
		if fields(string(line), r.set) && r.valid() {
			list = append(list, r)
		}
	}
	return list
}

// fields calls set with each field of a message, a text or a number. It reports whether it was a message.
func fields(all string, set func(n protowire.Number, text string, number int64)) bool {
	for b := []byte(all); len(b) > 0; {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return false
		}
		b = b[size:]
		switch kind {
		case protowire.BytesType:
			v, size := protowire.ConsumeBytes(b)
			if size < 0 {
				return false
			}
			b = b[size:]
			end := len(all) - len(b)
			set(n, all[end-len(v):end], 0) // all texts of a report are parts of one string
		case protowire.VarintType:
			v, size := protowire.ConsumeVarint(b)
			if size < 0 {
				return false
			}
			b = b[size:]
			set(n, "", int64(v))
		default:
			size := protowire.ConsumeFieldValue(n, kind, b)
			if size < 0 {
				return false
			}
			b = b[size:]
		}
	}
	return true
}

func (r *Report) set(n protowire.Number, text string, number int64) {
	switch n {
	case fieldKind:
		r.Kind = Kind(text)
	case fieldLease:
		r.Lease = recipe.LeaseID(text)
	case fieldNS:
		r.NS = text
	case fieldLock:
		r.Lock = text
	case fieldName:
		r.Name = text
	case fieldReason:
		r.Reason = locks.Reason(text)
	case fieldWords:
		r.Words = text
	case fieldUnsure:
		r.Unsure = number != 0
	case fieldStays:
		r.Stays = number != 0
	case fieldEnded:
		r.Ended = number
	case fieldMode:
		r.Mode = locks.Mode(text)
	case fieldOwner:
		r.Owner = text
	case fieldToken:
		r.Token = number
	case fieldTTL:
		r.TTL = time.Duration(number)
	case fieldWaited:
		r.Waited = time.Duration(number)
	case fieldHeld:
		r.Held = time.Duration(number)
	case fieldBeat:
		r.Beat = time.Duration(number)
	case fieldNext:
		r.Next = &Next{}
		if !fields(text, r.Next.set) {
			r.Next.After = -1 // not valid
		}
	case fieldZxid:
		r.Zxid = number
	case fieldBy:
		r.By = text
	case fieldSeveral:
		r.Several = number != 0
	case fieldPurpose:
		r.Purpose = text
	}
}

func (n *Next) set(field protowire.Number, text string, number int64) {
	switch field {
	case nextLease:
		n.Lease = recipe.LeaseID(text)
	case nextName:
		n.Name = text
	case nextOwner:
		n.Owner = text
	case nextToken:
		n.Token = number
	case nextAfter:
		n.After = time.Duration(number)
	}
}
