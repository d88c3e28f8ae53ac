package disk

import (
	"errors"
	"os"

	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
)

// Load implements embedded.Storage.
func (s *Store) Load(r embedded.Recovery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := s.file.Stat()
	if errors.Is(err, os.ErrClosed) {
		err = ErrClosed
	}
	if err != nil {
		return &Error{Path: s.path, Err: err}
	}
	c, err := readContents(s.file, info.Size())
	if err != nil {
		return refuse(s.path, err)
	}
	c.pending = &s.pending
	return refuse(s.path, c.scan(visitor{
		piece: r.Piece,
		txn: func(zxid int64, data []byte) error {
			txn, err := decodeTxn(zxid, data)
			if err != nil {
				return err
			}
			return r.Txn(txn)
		},
	}))
}

// decodeTxn reads a transaction whose checksum was right.
func decodeTxn(zxid int64, data []byte) (*state.Txn, error) {
	txn, err := state.DecodeTxn(data)
	if err != nil {
		return nil, damaged("transaction %#x: %v", zxid, err)
	}
	if txn.Zxid != zxid {
		return nil, damaged("transaction %#x is where %#x should be", txn.Zxid, zxid)
	}
	return txn, nil
}

var _ embedded.Storage = (*Store)(nil)
