package wire

import (
	"encoding/binary"
	"errors"
)

// The ways in which bytes can fail to be a record.
var (
	ErrShort    = errors.New("wire: record ends early")
	ErrLength   = errors.New("wire: impossible length")
	ErrTrailing = errors.New("wire: bytes after the end of the record")
	ErrUnknown  = errors.New("wire: unknown operation")
)

// Record is a piece of the protocol that can be written and read.
type Record interface {
	// AppendTo appends the record's bytes to b.
	AppendTo(b []byte) []byte
	// Decode reads the record; the decoder remembers a failure.
	Decode(d *Decoder)
}

// AppendInt appends a 32-bit int.
func AppendInt(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

// AppendLong appends a 64-bit long.
func AppendLong(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// AppendBool appends a boolean: one byte.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendString appends a string, never a null one.
func AppendString(b []byte, s string) []byte { return append(AppendInt(b, int32(len(s))), s...) }

// AppendBuffer appends a buffer; nil is written as null.
func AppendBuffer(b, v []byte) []byte {
	if v == nil {
		return AppendInt(b, -1)
	}
	return append(AppendInt(b, int32(len(v))), v...)
}

// AppendStrings appends a vector of strings, never a null one.
func AppendStrings(b []byte, v []string) []byte {
	b = AppendInt(b, int32(len(v)))
	for _, s := range v {
		b = AppendString(b, s)
	}
	return b
}

// Decoder reads jute values from a byte slice. After a failure it yields zero values, and Err tells what the first
// failure was; so a record is decoded without a check per field.
type Decoder struct {
	b   []byte
	err error
}

// NewDecoder reads from b, which must not change meanwhile.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b} }

// Reset makes d read from b.
func (d *Decoder) Reset(b []byte) { d.b, d.err = b, nil }

// Err is the first failure, or nil.
func (d *Decoder) Err() error { return d.err }

// Len is the number of bytes not yet read; 0 after a failure.
func (d *Decoder) Len() int { return len(d.b) }

// Finish is Err, or ErrTrailing when something follows the record.
func (d *Decoder) Finish() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail(ErrTrailing)
	}
	return d.err
}

func (d *Decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

// Int reads a 32-bit int.
func (d *Decoder) Int() int32 {
	if len(d.b) < 4 {
		d.fail(ErrShort)
		return 0
	}
	v := int32(binary.BigEndian.Uint32(d.b))
	d.b = d.b[4:]
	return v
}

// Long reads a 64-bit long.
func (d *Decoder) Long() int64 {
	if len(d.b) < 8 {
		d.fail(ErrShort)
		return 0
	}
	v := int64(binary.BigEndian.Uint64(d.b))
	d.b = d.b[8:]
	return v
}

// Bool reads one byte; anything but 0 is true, as in Java's DataInput.
func (d *Decoder) Bool() bool {
	if len(d.b) < 1 {
		d.fail(ErrShort)
		return false
	}
	v := d.b[0] != 0
	d.b = d.b[1:]
	return v
}

// View reads a buffer or a string without copying it: a view into the input, nil when it is null.
func (d *Decoder) View() []byte {
	n := int(d.Int())
	switch {
	case d.err != nil || n == -1:
		return nil
	case n < 0:
		d.fail(ErrLength)
		return nil
	case n > len(d.b):
		d.fail(ErrShort)
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// String reads a string; a null one is "".
func (d *Decoder) String() string { return string(d.View()) }

// Count reads the length of a vector whose elements take at least size bytes each. A null vector counts 0, and so does
// one of any other negative length, as in Java. A count that the bytes left cannot hold is a failure, so a caller may
// allocate by it.
func (d *Decoder) Count(size int) int {
	n := int(d.Int())
	switch {
	case d.err != nil || n < 0:
		return 0
	case n > len(d.b)/size:
		d.fail(ErrShort)
		return 0
	}
	return n
}

// Strings reads a vector of strings; null and empty are both nil.
func (d *Decoder) Strings() []string {
	n := d.Count(4)
	if n == 0 {
		return nil
	}
	v := make([]string, 0, n)
	for range n {
		v = append(v, d.String())
	}
	return v
}
