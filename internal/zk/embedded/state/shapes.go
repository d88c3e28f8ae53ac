package state

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// The records of very many leases differ in their numbers alone. A node that is created keeps the numbers of its data, and
// refers to the shape, the text around them, which is kept once for all nodes that have the same.
//
//	{"v":1,"owner":"a","ttl_ms":30000,"enqueued_ms":1763900000000}   the data
//	{"v":1,"owner":"a","ttl_ms":\x00,"enqueued_ms":\x00}             the shape
//	length of the data | id of the shape | 30000 | 1763900000000     what the node keeps, as varints
//
// Data that is written later is kept whole: few nodes are written to, and some of these again and again.
type shapes struct {
	list []shape
	ids  map[string]uint64 // by text
	free []uint64

	text, packed []byte // scratch
}

type shape struct {
	text string
	uses int // nodes, and changes that may be undone
}

const (
	maxShapes    = 1 << 12 // data of other shapes is kept whole
	maxShapeData = 512     // bytes; longer data is kept whole
	// A run of so few digits is a part of the shape, and one of so many, too: it would not fit into an uint64.
	fewDigits, manyDigits = 3, 19
	hole                  = 0 // stands for a number; data that has it is kept whole
)

// pack counts one more use of the data's shape. What it returns belongs to it until the next call. ok is false for data that
// must be kept whole.
func (s *shapes) pack(data []byte) (packed []byte, ok bool) {
	if len(data) > maxShapeData {
		return nil, false
	}
	text, numbers := s.text[:0], s.packed[:0]
	var head [2 * binary.MaxVarintLen64]byte
	numbers = append(numbers, head[:]...) // room for what is known later
	for i := 0; i < len(data); {
		run := digits(data[i:])
		switch {
		case data[i] == hole:
			return nil, false
		case run <= fewDigits || run >= manyDigits || data[i] == '0':
			run = max(run, 1)
			text = append(text, data[i:i+run]...)
		default:
			var number uint64
			for _, c := range data[i : i+run] {
				number = 10*number + uint64(c-'0')
			}
			text, numbers = append(text, hole), binary.AppendUvarint(numbers, number)
		}
		i += run
	}
	s.text, s.packed = text, numbers
	if len(numbers) == len(head) {
		return nil, false
	}
	id, ok := s.hold(text)
	if !ok {
		return nil, false
	}
	used := binary.AppendUvarint(binary.AppendUvarint(head[:0], uint64(len(data))), id)
	packed = numbers[len(head)-len(used):]
	copy(packed, used)
	return packed, true
}

// digits is how many there are at the beginning.
func digits(data []byte) int {
	for i, c := range data {
		if c < '0' || c > '9' {
			return i
		}
	}
	return len(data)
}

// hold counts one more use of a shape, which it adds when it is new and there is room.
func (s *shapes) hold(text []byte) (id uint64, ok bool) {
	if id, ok = s.ids[string(text)]; ok {
		s.list[id].uses++
		return id, true
	}
	added := shape{string(text), 1}
	if last := len(s.free) - 1; last >= 0 {
		id, s.free = s.free[last], s.free[:last]
		s.list[id] = added
	} else if id = uint64(len(s.list)); id < maxShapes {
		s.list = append(s.list, added)
	} else {
		return 0, false
	}
	s.ids[added.text] = id
	return id, true
}

// release takes back one use of the shape of packed data.
func (s *shapes) release(packed string) {
	_, rest := cutUvarint(packed)
	id, _ := cutUvarint(rest)
	shape := &s.list[id]
	if shape.uses--; shape.uses == 0 {
		delete(s.ids, shape.text)
		shape.text = ""
		s.free = append(s.free, id)
	}
}

// unpack appends the data that pack was given.
func (s *shapes) unpack(data []byte, packed string) []byte {
	length, rest := cutUvarint(packed)
	id, rest := cutUvarint(rest)
	data, text := slices.Grow(data, int(length)), s.list[id].text
	for rest != "" {
		var before string
		var number uint64
		before, text, _ = strings.Cut(text, string(rune(hole)))
		number, rest = cutUvarint(rest)
		data = strconv.AppendUint(append(data, before...), number, 10)
	}
	return append(data, text...)
}

// packedLength is the length of the data.
func packedLength(packed string) int {
	length, _ := cutUvarint(packed)
	return int(length)
}

// cutUvarint reads a varint that pack has written.
func cutUvarint(s string) (number uint64, rest string) {
	for shift := 0; ; shift += 7 {
		c := s[0]
		s = s[1:]
		number |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return number, s
		}
	}
}
