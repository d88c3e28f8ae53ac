package state

import (
	"errors"

	"lockkeeper/internal/zk/wire"
)

// Txn is one transaction in a form that can be applied again without deciding anything.
type Txn struct {
	Zxid    int64
	Time    int64 // milliseconds since the Unix epoch
	Session int64 // whose request it was; 0 for the server's own
	Ops     []TxnOp
	Err     wire.ErrCode // of a request that failed and changed nothing
}

// TxnOp is one change of a transaction.
type TxnOp struct{}

// AppendTo appends the binary form.
func (t *Txn) AppendTo(b []byte) []byte { return b }

// DecodeTxn reads what AppendTo wrote.
func DecodeTxn(b []byte) (*Txn, error) { return nil, errors.New("state: not implemented") }
