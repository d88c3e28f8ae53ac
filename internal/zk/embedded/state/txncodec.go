package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"lockkeeper/internal/zk/wire"
)

// txnVersion is the first byte of the binary form. Readers refuse versions that they do not know.
const txnVersion = 1

// AppendTo appends the binary form: the version, then numbers as varints, and strings behind their lengths.
//
//	version | zxid | time | session | error | number of changes | changes
//
// A change is its kind and the fields of that kind. Null data has length 0, other data its length and one more. An ACL is
// the number of its entries and the entries; 0 stands for the one that gives every client all rights.
func (t *Txn) AppendTo(b []byte) []byte {
	b = append(b, txnVersion)
	b = binary.AppendUvarint(b, uint64(t.Zxid))
	b = binary.AppendVarint(b, t.Time)
	b = binary.AppendUvarint(b, uint64(t.Session))
	b = binary.AppendVarint(b, int64(t.Err))
	b = binary.AppendUvarint(b, uint64(len(t.Ops)))
	for i := range t.Ops {
		b = t.Ops[i].appendTo(b)
	}
	return b
}

func (o *TxnOp) appendTo(b []byte) []byte {
	b = append(b, byte(o.Kind))
	switch o.Kind {
	case TxnCreate:
		b = appendData(appendText(b, o.Path), o.Data)
		b = appendACL(b, o.ACL)
		b = binary.AppendUvarint(b, uint64(o.Owner))
		b = binary.AppendVarint(b, int64(o.Version))
	case TxnDelete:
		b = appendText(b, o.Path)
	case TxnSetData:
		b = appendData(appendText(b, o.Path), o.Data)
		b = binary.AppendVarint(b, int64(o.Version))
	case TxnSetACL:
		b = appendACL(appendText(b, o.Path), o.ACL)
		b = binary.AppendVarint(b, int64(o.Version))
	case TxnOpenSession:
		b = binary.AppendVarint(b, int64(o.Timeout))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendData(b, data []byte) []byte {
	return appendStored(b, data, data == nil)
}

// appendStored is appendData for what a node has.
func appendStored[D []byte | string](b []byte, data D, null bool) []byte {
	if null {
		return binary.AppendUvarint(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(data))+1), data...)
}

func appendACL(b []byte, acl []wire.ACL) []byte {
	if slices.Equal(acl, everyone) {
		return binary.AppendUvarint(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(acl)))
	for _, a := range acl {
		b = appendText(appendText(binary.AppendVarint(b, int64(a.Perms)), a.Scheme), a.ID)
	}
	return b
}

var errTxn = errors.New("state: damaged transaction")

// DecodeTxn reads what AppendTo wrote, all of b. The result keeps nothing of b.
func DecodeTxn(b []byte) (*Txn, error) {
	if len(b) > 0 && b[0] != txnVersion {
		return nil, fmt.Errorf("state: transaction of version %d, but only %d is known", b[0], txnVersion)
	}
	if len(b) == 0 {
		return nil, errTxn
	}
	r := txnReader{b: b[1:]}
	t := &Txn{Zxid: int64(r.uvarint()), Time: r.varint(), Session: int64(r.uvarint()), Err: wire.ErrCode(r.int32())}
	// The count is not trusted with memory: a change takes one byte at least here, and many in memory.
	count := r.uvarint()
	if count > uint64(len(r.b)) {
		return nil, errTxn
	}
	if count > 0 {
		t.Ops = make([]TxnOp, 0, min(count, uint64(len(r.b)/8+1)))
	}
	for ; count > 0 && !r.bad; count-- {
		t.Ops = append(t.Ops, r.op())
	}
	if r.bad || len(r.b) > 0 {
		return nil, errTxn
	}
	return t, nil
}

// txnReader takes values off b; bad tells that there was something wrong.
type txnReader struct {
	b   []byte
	bad bool
}

func (r *txnReader) fail() { r.b, r.bad = nil, true }

func (r *txnReader) op() TxnOp {
	kind := r.bytes(1)
	if r.bad {
		return TxnOp{}
	}
	o := TxnOp{Kind: TxnKind(kind[0])}
	switch o.Kind {
	case TxnCreate:
		o.Path, o.Data, o.ACL, o.Owner, o.Version = r.text(), r.data(), r.acl(), int64(r.uvarint()), r.int32()
	case TxnDelete:
		o.Path = r.text()
	case TxnSetData:
		o.Path, o.Data, o.Version = r.text(), r.data(), r.int32()
	case TxnSetACL:
		o.Path, o.ACL, o.Version = r.text(), r.acl(), r.int32()
	case TxnOpenSession:
		o.Timeout = r.int32()
	case TxnCloseSession:
	default:
		r.fail()
	}
	return o
}

func (r *txnReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *txnReader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *txnReader) int32() int32 {
	v := r.varint()
	if v != int64(int32(v)) {
		r.fail()
	}
	return int32(v)
}

func (r *txnReader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) || r.bad {
		r.fail()
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *txnReader) text() string { return string(r.bytes(r.uvarint())) }

func (r *txnReader) data() []byte {
	data, null := r.stored()
	if null {
		return nil
	}
	return append([]byte{}, data...)
}

// stored is data that is not copied.
func (r *txnReader) stored() (data []byte, null bool) {
	n := r.uvarint()
	if n == 0 {
		return nil, true
	}
	return r.bytes(n - 1), false
}

func (r *txnReader) acl() []wire.ACL {
	n := r.uvarint()
	if n == 0 {
		return everyone
	}
	if n > uint64(len(r.b)/3) {
		r.fail()
		return nil
	}
	acl := make([]wire.ACL, 0, n)
	for range n {
		acl = append(acl, wire.ACL{Perms: r.int32(), Scheme: r.text(), ID: r.text()})
	}
	return acl
}
