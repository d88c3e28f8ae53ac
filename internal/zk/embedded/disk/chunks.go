package disk

import (
	"encoding/binary"
	"iter"

	bolt "go.etcd.io/bbolt"

	"lockkeeper/internal/zk/embedded/state"
)

// batchBuffer is memory for one batch and its chunks, used again for the next. bbolt keeps the values of a transaction until
// it is committed, so the chunks of a batch and those of its piece have a buffer each.
type batchBuffer struct {
	txn, stream []byte
	txns, piece []byte
}

// maxKept is how much memory is kept for the next batch: more than all but the rarest need.
const maxKept = 1 << 20

// encode gives the chunks of a batch: the number of transactions, and each behind its length.
func (b *batchBuffer) encode(txns []*state.Txn) []byte {
	b.stream = binary.AppendUvarint(b.stream[:0], uint64(len(txns)))
	for _, txn := range txns {
		b.txn = txn.AppendTo(b.txn[:0])
		b.stream = append(binary.AppendUvarint(b.stream, uint64(len(b.txn))), b.txn...)
	}
	b.txns = spaceOut(b.txns[:0], b.stream)
	out := b.txns
	if cap(b.stream) > maxKept {
		b.txn, b.stream, b.txns = nil, nil, nil
	}
	return out
}

// space gives the chunks of a piece.
func (b *batchBuffer) space(data []byte) []byte {
	b.piece = spaceOut(b.piece[:0], data)
	out := b.piece
	if cap(out) > maxKept {
		b.piece = nil
	}
	return out
}

// spaceOut copies data so that there is room for a checksum before each chunk. There is one chunk at least.
func spaceOut(b, data []byte) []byte {
	for {
		n := min(len(data), chunkData)
		b = append(append(b, 0, 0, 0, 0), data[:n]...)
		if data = data[n:]; len(data) == 0 {
			return b
		}
	}
}

// sealChunks puts its checksum before each chunk of spaced data, and goes on in the chain of them.
func sealChunks(spaced []byte, chain *uint32, size *int64, key func(chunk uint32) []byte) {
	for i, value := range chunks(spaced) {
		*chain = chunkSum(*chain, key(i), value[4:])
		binary.BigEndian.PutUint32(value, *chain)
		*size += int64(len(value)-4) + chunkCost
	}
}

// putChunks stores sealed chunks.
func putChunks(bucket *bolt.Bucket, sealed []byte, key func(chunk uint32) []byte) error {
	bucket.FillPercent = 1 // keys only rise: a page that is full stays so
	for i, value := range chunks(sealed) {
		if err := bucket.Put(key(i), value); err != nil {
			return err
		}
	}
	return nil
}

// chunks yields the chunks of spaced data, with their checksums, by their numbers.
func chunks(spaced []byte) iter.Seq2[uint32, []byte] {
	return func(yield func(uint32, []byte) bool) {
		for i := uint32(0); len(spaced) > 0; i++ {
			n := min(len(spaced), 4+chunkData)
			if !yield(i, spaced[:n]) {
				return
			}
			spaced = spaced[n:]
		}
	}
}
