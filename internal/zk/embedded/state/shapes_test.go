package state

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

func newShapes() *shapes { return &newState(Config{}).tree.shapes }

func TestDataIsPackedByItsShape(t *testing.T) {
	record := `{"v":1,"owner":"a","ttl_ms":30000,"enqueued_ms":1763900000000}`
	for data, shape := range map[string]string{
		record:                      "{\"v\":1,\"owner\":\"a\",\"ttl_ms\":\x00,\"enqueued_ms\":\x00}",
		"1234":                      "\x00",
		"a1234b56789":               "a\x00b\x00",
		"x-0001234-1234":            "x-0001234-\x00", // what begins with a zero would lose it
		"999999999999999999,123":    "\x00,123",
		"12345 1234567890123456789": "\x00 1234567890123456789", // and not every uint64 has so many
	} {
		s := newShapes()
		packed, ok := s.pack([]byte(data))
		assert.Must(t, ok, "%q is not packed", data)
		assert.Equal(t, s.list[0].text, shape)
		kept := string(packed)
		assert.Equal(t, string(s.unpack(nil, kept)), data)
		assert.Equal(t, packedLength(kept), len(data))
		s.release(kept)
		assert.Equal(t, len(s.ids), 0)
	}
	s := newShapes()
	for _, data := range []string{"", "abc", "123", "0123456", "1234\x00", string(make([]byte, 600)), record + string(bytes.Repeat([]byte("x"), maxShapeData))} {
		_, ok := s.pack([]byte(data))
		assert.That(t, !ok && len(s.list) == 0, "%q is packed", data)
	}
	packed, _ := s.pack([]byte(record))
	assert.That(t, len(packed) <= 2+3+6, "a record takes %d bytes", len(packed))
}

func TestShapesAreBounded(t *testing.T) {
	s := newShapes()
	shaped := func(i int) []byte {
		return fmt.Appendf(nil, "%c%c:1234", 'a'+i%26, 'a'+i/26)
	}
	first, _ := s.pack(shaped(0))
	kept := string(first)
	for i := 1; i < maxShapes; i++ {
		_, ok := s.pack(shaped(i))
		assert.Must(t, ok, "shape %d", i)
	}
	_, ok := s.pack(shaped(maxShapes))
	assert.That(t, !ok, "there is room for one more shape than %d", maxShapes)
	_, ok = s.pack(shaped(0))
	assert.That(t, ok, "a shape that is known finds no room")
	s.release(kept)
	s.release(kept)
	again, ok := s.pack(shaped(maxShapes))
	assert.Must(t, ok, "the place of a shape that has gone is not used again")
	assert.Slices(t, s.unpack(nil, string(again)), shaped(maxShapes))
}

func FuzzShapes(f *testing.F) {
	for _, data := range []string{`{"v":1,"ttl_ms":30000}`, "0000", "18446744073709551615", "9223372036854775807a10000"} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newShapes()
		packed, ok := s.pack(data)
		if !ok {
			assert.Equal(t, len(s.list), 0)
			return
		}
		kept := string(packed)
		assert.Slices(t, s.unpack(nil, kept), data)
		assert.Equal(t, packedLength(kept), len(data))
		s.release(kept)
		assert.Equal(t, len(s.ids), 0)
	})
}

// TestANodeKeepsItsShapeUntilItHasGone changes a node of a shape in each way, and undoes each change.
func TestANodeKeepsItsShapeUntilItHasGone(t *testing.T) {
	r := newRig(t)
	c := r.client(1)
	record := []byte(`{"v":1,"ttl_ms":30000}`)
	create := func(path string) *wire.CreateRequest {
		return &wire.CreateRequest{Path: path, Data: record, ACL: everyone}
	}
	fails := wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: "/none", Version: -1}}
	do := func(ops ...wire.MultiOp) {
		c.s.Request(c.conn, 1, wire.RequestHeader{Op: wire.OpMulti}, multi(ops...).AppendTo(nil))
		check(t, r.s)
	}
	uses := func() int { return r.s.tree.shapes.list[0].uses }

	do(wire.MultiOp{Op: wire.OpCreate, Record: create("/a")})
	assert.Equal(t, uses(), 1)
	do(wire.MultiOp{Op: wire.OpCreate, Record: create("/b")}, fails)
	assert.Equal(t, uses(), 1)
	do(wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: "/a", Version: -1}}, fails)
	assert.Equal(t, uses(), 1)
	set := wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/a", Data: []byte("other"), Version: -1}}
	do(set, set, fails)
	assert.Equal(t, uses(), 1)
	assert.Slices(t, r.s.tree.data(r.s.tree.find("/a")), record)

	snapshot := r.s.BeginSnapshot() // it has the data from before, though the shape has gone
	do(set)
	assert.Equal(t, uses(), 0)
	piece, last := snapshot.Next(nil, math.MaxInt)
	assert.Must(t, last, "the snapshot is not over")
	assert.That(t, bytes.Contains(piece, record), "the snapshot lacks the record")

	do(wire.MultiOp{Op: wire.OpCreate, Record: create("/b")})
	assert.Equal(t, uses(), 1)
	do(wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: "/b", Version: -1}})
	assert.Equal(t, uses(), 0)
}
